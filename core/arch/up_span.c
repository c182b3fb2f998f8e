/* up_span.c - SPAN, the Swift Parameter-free Attention Network: blocks of three 3x3 convolutions whose output gates
 * itself. Trained as 1x1 -> 3x3 -> 1x1 plus a 1x1 skip, run as the one 3x3 convolution these add up to.
 * docs/arch/up_span.md. */
#include "core/arch.h"

#include <stdio.h>
#include <string.h>

#include "core/block/weights.h"
#include "core/error.h"
#include "core/mem.h"

enum { BLOCKS = 6, TAPS = 9 };

typedef struct cfg {
    int64_t features, in, out, scale;
    bool normalises;
} cfg;

/* ---- a convolution in three parts ---- */

typedef struct folded { /* W2 * W1 * W0 + sk: see docs */
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
        return dv_fail(DAVY_E_SHAPE, "tensor '%s%s' does not fit its neighbours", module, part);
    }
    *out = dv_calloc((uint64_t)dv_tensor_elements(ref), sizeof **out);
    if (*out == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for tensor '%s%s'", module, part);
    }
    return dv_tensor_read_f32(ref, *out);
}

static void fold_release(folded *f) {
    dv_free(f->w0);
    dv_free(f->b0);
    dv_free(f->w1);
    dv_free(f->b1);
    dv_free(f->w2);
    dv_free(f->b2);
    dv_free(f->skip);
    dv_free(f->b_skip);
}

static davy_result fold_read(const dv_tensors *t, const char *module, folded *f) {
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
static double *fold_inner(const folded *f) {
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

static davy_result derive_weight(const dv_tensors *t, const char *module, float *dst) {
    folded f = {0};
    double *inner = NULL;
    double *sum = NULL;
    davy_result r = fold_read(t, module, &f);
    if (r != DAVY_OK) {
        goto done;
    }
    inner = fold_inner(&f);
    sum = dv_calloc((uint64_t)f.in, TAPS * sizeof *sum);
    if (inner == NULL || sum == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "out of memory for folding '%s'", module);
        goto done;
    }
    const int64_t row = TAPS * f.in;
    for (int64_t o = 0; o < f.out; o++) {
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
done:
    dv_free(inner);
    dv_free(sum);
    fold_release(&f);
    return r;
}

/* The padding comes before the first 1x1 in training, so that b0 reaches every tap, at borders too. */
static davy_result derive_bias(const dv_tensors *t, const char *module, float *dst) {
    folded f = {0};
    double *wide = NULL;
    davy_result r = fold_read(t, module, &f);
    if (r != DAVY_OK) {
        goto done;
    }
    wide = dv_calloc((uint64_t)f.wide_out, sizeof *wide);
    if (wide == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "out of memory for folding '%s'", module);
        goto done;
    }
    for (int64_t m = 0; m < f.wide_out; m++) {
        wide[m] = (double)f.b1[m];
        for (int64_t n = 0; n < f.wide_in; n++) {
            for (int64_t tap = 0; tap < TAPS; tap++) {
                wide[m] += (double)f.w1[(m * f.wide_in + n) * TAPS + tap] * (double)f.b0[n];
            }
        }
    }
    for (int64_t o = 0; o < f.out; o++) {
        double b = (double)f.b2[o] + (double)f.b_skip[o];
        for (int64_t m = 0; m < f.wide_out; m++) {
            b += (double)f.w2[o * f.wide_out + m] * wide[m];
        }
        dst[o] = (float)b;
    }
done:
    dv_free(wide);
    fold_release(&f);
    return r;
}

/* Folds where the parts are there (a stored eval_conv may be stale), else takes eval_conv. */
static dv_value conv3xc(dv_graph *g, dv_value x, const char *module, int64_t c_out) {
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
    dv_conv_opts opts = {.derived = true};
    opts.weight = dv_param_derived(g, dv_names_join(name, module, ".weight"), module, 4, shape, derive_weight);
    opts.bias = dv_param_derived(g, dv_names_join(name, module, ".bias"), module, 1, &c_out, derive_bias);
    return dv_conv(g, x, module, c_out, 3, &opts);
}

/* ---- the network ---- */

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    const bool ours = dv_has(t, "conv_1.sk.weight|conv_1.eval_conv.weight") &&
                      dv_has(t, "block_1.c1_r.sk.weight|block_1.c1_r.eval_conv.weight") &&
                      dv_has(t, "conv_2.sk.weight|conv_2.eval_conv.weight") && dv_has(t, "conv_cat.weight") &&
                      dv_has(t, "upsampler.0.weight");
    return ours && !dv_has(t, "block_1.att_conv.weight") ? 10 : 0; /* with it: SPAN-F3 */
}

