/* caption.c - the captioning filter on the graphics thread. It draws the source unchanged and copies one small picture when a
 * caption is due. The engine's thread does the rest at a lower priority. */
#include "caption.h"

#include <graphics/vec4.h>
#include <stdio.h>
#include <string.h>

#include "frames.h"
#include "text.h"

enum { LONGEST_SIDE = 768 }; /* of the picture that the model gets, in pixels */

typedef struct caption_filter {
    obs_source_t *context;
    client *client;
    caption_board *board;
    caption_settings settings;
    engine *engine;
    engine_key key;
    work work; /* one picture at a time */
    gs_texrender_t *drawn;
    gs_stagesurf_t *stage;
    uint32_t width, height; /* of stage */
    bool mapped;
    bool forced; /* the pending caption was requested: ask even if nothing has changed */
    float since_asked, since_answer, since_rendered, since_status;
    uint64_t number;
    bool shown_empty;
    obs_hotkey_id hotkey;
    plugin_lock lock; /* guards status */
    char status[640];
    int status_kind;
} caption_filter;

static const char *name(void *unused) {
    (void)unused;
    return obs_module_text("Davy.Caption.Name");
}

static work_state state_of(caption_filter *f) {
    return (work_state)atomic_load(&f->work.state);
}

/* ---- creation and destruction ---- */

static void update(void *data, obs_data_t *settings) {
    caption_filter *f = data;
    caption_read(settings, &f->settings);
    engine_hurry(f->engine);
}

static void get_caption(void *data, calldata_t *call) {
    caption_board *b = data;
    char text[CAPTION_TEXT];
    plugin_lock_take(&b->lock);
    memcpy(text, b->text, sizeof text);
    const uint64_t ns = b->answered_ns;
    plugin_lock_give(&b->lock);
    calldata_set_string(call, "text", text);
    calldata_set_int(call, "timestamp_ms", (long long)(ns / 1000000));
}

static void get_status(void *data, calldata_t *call) {
    static const char *const levels[] = {"ok", "warning", "error"}; /* enum obs_text_info_type */
    caption_filter *f = data;
    char text[sizeof f->status];
    plugin_lock_take(&f->lock);
    memcpy(text, f->status, sizeof text);
    const int kind = f->status_kind;
    plugin_lock_give(&f->lock);
    calldata_set_string(call, "text", text);
    calldata_set_string(call, "level", levels[kind]);
}

static void unmap(caption_filter *f) {
    if (f->mapped) {
        gs_stagesurface_unmap(f->stage);
        f->mapped = false;
    }
}

/* OBS is about to lose its graphics device. The engine must stop using mapped memory first; the pending answer is lost. */
static void device_lost(void *data) {
    caption_filter *f = data;
    atomic_store(&f->client->gone, true);
    while (state_of(f) == WORK_QUEUED) {
        plugin_sleep_ms(1);
    }
    atomic_store(&f->client->gone, false);
    unmap(f);
    gs_stagesurface_destroy(f->stage);
    f->stage = NULL;
    caption_question_free(f->work.question);
    f->work.question = NULL;
    atomic_store(&f->work.state, WORK_FREE);
}

static void *create(obs_data_t *settings, obs_source_t *context) {
    caption_filter *f = bzalloc(sizeof *f);
    const plugin_lock fresh = PLUGIN_LOCK_INIT;
    f->context = context;
    f->lock = fresh;
    f->hotkey = OBS_INVALID_HOTKEY_ID;
    f->client = client_create();
    if (f->client == NULL) {
        bfree(f);
        return NULL;
    }
    f->board = caption_board_open(context);
    signal_handler_add(obs_source_get_signal_handler(context),
                       "void davy_caption(ptr source, string text, int latency_ms)");
    proc_handler_add(obs_source_get_proc_handler(context),
                     "void davy_get_caption(out string text, out int timestamp_ms)", get_caption, f->board);
    proc_handler_add(obs_source_get_proc_handler(context), "void davy_get_status(out string text, out string level)",
                     get_status, f);
    caption_enlist(f->board);
    update(f, settings);
    plugin_tell_loss(device_lost, f);
    f->since_asked = 1e9f; /* the first caption is due at once */
    return f;
}

/* Cancels the pending answer. */
static void removed(void *data, obs_source_t *source) {
    caption_filter *f = data;
    (void)source;
    atomic_store(&f->client->gone, true);
}

static void destroy(void *data) {
    caption_filter *f = data;
    if (f->hotkey != OBS_INVALID_HOTKEY_ID) {
        obs_hotkey_unregister(f->hotkey);
    }
    atomic_store(&f->client->gone, true);
    while (state_of(f) == WORK_QUEUED) {
        plugin_sleep_ms(1);
    }
    obs_enter_graphics();
    plugin_forget_loss(f);
    unmap(f);
    gs_stagesurface_destroy(f->stage);
    gs_texrender_destroy(f->drawn);
    obs_leave_graphics();
    caption_question_free(f->work.question);
    engine_release(f->engine);
    caption_delist(f->board);
    caption_board_close(f->board);
    client_release(f->client);
    bfree(f);
}

