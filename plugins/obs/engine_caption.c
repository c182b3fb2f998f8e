/* engine_caption.c - one question about one picture. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caption.h"
#include "engine_work.h"
#include "text.h"

enum { GRID = 16 };

/* Mean brightness of each cell of a 16 x 16 grid. */
static void look(const work *w, uint8_t to[GRID * GRID]) {
    for (uint32_t i = 0; i < GRID * GRID; i++) {
        const uint32_t x0 = i % GRID * w->width / GRID;
        const uint32_t y0 = i / GRID * w->height / GRID;
        const uint32_t x1 = (i % GRID + 1) * w->width / GRID;
        const uint32_t y1 = (i / GRID + 1) * w->height / GRID;
        uint64_t sum = 0;
        for (uint32_t y = y0; y < y1; y++) {
            const uint8_t *row = w->in + (size_t)y * w->in_stride;
            for (uint32_t x = x0; x < x1; x++) {
                sum += (uint64_t)row[4 * x] + 2u * row[4 * x + 1] + row[4 * x + 2];
            }
        }
        const uint64_t pixels = (uint64_t)(x1 - x0) * (y1 - y0);
        to[i] = (uint8_t)(pixels > 0 ? sum / (4 * pixels) : 0);
    }
}

/* Whether the picture differs from the one of the last answer: by more than 16 of 255 on average. */
static bool changed(caption_board *b, const uint8_t now[GRID * GRID]) {
    uint32_t difference = 0;
    plugin_lock_take(&b->lock);
    for (int i = 0; i < GRID * GRID; i++) {
        difference += (uint32_t)abs((int)now[i] - (int)b->seen[i]);
    }
    const bool is = !b->has_seen || difference > GRID * GRID * 16;
    plugin_lock_give(&b->lock);
    return is;
}

static void remember(caption_board *b, const uint8_t now[GRID * GRID]) {
    plugin_lock_take(&b->lock);
    memcpy(b->seen, now, GRID * GRID);
    b->has_seen = true;
    plugin_lock_give(&b->lock);
}

/* Runs a turn to its end. Removing the filter stops it within one token. */
static bool turn(const davy_api *api, davy_dialogue *d, const work *w) {
    const davy_run how = {
        .struct_size = sizeof how, .priority = -1, .progress = engine_unwanted, .progress_user = (void *)(uintptr_t)w};
    return api->dialogue_generate(d, NULL, &how, NULL) == DAVY_OK;
}

static bool answer(const davy_api *api, davy_dialogue *d, char *out, size_t bytes) {
    davy_text *text = NULL;
    const char *utf8 = NULL;
    uint64_t n = 0;
    const bool ok = api->dialogue_text(d, &text) == DAVY_OK && api->text_get(text, &utf8, &n) == DAVY_OK;
    if (ok) {
        while (*utf8 == ' ' || *utf8 == '\n') {
            utf8++;
        }
        text_put(out, bytes, "%s", utf8);
    }
    api->text_release(text);
    return ok;
}

static bool ask(const engine_model *m, const work *w, char *out, size_t bytes) {
    const caption_question *q = w->question;
    const davy_caption_params params = {.struct_size = sizeof params, .prompt = q->prompt, .max_tokens = q->max_tokens};
    const davy_tensor picture = {.struct_size = sizeof picture,
                                 .dtype = DAVY_DTYPE_U8,
                                 .layout = DAVY_LAYOUT_HWC,
                                 .channels = DAVY_CHANNELS_RGBA,
                                 .ndim = 3,
                                 .data = (uint64_t)(uintptr_t)w->in,
                                 .shape = {w->height, w->width, 4},
                                 .stride_bytes = {w->in_stride, 4, 1}};
    davy_dialogue *d = NULL;
    bool ok = m->api->dialogue_open(m->model, &params, &d) == DAVY_OK &&
              m->api->dialogue_add_image(d, &picture) == DAVY_OK &&
              m->api->dialogue_add_text(d, DAVY_ROLE_USER, q->prompt) == DAVY_OK && turn(m->api, d, w) &&
              answer(m->api, d, out, bytes);
    const size_t used = ok ? strlen(out) : 0;
    if (ok && q->follow_up[0] != '\0' && used + 2 < bytes) {
        out[used] = '\n';
        ok = m->api->dialogue_add_text(d, DAVY_ROLE_USER, q->follow_up) == DAVY_OK && turn(m->api, d, w) &&
             answer(m->api, d, out + used + 1, bytes - used - 1);
    }
    m->api->dialogue_release(d);
    return ok;
}

bool engine_caption(const engine_model *m, work *w) {
    char text[CAPTION_TEXT];
    uint8_t now[GRID * GRID];
    const uint64_t start = plugin_now_ns();
    look(w, now);
    if (w->question->only_changes && !changed(w->question->board, now)) {
        return true;
    }
    if (!ask(m, w, text, sizeof text)) {
        return false;
    }
    remember(w->question->board, now);
    caption_publish(w->question, text, (int)((plugin_now_ns() - start) / 1000000));
    return true;
}