static davy_result config(const dv_probe *probe, void *out) {
    const dv_tensors *t = probe->tensors;
    static const char first[] = "conv_1.sk.weight|conv_1.eval_conv.weight";
    cfg *c = out;
    c->features = dv_dim(t, first, 0);
    c->in = dv_dim(t, first, 1);
    c->normalises = !dv_has(t, "no_norm");
    const int64_t last = dv_dim(t, "upsampler.0.weight", 0);
    if (c->in < 1 || c->in > 4) {
        return dv_fail(DAVY_E_UNSUPPORTED, "a SPAN network with %d input channels", (int)c->in);
    }
    if (!dv_scale_and_channels(last, c->in, &c->scale, &c->out)) {
        return dv_fail(DAVY_E_SHAPE,
                       "tensor 'upsampler.0.weight' has %d outputs, which is no square times a channel count",
                       (int)last);
    }
    return DAVY_OK;
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    snprintf(out->variant, sizeof out->variant, "%d features, x%d%s", (int)c->features, (int)c->scale,
             c->normalises ? "" : ", no norm");
    out->features = DAVY_MODEL_UPSCALES;
    out->in_channels = (int32_t)c->in;
    out->out_channels = (int32_t)c->out;
    out->spatial_factor = 1;
    out->scale_num = (int32_t)c->scale;
    out->scale_den = 1;
    out->size_multiple = 1;
    out->size_min = 1;
}

/* (x - mean) * 255, neither of which is in the file; networks that are not RGB have no mean. */
static dv_value normalise(const cfg *c, dv_graph *g, dv_value x) {
    static const float mean[3] = {0.4488f, 0.4371f, 0.4040f};
    float scale[4] = {255.0f, 255.0f, 255.0f, 255.0f};
    float shift[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int i = 0; i < 3 && c->in == 3; i++) {
        shift[i] = -mean[i] * 255.0f;
    }
    return c->normalises ? dv_affine(g, x, scale, shift) : x;
}

/* h' = (a3 + h) * (sigmoid(a3) - 0.5). *first is the block's first activation, which the tail of the network reads
 * after its SiLU: the reference applies that in place. */
static dv_value block(const cfg *c, dv_graph *g, dv_value h, int index, dv_value *first) {
    char name[64];
    snprintf(name, sizeof name, "block_%d.c1_r", index);
    *first = dv_activation(g, conv3xc(g, h, name, c->features), DVK_ACT_SILU, 0.0f);
    snprintf(name, sizeof name, "block_%d.c2_r", index);
    const dv_value a2 = dv_activation(g, conv3xc(g, *first, name, c->features), DVK_ACT_SILU, 0.0f);
    snprintf(name, sizeof name, "block_%d.c3_r", index);
    return dv_span_gate(g, conv3xc(g, a2, name, c->features), h);
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const cfg *c = config_;
    if (stage != DV_STAGE_UPSCALE) {
        return dv_fail(DAVY_E_UNSUPPORTED, "these weights upscale pictures; they neither encode nor decode");
    }
    const dv_shape shape = {1, h, w, c->in};
    const dv_value f = conv3xc(g, normalise(c, g, dv_input(g, shape)), "conv_1", c->features);
    dv_value x = f;
    dv_value after_first = DV_NO_VALUE;
    dv_value first = DV_NO_VALUE;
    for (int i = 1; i <= BLOCKS; i++) {
        x = block(c, g, x, i, &first);
        after_first = i == 1 ? x : after_first;
    }
    const dv_value parts[4] = {f, conv3xc(g, x, "conv_2", c->features), after_first, first};
    x = dv_conv(g, dv_concat(g, parts, 4), "conv_cat", c->features, 1, NULL);
    x = dv_conv(g, x, "upsampler.0", c->out * c->scale * c->scale, 3, NULL);
    dv_output(g, dv_pixel_shuffle(g, x, c->scale, DV_NO_VALUE));
    return dv_graph_check(g);
}

const dv_arch dv_arch_up_span = {
    .name = "span",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .range = DAVY_RANGE_UNIT,
};
