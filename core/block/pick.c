/* pick.c - see pick.h. The key of a derivation has the picks as numbers and the name of what is stored. */
#include "core/block/pick.h"

#include <stdio.h>
#include <string.h>

#include "core/block/derived.h"
#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"

enum { NUMBERS = 7 }; /* of a pick in a key */

static int64_t count_of(const dv_pick *o, int axis) {
    return o->count[axis] > 0 ? o->count[axis] : 1;
}

static int64_t channels_of(const dv_pick *o) {
    return count_of(o, 0) * count_of(o, 1) * count_of(o, 2);
}

static int64_t stored_channel(const dv_pick *o, int64_t i) {
    const int64_t fast = count_of(o, 2), middle = count_of(o, 1);
    return o->first + i / fast / middle * o->step[0] + i / fast % middle * o->step[1] + i % fast * o->step[2];
}

static bool within(const dv_pick *o, int64_t channels) {
    for (int64_t i = 0; i < channels_of(o); i++) {
        const int64_t at = stored_channel(o, i);
        if (at < 0 || at >= channels) {
            return false;
        }
    }
    return true;
}

static size_t put_pick(char *key, size_t size, const dv_pick *o) {
    const int n = snprintf(key, size, "%lld:%lld:%lld:%lld:%lld:%lld:%lld:", (long long)o->first,
                           (long long)o->count[0], (long long)o->count[1], (long long)o->count[2],
                           (long long)o->step[0], (long long)o->step[1], (long long)o->step[2]);
    return n > 0 && (size_t)n < size ? (size_t)n : 0;
}

static const char *take_pick(const char *key, dv_pick *o) {
    int64_t n[NUMBERS];
    key = dv_key_numbers(key, n, NUMBERS);
    *o = (dv_pick){n[0], {n[1], n[2], n[3]}, {n[4], n[5], n[6]}};
    return key;
}

static davy_result read_stored(const dv_tensors *t, const char *name, const dv_tensor_ref **ref, float **out) {
    *ref = dv_tensors_find(t, name);
    return *ref != NULL ? dv_read_tensor(t, name, (*ref)->ndim, (*ref)->shape, out)
                        : dv_fail(DAVY_E_TENSOR, "tensor '%s' is missing", name);
}

static int64_t axis_of(const dv_tensor_ref *ref, int32_t axis) {
    return axis < ref->ndim ? ref->shape[axis] : 1;
}

/* Elements of one kernel in space, and how many frames it has. */
static void kernel_of(const dv_tensor_ref *ref, int64_t *frames, int64_t *square) {
    *frames = ref->ndim == 5 ? ref->shape[2] : 1;
    *square = ref->ndim == 5 ? ref->shape[3] * ref->shape[4] : axis_of(ref, 2) * axis_of(ref, 3);
}

static davy_result derive_picked(const dv_tensors *t, const char *key, float *dst) {
    dv_pick out, in;
    const char *name = take_pick(take_pick(key, &out), &in);
    const dv_tensor_ref *ref = NULL;
    float *stored = NULL;
    const davy_result r = read_stored(t, name, &ref, &stored);
    int64_t frames = 0, square = 0;
    if (r == DAVY_OK) {
        kernel_of(ref, &frames, &square);
    }
    const int64_t inputs = channels_of(&in);
    for (int64_t at = 0; r == DAVY_OK && at < channels_of(&out) * frames * inputs; at++) {
        const int64_t o = stored_channel(&out, at / inputs / frames), i = stored_channel(&in, at % inputs);
        const int64_t frame = at / inputs % frames;
        memcpy(dst + at * square, stored + ((o * ref->shape[1] + i) * frames + frame) * square,
               (size_t)square * sizeof *dst);
    }
    dv_free(stored);
    return r;
}

static davy_result derive_picked_vector(const dv_tensors *t, const char *key, float *dst) {
    dv_pick pick;
    const char *name = take_pick(key, &pick);
    const dv_tensor_ref *ref = NULL;
    float *stored = NULL;
    const davy_result r = read_stored(t, name, &ref, &stored);
    for (int64_t i = 0; r == DAVY_OK && i < channels_of(&pick); i++) {
        dst[i] = stored[stored_channel(&pick, i)];
    }
    dv_free(stored);
    return r;
}

static davy_result derive_picked_depthwise(const dv_tensors *t, const char *key, float *dst) {
    dv_pick pick;
    const char *name = take_pick(key, &pick);
    const dv_tensor_ref *ref = NULL;
    float *stored = NULL;
    const davy_result r = read_stored(t, name, &ref, &stored);
    const int64_t channels = channels_of(&pick), square = r == DAVY_OK ? ref->shape[2] * ref->shape[3] : 0;
    for (int64_t at = 0; r == DAVY_OK && at < square * channels; at++) {
        dst[at] = stored[stored_channel(&pick, at % channels) * square + at / channels];
    }
    dv_free(stored);
    return r;
}

