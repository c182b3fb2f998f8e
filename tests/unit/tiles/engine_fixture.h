/* engine_fixture.h - an engine with fake or shipped weights and its own services, and runs of it on generated pictures. */
#ifndef DV_TESTS_ENGINE_FIXTURE_H
#define DV_TESTS_ENGINE_FIXTURE_H

#include <math.h>
#include <stdlib.h>

#include "core/tiles/engine.h"
#include "core/base/error.h"
#include "core/base/os.h"
#include "tests/check.h"
#include "tests/last_error.h"
#include "tests/unit/arch/fake_networks.h"

typedef struct fixture {
    dv_services services;
    dv_engine *engine;
    float *data; /* of fake weights */
} fixture;

typedef struct fixture_spec {
    dv_tensors *tensors; /* fake: taken over. NULL: path */
    const char *path;
    int32_t threads;
    uint32_t cpu;
    uint64_t budget;
    davy_dtype compute;
} fixture_spec;

static inline void fixture_close(fixture *f) {
    dv_engine_release(f->engine);
    if (f->services.heap != NULL) {
        CHECKF(dv_heap_used(f->services.heap, DV_MEM_WEIGHTS) + dv_heap_used(f->services.heap, DV_MEM_WORKSPACE) == 0,
               "memory is left in the heap");
    }
    dv_pool_release(f->services.pool);
    dv_heap_release(f->services.heap);
    free(f->data);
    *f = (fixture){0};
}

static inline dv_tensors *open_weights(const char *path) {
    const dv_open_options options = {0};
    dv_source *source = NULL;
    dv_tensors *t = NULL;
    if (dv_source_open_path(path, true, &source) != DAVY_OK || dv_tensors_open(source, &options, &t) != DAVY_OK ||
        dv_tensors_unwrap(t) != DAVY_OK) {
        dv_tensors_release(t);
        t = NULL;
    }
    dv_source_release(source);
    return t;
}

/* Returns 0 after a failed check. */
static inline int fixture_open(fixture *f, const fixture_spec *spec) {
    *f = (fixture){0};
    dv_tensors *t = spec->tensors;
    f->services.cpu = spec->cpu;
    f->services.heap = dv_heap_create(NULL, spec->budget);
    if (t != NULL) {
        CHECK(fake_fill(t, &f->data));
    } else {
        t = open_weights(spec->path);
    }
    const dv_engine_desc desc = {
        .services = &f->services, .tensors = t, .file_name = "fixture", .compute = spec->compute};
    if (!CHECKF(t != NULL && f->services.heap != NULL && dv_pool_create(spec->threads, &f->services.pool) == DAVY_OK &&
                    dv_engine_create(&desc, &f->engine) == DAVY_OK,
                "engine: %s", last_error())) {
        dv_tensors_release(t);
        fixture_close(f);
        return 0;
    }
    return 1;
}

/* A picture of waves: a shift or a swap of axes changes it. */
static inline float *made_up(int64_t c, int64_t h, int64_t w) {
    float *p = malloc((size_t)(c * h * w) * sizeof *p);
    for (int64_t i = 0; p != NULL && i < c * h * w; i++) {
        const double x = (double)(i % w);
        const double y = (double)(i / w % h);
        const double k = (double)(i / (w * h));
        p[i] = (float)(0.5 + 0.3 * sin(0.37 * x + 0.11 * y + k) + 0.2 * cos(0.05 * x * (1.0 + 0.1 * k) - 0.23 * y));
    }
    return p;
}

static inline dvk_image planes(void *data, int64_t c, int64_t h, int64_t w) {
    return (dvk_image){.data = data,
                       .dtype = DVK_F32,
                       .channels = (int32_t)c,
                       .n = 1,
                       .h = h,
                       .w = w,
                       .sh = w * 4,
                       .sw = 4,
                       .sc = h * w * 4,
                       .identity_map = 1};
}

typedef struct result {
    float *data; /* [c][h][w] */
    int64_t c, h, w;
    davy_plan_info info;
} result;

typedef struct question {
    dv_stage stage;
    int64_t c, h, w;
    dv_tiling tiling;
    dv_control control;
    bool grey;
} question;

/* The network's output for a generated picture. r->data is NULL unless the result is DAVY_OK. */
static inline davy_result ask(const fixture *f, const question *q, result *r) {
    *r = (result){.info = {.struct_size = sizeof r->info}};
    davy_result code = dv_engine_plan(
        f->engine, &(dv_batch_desc){.stage = q->stage, .h = q->h, .w = q->w, .tiling = &q->tiling}, &r->info);
    if (code != DAVY_OK) {
        return code;
    }
    r->h = r->info.shape[0];
    r->w = r->info.shape[1];
    r->c = q->grey ? 1 : r->info.shape[2];
    float *in = made_up(q->c, q->h, q->w);
    r->data = calloc((size_t)(r->c * r->h * r->w), sizeof *r->data);
    const dv_work work = {.stage = q->stage,
                          .in = planes(in, q->c, q->h, q->w),
                          .out = planes(r->data, r->c, r->h, r->w),
                          .in_mul = 1.0f,
                          .out_mul = 1.0f,
                          .grey = q->grey,
                          .tiling = q->tiling,
                          .control = q->control};
    code = in != NULL && r->data != NULL ? dv_engine_run(f->engine, &work) : DAVY_E_NOMEM_HOST;
    free(in);
    if (code != DAVY_OK) {
        free(r->data);
        r->data = NULL;
    }
    return code;
}

static inline int same_bits(const result *a, const result *b) {
    return a->data != NULL && b->data != NULL && a->c == b->c && a->h == b->h && a->w == b->w &&
           memcmp(a->data, b->data, (size_t)(a->c * a->h * a->w) * sizeof *a->data) == 0;
}

/* ||a - b|| / ||b||; huge if they cannot be compared. */
static inline double relative(const result *a, const result *b) {
    double difference = 0.0;
    double norm = 0.0;
    if (a->data == NULL || b->data == NULL || a->c != b->c || a->h != b->h || a->w != b->w) {
        return 1e30;
    }
    for (int64_t i = 0; i < a->c * a->h * a->w; i++) {
        const double d = (double)a->data[i] - (double)b->data[i];
        difference += d * d;
        norm += (double)b->data[i] * (double)b->data[i];
    }
    return sqrt(difference / norm);
}

#endif
