/* derived.c - see derived.h. A derivation is told in its key what to do: numbers, each with a ':' behind it, and the name
 * of what is stored. */
#include "core/block/derived.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"

davy_result dv_read_tensor(const dv_tensors *t, const char *name, int32_t ndim, const int64_t *shape, float **out) {
    const dv_tensor_ref *ref = dv_tensors_find(t, name);
    if (ref == NULL) {
        return dv_fail(DAVY_E_TENSOR, "tensor '%s' is missing", name);
    }
    bool fits = ref->ndim == ndim;
    for (int32_t i = 0; fits && i < ndim; i++) {
        fits = ref->shape[i] == shape[i];
    }
    if (!fits) {
        return dv_fail(DAVY_E_SHAPE, "tensor '%s' does not fit its neighbours", name);
    }
    *out = dv_calloc((uint64_t)dv_tensor_elements(ref), sizeof **out);
    if (*out == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for tensor '%s'", name);
    }
    return dv_tensor_read_f32(ref, *out);
}

/* The stored tensor's own name, once its shape is known to be right; NULL: the graph has failed. */
static const char *stored_name(dv_graph *g, const char *name, const char *suffix, int32_t ndim, const int64_t *shape) {
    const dv_tensor_ref *ref = dv_weight_wanted(g, name, suffix, ndim, shape);
    return ref != NULL ? ref->name : NULL;
}

const char *dv_key_numbers(const char *key, int64_t *out, int count) {
    for (int i = 0; i < count; i++) {
        char *end = NULL;
        out[i] = strtoll(key, &end, 10);
        key = end + 1;
    }
    return key;
}

/* ---- transposed ----
 * Row Y of the result, counted before the padding is cut, is sum over i of x[i] w[Y - s i]. With Y = s q + r these are
 * the taps w[r + s t] of x[q - t]: a convolution for each of the s rows r, of `taps` rows of x up to q. */

typedef struct transposed {
    int64_t c_in, c_out, k, stride, taps;
    int64_t side; /* of the convolution: taps, without padding; or 2 taps - 1, the last of them zero, with it */
} transposed;

static void transposed_lay(const transposed *d, const float *stored, float *dst) {
    const int64_t s = d->stride, square = d->side * d->side, k = d->k;
    for (int64_t at = 0; at < d->c_out * s * s * d->c_in * square; at++) {
        const int64_t out = at / (d->c_in * square), in = at / square % d->c_in;
        const int64_t ty = d->taps - 1 - at % square / d->side, tx = d->taps - 1 - at % d->side;
        const int64_t y = out / s % s + s * ty, x = out % s + s * tx;
        const bool inside = ty >= 0 && tx >= 0 && y < k && x < k;
        dst[at] = inside ? stored[((in * d->c_out + out / (s * s)) * k + y) * k + x] : 0.0f;
    }
}

static davy_result derive_transposed(const dv_tensors *t, const char *key, float *dst) {
    int64_t n[6];
    const char *name = dv_key_numbers(key, n, 6);
    const transposed d = {n[0], n[1], n[2], n[3], n[4], n[5]};
    const int64_t shape[4] = {d.c_in, d.c_out, d.k, d.k};
    float *stored = NULL;
    const davy_result r = dv_read_tensor(t, name, 4, shape, &stored);
    if (r == DAVY_OK) {
        transposed_lay(&d, stored, dst);
    }
    dv_free(stored);
    return r;
}

/* Each element as often as a shuffle wants it: key is "<c>:<times>:<tensor>". */
static davy_result derive_repeated(const dv_tensors *t, const char *key, float *dst) {
    int64_t n[2];
    const char *name = dv_key_numbers(key, n, 2);
    float *stored = NULL;
    const davy_result r = dv_read_tensor(t, name, 1, &n[0], &stored);
    for (int64_t i = 0; r == DAVY_OK && i < n[0] * n[1]; i++) {
        dst[i] = stored[i / n[1]];
    }
    dv_free(stored);
    return r;
}

static dv_param transposed_weight(dv_graph *g, const char *name, const transposed *d) {
    const int64_t stored_shape[4] = {d->c_in, d->c_out, d->k, d->k};
    const int64_t shape[4] = {d->c_out * d->stride * d->stride, d->c_in, d->side, d->side};
    const char *stored = stored_name(g, name, ".weight", 4, stored_shape);
    if (stored == NULL) {
        return DV_NO_PARAM;
    }
    char key[DV_NAMES_BYTES];
    snprintf(key, sizeof key, "%d:%d:%d:%d:%d:%d:%s", (int)d->c_in, (int)d->c_out, (int)d->k, (int)d->stride,
             (int)d->taps, (int)d->side, stored);
    return dv_param_derived(g, key, key, 4, shape, derive_transposed);
}

