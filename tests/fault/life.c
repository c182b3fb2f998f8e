/* life.c - see life.h. It has no checks and no output, so davy makes all allocations in it. */
#include "tests/fault/life.h"

#include <stdlib.h>
#include <string.h>

enum { WIDTH = 13, HEIGHT = 11 };

void life_begin(life *l, const davy_api *api, davy_context *ctx) {
    memset(l, 0, sizeof *l);
    l->api = api;
    l->ctx = ctx;
    l->file = synth_compact(8, 1, 2, 5);
    l->source = (davy_source){.struct_size = sizeof l->source,
                              .name = "small.safetensors",
                              .data = l->file.data,
                              .data_bytes = l->file.bytes};
    l->in = picture_new(1, HEIGHT, WIDTH, 3);
    l->out = picture_new(1, 2 * HEIGHT, 2 * WIDTH, 3);
    l->want = picture_new(1, 2 * HEIGHT, 2 * WIDTH, 3);
    picture_fill(&l->in, 6);
    if (ctx != NULL && life_live(l) == DAVY_OK) {
        memcpy(l->want.v, l->out.v, (size_t)picture_count(&l->out) * sizeof *l->out.v);
    }
}

const int life_ways = 3;

void life_end(life *l) {
    free(l->file.data);
    picture_free(&l->in);
    picture_free(&l->out);
    picture_free(&l->want);
}

/* The job holds its error. An error without a record counts as a different error. */
static davy_result run_job(life *l, davy_model *m, const davy_tensor *src, davy_tensor *dst) {
    davy_job *job = NULL;
    davy_result r = l->api->upscale(m, src, dst, l->run, &job);
    if (r == DAVY_OK) {
        davy_error_info info = {.struct_size = sizeof info};
        r = l->api->job_wait(job, UINT64_MAX);
        if (l->api->job_error(job, &info) != DAVY_OK || info.code != r || (r < 0) != (info.message[0] != '\0')) {
            r = DAVY_E_INTERNAL;
        }
        l->api->job_release(job);
    }
    return r;
}

static davy_result run_frame(life *l, davy_model *m, const davy_tensor *src, davy_tensor *dst) {
    const davy_api *api = l->api;
    const davy_sequence_desc desc = {
        .struct_size = sizeof desc, .op = DAVY_OP_UPSCALE, .input = src, .run = l->run, .max_in_flight = 2};
    davy_sequence *s = NULL;
    davy_result r = api->sequence_open(m, &desc, &s);
    r = r == DAVY_OK ? api->sequence_push(s, src, UINT64_MAX) : r;
    r = r == DAVY_OK ? api->sequence_pull(s, dst, UINT64_MAX) : r;
    api->sequence_release(s);
    return r;
}

davy_result life_live(life *l) {
    const davy_api *api = l->api;
    davy_model *m = NULL;
    const davy_model_desc desc = {.struct_size = sizeof desc, .sources = &l->source, .n_sources = 1};
    const davy_tensor src = host_tensor(&l->in);
    davy_tensor dst = host_tensor(&l->out);
    const davy_query q = {.struct_size = sizeof q, .op = DAVY_OP_UPSCALE, .input = &src, .run = l->run};
    davy_model_info info = {.struct_size = sizeof info};
    davy_plan_info plan = {.struct_size = sizeof plan};
    memset(l->out.v, 0, (size_t)picture_count(&l->out) * sizeof *l->out.v);
    davy_result r = api->model_open(l->ctx, &desc, &m);
    if (r == DAVY_OK) {
        r = api->model_info(m, &info);
    }
    if (r == DAVY_OK) {
        r = api->plan_query(m, &q, &plan);
    }
    if (r == DAVY_OK) {
        r = api->model_load(m, NULL, NULL);
    }
    if (r == DAVY_OK) {
        r = l->as_job     ? run_job(l, m, &src, &dst)
            : l->as_frame ? run_frame(l, m, &src, &dst)
                          : api->upscale(m, &src, &dst, l->run, NULL);
    }
    api->model_release(m);
    return r;
}

bool life_right(const life *l, double bound) {
    return picture_max_error(&l->out, &l->want) <= bound;
}
