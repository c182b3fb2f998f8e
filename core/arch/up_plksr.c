/* up_plksr.c - PLKSR and RealPLKSR. Blocks mix channels with small kernels, then apply a convolution of up to 17 x
 * 17 to the first channels. docs/arch/up_plksr.md. */
#include "core/arch/arch.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/block/derived.h"
#include "core/base/error.h"
#include "core/base/mem.h"

enum { GROUPS = 4, RGB = 3 }; /* groups of RealPLKSR's group norms; the file does not give them */
#define NORM_EPS       1e-5f
#define LAYER_NORM_EPS 1e-6f

typedef enum large { LARGE_SQUARE, LARGE_DILATED, LARGE_RECTANGLES } large;

typedef struct cfg {
    int64_t features, blocks, scale, partial, kernel;
    int32_t mixer[2]; /* kernels of the mixer's two convolutions */
    int64_t wide;     /* channels between these two */
    large large;
    bool real; /* RealPLKSR: Mish, norms */
    bool layer_norm, gates, samples;
} cfg;

#define MIXERS "feats.1.channel_mixer|feats.1.channe_mixer" /* PLKSR's own spelling is the second */

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    const bool ours = dv_has(t, "feats.0.weight") && dv_has(t, "feats.1.refine.weight") &&
                      dv_has(t, "feats.1.lk.conv.weight|feats.1.lk.convs.0.weight|feats.1.lk.mn_conv.weight") &&
                      dv_has(t, "feats.1.channel_mixer.0.weight|feats.1.channe_mixer.0.weight");
    return ours ? 10 : 0;
}

/* The kind of large kernel. Files do not store the dilations of the second kind, so only the paper's are supported. */
static davy_result large_kernel(const dv_tensors *t, cfg *c) {
    static const char *const first[3] = {"feats.1.lk.conv.weight", "feats.1.lk.convs.0.weight",
                                         "feats.1.lk.mn_conv.weight"};
    c->large = dv_has(t, first[0]) ? LARGE_SQUARE : dv_has(t, first[1]) ? LARGE_DILATED : LARGE_RECTANGLES;
    c->partial = dv_dim(t, first[c->large], 0);
    c->kernel = dv_dim(t, first[c->large], 2);
    if (c->partial < 1 || c->partial > c->features) {
        return dv_fail(DAVY_E_SHAPE, "tensor '%s' has %d outputs; expected 1 to the %d features", first[c->large],
                       (int)c->partial, (int)c->features);
    }
    if (c->large == LARGE_DILATED && (c->kernel != 5 || dv_sequence_length(t, "feats.1.lk.convs") != 4)) {
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "feats.1.lk.convs: a sparse large kernel must be four 5 x 5 convolutions, of dilation 1 to 4");
    }
    if (c->kernel % 2 == 0 || c->kernel < 1 || c->kernel > 63 ||
        (c->large == LARGE_RECTANGLES && c->kernel / 3 % 2 == 0)) {
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "feats.1.lk: a large kernel of %d x %d is not supported; its side must be odd and at most 63",
                       (int)c->kernel, (int)c->kernel);
    }
    return DAVY_OK;
}