static dv_param transposed_bias(dv_graph *g, const char *name, const transposed *d) {
    const int64_t times = d->stride * d->stride;
    const int64_t count = d->c_out * times;
    const char *stored = stored_name(g, name, ".bias", 1, &d->c_out);
    if (stored == NULL) {
        return DV_NO_PARAM;
    }
    char key[DV_NAMES_BYTES];
    snprintf(key, sizeof key, "%d:%d:%s", (int)d->c_out, (int)times, stored);
    return dv_param_derived(g, key, key, 1, &count, derive_repeated);
}

dv_value dv_conv_transposed(dv_graph *g, dv_value x, const char *name, int64_t c_out, int32_t k, int32_t stride,
                            int32_t pad, dv_act act) {
    const dv_shape in = dv_shape_of(g, x);
    transposed d = {.c_in = in.c, .c_out = c_out, .k = k, .stride = stride};
    d.taps = dv_div_up(k, stride);
    const bool valid = pad / stride >= d.taps - 1; /* what is kept sees no pixel before the first */
    d.side = valid ? d.taps : 2 * d.taps - 1;
    dv_conv_opts opts = {.derived = true, .valid = valid};
    opts.weight = transposed_weight(g, name, &d);
    opts.bias = transposed_bias(g, name, &d);
    if (opts.weight == DV_NO_PARAM || opts.bias == DV_NO_PARAM) {
        return DV_NO_VALUE;
    }
    if (k - 1 - pad >= stride) { /* nor one behind the last */
        return dv_graph_fail(g, dv_fail(DAVY_E_INTERNAL, "'%s': padding by %d is too little", name, (int)pad));
    }
    dv_value y = dv_conv(g, x, name, c_out * stride * stride, (int32_t)d.side, &opts);
    if (act.kind != DVK_ACT_NONE) {
        y = dv_activation(g, y, act.kind, act.slope);
    }
    y = dv_pixel_shuffle(g, y, stride, DV_NO_VALUE);
    const int64_t cut = pad - (valid ? (d.taps - 1) * stride : 0);
    return dv_crop(g, y, cut, cut, (in.h - 1) * stride - 2 * pad + k, (in.w - 1) * stride - 2 * pad + k);
}

/* ---- rotated ---- */

/* key: "<c>:<k>:<by>:<outputs>:<tensor>" */
static davy_result derive_rotated(const dv_tensors *t, const char *key, float *dst) {
    int64_t n[4];
    const char *name = dv_key_numbers(key, n, 4);
    const int64_t c = n[0], square = n[1] * n[1], by = n[2];
    const int64_t shape[4] = {c, c, n[1], n[1]};
    const dv_tensor_ref *ref = dv_tensors_find(t, name);
    const int32_t ndim = ref != NULL ? ref->ndim : 4; /* a 1x1 may be a matrix */
    float *stored = NULL;
    const davy_result r = dv_read_tensor(t, name, ndim, shape, &stored);
    for (int64_t o = 0; r == DAVY_OK && o < c; o++) {
        const int64_t from = n[3] ? (o + by) % c : o;
        for (int64_t i = 0; i < c; i++) {
            memcpy(dst + (o * c + i) * square, stored + (from * c + (i + by) % c) * square,
                   (size_t)square * sizeof *dst);
        }
    }
    dv_free(stored);
    return r;
}

/* key: "<c>:<by>:<tensor>" */
static davy_result derive_rotated_bias(const dv_tensors *t, const char *key, float *dst) {
    int64_t n[2];
    const char *name = dv_key_numbers(key, n, 2);
    float *stored = NULL;
    const davy_result r = dv_read_tensor(t, name, 1, &n[0], &stored);
    for (int64_t i = 0; r == DAVY_OK && i < n[0]; i++) {
        dst[i] = stored[(i + n[1]) % n[0]];
    }
    dv_free(stored);
    return r;
}

dv_value dv_conv_rotated(dv_graph *g, dv_value x, const char *name, int32_t k, int64_t by, bool outputs) {
    const int64_t c = dv_shape_of(g, x).c;
    const int64_t shape[4] = {c, c, k, k};
    const char *weight = stored_name(g, name, ".weight", 4, shape);
    const char *bias = stored_name(g, name, ".bias", 1, &c);
    if (weight == NULL || bias == NULL) {
        return DV_NO_VALUE;
    }
    char key[DV_NAMES_BYTES];
    dv_conv_opts opts = {.derived = true};
    snprintf(key, sizeof key, "%d:%d:%d:%d:%s", (int)c, (int)k, (int)by, outputs, weight);
    opts.weight = dv_param_derived(g, key, key, 4, shape, derive_rotated);
    snprintf(key, sizeof key, "%d:%d:%s", (int)c, outputs ? (int)by : 0, bias);
    opts.bias = dv_param_derived(g, key, key, 1, &c, derive_rotated_bias);
    return dv_conv(g, x, name, c, k, &opts);
}