/* ---- hotkey ---- */

static void pressed(void *data, obs_hotkey_id id, obs_hotkey_t *hotkey, bool down) {
    caption_board *b = data;
    (void)id;
    (void)hotkey;
    if (down) {
        atomic_store(&b->now, true);
    }
}

/* OBS has no hotkeys for filters. The source gets the hotkey, as soon as the filter has a source. */
static void offer_hotkey(caption_filter *f) {
    obs_source_t *parent = obs_filter_get_parent(f->context);
    if (f->hotkey == OBS_INVALID_HOTKEY_ID && parent != NULL) {
        char key[512];
        snprintf(key, sizeof key, "davy.caption.%s", obs_source_get_name(f->context));
        f->hotkey = obs_hotkey_register_source(parent, key, obs_module_text("Davy.Caption.Hotkey"), pressed, f->board);
    }
}

/* ---- time ---- */

static void say(caption_filter *f) {
    char text[sizeof f->status];
    int kind = OBS_TEXT_INFO_NORMAL;
    const engine_state state = f->engine != NULL ? engine_look(f->engine) : ENGINE_LOADING;
    char of_engine[ENGINE_TEXT] = "";
    if (f->engine != NULL) {
        engine_text(f->engine, of_engine, sizeof of_engine);
    }
    if (state == ENGINE_FAILED) {
        text_put(text, sizeof text, "%s.", of_engine);
        kind = OBS_TEXT_INFO_ERROR;
    } else if (f->engine != NULL && state == ENGINE_LOADING) {
        text_put(text, sizeof text, "%s", obs_module_text("Davy.Status.LoadingModel"));
    } else if (client_why(f->client, text, sizeof text)) {
        kind = OBS_TEXT_INFO_WARNING;
    } else {
        plugin_lock_take(&f->board->lock);
        text_put(text, sizeof text, "%.200s%s%.300s", of_engine, f->board->text[0] != '\0' ? ". " : "", f->board->text);
        plugin_lock_give(&f->board->lock);
    }
    plugin_lock_take(&f->lock);
    const bool news = strcmp(text, f->status) != 0 || kind != f->status_kind;
    memcpy(f->status, text, sizeof text);
    f->status_kind = kind;
    plugin_lock_give(&f->lock);
    if (news) {
        obs_source_update_properties(f->context);
    }
}

static void choose_engine(caption_filter *f) {
    engine_key key;
    memset(&key, 0, sizeof key);
    key.task = DAVY_TASK_CAPTION;
    snprintf(key.model, sizeof key.model, "%s", f->settings.model);
    snprintf(key.device, sizeof key.device, "%s", f->settings.device);
    snprintf(key.precision, sizeof key.precision, "%s", f->settings.precision);
    if (f->engine == NULL || memcmp(&key, &f->key, sizeof key) != 0) {
        engine_release(f->engine);
        f->engine = engine_acquire(&key);
        f->key = key;
    }
}

/* Empties the text source when the answer is older than "Clear After". */
static void clear_late(caption_filter *f) {
    const caption_question *q = &f->settings.question;
    plugin_lock_take(&f->board->lock);
    const uint64_t at = f->board->answered_ns;
    plugin_lock_give(&f->board->lock);
    if (f->settings.clear_after_ms <= 0 || at == 0 || q->target[0] == '\0' ||
        plugin_now_ns() - at < (uint64_t)f->settings.clear_after_ms * 1000000) {
        f->shown_empty = false;
        return;
    }
    obs_source_t *target = f->shown_empty ? NULL : obs_get_source_by_name(q->target);
    if (target != NULL) {
        obs_data_t *data = obs_data_create();
        obs_data_set_string(data, "text", "");
        obs_source_update(target, data);
        obs_data_release(data);
        obs_source_release(target);
        f->shown_empty = true;
    }
}

static void tick(void *data, float seconds) {
    enum { IDLE_SECONDS = 60 };
    caption_filter *f = data;
    f->since_asked += seconds;
    f->since_rendered += seconds;
    f->since_status += seconds;
    offer_hotkey(f);
    if (f->since_rendered < IDLE_SECONDS || f->settings.keep_loaded) {
        choose_engine(f);
    } else {
        engine_release(f->engine);
        f->engine = NULL;
    }
    if (f->since_status >= 1.0f) {
        f->since_status = 0.0f;
        say(f);
        clear_late(f);
    }
}

/* ---- a picture ---- */

