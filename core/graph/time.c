/* time.c - builders of ops for clips. A convolution over time is a convolution over space that reads several frames
 * side by side in its channels. No copy is needed: plan/memory.c places frames accordingly. The frames before a slice
 * of a clip are the state that the previous slice left. */
#include "core/graph/graph_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"

enum { MAX_NAME = 256, MOST_FRAMES = 64 };

/* A single picture: all frames before it are repetitions of it, or zeros. */
static bool is_alone(const dv_graph *g, dv_value x) {
    return dv_shape_of(g, x).n == 1 && !g->continues && !g->keeps;
}

/* ---- frames ---- */

static dv_value append_frames(dv_graph *g, dv_value x, const dv_time *time) {
    dv_shape shape = dv_shape_of(g, x);
    const int64_t rest = shape.n + time->lead - time->frames;
    if (rest < 0 || rest % time->step != 0) {
        return dv_graph_fail(
            g,
            dv_fail(DAVY_E_SHAPE,
                    "a clip's slice of %d frames with %d before it does not divide into windows of %d frames every %d",
                    (int)shape.n, (int)time->lead, (int)time->frames, (int)time->step));
    }
    shape.n = rest / time->step + 1;
    shape.c *= time->frames;
    dv_node *node = dv_graph_append(g, DV_OP_FRAMES, "frames", &x, 1, shape);
    if (node == NULL) {
        return DV_NO_VALUE;
    }
    node->time = *time;
    for (int64_t k = 0; k < g->n_nodes - 1; k++) {
        node->time.ring += g->nodes[k].op == DV_OP_FRAMES;
    }
    return node->out;
}

static bool frames_possible(dv_graph *g, const char *label, int64_t frames, int64_t step) {
    if (frames < 1 || frames > MOST_FRAMES || step < 1 || step > MOST_FRAMES) {
        dv_graph_fail(
            g, dv_fail(DAVY_E_INTERNAL, "%s: %d frames every %d are not possible", label, (int)frames, (int)step));
        return false;
    }
    return true;
}

/* Each window ends `step` frames after the previous one. The first window ends at the first frame of a clip, or where
 * a continued slice completes a step. */
static dv_value causal(dv_graph *g, dv_value x, int32_t frames, int32_t step, dv_before before) {
    const int32_t keep = (int32_t)dv_max(frames - step, 0);
    const dv_time time = {
        .frames = frames, .step = step, .lead = g->continues ? keep : frames - 1, .keep = keep, .before = before};
    return append_frames(g, x, &time);
}

dv_value dv_recall(dv_graph *g, dv_value x, int32_t frames, dv_before before) {
    if (!dv_graph_ready(g, "frames", x) || !frames_possible(g, "frames", frames, 1)) {
        return DV_NO_VALUE;
    }
    return frames == 1 ? x : causal(g, x, frames, 1, before);
}

dv_value dv_frames_to_channels(dv_graph *g, dv_value x, int64_t s) {
    if (!dv_graph_ready(g, "frames", x) || !frames_possible(g, "frames", s, s)) {
        return DV_NO_VALUE;
    }
    const dv_time time = {.frames = (int32_t)s, .step = (int32_t)s};
    return s == 1 ? x : append_frames(g, x, &time);
}

dv_value dv_channels_to_frames(dv_graph *g, dv_value x, int64_t s) {
    if (!dv_graph_ready(g, "to_frames", x) || !frames_possible(g, "to_frames", s, 1)) {
        return DV_NO_VALUE;
    }
    dv_shape shape = dv_shape_of(g, x);
    if (shape.c % s != 0) {
        return dv_graph_fail(
            g, dv_fail(DAVY_E_SHAPE, "to_frames: %d channels do not divide into %d frames", (int)shape.c, (int)s));
    }
    if (s == 1) {
        return x;
    }
    shape.n *= s;
    shape.c /= s;
    dv_node *node = dv_graph_append(g, DV_OP_TO_FRAMES, "to_frames", &x, 1, shape);
    if (node == NULL) {
        return DV_NO_VALUE;
    }
    node->r = s;
    return node->out;
}

dv_value dv_take_frames(dv_graph *g, dv_value x, int64_t first, int64_t count) {
    if (!dv_graph_ready(g, "take_frames", x)) {
        return DV_NO_VALUE;
    }
    dv_shape shape = dv_shape_of(g, x);
    if (first < 0 || count < 1 || first > shape.n - count) {
        return dv_graph_fail(
            g, dv_fail(DAVY_E_SHAPE, "take_frames: %lld frames from frame %lld on are not possible in a clip of %lld",
                       (long long)count, (long long)first, (long long)shape.n));
    }
    if (count == shape.n) {
        return x;
    }
    shape.n = count;
    dv_node *node = dv_graph_append(g, DV_OP_TAKE_FRAMES, "take_frames", &x, 1, shape);
    if (node == NULL) {
        return DV_NO_VALUE;
    }
    node->first = first;
    return node->out;
}

