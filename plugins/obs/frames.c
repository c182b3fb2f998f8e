/* frames.c - see frames.h. It draws as libobs's own filters do: the result has premultiplied alpha, and an SDR picture has sRGB
 * values. */
#include "frames.h"

#include <graphics/vec4.h>

#include "sync.h"

static work_state state_of(frame_slot *s) {
    return (work_state)atomic_load(&s->work.state);
}

static void set_state(frame_slot *s, work_state state) {
    atomic_store(&s->work.state, state);
}

void frames_open(frames *f) {
    memset(f, 0, sizeof *f);
    f->shown = -1;
    f->passing = true;
    f->mix.strength = -1.0f;
}

static void slot_unmap(frame_slot *s) {
    if (s->mapped) {
        gs_stagesurface_unmap(s->stage);
        s->mapped = false;
    }
}

/* Uploads the written result to the texture. A result without a write stays mapped, because its upload would be wasted. */
static void slot_upload(frame_slot *s) {
    if (s->result_mapped) {
        gs_texture_unmap(s->result);
        s->result_mapped = false;
    }
}

static void slot_free(frame_slot *s) {
    slot_upload(s);
    gs_stagesurface_destroy(s->stage);
    gs_texture_destroy(s->result);
    s->stage = NULL;
    s->result = NULL;
}

static void slot_forget_before(frame_slot *s) {
    gs_texture_destroy(s->before);
    s->before = NULL;
}

void frames_wait(frames *f) {
    for (int i = 0; i < FRAMES_SLOTS; i++) {
        while (state_of(&f->slots[i]) == WORK_QUEUED) {
            plugin_sleep_ms(1);
        }
    }
}

void frames_close(frames *f) {
    for (int i = 0; i < FRAMES_SLOTS; i++) {
        slot_unmap(&f->slots[i]);
        slot_free(&f->slots[i]);
        slot_forget_before(&f->slots[i]);
        gpu_slot_close(&f->gpu, &f->slots[i].gpu);
        engine_release(f->slots[i].engine);
        f->slots[i].engine = NULL;
    }
    gs_texrender_destroy(f->drawn);
    f->drawn = NULL;
    frames_mix_close(&f->mix);
    gpu_path_close(&f->gpu);
}

void frames_lose(frames *f) {
    const uint64_t counts[3] = {f->number, f->done, f->dropped};
    frames_close(f);
    frames_open(f);
    f->number = counts[0];
    f->done = counts[1];
    f->dropped = counts[2];
}

/* ---- drawing ---- */

void frames_draw_below(obs_source_t *filter) {
    obs_source_t *target = obs_filter_get_target(filter);
    obs_source_t *parent = obs_filter_get_parent(filter);
    if (target == NULL || parent == NULL) { /* the filter is being removed */
        return;
    }
    const uint32_t flags = obs_source_get_output_flags(target);
    if (target == parent && (flags & (OBS_SOURCE_CUSTOM_DRAW | OBS_SOURCE_ASYNC)) == 0) {
        obs_source_default_render(target);
    } else {
        obs_source_video_render(target);
    }
}

bool frames_draw(frames *f, obs_source_t *filter, uint32_t width, uint32_t height, enum gs_color_space space) {
    const enum gs_color_format color = gs_get_format_from_space(space);
    if (f->drawn == NULL || f->drawn_color != color) {
        gs_texrender_destroy(f->drawn);
        f->drawn = gs_texrender_create(color, GS_ZS_NONE);
        f->drawn_color = color;
    }
    f->width = width;
    f->height = height;
    f->space = space;
    gs_texrender_reset(f->drawn);
    gs_blend_state_push();
    gs_blend_function_separate(GS_BLEND_SRCALPHA, GS_BLEND_INVSRCALPHA, GS_BLEND_ONE, GS_BLEND_INVSRCALPHA);
    const bool begun = gs_texrender_begin_with_color_space(f->drawn, width, height, space);
    if (begun) {
        struct vec4 nothing;
        vec4_zero(&nothing);
        gs_clear(GS_CLEAR_COLOR, &nothing, 0.0f, 0);
        gs_ortho(0.0f, (float)width, 0.0f, (float)height, -100.0f, 100.0f);
        frames_draw_below(filter);
        gs_texrender_end(f->drawn);
    }
    gs_blend_state_pop();
    return begun;
}

/* ---- slots ---- */