static bool draw_small(caption_filter *f, uint32_t width, uint32_t height) {
    const float scale = (float)LONGEST_SIDE / (float)(width > height ? width : height);
    const uint32_t w = scale < 1.0f ? (uint32_t)((float)width * scale + 0.5f) : width;
    const uint32_t h = scale < 1.0f ? (uint32_t)((float)height * scale + 0.5f) : height;
    if (f->stage == NULL || f->width != w || f->height != h) {
        gs_stagesurface_destroy(f->stage);
        f->stage = gs_stagesurface_create(w > 0 ? w : 1, h > 0 ? h : 1, GS_RGBA);
        f->width = w > 0 ? w : 1;
        f->height = h > 0 ? h : 1;
    }
    if (f->drawn == NULL) {
        f->drawn = gs_texrender_create(GS_RGBA, GS_ZS_NONE);
    }
    gs_texrender_reset(f->drawn);
    gs_blend_state_push();
    gs_blend_function_separate(GS_BLEND_SRCALPHA, GS_BLEND_INVSRCALPHA, GS_BLEND_ONE, GS_BLEND_INVSRCALPHA);
    const bool begun =
        f->stage != NULL && gs_texrender_begin_with_color_space(f->drawn, f->width, f->height, GS_CS_SRGB);
    if (begun) {
        struct vec4 black;
        vec4_set(&black, 0.0f, 0.0f, 0.0f, 1.0f);
        gs_clear(GS_CLEAR_COLOR, &black, 0.0f, 0);
        gs_ortho(0.0f, (float)width, 0.0f, (float)height, -100.0f, 100.0f);
        frames_draw_below(f->context);
        gs_texrender_end(f->drawn);
    }
    gs_blend_state_pop();
    return begun;
}

static void ask(caption_filter *f) {
    uint8_t *in = NULL;
    obs_source_t *parent = obs_filter_get_parent(f->context);
    if (f->engine == NULL || engine_look(f->engine) != ENGINE_READY ||
        !gs_stagesurface_map(f->stage, &in, &f->work.in_stride)) {
        atomic_store(&f->work.state, WORK_FREE);
        return;
    }
    caption_question *q = bmemdup(&f->settings.question, sizeof *q);
    q->board = caption_board_hold(f->board);
    q->only_changes = q->only_changes && !f->forced;
    text_put(q->source, sizeof q->source, "%s", parent != NULL ? obs_source_get_name(parent) : "");
    f->mapped = true;
    f->work.in = in;
    f->work.width = f->width;
    f->work.height = f->height;
    f->work.owner = f->client;
    f->work.number = ++f->number;
    f->work.question = q;
    atomic_store(&f->client->gone, false); /* the filter may have been removed and added again */
    engine_submit(f->engine, &f->work);
}

static bool due(caption_filter *f) {
    if (f->engine == NULL || engine_look(f->engine) != ENGINE_READY) {
        return false; /* a request stays pending until the engine is ready */
    }
    const bool asked = atomic_exchange(&f->board->now, false);
    const float every = (float)f->settings.interval_ms / 1000.0f;
    const float look = f->settings.on_change ? 0.5f : every;
    const bool by_time = (f->settings.every || f->settings.on_change) && f->since_asked >= look;
    f->forced = asked;
    return asked || by_time;
}

static void render(void *data, gs_effect_t *unused) {
    caption_filter *f = data;
    (void)unused;
    f->since_rendered = 0.0f;
    const work_state state = state_of(f);
    obs_source_t *target = obs_filter_get_target(f->context);
    const uint32_t width = target != NULL ? obs_source_get_base_width(target) : 0;
    const uint32_t height = target != NULL ? obs_source_get_base_height(target) : 0;
    if (state == WORK_STAGED) {
        ask(f);
    } else if (state > WORK_QUEUED) {
        unmap(f);
        caption_question_free(f->work.question);
        f->work.question = NULL;
        atomic_store(&f->work.state, WORK_FREE);
    } else if (state == WORK_FREE && width > 0 && height > 0 && due(f) && draw_small(f, width, height)) {
        gs_stage_texture(f->stage, gs_texrender_get_texture(f->drawn));
        atomic_store(&f->work.state, WORK_STAGED);
        f->since_asked = 0.0f;
    }
    obs_source_skip_video_filter(f->context);
}

/* ---- the dialog ---- */

static obs_properties_t *properties(void *data) {
    caption_filter *f = data;
    char status[sizeof f->status] = "";
    int kind = OBS_TEXT_INFO_NORMAL;
    if (f != NULL) {
        plugin_lock_take(&f->lock);
        memcpy(status, f->status, sizeof status);
        kind = f->status_kind;
        plugin_lock_give(&f->lock);
    }
    return caption_properties_of(status, kind, f != NULL ? f->board : NULL);
}

struct obs_source_info davy_caption_filter = {
    .id = "davy_caption_filter",
    .type = OBS_SOURCE_TYPE_FILTER,
    .output_flags = OBS_SOURCE_VIDEO | OBS_SOURCE_SRGB,
    .get_name = name,
    .create = create,
    .destroy = destroy,
    .update = update,
    .video_tick = tick,
    .video_render = render,
    .filter_remove = removed,
    .get_defaults = caption_defaults,
    .get_properties = properties,
};
