/* caption_board.c - the last answer of each captioning filter, and the outputs of an answer. */
#include <stdio.h>
#include <string.h>

#include <util/platform.h>

#include "caption.h"
#include "text.h"

enum { MOST = 64 };

static plugin_lock list_lock = PLUGIN_LOCK_INIT;
static caption_board *list[MOST];

caption_board *caption_board_open(obs_source_t *filter) {
    const plugin_lock fresh = PLUGIN_LOCK_INIT;
    caption_board *b = bzalloc(sizeof *b);
    atomic_init(&b->holders, 1);
    b->lock = fresh;
    b->filter = obs_source_get_weak_source(filter);
    return b;
}

caption_board *caption_board_hold(caption_board *b) {
    atomic_fetch_add(&b->holders, 1);
    return b;
}

void caption_board_close(caption_board *b) {
    if (b != NULL && atomic_fetch_sub(&b->holders, 1) == 1) {
        obs_weak_source_release(b->filter);
        bfree(b);
    }
}

void caption_question_free(caption_question *q) {
    if (q != NULL) {
        caption_board_close(q->board);
        bfree(q);
    }
}

/* ---- the list ---- */

void caption_enlist(caption_board *b) {
    plugin_lock_take(&list_lock);
    for (int i = 0; i < MOST; i++) {
        if (list[i] == NULL) {
            list[i] = caption_board_hold(b);
            break;
        }
    }
    plugin_lock_give(&list_lock);
}

void caption_delist(caption_board *b) {
    plugin_lock_take(&list_lock);
    for (int i = 0; i < MOST; i++) {
        if (list[i] == b) {
            list[i] = NULL;
            caption_board_close(b);
        }
    }
    plugin_lock_give(&list_lock);
}

void caption_each(bool (*each)(caption_board *b, void *user), void *user) {
    caption_board *held[MOST];
    int count = 0;
    plugin_lock_take(&list_lock);
    for (int i = 0; i < MOST; i++) {
        if (list[i] != NULL) {
            held[count++] = caption_board_hold(list[i]);
        }
    }
    plugin_lock_give(&list_lock);
    bool more = true;
    for (int i = 0; i < count; i++) {
        more = more && each(held[i], user);
        caption_board_close(held[i]);
    }
}

/* ---- an answer ---- */

static bool says(obs_source_t *source, const char *text) {
    obs_data_t *settings = obs_source_get_settings(source);
    const bool same = strcmp(obs_data_get_string(settings, "text"), text) == 0;
    obs_data_release(settings);
    return same;
}

/* Any thread may update a source. The source redraws itself at its next tick. */
static void to_text_source(const char *name, const char *text) {
    obs_source_t *source = obs_get_source_by_name(name);
    if (source == NULL) {
        return;
    }
    const char *id = obs_source_get_unversioned_id(source);
    const bool freetype = strncmp(id, "text_ft2_source", 15) == 0;
    if ((freetype || strncmp(id, "text_gdiplus", 12) == 0) && !says(source, text)) {
        obs_data_t *data = obs_data_create();
        obs_data_set_string(data, "text", text);
        obs_data_set_bool(data, freetype ? "from_file" : "read_from_file", false);
        obs_source_update(source, data);
        obs_data_release(data);
    }
    obs_source_release(source);
}

static void to_file(const char *path, const char *text) {
    char line[CAPTION_TEXT + 2];
    const int n = snprintf(line, sizeof line, "%s\n", text);
    if (n > 0 && !os_quick_write_utf8_file_safe(path, line, (size_t)n, false, ".new", NULL)) {
        plugin_log(LOG_WARNING, "caption file %s cannot be written", path);
    }
}

static void to_signal(obs_source_t *filter, const char *text, int latency_ms) {
    struct calldata data;
    calldata_init(&data);
    calldata_set_ptr(&data, "source", filter);
    calldata_set_string(&data, "text", text);
    calldata_set_int(&data, "latency_ms", latency_ms);
    signal_handler_signal(obs_source_get_signal_handler(filter), "davy_caption", &data);
    calldata_free(&data);
}

void caption_publish(const caption_question *q, const char *text, int latency_ms) {
    char whole[CAPTION_TEXT];
    caption_board *b = q->board;
    text_put(whole, sizeof whole, "%s%s", q->prefix, text);
    plugin_lock_take(&b->lock);
    const bool news = strcmp(b->text, whole) != 0;
    memcpy(b->text, whole, sizeof whole);
    b->answered_ns = plugin_now_ns();
    b->latency_ms = latency_ms;
    plugin_lock_give(&b->lock);
    if (q->target[0] != '\0') { /* even without news: the target may have changed */
        to_text_source(q->target, whole);
    }
    if (news && q->file[0] != '\0') {
        to_file(q->file, whole);
    }
    if (q->log) {
        plugin_log(LOG_INFO, "caption: %s", whole);
    }
    if (news && q->stream) {
        enum { SECONDS_SHOWN = 5 };
        caption_to_stream(whole, SECONDS_SHOWN);
    }
    obs_source_t *filter = obs_weak_source_get_source(b->filter);
    if (filter != NULL) {
        to_signal(filter, whole, latency_ms);
        vendor_caption(q->source, obs_source_get_name(filter), whole, latency_ms);
        obs_source_release(filter);
    }
}