static void show(frames *f, int i) {
    if (f->shown >= 0) {
        set_state(&f->slots[f->shown], WORK_FREE);
    }
    set_state(&f->slots[i], WORK_SHOWN);
    f->shown = i;
    f->passing = f->slots[i].work.number <= f->unseen;
    f->mix.strength = -1.0f;
    f->done++;
}

/* Handles the returned work of one slot. Slots return in any order; an older result never replaces a newer one. */
static void settle(frames *f, int i) {
    frame_slot *s = &f->slots[i];
    const work_state state = state_of(s);
    slot_unmap(s);
    engine_release(s->engine);
    s->engine = NULL;
    const bool newer = f->shown < 0 || f->slots[f->shown].work.number < s->work.number;
    if (state == WORK_DONE && newer && (!s->on_gpu || gpu_path_show(&f->gpu, &s->gpu))) {
        slot_upload(s);
        show(f, i);
        return;
    }
    if (state == WORK_STALE) {
        f->dropped++;
    } else if (state == WORK_PASSED || state == WORK_FAILED) {
        f->passing = true;
    } else if (state == WORK_SAME) {
        f->passing = f->shown < 0 || s->work.number <= f->unseen;
    }
    set_state(s, WORK_FREE);
}

void frames_take_back(frames *f) {
    for (int i = 0; i < FRAMES_SLOTS; i++) {
        const work_state state = state_of(&f->slots[i]);
        if (state > WORK_QUEUED && state < WORK_SHOWN) {
            settle(f, i);
        }
    }
}

void frames_pause(frames *f) {
    frames_take_back(f);
    for (int i = 0; i < FRAMES_SLOTS; i++) {
        if (state_of(&f->slots[i]) == WORK_STAGED) {
            set_state(&f->slots[i], WORK_FREE);
        }
    }
    f->unseen = f->number;
    f->passing = true;
}

/* ---- submitting ---- */

static bool slot_fit(frame_slot *s, const frames *f, const frames_goal *goal) {
    const bool fits = s->stage != NULL && s->result != NULL && s->width == f->width && s->height == f->height &&
                      s->out_width == goal->width && s->out_height == goal->height && s->color == f->drawn_color;
    if (!fits) {
        slot_free(s);
        s->stage = gs_stagesurface_create(f->width, f->height, f->drawn_color);
        s->result = gs_texture_create(goal->width, goal->height, f->drawn_color, 1, NULL, GS_DYNAMIC);
        s->width = f->width;
        s->height = f->height;
        s->out_width = goal->width;
        s->out_height = goal->height;
        s->color = f->drawn_color;
    }
    return s->stage != NULL && s->result != NULL;
}

/* Keeps a copy of the picture, to mix it with its result later. */
static void keep_picture(frame_slot *s, const frames *f, const frames_goal *goal) {
    gs_texture_t *now = gs_texrender_get_texture(f->drawn);
    const bool fits = s->before != NULL && gs_texture_get_width(s->before) == f->width &&
                      gs_texture_get_height(s->before) == f->height &&
                      gs_texture_get_color_format(s->before) == f->drawn_color;
    if (!fits || goal->strength >= 1.0f) {
        slot_forget_before(s);
    }
    s->space = f->space;
    if (goal->strength < 1.0f && s->before == NULL) {
        s->before = gs_texture_create(f->width, f->height, f->drawn_color, 1, NULL, 0);
    }
    if (s->before != NULL) {
        gs_copy_texture(s->before, now);
    }
}

static bool slot_map(frame_slot *s) {
    uint8_t *in = NULL;
    if (!gs_stagesurface_map(s->stage, &in, &s->work.in_stride)) {
        return false;
    }
    if (!s->result_mapped && !gs_texture_map(s->result, &s->out, &s->out_stride)) {
        gs_stagesurface_unmap(s->stage);
        return false;
    }
    s->work.in = in;
    s->work.out = s->out;
    s->work.out_stride = s->out_stride;
    s->mapped = true;
    s->result_mapped = true;
    return true;
}

/* Submits a slot's picture to the engine. */
static void submit(frame_slot *s, engine *e, client *c, const frames_goal *goal) {
    s->engine = e;
    engine_hold(e);
    s->work.owner = c;
    s->work.sdr_white = goal->sdr_white;
    s->work.latent = goal->latent;
    engine_submit(e, &s->work);
}

