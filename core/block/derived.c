/* derived.c - see derived.h. */
#include "core/block/derived.h"

#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"

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
        return dv_fail(DAVY_E_SHAPE, "tensor '%s' has a shape that does not fit the tensors beside it", name);
    }
    *out = dv_calloc((uint64_t)dv_tensor_elements(ref), sizeof **out);
    if (*out == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for tensor '%s'", name);
    }
    return dv_tensor_read_f32(ref, *out);
}

/* Returns the stored tensor's own name after checking its shape; NULL: the graph has failed. */
static const char *stored_name(dv_graph *g, const char *name, const char *suffix, int32_t ndim, const int64_t *shape) {
    const dv_tensor_ref *ref = dv_weight_require(g, name, suffix, ndim, shape);
    return ref != NULL ? ref->name : NULL;
}

/* ---- transposed ----
 * Row Y of the result, counted before the padding is cropped, is sum over i of x[i] w[Y - s i]. With Y = s q + r
 * these are the taps w[r + s t] of x[q - t]. So each of the s rows r is a convolution over `taps` rows of x, the
 * last of them q. */

typedef struct transposed {
    int64_t c_in, c_out, k, stride, taps;
    /* of the convolution: `taps` without padding; with padding 2 taps - 1, and the taps behind the middle are zero */
    int64_t side;
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

static davy_result derive_transposed(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const transposed *d = from->how;
    const int64_t shape[4] = {d->c_in, d->c_out, d->k, d->k};
    float *stored = NULL;
    const davy_result r = dv_read_tensor(t, from->name, 4, shape, &stored);
    if (r == DAVY_OK) {
        transposed_lay(d, stored, dst);
    }
    dv_free(stored);
    return r;
}

/* Each element `times` times, in the order that a pixel shuffle needs. */
typedef struct repeated {
    int64_t c, times;
} repeated;

static davy_result derive_repeated(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const repeated *d = from->how;
    float *stored = NULL;
    const davy_result r = dv_read_tensor(t, from->name, 1, &d->c, &stored);
    for (int64_t i = 0; r == DAVY_OK && i < d->c * d->times; i++) {
        dst[i] = stored[i / d->times];
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
    char label[DV_NAMES_BYTES];
    snprintf(label, sizeof label, "%d:%d:%d:%d:%d:%d:%s", (int)d->c_in, (int)d->c_out, (int)d->k, (int)d->stride,
             (int)d->taps, (int)d->side, stored);
    const dv_derivation from = {stored, d, sizeof *d, .derive = derive_transposed};
    return dv_param_derived(g, label, &from, 4, shape);
}

static dv_param transposed_bias(dv_graph *g, const char *name, const transposed *d) {
    const int64_t times = d->stride * d->stride;
    const int64_t count = d->c_out * times;
    const char *stored = stored_name(g, name, ".bias", 1, &d->c_out);
    if (stored == NULL) {
        return DV_NO_PARAM;
    }
    char label[DV_NAMES_BYTES];
    snprintf(label, sizeof label, "%d:%d:%s", (int)d->c_out, (int)times, stored);
    const repeated how = {d->c_out, times};
    const dv_derivation from = {stored, &how, sizeof how, .derive = derive_repeated};
    return dv_param_derived(g, label, &from, 1, &count);
}

dv_value dv_conv_transposed(dv_graph *g, dv_value x, const char *name, const dv_transposed *opts) {
    const dv_shape in = dv_shape_of(g, x);
    const int32_t k = opts->k, stride = opts->stride, pad = opts->pad;
    transposed d = {.c_in = in.c, .c_out = opts->c_out, .k = k, .stride = stride};
    d.taps = dv_div_up(k, stride);
    const bool valid = pad / stride >= d.taps - 1; /* the kept results need no pixel before the first */
    d.side = valid ? d.taps : 2 * d.taps - 1;
    dv_conv_opts conv = {.derived = true, .valid = valid};
    conv.weight = transposed_weight(g, name, &d);
    conv.bias = transposed_bias(g, name, &d);
    if (conv.weight == DV_NO_PARAM || conv.bias == DV_NO_PARAM) {
        return DV_NO_VALUE;
    }
    if (k - 1 - pad >= stride) { /* and no pixel behind the last */
        return dv_graph_fail(
            g, dv_fail(DAVY_E_INTERNAL, "'%s': padding %d is too small for this kernel and stride", name, (int)pad));
    }
    dv_value y = dv_conv(g, x, name, opts->c_out * stride * stride, (int32_t)d.side, &conv);
    if (opts->act.kind != DVK_ACT_NONE) {
        y = dv_activation(g, y, opts->act.kind, opts->act.slope);
    }
    y = dv_pixel_shuffle(g, y, stride, DV_NO_VALUE);
    const int64_t cut = pad - (valid ? (d.taps - 1) * stride : 0);
    return dv_crop(
        g, y,
        (dv_rect){
            .top = cut, .left = cut, .h = (in.h - 1) * stride - 2 * pad + k, .w = (in.w - 1) * stride - 2 * pad + k});
}

/* ---- rotated ---- */

typedef struct rotated {
    int64_t c, k, by;
    int64_t outputs; /* the outputs are rotated, too; a bias has only outputs */
} rotated;

static davy_result derive_rotated(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const rotated *d = from->how;
    const int64_t c = d->c, square = d->k * d->k, by = d->by;
    const int64_t shape[4] = {c, c, d->k, d->k};
    const dv_tensor_ref *ref = dv_tensors_find(t, from->name);
    const int32_t ndim = ref != NULL ? ref->ndim : 4; /* a 1x1 weight may be a matrix */
    float *stored = NULL;
    const davy_result r = dv_read_tensor(t, from->name, ndim, shape, &stored);
    for (int64_t o = 0; r == DAVY_OK && o < c; o++) {
        const int64_t row = d->outputs ? (o + by) % c : o;
        for (int64_t i = 0; i < c; i++) {
            memcpy(dst + (o * c + i) * square, stored + (row * c + (i + by) % c) * square,
                   (size_t)square * sizeof *dst);
        }
    }
    dv_free(stored);
    return r;
}

static davy_result derive_rotated_bias(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const rotated *d = from->how;
    float *stored = NULL;
    const davy_result r = dv_read_tensor(t, from->name, 1, &d->c, &stored);
    for (int64_t i = 0; r == DAVY_OK && i < d->c; i++) {
        dst[i] = stored[d->outputs ? (i + d->by) % d->c : i];
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
    const rotated how = {c, k, by, outputs};
    const dv_derivation of_weight = {weight, &how, sizeof how, .derive = derive_rotated};
    const dv_derivation of_bias = {bias, &how, sizeof how, .derive = derive_rotated_bias};
    char label[DV_NAMES_BYTES];
    dv_conv_opts opts = {.derived = true};
    snprintf(label, sizeof label, "%d:%d:%d:%d:%s", (int)c, (int)k, (int)by, outputs, weight);
    opts.weight = dv_param_derived(g, label, &of_weight, 4, shape);
    snprintf(label, sizeof label, "%d:%d:%s", (int)c, outputs ? (int)by : 0, bias);
    opts.bias = dv_param_derived(g, label, &of_bias, 1, &c);
    return dv_conv(g, x, name, c, k, &opts);
}

/* ---- sums ---- */

static int64_t span_of(const dv_laid *part) {
    return (int64_t)((part->kh > part->kw ? part->kh : part->kw) - 1) * part->dilation + 1;
}

typedef struct laid_part {
    int64_t kh, kw, dilation;
    char name[DV_NAMES_BYTES];
} laid_part;

typedef struct laid { /* parts placed in a kernel of side x side */
    int64_t c, side, count;
    laid_part parts[4];
} laid;

static davy_result add_part(const dv_tensors *t, const laid *d, const laid_part *part, float *dst) {
    const int64_t side = d->side, kh = part->kh, kw = part->kw;
    const int64_t shape[4] = {d->c, d->c, kh, kw};
    char name[DV_NAMES_BYTES];
    float *stored = NULL;
    const davy_result r = dv_read_tensor(t, dv_names_join(name, part->name, ".weight"), 4, shape, &stored);
    for (int64_t i = 0; r == DAVY_OK && i < d->c * d->c * kh * kw; i++) {
        const int64_t y = side / 2 + (i / kw % kh - kh / 2) * part->dilation;
        const int64_t x = side / 2 + (i % kw - kw / 2) * part->dilation;
        dst[(i / (kh * kw) * side + y) * side + x] += stored[i];
    }
    dv_free(stored);
    return r;
}

static davy_result derive_sum(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const laid *d = from->how;
    davy_result r = DAVY_OK;
    memset(dst, 0, (size_t)(d->c * d->c * d->side * d->side) * sizeof *dst);
    for (int64_t i = 0; r == DAVY_OK && i < d->count; i++) {
        r = add_part(t, d, &d->parts[i], dst);
    }
    return r;
}

static davy_result derive_sum_bias(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const laid *d = from->how;
    davy_result r = DAVY_OK;
    memset(dst, 0, (size_t)d->c * sizeof *dst);
    for (int64_t i = 0; r == DAVY_OK && i < d->count; i++) {
        char name[DV_NAMES_BYTES];
        float *stored = NULL;
        r = dv_read_tensor(t, dv_names_join(name, d->parts[i].name, ".bias"), 1, &d->c, &stored);
        for (int64_t o = 0; r == DAVY_OK && o < d->c; o++) {
            dst[o] += stored[o];
        }
        dv_free(stored);
    }
    return r;
}

/* Label of the weights; with '+' in front, label of their biases. */
static void put_label(const laid *d, char *out, size_t size) {
    int n = snprintf(out, size, "+%d:%d:%d:%d:", (int)d->c, (int)d->c, (int)d->side, (int)d->count);
    for (int64_t i = 0; i < d->count; i++) {
        const laid_part *p = &d->parts[i];
        n += snprintf(out + n, size - (size_t)n, "%d:%d:%d:", (int)p->kh, (int)p->kw, (int)p->dilation);
    }
    for (int64_t i = 0; i < d->count && (size_t)n < size; i++) {
        n += snprintf(out + n, size - (size_t)n, "%s|", d->parts[i].name);
    }
}

dv_value dv_conv_sum(dv_graph *g, dv_value x, const char *label, const dv_laid parts[4]) {
    const int64_t c = dv_shape_of(g, x).c;
    laid d = {.c = c, .side = 1};
    for (; d.count < 4 && parts[d.count].name != NULL; d.count++) {
        const dv_laid *p = &parts[d.count];
        laid_part *to = &d.parts[d.count];
        const int64_t shape[4] = {c, c, p->kh, p->kw};
        if (stored_name(g, p->name, ".weight", 4, shape) == NULL || stored_name(g, p->name, ".bias", 1, &c) == NULL) {
            return DV_NO_VALUE;
        }
        d.side = dv_max(d.side, span_of(p));
        to->kh = p->kh;
        to->kw = p->kw;
        to->dilation = p->dilation;
        snprintf(to->name, sizeof to->name, "%s", p->name);
    }
    char name[3 * DV_NAMES_BYTES];
    const int64_t shape[4] = {c, c, d.side, d.side};
    const dv_derivation of_weight = {"", &d, sizeof d, .derive = derive_sum};
    const dv_derivation of_bias = {"", &d, sizeof d, .derive = derive_sum_bias};
    dv_conv_opts opts = {.derived = true};
    put_label(&d, name, sizeof name);
    opts.weight = dv_param_derived(g, name + 1, &of_weight, 4, shape);
    opts.bias = dv_param_derived(g, name, &of_bias, 1, &c);
    return dv_conv(g, x, label, c, (int32_t)d.side, &opts);
}

/* ---- picked ---- */

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

typedef struct picks { /* vectors and depthwise convolutions use only `out` */
    dv_pick out, in;
} picks;

/* The label of a derived parameter begins with its picks. */
static size_t put_pick(char *label, size_t size, const dv_pick *o) {
    const int n = snprintf(label, size, "%lld:%lld:%lld:%lld:%lld:%lld:%lld:", (long long)o->first,
                           (long long)o->count[0], (long long)o->count[1], (long long)o->count[2],
                           (long long)o->step[0], (long long)o->step[1], (long long)o->step[2]);
    return n > 0 && (size_t)n < size ? (size_t)n : 0;
}

static davy_result read_stored(const dv_tensors *t, const char *name, const dv_tensor_ref **ref, float **out) {
    *ref = dv_tensors_find(t, name);
    return *ref != NULL ? dv_read_tensor(t, name, (*ref)->ndim, (*ref)->shape, out)
                        : dv_fail(DAVY_E_TENSOR, "tensor '%s' is missing", name);
}

static int64_t axis_of(const dv_tensor_ref *ref, int32_t axis) {
    return axis < ref->ndim ? ref->shape[axis] : 1;
}

/* Elements of one spatial kernel, and its number of frames. */
static void kernel_of(const dv_tensor_ref *ref, int64_t *frames, int64_t *square) {
    *frames = ref->ndim == 5 ? ref->shape[2] : 1;
    *square = ref->ndim == 5 ? ref->shape[3] * ref->shape[4] : axis_of(ref, 2) * axis_of(ref, 3);
}

static davy_result derive_picked(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const picks *d = from->how;
    const dv_tensor_ref *ref = NULL;
    float *stored = NULL;
    const davy_result r = read_stored(t, from->name, &ref, &stored);
    int64_t frames = 0, square = 0;
    if (r == DAVY_OK) {
        kernel_of(ref, &frames, &square);
    }
    const int64_t inputs = channels_of(&d->in);
    for (int64_t at = 0; r == DAVY_OK && at < channels_of(&d->out) * frames * inputs; at++) {
        const int64_t o = stored_channel(&d->out, at / inputs / frames), i = stored_channel(&d->in, at % inputs);
        const int64_t frame = at / inputs % frames;
        memcpy(dst + at * square, stored + ((o * ref->shape[1] + i) * frames + frame) * square,
               (size_t)square * sizeof *dst);
    }
    dv_free(stored);
    return r;
}

static davy_result derive_picked_vector(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const dv_pick *pick = &((const picks *)from->how)->out;
    const dv_tensor_ref *ref = NULL;
    float *stored = NULL;
    const davy_result r = read_stored(t, from->name, &ref, &stored);
    for (int64_t i = 0; r == DAVY_OK && i < channels_of(pick); i++) {
        dst[i] = stored[stored_channel(pick, i)];
    }
    dv_free(stored);
    return r;
}

static davy_result derive_picked_depthwise(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const dv_pick *pick = &((const picks *)from->how)->out;
    const dv_tensor_ref *ref = NULL;
    float *stored = NULL;
    const davy_result r = read_stored(t, from->name, &ref, &stored);
    const int64_t channels = channels_of(pick), square = r == DAVY_OK ? ref->shape[2] * ref->shape[3] : 0;
    for (int64_t at = 0; r == DAVY_OK && at < square * channels; at++) {
        dst[at] = stored[stored_channel(pick, at % channels) * square + at / channels];
    }
    dv_free(stored);
    return r;
}

/* All channels of the pick exist, and they are all channels or one of several equal parts. */
static bool suits(const dv_pick *o, int64_t channels) {
    return channels % channels_of(o) == 0 && within(o, channels);
}

/* Whether the kernel has `frames` frames and k x k pixels. Axes of one frame, or of one pixel, may be missing. */
static bool kernel_suits(const dv_tensor_ref *ref, int64_t frames, int64_t k) {
    const int32_t space = ref->ndim == 5 ? 3 : 2;
    const bool timed =
        ref->ndim == 5 ? ref->shape[2] == frames : frames == 1 && (ref->ndim == 4 || (ref->ndim == 2 && k == 1));
    return timed && axis_of(ref, space) == k && axis_of(ref, space + 1) == k;
}

/* The tensor, checked for existence and a readable type; NULL: the graph has failed. */
static const dv_tensor_ref *found(dv_graph *g, const char *name, const dv_pick *out) {
    const dv_tensor_ref *ref = dv_weight_find(g->weights, name, "");
    const int64_t channels = channels_of(out);
    return dv_weight_require(g, name, "", ref != NULL ? ref->ndim : 1, ref != NULL ? ref->shape : &channels);
}

static dv_param refused(dv_graph *g, const dv_tensor_ref *ref) {
    char name[128];
    char shape[96];
    dv_printable(name, sizeof name, ref->name, strlen(ref->name));
    dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "tensor '%s' has shape %s, which does not fit the tensors beside it", name,
                             dv_shape_text(shape, sizeof shape, ref->shape, ref->ndim)));
    return DV_NO_PARAM;
}

static dv_derivation picked_from(const dv_tensor_ref *ref, const picks *how, dv_derive_fn derive) {
    return (dv_derivation){ref->name, how, sizeof *how, .derive = derive, .stored = dv_tensor_elements(ref)};
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
    const picks how = {*out, *in};
    char label[2 * DV_NAMES_BYTES];
    size_t at = put_pick(label, sizeof label, out);
    at += put_pick(label + at, sizeof label - at, in);
    snprintf(label + at, sizeof label - at, "%s", ref->name);
    const int64_t shape[4] = {channels_of(out), frames * channels_of(in), k, k};
    const dv_derivation from = picked_from(ref, &how, derive_picked);
    return dv_param_derived(g, label, &from, 4, shape);
}

dv_param dv_param_picked_vector(dv_graph *g, const char *name, const dv_pick *pick) {
    const dv_tensor_ref *ref = found(g, name, pick);
    if (ref == NULL) {
        return DV_NO_PARAM;
    }
    if (ref->ndim != 1 || !suits(pick, ref->shape[0])) {
        return refused(g, ref);
    }
    const picks how = {*pick, {0}};
    char label[2 * DV_NAMES_BYTES];
    const size_t at = put_pick(label, sizeof label, pick);
    snprintf(label + at, sizeof label - at, "%s", ref->name);
    const int64_t count = channels_of(pick);
    const dv_derivation from = picked_from(ref, &how, derive_picked_vector);
    return dv_param_derived(g, label, &from, 1, &count);
}

dv_param dv_param_picked_depthwise(dv_graph *g, const char *name, int64_t k, const dv_pick *pick) {
    const int64_t stored[4] = {channels_of(pick), 1, k, k};
    const dv_tensor_ref *ref = dv_weight_require(g, name, "", 4, stored);
    if (ref == NULL || !within(pick, stored[0])) {
        return ref != NULL ? refused(g, ref) : DV_NO_PARAM;
    }
    const picks how = {*pick, {0}};
    char label[2 * DV_NAMES_BYTES];
    const size_t at = put_pick(label, sizeof label, pick);
    snprintf(label + at, sizeof label - at, "%s", ref->name);
    const int64_t shape[2] = {k * k, stored[0]};
    const dv_derivation from = picked_from(ref, &how, derive_picked_depthwise);
    return dv_param_derived(g, label, &from, 2, shape);
}
