/* shortcut.c - see shortcut.h. Both are 1x1 convolutions whose weights are known beforehand; a pixel's values lie in the
 * order frame, channel, row, column there, as frames side by side and the pixel shuffle have them. */
#include "core/block/shortcut.h"

#include <stdio.h>
#include <string.h>

#include "core/block/derived.h"
#include "core/base/error.h"

typedef struct cells {               /* in this order in a key */
    int64_t c, times, space, others; /* of a whole cell's values: channels; and those at the other side */
} cells;

static int64_t values_of(const cells *s) {
    return s->c * s->times * s->space * s->space;
}

/* Where value `at`, in the order of a pixel's values, lies in a cell's own order. */
static int64_t in_cell(const cells *s, int64_t at) {
    const int64_t square = s->space * s->space;
    const int64_t frame = at / square / s->c, c = at / square % s->c;
    return (c * s->times + frame) * square + at % square;
}

static cells cells_of(const char *key) {
    int64_t n[4];
    dv_key_numbers(key, n, 4);
    return (cells){n[0], n[1], n[2], n[3]};
}

static davy_result derive_means(const dv_tensors *t, const char *key, float *dst) {
    const cells s = cells_of(key);
    const int64_t values = values_of(&s), each = values / s.others;
    (void)t;
    for (int64_t i = 0; i < s.others * values; i++) {
        dst[i] = in_cell(&s, i % values) / each == i / values ? 1.0f / (float)each : 0.0f;
    }
    return DAVY_OK;
}

static davy_result derive_copies(const dv_tensors *t, const char *key, float *dst) {
    const cells s = cells_of(key);
    const int64_t values = values_of(&s), each = values / s.others;
    (void)t;
    for (int64_t i = 0; i < s.others * values; i++) {
        dst[i] = in_cell(&s, i / s.others) / each == i % s.others ? 1.0f : 0.0f;
    }
    return DAVY_OK;
}

static dv_value convolved(dv_graph *g, dv_value x, const char *what, const cells *s, bool mean) {
    const int64_t values = values_of(s);
    if (s->others < 1 || values % s->others != 0) {
        return dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "%s: %d values of a cell do not divide into %d channels", what,
                                        (int)values, (int)s->others));
    }
    char key[128];
    char label[160];
    snprintf(key, sizeof key, "%d:%d:%d:%d:", (int)s->c, (int)s->times, (int)s->space, (int)s->others);
    snprintf(label, sizeof label, "%s %s", what, key);
    const int64_t shape[4] = {mean ? s->others : values, mean ? values : s->others, 1, 1};
    dv_conv_opts opts = {.derived = true, .bias = DV_NO_PARAM};
    opts.weight = dv_param_derived(g, label, key, 4, shape, mean ? derive_means : derive_copies);
    if (opts.weight == DV_NO_PARAM) {
        return DV_NO_VALUE;
    }
    g->params[opts.weight].stored = -1;
    return dv_conv(g, x, what, shape[0], 1, &opts);
}

dv_value dv_blank_frame(dv_graph *g, dv_value x) {
    enum { MOST_CHANNELS = 8192 };
    static const float zeros[MOST_CHANNELS];
    const int64_t c = dv_shape_of(g, x).c;
    if (c > MOST_CHANNELS) {
        return dv_graph_fail(
            g, dv_fail(DAVY_E_UNSUPPORTED, "%d channels; at most %d are supported here", (int)c, MOST_CHANNELS));
    }
    return dv_affine(g, dv_take_frames(g, x, 0, 1), zeros, zeros);
}

dv_value dv_mean_shortcut(dv_graph *g, dv_value x, int64_t c_out, int64_t times, int64_t space) {
    const dv_shape in = dv_shape_of(g, x);
    const cells s = {in.c, times, space, c_out};
    if (values_of(&s) == c_out) {
        return x;
    }
    if (!g->continues && in.n % times != 0) {
        const dv_value both[2] = {dv_blank_frame(g, x), x};
        x = dv_join_frames(g, both, 2);
    }
    x = space > 1 ? dv_pixel_unshuffle(g, x, space) : x;
    return convolved(g, dv_frames_to_channels(g, x, times), "mean shortcut", &s, true);
}

dv_value dv_copy_shortcut(dv_graph *g, dv_value x, int64_t c_out, int64_t times, int64_t space) {
    const cells s = {c_out, times, space, dv_shape_of(g, x).c};
    x = dv_channels_to_frames(g, convolved(g, x, "copy shortcut", &s, false), times);
    if (!g->continues && times > 1) {
        x = dv_take_frames(g, x, times - 1, dv_shape_of(g, x).n - (times - 1));
    }
    return space > 1 ? dv_pixel_shuffle(g, x, space, DV_NO_VALUE) : x;
}