/* Whether the slot's result has the size that this engine makes of the slot's picture. Newer pictures may have other sizes. */
static bool is_for(const frame_slot *s, const engine *e) {
    int32_t num = 1;
    int32_t den = 1;
    engine_scale(e, &num, &den);
    return s->out_width == (uint64_t)s->width * (uint32_t)num / (uint32_t)den &&
           s->out_height == (uint64_t)s->height * (uint32_t)num / (uint32_t)den;
}

static void hand_over(frames *f, engine *e, client *c, const frames_goal *goal) {
    for (int i = 0; i < FRAMES_SLOTS; i++) {
        frame_slot *s = &f->slots[i];
        if (state_of(s) != WORK_STAGED || s->work.number == f->number) {
            continue;
        }
        if (!is_for(s, e) || !slot_map(s)) {
            set_state(s, WORK_FREE);
            continue;
        }
        s->on_gpu = false;
        s->work.format = s->color == GS_RGBA16F ? WORK_LINEAR_F16 : WORK_SRGB8;
        s->work.width = s->width;
        s->work.height = s->height;
        s->work.out_width = s->out_width;
        s->work.out_height = s->out_height;
        submit(s, e, c, goal);
    }
}

static bool wait_for_line(void *cuda, void *line) {
    return interop_wait(cuda, line);
}

/* Keeps the picture on the GPU and submits it at once. The engine's work is ordered behind the copy. */
static bool take_on_gpu(frames *f, frame_slot *s, engine *e, client *c, const frames_goal *goal) {
    const int32_t multiple = engine_multiple(e);
    const gpu_shape shape = {.width = engine_padded(f->width, multiple),
                             .height = engine_padded(f->height, multiple),
                             .out_width = goal->width,
                             .out_height = goal->height,
                             .in_place = goal->in_place};
    if (!gpu_path_take(&f->gpu, &s->gpu, gs_texrender_get_texture(f->drawn), &shape)) {
        return false;
    }
    s->on_gpu = true;
    s->work.number = f->number;
    s->work.format = WORK_STRAIGHT8;
    s->work.width = f->width;
    s->work.height = f->height;
    s->work.out_width = goal->width;
    s->work.out_height = goal->height;
    s->work.in = (const uint8_t *)(uintptr_t)s->gpu.in;
    s->work.in_stride = shape.width * 4;
    s->work.out = (uint8_t *)(uintptr_t)s->gpu.out;
    s->work.out_stride = goal->width * 4;
    s->work.stream = s->gpu.line;
    s->work.wait = wait_for_line;
    s->work.wait_with = f->gpu.cuda;
    submit(s, e, c, goal);
    return true;
}

void frames_turn(frames *f, engine *e, client *c, const frames_goal *goal) {
    frames_take_back(f);
    if (f->lacks_before) { /* strength was 1 when the result was made: compute it again and keep the picture */
        atomic_store(&c->forget, true);
        f->lacks_before = false;
    }
    f->number++;
    hand_over(f, e, c, goal);
    const bool may_stay = f->drawn_color == GS_RGBA;
    const bool gpu = may_stay && gpu_path_serves(&f->gpu, engine_device(e));
    f->gpu.why = may_stay ? f->gpu.why : NULL; /* 16-bit pictures always go through host memory */
    for (int i = 0; i < FRAMES_SLOTS; i++) {
        frame_slot *s = &f->slots[i];
        if (state_of(s) != WORK_FREE) {
            continue;
        }
        if (gpu && take_on_gpu(f, s, e, c, goal)) {
            keep_picture(s, f, goal);
            return;
        }
        if (slot_fit(s, f, goal)) {
            keep_picture(s, f, goal);
            gs_stage_texture(s->stage, gs_texrender_get_texture(f->drawn));
            s->work.number = f->number;
            set_state(s, WORK_STAGED);
            return;
        }
    }
    f->dropped++;
}

gs_texture_t *frames_texture(frames *f, float strength, enum gs_color_space *space) {
    *space = f->space;
    if (f->passing || f->shown < 0) {
        return f->drawn != NULL ? gs_texrender_get_texture(f->drawn) : NULL;
    }
    const frame_slot *s = &f->slots[f->shown];
    gs_texture_t *result = s->on_gpu ? gs_texrender_get_texture(f->gpu.shown) : s->result;
    gs_texture_t *mixed = NULL;
    if (strength < 1.0f && s->before != NULL) {
        mixed = frames_mixed(&f->mix, result, s->before, s->space, strength);
    }
    f->lacks_before = strength < 1.0f && s->before == NULL;
    *space = s->space;
    return mixed != NULL ? mixed : result;
}