static davy_result config(const dv_probe *probe, void *out) {
    const dv_tensors *t = probe->tensors;
    cfg *c = out;
    char name[DV_NAMES_BYTES];
    c->real = dv_has(t, "feats.1.channel_mixer.0.weight");
    c->features = dv_dim(t, "feats.0.weight", 0);
    c->blocks = dv_sequence_length(t, "feats") - (c->real ? 3 : 2); /* RealPLKSR has a dropout before the last */
    if (c->blocks < 1 || dv_dim(t, "feats.0.weight", 1) != RGB) {
        return dv_fail(
            DAVY_E_UNSUPPORTED,
            "the PLKSR network has %d blocks and %d input channels; at least 1 block and 3 channels are needed",
            (int)c->blocks, (int)dv_dim(t, "feats.0.weight", 1));
    }
    snprintf(name, sizeof name, "feats.%d.weight", (int)c->blocks + (c->real ? 2 : 1));
    const int64_t last = dv_dim(t, name, 0);
    c->scale = last % RGB == 0 ? dv_square_root(last / RGB) : 0;
    if (c->scale < 1) {
        return dv_fail(DAVY_E_SHAPE, "tensor '%s' has %d outputs; expected a square number times 3", name, (int)last);
    }
    for (int i = 0; i < 2; i++) {
        dv_names_join(name, MIXERS, i == 0 ? ".0.weight" : ".2.weight");
        c->mixer[i] = (int32_t)dv_dim(t, name, 2);
        if (c->mixer[i] != 1 && c->mixer[i] != 3) {
            return dv_fail(DAVY_E_UNSUPPORTED,
                           "feats.1: a PLKSR mixer with kernels of %d x %d is not supported; use 1 x 1 or 3 x 3",
                           (int)c->mixer[i], (int)c->mixer[i]);
        }
    }
    c->wide = dv_dim(t, dv_names_join(name, MIXERS, ".0.weight"), 0);
    c->gates = dv_has(t, "feats.1.attn.f.0.weight");
    c->layer_norm = dv_has(t, "feats.1.layer_norm.weight");
    c->samples = dv_has(t, "to_img.offset.weight");
    return large_kernel(t, c);
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    const char *kind = !c->real ? "PLKSR" : c->samples ? "RealPLKSR DySample" : "RealPLKSR";
    snprintf(out->variant, sizeof out->variant, "%s%s, %d features, %d blocks, x%d", kind,
             c->layer_norm ? ", layer norm" : "", (int)c->features, (int)c->blocks, (int)c->scale);
    out->features = DAVY_MODEL_UPSCALES;
    out->in_channels = RGB;
    out->out_channels = RGB;
    out->spatial_factor = 1;
    out->scale_num = (int32_t)c->scale;
    out->scale_den = 1;
    out->size_multiple = 1;
    out->size_min = 1;
}

/* Group norms read sums that may be of any size. */
static bool wide(const void *config_) {
    const cfg *c = config_;
    return c->real && !c->layer_norm;
}

/* ---- the network ---- */

static dv_value mix(const cfg *c, dv_graph *g, dv_value x, int64_t index) {
    char name[64];
    const char *spelt = c->real ? "channel_mixer" : "channe_mixer";
    snprintf(name, sizeof name, "feats.%d.%s.0", (int)index, spelt);
    x = dv_activation(g, dv_conv(g, x, name, c->wide, c->mixer[0], NULL), c->real ? DVK_ACT_MISH : DVK_ACT_GELU, 0.0f);
    snprintf(name, sizeof name, "feats.%d.%s.2", (int)index, spelt);
    return dv_conv(g, x, name, c->features, c->mixer[1], NULL);
}

static dv_value convolve_largely(const cfg *c, dv_graph *g, dv_value x, int64_t index) {
    static const char *const rectangles[3] = {"mn_conv", "nm_conv", "nn_conv"};
    char label[64];
    char names[4][64];
    snprintf(label, sizeof label, "feats.%d.lk.conv", (int)index);
    if (c->large == LARGE_SQUARE) {
        return dv_conv(g, x, label, c->partial, (int32_t)c->kernel, NULL);
    }
    dv_laid parts[4] = {{NULL, 0, 0, 0}};
    const int32_t k = (int32_t)c->kernel;
    for (int i = 0; i < (c->large == LARGE_DILATED ? 4 : 3); i++) {
        if (c->large == LARGE_DILATED) {
            snprintf(names[i], sizeof names[i], "feats.%d.lk.convs.%d", (int)index, i);
            parts[i] = (dv_laid){names[i], k, k, i + 1};
        } else {
            snprintf(names[i], sizeof names[i], "feats.%d.lk.%s", (int)index, rectangles[i]);
            parts[i] = (dv_laid){names[i], i == 0 ? k : k / 3, i == 1 ? k : k / 3, 1};
        }
    }
    return dv_conv_sum(g, x, label, parts);
}