/* All channels of the pick are there, and they are all, or one of several equal parts. */
static bool suits(const dv_pick *o, int64_t channels) {
    return channels % channels_of(o) == 0 && within(o, channels);
}

/* Of `frames` frames and k x k pixels; an axis of one frame, and those of one pixel, may be missing. */
static bool kernel_suits(const dv_tensor_ref *ref, int64_t frames, int64_t k) {
    const int32_t space = ref->ndim == 5 ? 3 : 2;
    const bool timed =
        ref->ndim == 5 ? ref->shape[2] == frames : frames == 1 && (ref->ndim == 4 || (ref->ndim == 2 && k == 1));
    return timed && axis_of(ref, space) == k && axis_of(ref, space + 1) == k;
}

/* The tensor, once it is there and can be read; NULL: the graph has failed. */
static const dv_tensor_ref *found(dv_graph *g, const char *name, const dv_pick *out) {
    const dv_tensor_ref *ref = dv_weight_find(g->weights, name, "");
    const int64_t channels = channels_of(out);
    return dv_weight_wanted(g, name, "", ref != NULL ? ref->ndim : 1, ref != NULL ? ref->shape : &channels);
}

static dv_param refused(dv_graph *g, const dv_tensor_ref *ref) {
    char name[128];
    char shape[96];
    dv_printable(name, sizeof name, ref->name, strlen(ref->name));
    dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "tensor '%s' has shape %s, which does not fit its neighbours", name,
                             dv_shape_text(shape, sizeof shape, ref->shape, ref->ndim)));
    return DV_NO_PARAM;
}

static dv_param derived(dv_graph *g, const char *key, const dv_tensor_ref *ref, int32_t ndim, const int64_t *shape,
                        dv_derive_fn fn) {
    const dv_param p = dv_param_derived(g, key, key, ndim, shape, fn);
    if (p != DV_NO_PARAM) {
        g->params[p].stored = dv_tensor_elements(ref);
    }
    return p;
}

dv_param dv_param_picked(dv_graph *g, const char *name, const dv_pick *out, const dv_pick *in, int64_t frames,
                         int64_t k) {
    const dv_tensor_ref *ref = found(g, name, out);
    if (ref == NULL) {
        return DV_NO_PARAM;
    }
    if (ref->ndim < 2 || !suits(out, ref->shape[0]) || !suits(in, ref->shape[1]) || channels_of(in) != ref->shape[1] ||
        !kernel_suits(ref, frames, k)) {
        return refused(g, ref);
    }
    char key[2 * DV_NAMES_BYTES];
    size_t at = put_pick(key, sizeof key, out);
    at += put_pick(key + at, sizeof key - at, in);
    snprintf(key + at, sizeof key - at, "%s", ref->name);
    const int64_t shape[4] = {channels_of(out), frames * channels_of(in), k, k};
    return derived(g, key, ref, 4, shape, derive_picked);
}

dv_param dv_param_picked_vector(dv_graph *g, const char *name, const dv_pick *pick) {
    const dv_tensor_ref *ref = found(g, name, pick);
    if (ref == NULL) {
        return DV_NO_PARAM;
    }
    if (ref->ndim != 1 || !suits(pick, ref->shape[0])) {
        return refused(g, ref);
    }
    char key[2 * DV_NAMES_BYTES];
    const size_t at = put_pick(key, sizeof key, pick);
    snprintf(key + at, sizeof key - at, "%s", ref->name);
    const int64_t count = channels_of(pick);
    return derived(g, key, ref, 1, &count, derive_picked_vector);
}

dv_param dv_param_picked_depthwise(dv_graph *g, const char *name, int64_t k, const dv_pick *pick) {
    const int64_t stored[4] = {channels_of(pick), 1, k, k};
    const dv_tensor_ref *ref = dv_weight_wanted(g, name, "", 4, stored);
    if (ref == NULL || !within(pick, stored[0])) {
        return ref != NULL ? refused(g, ref) : DV_NO_PARAM;
    }
    char key[2 * DV_NAMES_BYTES];
    const size_t at = put_pick(key, sizeof key, pick);
    snprintf(key + at, sizeof key - at, "%s", ref->name);
    const int64_t shape[2] = {k * k, stored[0]};
    return derived(g, key, ref, 2, shape, derive_picked_depthwise);
}