dv_value dv_join_frames(dv_graph *g, const dv_value *xs, int32_t count) {
    if (dv_graph_ok(g) && (count < 1 || count > DV_MAX_INPUTS)) {
        return dv_graph_fail(g, dv_fail(DAVY_E_INTERNAL, "join_frames: %d operands given, at most %d are possible",
                                        (int)count, DV_MAX_INPUTS));
    }
    dv_shape shape = {0, 0, 0, 0};
    for (int32_t i = 0; i < count; i++) {
        if (!dv_graph_ready(g, "join_frames", xs[i])) {
            return DV_NO_VALUE;
        }
        const dv_shape part = dv_shape_of(g, xs[i]);
        if (i > 0 && (part.h != shape.h || part.w != shape.w || part.c != shape.c)) {
            return dv_graph_refuse_pair(g, "join_frames", shape, part);
        }
        shape = (dv_shape){shape.n + part.n, part.h, part.w, part.c};
    }
    if (count == 1) {
        return xs[0];
    }
    const dv_node *node = dv_graph_append(g, DV_OP_JOIN_FRAMES, "join_frames", xs, count, shape);
    return dv_node_out(node);
}

/* ---- convolutions ---- */

/* How a stored weight [o, i, frames, k, k] is laid out. */
typedef enum tap_use { TAPS_SIDE_BY_SIDE, TAPS_SUMMED, TAPS_LAST, TAPS_APART } tap_use;

typedef struct taps {
    int64_t o, i, frames, square, use;
} taps;

static void lay_taps(const taps *k, const float *stored, float *dst) {
    for (int64_t at = 0; at < k->o * k->i; at++) {
        const int64_t o = at / k->i, i = at % k->i;
        for (int64_t f = 0; f < k->frames; f++) {
            for (int64_t s = 0; s < k->square; s++) {
                const float w = stored[(at * k->frames + f) * k->square + s];
                if (k->use == TAPS_SIDE_BY_SIDE) {
                    dst[((o * k->frames + f) * k->i + i) * k->square + s] = w;
                } else if (k->use == TAPS_APART) {
                    dst[((f * k->o + o) * k->i + i) * k->square + s] = w;
                } else if (k->use == TAPS_LAST || f == 0) {
                    dst[at * k->square + s] = w;
                } else {
                    dst[at * k->square + s] += w;
                }
            }
        }
    }
}

static davy_result derive_taps(const dv_tensors *weights, const dv_derivation *from, float *dst) {
    const taps *k = from->how;
    const dv_tensor_ref *ref = dv_tensors_find(weights, from->name);
    if (ref == NULL || dv_tensor_elements(ref) != k->o * k->i * k->frames * k->square) {
        return dv_fail(DAVY_E_TENSOR, "tensor '%s' is missing or of another size", from->name);
    }
    float *stored = dv_calloc((uint64_t)dv_tensor_elements(ref), sizeof *stored);
    if (stored == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for tensor '%s'", from->name);
    }
    const davy_result r = dv_tensor_read_f32(ref, stored);
    if (r == DAVY_OK) {
        lay_taps(k, stored, dst);
    }
    dv_free(stored);
    return r;
}

static dv_param tap_weight(dv_graph *g, const dv_tensor_ref *ref, const taps *t, int64_t k) {
    const int64_t shape[4] = {t->use == TAPS_APART ? t->o * t->frames : t->o,
                              t->use == TAPS_SIDE_BY_SIDE ? t->i * t->frames : t->i, k, k};
    char label[MAX_NAME + 128];
    const int n = snprintf(label, sizeof label, "%lld:%lld:%lld:%lld:%lld:%s", (long long)t->o, (long long)t->i,
                           (long long)t->frames, (long long)t->square, (long long)t->use, ref->name);
    if (n < 0 || (size_t)n >= sizeof label) {
        dv_graph_fail(g, dv_fail(DAVY_E_FORMAT, "a convolution has a name of more than %d bytes", MAX_NAME));
        return DV_NO_PARAM;
    }
    const dv_derivation from = {ref->name, t, sizeof *t, .derive = derive_taps, .stored = dv_tensor_elements(ref)};
    return dv_param_derived(g, label, &from, 4, shape);
}

/* The bias belongs to the last tap's results; the other taps' results get zeros. */
static davy_result derive_last_bias(const dv_tensors *weights, const dv_derivation *from, float *dst) {
    const int64_t before = *(const int64_t *)from->how;
    const dv_tensor_ref *ref = dv_tensors_find(weights, from->name);
    memset(dst, 0, (size_t)before * sizeof *dst);
    return ref != NULL ? dv_tensor_read_f32(ref, dst + before)
                       : dv_fail(DAVY_E_TENSOR, "tensor '%s' is missing or of another size", from->name);
}