/* The large kernel's result is placed behind the other channels, not in front, so that nothing is copied. [first,
 * rest] and [new] are one picture; [rest, new] is a slice of it. */
static dv_value block(const cfg *c, dv_graph *g, dv_value input, int64_t index) {
    char name[64];
    dv_value x = input;
    if (c->layer_norm) {
        snprintf(name, sizeof name, "feats.%d.layer_norm", (int)index);
        x = dv_layer_norm(g, x, name, LAYER_NORM_EPS);
    }
    x = mix(c, g, x, index);
    const dv_value parts[2] = {x, convolve_largely(c, g, dv_slice(g, x, 0, c->partial), index)};
    x = dv_slice(g, dv_concat(g, parts, 2), c->partial, c->features);
    if (c->gates) {
        snprintf(name, sizeof name, "feats.%d.attn.f.0", (int)index);
        x = dv_multiply(g, x, dv_conv_rotated(g, x, name, 3, c->partial, true), DVK_ACT_SIGMOID);
    }
    snprintf(name, sizeof name, "feats.%d.refine", (int)index);
    x = dv_conv_rotated(g, x, name, 1, c->partial, false);
    if (c->real && !c->layer_norm) {
        snprintf(name, sizeof name, "feats.%d.norm", (int)index);
        x = dv_group_norm(g, x, name, GROUPS, NORM_EPS);
    }
    return dv_add(g, 1.0f, x, 1.0f, input);
}

/* ---- DySample ---- */

/* Half of the stored values, in any shape. */
static davy_result derive_half(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const dv_tensor_ref *ref = dv_tensors_find(t, from->name);
    if (ref == NULL) {
        return dv_fail(DAVY_E_TENSOR, "tensor '%s' is missing", from->name);
    }
    const davy_result r = dv_tensor_read_f32(ref, dst);
    for (int64_t i = 0; r == DAVY_OK && i < dv_tensor_elements(ref); i++) {
        dst[i] *= 0.5f;
    }
    return r;
}

/* Stored as [3, c], derived as [3 groups, c]: each group's channels give results of their own. */
typedef struct apart {
    int64_t groups, channels;
} apart;

static davy_result derive_apart(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const apart *d = from->how;
    const int64_t groups = d->groups, channels = d->channels;
    const int64_t shape[4] = {RGB, channels, 1, 1};
    float *stored = NULL;
    const davy_result r = dv_read_tensor(t, "to_img.end_conv.weight", 4, shape, &stored);
    for (int64_t i = 0; r == DAVY_OK && i < groups * RGB * channels; i++) {
        const int64_t in = i % channels, out = i / channels;
        dst[i] = in / (channels / groups) == out / RGB ? stored[out % RGB * channels + in] : 0.0f;
    }
    dv_free(stored);
    return r;
}

/* Only the first group has the bias: the weights of a bilinear sample add up to one. */
static davy_result derive_apart_bias(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const int64_t shape = RGB;
    const int64_t groups = ((const apart *)from->how)->groups;
    float *stored = NULL;
    const davy_result r = dv_read_tensor(t, "to_img.end_conv.bias", 1, &shape, &stored);
    for (int64_t i = 0; r == DAVY_OK && i < groups * RGB; i++) {
        dst[i] = i < RGB ? stored[i] : 0.0f;
    }
    dv_free(stored);
    return r;
}

