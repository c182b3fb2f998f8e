/* positions.c - coordinates and frequencies of the language model's rotary embedding. */
#include "core/vlm/positions.h"

#include <math.h>

#include "core/base/error.h"

int32_t dv_vlm_position_axes(const dv_vlm_config *c) {
    return c->text.rope.axes == DV_VLM_ROPE_ONE ? 1 : 3;
}

static davy_result check_spans(int64_t tokens, const dv_vlm_span *spans, int64_t n) {
    int64_t free_from = 0;
    for (int64_t i = 0; i < n; i++) {
        const dv_vlm_span *s = &spans[i];
        if (s->t < 1 || s->h < 1 || s->w < 1 || s->t > INT32_MAX || s->h > INT32_MAX || s->w > INT32_MAX ||
            s->t * s->h > INT32_MAX || s->t * s->h * s->w > tokens || s->at < free_from ||
            s->at > tokens - s->t * s->h * s->w) {
            return dv_fail(DAVY_E_INVALID,
                           "captioning: the vision tokens at %lld overlap other vision tokens or the sequence's end",
                           (long long)i);
        }
        free_from = s->at + s->t * s->h * s->w;
    }
    return DAVY_OK;
}

/* Offset of temporal patch t. Qwen2.5 counts in tokens_per_second, in single precision like its reference. */
static int64_t time_of(const dv_vlm_config *c, const dv_vlm_span *s, int64_t t) {
    if (c->family != DV_VLM_QWEN2_5 || s->seconds <= 0) {
        return t;
    }
    return (int64_t)((float)t * (float)(s->seconds * c->vision.tokens_per_second));
}

static int64_t put(int32_t *pos, int64_t t, int64_t h, int64_t w) {
    pos[0] = (int32_t)t;
    pos[1] = (int32_t)h;
    pos[2] = (int32_t)w;
    return dv_max(t, dv_max(h, w));
}

davy_result dv_vlm_positions(const dv_vlm_config *c, const dv_vlm_sequence *s, int64_t *next, int32_t *pos) {
    const int64_t tokens = s->tokens, n_spans = s->n_spans;
    const davy_result r = check_spans(tokens, s->spans, n_spans);
    if (r < 0) {
        return r;
    }
    int64_t p = *next;
    if (dv_vlm_position_axes(c) == 1) {
        for (int64_t i = 0; i < tokens; i++) {
            pos[i] = (int32_t)(p + i);
        }
        *next = p + tokens;
        return DAVY_OK;
    }
    int64_t most = p - 1;
    int64_t i = 0;
    for (int64_t k = 0; k <= n_spans; k++) {
        const int64_t stop = k < n_spans ? s->spans[k].at : tokens;
        for (; i < stop; i++, p++) {
            most = dv_max(most, put(pos + 3 * i, p, p, p));
        }
        const dv_vlm_span *span = &s->spans[k];
        const int64_t count = k < n_spans ? span->t * span->h * span->w : 0;
        for (int64_t j = 0; j < count; j++, i++) {
            const int64_t t = p + time_of(c, span, j / (span->h * span->w));
            most = dv_max(most, put(pos + 3 * i, t, p + j / span->w % span->h, p + j % span->w));
        }
        p += count > 0 ? dv_max(span->h, span->w) : 0;
    }
    *next = most + 1; /* the time of a long video may exceed the positions of the text after it */
    return DAVY_OK;
}

/* theta^(-2j/dim) in single precision, as in the references. */
static float frequency(double theta, int64_t j, int64_t dim) {
    const float exponent = (float)(2 * j) / (float)dim;
    return 1.0f / (float)pow(theta, (double)exponent);
}

static float scaled(const dv_vlm_rope *r, float f) {
    const float factor = (float)r->factor;
    if (r->scaling == DV_VLM_SCALE_LINEAR) {
        return f / factor;
    }
    if (r->scaling != DV_VLM_SCALE_LLAMA3) {
        return f;
    }
    const float low = (float)r->low;
    const float high = (float)r->high;
    const float wavelength = (float)(2 * 3.14159265358979323846) / f;
    if (wavelength > (float)r->original / low) {
        return f / factor;
    }
    if (wavelength < (float)r->original / high) {
        return f;
    }
    const float smooth = ((float)r->original / wavelength - low) / (high - low);
    return (1.0f - smooth) * f / factor + smooth * f;
}

static uint8_t axis_of(const dv_vlm_rope *r, int64_t j) {
    if (r->axes == DV_VLM_ROPE_SECTIONS) {
        return j < r->sections[0] ? 0 : j < r->sections[0] + r->sections[1] ? 1 : 2;
    }
    if (r->axes == DV_VLM_ROPE_INTERLEAVED) {
        const int64_t which = j % 3;
        return which > 0 && j < 3 * (int64_t)r->sections[which] ? (uint8_t)which : 0;
    }
    return 0;
}

void dv_vlm_rope_tables(const dv_vlm_text *t, float *freq, uint8_t *axis) {
    for (int64_t j = 0; j < t->head_dim / 2; j++) {
        freq[j] = scaled(&t->rope, frequency(t->rope.theta, j, t->head_dim));
        axis[j] = axis_of(&t->rope, j);
    }
}

void dv_vlm_patch_rope_tables(int64_t head_dim, float *freq, uint8_t *axis) {
    const int64_t quarter = head_dim / 4;
    for (int64_t j = 0; j < 2 * quarter; j++) {
        freq[j] = frequency(10000, j % quarter, 2 * quarter);
        axis[j] = (uint8_t)(j / quarter);
    }
}