static dv_param last_bias(dv_graph *g, const char *name, int64_t c_out, int64_t frames) {
    const dv_tensor_ref *ref = dv_weight_require(g, name, ".bias", 1, &c_out);
    const int64_t all = c_out * frames;
    const int64_t before = all - c_out;
    char label[MAX_NAME + 32];
    if (ref == NULL) {
        return DV_NO_PARAM;
    }
    const int n = snprintf(label, sizeof label, "%lld:%s", (long long)before, ref->name);
    if (n < 0 || (size_t)n >= sizeof label) {
        dv_graph_fail(g, dv_fail(DAVY_E_FORMAT, "a convolution has a name of more than %d bytes", MAX_NAME));
        return DV_NO_PARAM;
    }
    const dv_derivation from = {ref->name, &before, sizeof before, .derive = derive_last_bias, .stored = c_out};
    return dv_param_derived(g, label, &from, 1, &all);
}

/* The parameters of <name>, stored with a time axis, or for one frame as in dv_conv. `label` receives the node's
 * label. */
static void stored_params(dv_graph *g, const char *name, const taps *how, const dv_conv3d_opts *o, dv_conv_opts *conv,
                          char label[MAX_NAME]) {
    const int64_t k = o->k;
    const int64_t shape[5] = {how->o, how->i, how->frames, k, k};
    const int64_t plain[4] = {how->o, how->i, k, k};
    const dv_tensor_ref *found = dv_weight_find(g->weights, name, ".weight");
    const bool timeless = how->frames == 1 && found != NULL && found->ndim < 5;
    const dv_tensor_ref *ref = dv_weight_require(g, name, ".weight", timeless ? 4 : 5, timeless ? plain : shape);
    if (ref == NULL) {
        return;
    }
    const size_t length = strlen(ref->name);
    dv_printable(label, MAX_NAME, ref->name, length > 7 ? length - 7 : length); /* without .weight */
    conv->weight = tap_weight(g, ref, how, k);
    conv->bias = o->no_bias               ? DV_NO_PARAM
                 : how->use == TAPS_APART ? last_bias(g, name, how->o, how->frames)
                                          : dv_param_suffixed(g, name, ".bias", 1, &how->o);
}

static dv_conv3d_opts completed(const dv_conv3d_opts *opts) {
    dv_conv3d_opts o = {0};
    if (opts != NULL) {
        o = *opts;
    }
    o.frames = o.frames > 0 ? o.frames : 3;
    o.step = o.step > 0 ? o.step : 1;
    o.k = o.k > 0 ? o.k : 3;
    o.stride = o.stride > 0 ? o.stride : 1;
    return o;
}

enum { FEW = 8 }; /* channels; fewer results than this may be kept instead of frames */

/* True if the results of all taps together are fewer than the input channels. Then these results are kept instead of
 * frames. */
static bool keeps_results(const dv_conv3d_opts *o, int64_t c_in, int64_t c_out) {
    return o->frames > 1 && o->step == 1 && !o->derived && c_out < FEW && o->frames * c_out <= c_in;
}

/* The convolution computes each frame's contributions to the frames that follow it. The frame t before the current one
 * contributes through tap frames - 1 - t. */
static dv_value sum_taps(dv_graph *g, dv_value all, const dv_conv3d_opts *o, int64_t c_out) {
    dv_value sum = dv_slice(g, all, (o->frames - 1) * c_out, c_out);
    for (int32_t t = 1; t < o->frames; t++) {
        const dv_value tap = dv_slice(g, all, (o->frames - 1 - t) * c_out, c_out);
        const dv_value windows = dv_recall(g, tap, t + 1, o->before);
        sum = dv_add(g, 1.0f, sum, 1.0f, dv_slice(g, windows, 0, c_out));
    }
    return sum;
}

dv_value dv_conv3d(dv_graph *g, dv_value x, const char *name, int64_t c_out, const dv_conv3d_opts *opts) {
    const dv_conv3d_opts o = completed(opts);
    if (!dv_graph_ready(g, name, x) || !frames_possible(g, name, o.frames, o.step)) {
        return DV_NO_VALUE;
    }
    const bool folds = o.frames > 1 && is_alone(g, x) && !o.derived;
    const bool apart = !folds && keeps_results(&o, dv_shape_of(g, x).c, c_out);
    const tap_use use = apart                         ? TAPS_APART
                        : !folds                      ? TAPS_SIDE_BY_SIDE
                        : o.before == DV_BEFORE_FIRST ? TAPS_SUMMED
                                                      : TAPS_LAST;
    char label[MAX_NAME];
    dv_printable(label, sizeof label, name, strlen(name));
    dv_conv_opts conv = {.stride = o.stride,
                         .pad_bottom_right = o.pad_bottom_right,
                         .derived = true,
                         .weight = o.weight,
                         .bias = o.bias};
    if (!o.derived) {
        const taps how = {c_out, dv_shape_of(g, x).c, o.frames, (int64_t)o.k * o.k, (int64_t)use};
        stored_params(g, name, &how, &o, &conv, label);
    }
    if (!dv_graph_ok(g)) {
        return DV_NO_VALUE;
    }
    if (apart) {
        return sum_taps(g, dv_conv(g, x, label, o.frames * c_out, o.k, &conv), &o, c_out);
    }
    const bool timeless = folds || (o.frames == 1 && o.step == 1);
    return dv_conv(g, timeless ? x : causal(g, x, o.frames, o.step, o.before), label, c_out, o.k, &conv);
}
