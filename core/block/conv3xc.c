/* conv3xc.c - see conv3xc.h. Sums are taken in double and rounded once. */
#include "core/block/conv3xc.h"

#include <string.h>

#include "core/block/weights.h"
#include "core/base/error.h"
#include "core/base/mem.h"

enum { TAPS = 9 };

typedef struct folded { /* parts of W2 * W1 * W0 + sk, see docs/arch/up_span.md */
    int64_t in, wide_in, wide_out, out;
    float *w0, *b0, *w1, *b1, *w2, *b2, *skip, *b_skip;
} folded;

static davy_result read_part(const dv_tensors *t, const char *module, const char *part, int32_t ndim,
                             const int64_t *shape, float **out) {
    const dv_tensor_ref *ref = dv_weight_find(t, module, part);
    if (ref == NULL) {
        return dv_fail(DAVY_E_TENSOR, "tensor '%s%s' is missing", module, part);
    }
    bool fits = ref->ndim == ndim;
    for (int32_t i = 0; fits && i < ndim; i++) {
        fits = ref->shape[i] == shape[i];
    }
    if (!fits) {
        return dv_fail(DAVY_E_SHAPE, "tensor '%s%s' has a shape that does not fit the tensors beside it", module, part);
    }
    *out = dv_calloc((uint64_t)dv_tensor_elements(ref), sizeof **out);
    if (*out == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for tensor '%s%s'", module, part);
    }
    return dv_tensor_read_f32(ref, *out);
}

static void collapse_release(folded *f) {
    dv_free(f->w0);
    dv_free(f->b0);
    dv_free(f->w1);
    dv_free(f->b1);
    dv_free(f->w2);
    dv_free(f->b2);
    dv_free(f->skip);
    dv_free(f->b_skip);
}

static davy_result collapse_read(const dv_tensors *t, const char *module, folded *f) {
    char name[DV_NAMES_BYTES];
    f->wide_in = dv_dim(t, dv_names_join(name, module, ".conv.0.weight"), 0);
    f->in = dv_dim(t, name, 1);
    f->wide_out = dv_dim(t, dv_names_join(name, module, ".conv.1.weight"), 0);
    f->out = dv_dim(t, dv_names_join(name, module, ".conv.2.weight"), 0);
    const int64_t w0[4] = {f->wide_in, f->in, 1, 1};
    const int64_t w1[4] = {f->wide_out, f->wide_in, 3, 3};
    const int64_t w2[4] = {f->out, f->wide_out, 1, 1};
    const int64_t skip[4] = {f->out, f->in, 1, 1};
    const struct {
        const char *part;
        const int64_t *shape;
        int32_t ndim;
        float **dst;
    } parts[] = {
        {".conv.0.weight", w0, 4, &f->w0}, {".conv.0.bias", w0, 1, &f->b0},   {".conv.1.weight", w1, 4, &f->w1},
        {".conv.1.bias", w1, 1, &f->b1},   {".conv.2.weight", w2, 4, &f->w2}, {".conv.2.bias", w2, 1, &f->b2},
        {".sk.weight", skip, 4, &f->skip}, {".sk.bias", skip, 1, &f->b_skip},
    };
    davy_result r = DAVY_OK;
    for (size_t i = 0; r == DAVY_OK && i < DV_ARRAY_LEN(parts); i++) {
        r = read_part(t, module, parts[i].part, parts[i].ndim, parts[i].shape, parts[i].dst);
    }
    return r;
}

/* inner[m][tap][i] = sum over n of W1[m][n][tap] * W0[n][i] */
static double *collapse_inner(const folded *f) {
    double *inner = dv_calloc((uint64_t)(f->wide_out * TAPS), (uint64_t)f->in * sizeof *inner);
    for (int64_t m = 0; inner != NULL && m < f->wide_out; m++) {
        for (int64_t n = 0; n < f->wide_in; n++) {
            const float *w0 = f->w0 + n * f->in;
            for (int64_t tap = 0; tap < TAPS; tap++) {
                const double w1 = (double)f->w1[(m * f->wide_in + n) * TAPS + tap];
                double *row = inner + (m * TAPS + tap) * f->in;
                for (int64_t i = 0; i < f->in; i++) {
                    row[i] += w1 * (double)w0[i];
                }
            }
        }
    }
    return inner;
}

