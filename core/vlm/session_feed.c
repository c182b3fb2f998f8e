/* session_feed.c - a prompt as the decoder takes it: which token is a word, which stands for a vector of a picture, and
 * where each of them is. */
#include <string.h>

#include "core/base/error.h"
#include "core/vlm/session_priv.h"
#include "core/vlm/positions.h"

void dv_feeding_clear(dv_feeding *f) {
    dv_free(f->ids);
    dv_free(f->vector);
    dv_free(f->positions);
    dv_free(f->spans);
    dv_free(f->first);
    *f = (dv_feeding){.n = 0};
}

/* Qwen3 has every time step of a video as a span of its own. */
static int64_t spans_of(const dv_vlm_model *m, const dv_vlm_features *f) {
    return f->t == 0 ? 0 : m->config.family == DV_VLM_QWEN3 ? f->t : 1;
}

static davy_result allocate(const dv_vlm_model *m, const dv_session_picture *pictures, int32_t n_pictures,
                            dv_feeding *f) {
    int64_t spans = 1;
    for (int32_t i = 0; i < n_pictures; i++) {
        spans += spans_of(m, pictures[i].features);
    }
    f->ids = dv_calloc((uint64_t)f->n, sizeof *f->ids);
    f->vector = dv_calloc((uint64_t)f->n, sizeof *f->vector);
    f->positions = dv_calloc((uint64_t)f->n, 3 * sizeof *f->positions);
    f->spans = dv_calloc((uint64_t)spans, sizeof *f->spans);
    f->first = dv_calloc((uint64_t)n_pictures + 1, sizeof *f->first);
    return f->ids != NULL && f->vector != NULL && f->positions != NULL && f->spans != NULL && f->first != NULL
               ? DAVY_OK
               : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
}

bool dv_is_placeholder(const dv_vlm_model *m, int32_t id) {
    return id >= 0 && (id == m->image_id || id == m->video_id);
}

/* Which vector each placeholder stands for, and where the pictures' tokens lie. */
static davy_result place_pictures(const dv_vlm_model *m, const dv_session_picture *pictures, int32_t n_pictures,
                                  dv_feeding *f) {
    int32_t picture = 0;
    int64_t row = 0;
    int64_t placeholders = 0;
    int64_t vectors = 0;
    const bool in_front = m->config.family == DV_VLM_GHOSTVIS; /* further placeholders are words */
    for (int64_t i = 0; i < f->n; i++) {
        f->vector[i] = -1;
        if (!dv_is_placeholder(m, f->ids[i])) {
            continue;
        }
        placeholders += in_front && picture == n_pictures ? 0 : 1;
        if (picture == n_pictures) {
            continue;
        }
        const dv_vlm_features *v = pictures[picture].features;
        const int64_t spans = spans_of(m, v);
        f->first[picture] = row == 0 ? i : f->first[picture];
        const int64_t inside = spans > 0 ? row % (v->tokens / spans) : 0;
        if (spans > 0 && inside == 0) {
            f->spans[f->n_spans++] =
                (dv_vlm_span){.at = i, .t = v->t / spans, .h = v->h, .w = v->w, .seconds = pictures[picture].seconds};
        } else if (spans > 0 && i != f->spans[f->n_spans - 1].at + inside) {
            return dv_fail(DAVY_E_INVALID, "the placeholders of a picture do not lie one behind the other");
        }
        f->vector[i] = (int32_t)row++;
        if (row == v->tokens) {
            picture++;
            row = 0;
        }
    }
    for (int32_t i = 0; i < n_pictures; i++) {
        vectors += pictures[i].features->tokens;
    }
    f->first[n_pictures] = f->n;
    return placeholders == vectors
               ? DAVY_OK
               : dv_fail(DAVY_E_INVALID, "the prompt has %lld placeholders, its pictures have %lld vectors",
                         (long long)placeholders, (long long)vectors);
}

davy_result dv_feeding_make(const dv_vlm_model *m, const dv_feed_words *words, const dv_session_picture *pictures,
                            int32_t n_pictures, int64_t *next, dv_feeding *out) {
    const int64_t extra = words->before >= 0 ? 1 : 0;
    dv_feeding f = {.n = words->n + extra,
                    .pictures = pictures,
                    .n_pictures = n_pictures,
                    .axes = dv_vlm_position_axes(&m->config)};
    int64_t after = *next;
    davy_result r = allocate(m, pictures, n_pictures, &f);
    if (r == DAVY_OK) {
        if (extra > 0) {
            f.ids[0] = words->before;
        }
        if (words->n > 0) {
            memcpy(f.ids + extra, words->ids, (size_t)words->n * sizeof *words->ids);
        }
        r = place_pictures(m, pictures, n_pictures, &f);
    }
    r = r < 0 ? r : dv_vlm_positions(&m->config, f.n, f.spans, f.n_spans, &after, f.positions);
    if (r < 0) {
        dv_feeding_clear(&f);
        return r;
    }
    *next = after;
    *out = f;
    return DAVY_OK;
}

dv_decoder_input dv_feeding_part(const dv_feeding *f, int64_t at) {
    int32_t i = 0;
    while (i + 1 < f->n_pictures && f->first[i + 1] <= at) {
        i++;
    }
    const int64_t end = i + 1 < f->n_pictures ? f->first[i + 1] : f->n;
    const dv_vlm_features *v = i < f->n_pictures ? f->pictures[i].features : NULL;
    return (dv_decoder_input){.ids = f->ids + at,
                              .vector = f->vector + at,
                              .vectors = v != NULL ? v->vectors : NULL,
                              .deep = v != NULL && v->deep[0] != NULL ? (const float *const *)v->deep : NULL,
                              .positions = f->positions + at * f->axes,
                              .n = end - at};
}
