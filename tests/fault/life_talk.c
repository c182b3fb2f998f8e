/* life_talk.c - the life of a conversation: opens a captioning model, then picture, question, answer, video, rewind, captions of
 * several pictures, and releases all. It replaces life.c and also has no checks and no output. The model is the folder
 * DAVY_TALK_MODEL. */
#include <stdlib.h>
#include <string.h>

#include "tests/fault/life.h"

enum { WIDTH = 24, HEIGHT = 16, FRAMES = 4, PICTURES = 4, ROOM = 4096 };

static char said[ROOM], wanted[ROOM];

void life_begin(life *l, const davy_api *api, davy_context *ctx) {
    memset(l, 0, sizeof *l);
    l->api = api;
    l->ctx = ctx;
    l->source = (davy_source){.struct_size = sizeof l->source, .path = getenv("DAVY_TALK_MODEL")};
    l->in = picture_new(FRAMES, HEIGHT, WIDTH, 3);
    picture_fill(&l->in, 6);
    if (ctx != NULL && life_live(l) == DAVY_OK) {
        memcpy(wanted, said, sizeof said);
    }
}

const int life_ways = 2;

void life_end(life *l) {
    picture_free(&l->in);
}

bool life_right(const life *l, double bound) {
    (void)l;
    (void)bound;
    return wanted[0] != '\0' && strcmp(said, wanted) == 0;
}

static davy_result keep(const davy_api *api, davy_text *text) {
    const char *utf8 = NULL;
    uint64_t bytes = 0;
    const davy_result r = api->text_get(text, &utf8, &bytes);
    const size_t n = strlen(said);
    if (r == DAVY_OK && n + bytes + 2 < ROOM) {
        memcpy(said + n, utf8, (size_t)bytes);
        memcpy(said + n + bytes, "|", 2);
    }
    return r;
}

/* The first `frames` pictures: one, or a video. */
static davy_tensor shown(const life *l, int64_t frames) {
    davy_tensor t = host_tensor(&l->in);
    const int64_t shape[6] = {1, frames, HEIGHT, WIDTH, 3};
    t.layout = DAVY_LAYOUT_NTHWC;
    t.ndim = 5;
    memcpy(t.shape, shape, sizeof shape);
    memset(t.stride_bytes, 0, sizeof t.stride_bytes);
    return t;
}

/* The job holds its error. An error without a record counts as a different error. */
static davy_result wait_for(const davy_api *api, davy_job *job, davy_result r) {
    if (r == DAVY_OK && job != NULL) {
        davy_error_info info = {.struct_size = sizeof info};
        r = api->job_wait(job, UINT64_MAX);
        if (api->job_error(job, &info) != DAVY_OK || info.code != r || (r < 0) != (info.message[0] != '\0')) {
            r = DAVY_E_INTERNAL;
        }
    }
    api->job_release(job);
    return r;
}

static davy_result turn(const life *l, davy_dialogue *d, int64_t frames, const char *question) {
    const davy_api *api = l->api;
    const davy_caption_params p = {
        .struct_size = sizeof p, .max_tokens = 3, .repeat_penalty = 1.1f, .no_repeat_ngram = 3};
    const davy_tensor image = shown(l, frames);
    davy_token_event e = {.struct_size = sizeof e};
    davy_job *job = NULL;
    davy_text *text = NULL;
    davy_result r = frames > 0 ? api->dialogue_add_image(d, &image) : DAVY_OK;
    if (r == DAVY_OK) {
        r = api->dialogue_add_text(d, DAVY_ROLE_USER, question);
    }
    if (r == DAVY_OK) {
        r = api->dialogue_generate(d, &p, NULL, l->as_job ? &job : NULL);
        r = wait_for(api, job, r);
    }
    while (r == DAVY_OK && api->dialogue_read(d, &e, 0) == DAVY_OK) {
    }
    if (r == DAVY_OK) {
        r = api->dialogue_text(d, &text);
    }
    if (r == DAVY_OK) {
        r = keep(api, text);
    }
    api->text_release(text);
    return r;
}

static davy_result talk(const life *l, davy_model *m) {
    static const char *const stop[] = {"stop here"};
    const davy_caption_params p = {.struct_size = sizeof p,
                                   .max_tokens = 4,
                                   .context_tokens = 200,
                                   .system = "Be brief.",
                                   .stop = stop,
                                   .n_stop = 1};
    davy_dialogue *d = NULL;
    davy_result r = l->api->dialogue_open(m, &p, &d);
    if (r == DAVY_OK) {
        r = turn(l, d, 1, "What?");
    }
    if (r == DAVY_OK) {
        r = turn(l, d, 0, "And then?");
    }
    if (r == DAVY_OK) {
        r = l->api->dialogue_rewind(d, 1);
    }
    if (r == DAVY_OK) {
        r = turn(l, d, FRAMES, "Now?");
    }
    l->api->dialogue_release(d);
    return r;
}

/* Several pictures at once; after a failure the call returns the finished answers. */
static davy_result several(const life *l, davy_model *m) {
    const davy_api *api = l->api;
    const davy_caption_params p = {
        .struct_size = sizeof p, .max_tokens = 2, .context_tokens = 128, .flags = DAVY_CAPTION_PARTIAL};
    davy_tensor t = shown(l, 1);
    const davy_tensor *images[PICTURES];
    davy_text *texts[PICTURES] = {NULL};
    davy_job *job = NULL;
    for (int i = 0; i < PICTURES; i++) {
        images[i] = &t;
    }
    davy_result r = api->caption(m, PICTURES, images, &p, NULL, l->as_job ? &job : NULL, texts);
    r = wait_for(api, job, r);
    for (int i = 0; i < PICTURES; i++) {
        davy_dialogue_info info = {.struct_size = sizeof info};
        r = r == DAVY_OK ? keep(api, texts[i]) : r;
        r = r == DAVY_OK ? api->caption_info(texts[i], &info) : r;
        r = r == DAVY_OK && info.generated_tokens == 0 ? DAVY_E_INTERNAL : r;
        api->text_release(texts[i]);
    }
    return r;
}

davy_result life_live(life *l) {
    davy_model *m = NULL;
    const davy_model_desc desc = {.struct_size = sizeof desc,
                                  .sources = &l->source,
                                  .n_sources = 1,
                                  .task = DAVY_TASK_CAPTION,
                                  .compute = DAVY_DTYPE_F32};
    said[0] = '\0';
    davy_result r = l->api->model_open(l->ctx, &desc, &m);
    if (r == DAVY_OK) {
        r = talk(l, m);
    }
    if (r == DAVY_OK) {
        r = several(l, m);
    }
    l->api->model_release(m);
    return r;
}
