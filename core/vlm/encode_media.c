/* encode_media.c - encodes pictures and videos for a dialogue: their vectors, and their description for the prompt. */
#include <string.h>

#include "core/base/error.h"
#include "core/vlm/session.h"

/* Prepares patches and runs the tower. A GPU normalises bytes itself, so the upload is a quarter of the size. */
static davy_result see(const dv_vlm_model *m, const dv_rgb8 *pictures, const dv_session_options *cancel,
                       dv_encoded *s) {
    const dv_picture_work work = {.pool = m->pool, .cpu = m->cpu};
    const dv_vision_desc vision = {.config = &m->config,
                                   .weights = m->weights,
                                   .heap = m->heap,
                                   .pool = m->pool,
                                   .gpu = m->gpu,
                                   .cpu = m->cpu,
                                   .compute = m->compute,
                                   .cancel = cancel != NULL ? cancel->cancel : NULL,
                                   .user = cancel != NULL ? cancel->user : NULL};
    const bool in_bytes = dv_vision_takes_bytes(m->weights);
    void *memory = NULL;
    float table[3][256];
    dv_space space = {.heap = m->heap};
    const dv_space_part part = {&memory,
                                (uint64_t)(s->plan.patches * s->plan.patch_values) * (in_bytes ? 1 : sizeof(float))};
    davy_result r = dv_space_take(&space, "a picture's patches", &part, 1);
    dv_patches patches = {
        .numbers = in_bytes ? NULL : memory, .bytes = in_bytes ? memory : NULL, .table = (const float(*)[256])table};
    if (r == DAVY_OK && in_bytes) {
        dv_picture_table(&m->config, table);
        r = dv_picture_bytes(&m->config, &s->plan, &work, pictures, memory);
    } else if (r == DAVY_OK) {
        r = dv_picture_prepare(&m->config, &s->plan, &work, pictures, memory);
    }
    r = r < 0 ? r : dv_vision_run(&vision, &s->plan, &patches, &s->features);
    dv_space_release(&space);
    return r;
}

static dv_picture_options options_of(const dv_picture_options *given) {
    dv_picture_options o = given != NULL ? *given : (dv_picture_options){0};
    o.fold_still = false; /* the tower keeps separate weights for each frame of a patch */
    return o;
}

static bool make_room(const dv_session_options *o) {
    return o != NULL && o->room != NULL && o->room(o->user);
}

davy_result dv_encode_image(const dv_vlm_model *m, const dv_rgb8 *picture, const dv_picture_options *options,
                            const dv_session_options *cancel, dv_encoded *out) {
    dv_encoded s = {0};
    dv_picture_options o = options_of(options);
    const dv_picture_size size = {picture->width, picture->height, .frames = 0};
    davy_result r = dv_picture_plan_make(&m->config, &o, &size, &s.plan);
    r = r < 0 ? r : see(m, picture, cancel, &s);
    if (dv_ran_out(r) && make_room(cancel)) {
        r = see(m, picture, cancel, &s);
    }
    while (dv_ran_out(r) && dv_picture_smaller(&m->config, &s.plan, &o)) {
        s.smaller = true;
        r = dv_picture_plan_make(&m->config, &o, &size, &s.plan);
        r = r < 0 ? r : see(m, picture, cancel, &s);
    }
    if (r < 0) {
        return r;
    }
    s.chat = (dv_chat_picture){.tokens = s.plan.tokens};
    if (m->config.picture.rule == DV_VLM_PICTURE_TILES) {
        s.chat =
            (dv_chat_picture){.tokens = m->config.vision.tokens_per_tile, .rows = s.plan.rows, .cols = s.plan.cols};
    }
    *out = s;
    return DAVY_OK;
}

/* Idefics3: every frame is a separate picture. Qwen: a time step has several frames. */
static davy_result time_steps(const dv_vlm_model *m, const dv_video *v, dv_encoded *s) {
    const bool tiles = m->config.picture.rule == DV_VLM_PICTURE_TILES;
    const int64_t steps = tiles ? v->n : s->plan.grid_t;
    s->seconds = dv_calloc((uint64_t)steps, sizeof *s->seconds);
    if (s->seconds == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    for (int64_t i = 0; i < steps; i++) {
        s->seconds[i] = dv_video_seconds(&m->config, v->index, v->n, v->fps, i);
    }
    s->step = (double)m->config.vision.temporal * (double)v->total / (v->fps * (double)v->n);
    s->chat = (dv_chat_picture){.tokens = s->plan.tokens / steps,
                                .steps = (int32_t)steps,
                                .seconds = s->seconds,
                                .duration = (double)v->total / v->fps};
    return DAVY_OK;
}

davy_result dv_encode_video(const dv_vlm_model *m, const dv_video *video, const dv_picture_options *options,
                            const dv_session_options *cancel, dv_encoded *out) {
    dv_encoded s = {0};
    dv_picture_options o = options_of(options);
    if (video->n < 1 || video->total < video->n || !(video->fps > 0)) {
        return dv_fail(DAVY_E_INVALID, "captioning: %lld frames of a video of %lld", (long long)video->n,
                       (long long)video->total);
    }
    const dv_rgb8 *first = video->frames;
    const dv_picture_size size = {first->width, first->height, video->n};
    davy_result r = dv_picture_plan_make(&m->config, &o, &size, &s.plan);
    r = r < 0 ? r : see(m, first, cancel, &s);
    if (dv_ran_out(r) && make_room(cancel)) {
        r = see(m, first, cancel, &s);
    }
    while (dv_ran_out(r) && dv_picture_smaller(&m->config, &s.plan, &o)) {
        s.smaller = true;
        r = dv_picture_plan_make(&m->config, &o, &size, &s.plan);
        r = r < 0 ? r : see(m, first, cancel, &s);
    }
    r = r < 0 ? r : time_steps(m, video, &s);
    if (r < 0) {
        dv_encoded_free(&s);
        return r;
    }
    *out = s;
    return DAVY_OK;
}

void dv_encoded_free(dv_encoded *s) {
    dv_vision_free(&s->features);
    dv_free(s->seconds);
    *s = (dv_encoded){0};
}