/* ---- sums ---- */

static int64_t span_of(const dv_laid *part) {
    return (int64_t)((part->kh > part->kw ? part->kh : part->kw) - 1) * part->dilation + 1;
}

/* key: "<c_out>:<c_in>:<side>:<parts>:", for each part "<kh>:<kw>:<dilation>:", then the names, each with '|' behind it */
static davy_result add_part(const dv_tensors *t, const char *name, const int64_t n[4], const int64_t part[3],
                            float *dst) {
    const int64_t side = n[2], kh = part[0], kw = part[1];
    const int64_t shape[4] = {n[0], n[1], kh, kw};
    float *stored = NULL;
    const davy_result r = dv_read_tensor(t, name, 4, shape, &stored);
    for (int64_t i = 0; r == DAVY_OK && i < n[0] * n[1] * kh * kw; i++) {
        const int64_t y = side / 2 + (i / kw % kh - kh / 2) * part[2];
        const int64_t x = side / 2 + (i % kw - kw / 2) * part[2];
        dst[(i / (kh * kw) * side + y) * side + x] += stored[i];
    }
    dv_free(stored);
    return r;
}

/* Calls for each name of a key's list. */
static davy_result each_part(const dv_tensors *t, const char *key, float *dst, bool bias) {
    int64_t n[4];
    int64_t parts[4][3];
    const char *names = dv_key_numbers(key, n, 4);
    for (int64_t i = 0; i < n[3]; i++) {
        names = dv_key_numbers(names, parts[i], 3);
    }
    memset(dst, 0, (size_t)(bias ? n[0] : n[0] * n[1] * n[2] * n[2]) * sizeof *dst);
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < n[3]; i++) {
        char name[DV_NAMES_BYTES];
        const size_t length = strcspn(names, "|");
        snprintf(name, sizeof name, "%.*s%s", (int)length, names, bias ? ".bias" : ".weight");
        names += length + 1;
        if (!bias) {
            r = add_part(t, name, n, parts[i], dst);
            continue;
        }
        float *stored = NULL;
        r = dv_read_tensor(t, name, 1, &n[0], &stored);
        for (int64_t o = 0; r == DAVY_OK && o < n[0]; o++) {
            dst[o] += stored[o];
        }
        dv_free(stored);
    }
    return r;
}

static davy_result derive_sum(const dv_tensors *t, const char *key, float *dst) {
    return each_part(t, key, dst, false);
}

static davy_result derive_sum_bias(const dv_tensors *t, const char *key, float *dst) {
    return each_part(t, key + 1, dst, true);
}

dv_value dv_conv_sum(dv_graph *g, dv_value x, const char *label, const dv_laid parts[4]) {
    const int64_t c = dv_shape_of(g, x).c;
    int64_t side = 1;
    int count = 0;
    char numbers[128] = "";
    char names[DV_NAMES_BYTES] = "";
    for (; count < 4 && parts[count].name != NULL; count++) {
        const dv_laid *p = &parts[count];
        const int64_t shape[4] = {c, c, p->kh, p->kw};
        if (stored_name(g, p->name, ".weight", 4, shape) == NULL || stored_name(g, p->name, ".bias", 1, &c) == NULL) {
            return DV_NO_VALUE;
        }
        side = dv_max(side, span_of(p));
        snprintf(numbers + strlen(numbers), sizeof numbers - strlen(numbers), "%d:%d:%d:", (int)p->kh, (int)p->kw,
                 (int)p->dilation);
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s|", p->name);
    }
    char key[2 * DV_NAMES_BYTES];
    const int64_t shape[4] = {c, c, side, side};
    dv_conv_opts opts = {.derived = true};
    snprintf(key, sizeof key, "+%d:%d:%d:%d:%s%s", (int)c, (int)c, (int)side, count, numbers, names);
    opts.weight = dv_param_derived(g, key + 1, key + 1, 4, shape, derive_sum);
    opts.bias = dv_param_derived(g, key, key, 1, &c, derive_sum_bias);
    return dv_conv(g, x, label, c, (int32_t)side, &opts);
}