static davy_result derive_weight(const dv_tensors *t, const dv_derivation *from, float *dst) {
    folded f = {0};
    davy_result r = collapse_read(t, from->name, &f);
    double *inner = r < 0 ? NULL : collapse_inner(&f);
    double *sum = r < 0 ? NULL : dv_calloc((uint64_t)f.in, TAPS * sizeof *sum);
    if (r == DAVY_OK && (inner == NULL || sum == NULL)) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "out of memory for folding '%s'", from->name);
    }
    const int64_t row = TAPS * f.in;
    for (int64_t o = 0; r == DAVY_OK && o < f.out; o++) {
        memset(sum, 0, (size_t)row * sizeof *sum);
        for (int64_t m = 0; m < f.wide_out; m++) {
            const double w2 = (double)f.w2[o * f.wide_out + m];
            for (int64_t k = 0; k < row; k++) {
                sum[k] += w2 * inner[m * row + k];
            }
        }
        for (int64_t i = 0; i < f.in; i++) {
            sum[(TAPS / 2) * f.in + i] += (double)f.skip[o * f.in + i]; /* the middle tap */
            for (int64_t tap = 0; tap < TAPS; tap++) {
                dst[(o * f.in + i) * TAPS + tap] = (float)sum[tap * f.in + i];
            }
        }
    }
    dv_free(inner);
    dv_free(sum);
    collapse_release(&f);
    return r;
}

/* In training the padding precedes the first 1x1. So b0 reaches every tap, at borders too. */
static davy_result derive_bias(const dv_tensors *t, const dv_derivation *from, float *dst) {
    folded f = {0};
    davy_result r = collapse_read(t, from->name, &f);
    double *wide = r < 0 ? NULL : dv_calloc((uint64_t)f.wide_out, sizeof *wide);
    if (r == DAVY_OK && wide == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "out of memory for folding '%s'", from->name);
    }
    for (int64_t m = 0; r == DAVY_OK && m < f.wide_out; m++) {
        wide[m] = (double)f.b1[m];
        for (int64_t n = 0; n < f.wide_in; n++) {
            for (int64_t tap = 0; tap < TAPS; tap++) {
                wide[m] += (double)f.w1[(m * f.wide_in + n) * TAPS + tap] * (double)f.b0[n];
            }
        }
    }
    for (int64_t o = 0; r == DAVY_OK && o < f.out; o++) {
        double b = (double)f.b2[o] + (double)f.b_skip[o];
        for (int64_t m = 0; m < f.wide_out; m++) {
            b += (double)f.w2[o * f.wide_out + m] * wide[m];
        }
        dst[o] = (float)b;
    }
    dv_free(wide);
    collapse_release(&f);
    return r;
}

dv_value dv_conv3xc(dv_graph *g, dv_value x, const char *module, int64_t c_out) {
    char name[DV_NAMES_BYTES];
    if (!dv_has(g->weights, dv_names_join(name, module, ".sk.weight")) ||
        !dv_has(g->weights, dv_names_join(name, module, ".conv.1.weight"))) {
        return dv_conv(g, x, dv_names_join(name, module, ".eval_conv"), c_out, 3, NULL);
    }
    const int64_t shape[4] = {c_out, dv_shape_of(g, x).c, 3, 3};
    const int64_t parts[2][2] = {{dv_dim(g->weights, dv_names_join(name, module, ".conv.0.weight"), 1), shape[1]},
                                 {dv_dim(g->weights, dv_names_join(name, module, ".conv.2.weight"), 0), c_out}};
    for (int i = 0; i < 2; i++) {
        if (parts[i][0] != parts[i][1] && x != DV_NO_VALUE) {
            return dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "'%s' has %d %s channels, expected %d", module,
                                            (int)parts[i][0], i == 0 ? "input" : "output", (int)parts[i][1]));
        }
    }
    const dv_derivation of_weight = {.name = module, .derive = derive_weight};
    const dv_derivation of_bias = {.name = module, .derive = derive_bias};
    dv_conv_opts opts = {.derived = true};
    opts.weight = dv_param_derived(g, dv_names_join(name, module, ".weight"), &of_weight, 4, shape);
    opts.bias = dv_param_derived(g, dv_names_join(name, module, ".bias"), &of_bias, 1, &c_out);
    return dv_conv(g, x, module, c_out, 3, &opts);
}

const char *dv_conv3xc_weight(char out[DV_NAMES_BYTES], const char *module) {
    return dv_names_join(out, module, ".sk.weight|.eval_conv.weight");
}