/* Sampling offsets: half of offset * sigmoid(scope). */
static dv_value offsets(dv_graph *g, dv_value z, int64_t count) {
    const int64_t shape[4] = {count, dv_shape_of(g, z).c, 1, 1};
    const dv_tensor_ref *weight = dv_weight_require(g, "to_img.offset", ".weight", 4, shape);
    const dv_tensor_ref *bias = dv_weight_require(g, "to_img.offset", ".bias", 1, &count);
    if (weight == NULL || bias == NULL) {
        return DV_NO_VALUE;
    }
    static const dv_conv_opts no_bias = {.no_bias = true};
    const dv_derivation of_weight = {.name = weight->name, .derive = derive_half};
    const dv_derivation of_bias = {.name = bias->name, .derive = derive_half};
    dv_conv_opts half = {.derived = true};
    half.weight = dv_param_derived(g, "to_img.offset.weight / 2", &of_weight, 4, shape);
    half.bias = dv_param_derived(g, "to_img.offset.bias / 2", &of_bias, 1, &count);
    const dv_value offset = dv_conv(g, z, "to_img.offset", count, 1, &half);
    return dv_multiply(g, offset, dv_conv(g, z, "to_img.scope", count, 1, &no_bias), DVK_ACT_SIGMOID);
}

/* end_conv mixes the samples of a pixel. It may also mix each group before sampling, which is less work on fewer
 * pixels. */
static dv_value end_conv(dv_graph *g, dv_value z, int64_t groups) {
    const int64_t channels = dv_shape_of(g, z).c;
    const int64_t stored[4] = {RGB, channels, 1, 1}, shape[4] = {groups * RGB, channels, 1, 1};
    const int64_t biases = RGB;
    if (dv_weight_require(g, "to_img.end_conv", ".weight", 4, stored) == NULL ||
        dv_weight_require(g, "to_img.end_conv", ".bias", 1, &biases) == NULL) {
        return DV_NO_VALUE;
    }
    const apart how = {groups, channels};
    const dv_derivation of_weight = {"", &how, sizeof how, .derive = derive_apart};
    const dv_derivation of_bias = {"", &how, sizeof how, .derive = derive_apart_bias};
    dv_conv_opts opts = {.derived = true};
    opts.weight = dv_param_derived(g, "to_img.end_conv.weight of groups", &of_weight, 4, shape);
    opts.bias = dv_param_derived(g, "to_img.end_conv.bias of groups", &of_bias, 1, shape);
    return dv_conv(g, z, "to_img.end_conv", shape[0], 1, &opts);
}

static dv_value sample(const cfg *c, dv_graph *g, dv_value z) {
    const int64_t square = c->scale * c->scale;
    const int64_t count = dv_dim(g->weights, "to_img.offset.weight", 0);
    const int64_t groups = count / (2 * square);
    if (groups < 1 || count != 2 * groups * square || RGB * square % groups != 0) {
        return dv_graph_fail(
            g, dv_fail(DAVY_E_SHAPE,
                       "tensor 'to_img.offset.weight' has %d outputs, which do not divide into groups for x%d",
                       (int)count, (int)c->scale));
    }
    const dv_value d = offsets(g, z, count);
    const bool mixes = c->scale > 1;
    return dv_dysample(g, mixes ? end_conv(g, z, groups) : z, d, groups, c->scale, mixes);
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const cfg *c = config_;
    if (stage != DV_STAGE_UPSCALE) {
        return dv_fail(DAVY_E_UNSUPPORTED, "these weights upscale pictures; they neither encode nor decode");
    }
    const dv_value input = dv_input(g, (dv_shape){1, h, w, RGB});
    dv_value x = dv_conv(g, input, "feats.0", c->features, 3, NULL);
    for (int64_t i = 1; i <= c->blocks; i++) {
        x = block(c, g, x, i);
    }
    char name[64];
    snprintf(name, sizeof name, "feats.%d", (int)c->blocks + (c->real ? 2 : 1));
    x = dv_conv(g, x, name, RGB * c->scale * c->scale, 3, NULL);
    if (c->samples) { /* each input channel is added to its s^2 results */
        const dv_value repeated = dv_pixel_unshuffle(g, dv_upsample(g, input, c->scale), c->scale);
        x = sample(c, g, dv_add(g, 1.0f, x, 1.0f, repeated));
    } else {
        x = dv_pixel_shuffle(g, x, c->scale, input);
    }
    dv_output(g, x);
    return dv_graph_check(g);
}

const dv_arch dv_arch_up_plksr = {
    .name = "plksr",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .wide = wide,
    .range = DAVY_RANGE_UNIT,
};
