/* vae_wan.c - the video autoencoders of Wan 2.1 (Qwen-Image's is the same) and Wan 2.2, under the original and the
 * diffusers names. Norms read one pixel, attention one frame, convolutions two earlier frames. A clip's first frame
 * passes unchanged through layers that halve or double time. docs/arch/vae_wan.md. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/arch/arch.h"
#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/block/autoencoder.h"
#include "core/block/derived.h"
#include "core/block/swin.h"
#include "core/block/weights.h"
#include "core/graph/graph.h"

/* ---- Wan 2.2's shortcuts without weights, past a change of size ---- */

/* Both are 1x1 convolutions with fixed weights. Their input has the values of a pixel in the order frame, channel,
 * row, column. Frames side by side and the pixel shuffle give that order. */

typedef struct cells {
    /* of a whole cell: channels, frames, side in pixels; others: channels at the small end */
    int64_t c, times, space, others;
} cells;

static int64_t values_of(const cells *s) {
    return s->c * s->times * s->space * s->space;
}

/* The index of value `at` of a pixel in the cell's own order. */
static int64_t in_cell(const cells *s, int64_t at) {
    const int64_t square = s->space * s->space;
    const int64_t frame = at / square / s->c, c = at / square % s->c;
    return (c * s->times + frame) * square + at % square;
}

static davy_result derive_means(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const cells *s = from->how;
    const int64_t values = values_of(s), each = values / s->others;
    (void)t;
    for (int64_t i = 0; i < s->others * values; i++) {
        dst[i] = in_cell(s, i % values) / each == i / values ? 1.0f / (float)each : 0.0f;
    }
    return DAVY_OK;
}

static davy_result derive_copies(const dv_tensors *t, const dv_derivation *from, float *dst) {
    const cells *s = from->how;
    const int64_t values = values_of(s), each = values / s->others;
    (void)t;
    for (int64_t i = 0; i < s->others * values; i++) {
        dst[i] = in_cell(s, i / s->others) / each == i % s->others ? 1.0f : 0.0f;
    }
    return DAVY_OK;
}

static dv_value convolved(dv_graph *g, dv_value x, const char *what, const cells *s, bool mean) {
    const int64_t values = values_of(s);
    if (s->others < 1 || values % s->others != 0) {
        return dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "%s: %d values of a cell do not divide into %d channels", what,
                                        (int)values, (int)s->others));
    }
    char label[160];
    snprintf(label, sizeof label, "%s %d:%d:%d:%d:", what, (int)s->c, (int)s->times, (int)s->space, (int)s->others);
    const int64_t shape[4] = {mean ? s->others : values, mean ? values : s->others, 1, 1};
    const dv_derivation from = {"", s, sizeof *s, .derive = mean ? derive_means : derive_copies, .stored = -1};
    dv_conv_opts opts = {.derived = true, .bias = DV_NO_PARAM};
    opts.weight = dv_param_derived(g, label, &from, 4, shape);
    return dv_conv(g, x, what, shape[0], 1, &opts);
}

/* A frame of zeros, as large as x's. */
static dv_value blank_frame(dv_graph *g, dv_value x) {
    enum { MOST_CHANNELS = 8192 };
    static const float zeros[MOST_CHANNELS];
    const int64_t c = dv_shape_of(g, x).c;
    if (c > MOST_CHANNELS) {
        return dv_graph_fail(g, dv_fail(DAVY_E_UNSUPPORTED,
                                        "blank frame: the network has %d channels; at most %d are supported", (int)c,
                                        MOST_CHANNELS));
    }
    return dv_affine(g, dv_take_frames(g, x, 0, 1), zeros, zeros);
}

/* Reduces cells of `times` (1 or 2) frames and space x space pixels to one pixel. Its channels are means of
 * consecutive values of the cell, in the order channel, frame, row, column. A frame of zeros completes a clip's
 * first cell. */
static dv_value mean_shortcut(dv_graph *g, dv_value x, int64_t c_out, int64_t times, int64_t space) {
    const dv_shape in = dv_shape_of(g, x);
    const cells s = {in.c, times, space, c_out};
    if (values_of(&s) == c_out) {
        return x;
    }
    if (!g->continues && in.n % times != 0) {
        const dv_value both[2] = {blank_frame(g, x), x};
        x = dv_join_frames(g, both, 2);
    }
    x = space > 1 ? dv_pixel_unshuffle(g, x, space) : x;
    return convolved(g, dv_frames_to_channels(g, x, times), "mean shortcut", &s, true);
}

/* The inverse: every channel is repeated until it fills such a cell of c_out channels. A clip's first frame becomes
 * one frame. */
static dv_value copy_shortcut(dv_graph *g, dv_value x, int64_t c_out, int64_t times, int64_t space) {
    const cells s = {c_out, times, space, dv_shape_of(g, x).c};
    x = dv_channels_to_frames(g, convolved(g, x, "copy shortcut", &s, false), times);
    if (!g->continues && times > 1) {
        x = dv_take_frames(g, x, times - 1, dv_shape_of(g, x).n - (times - 1));
    }
    return space > 1 ? dv_pixel_shuffle(g, x, space, DV_NO_VALUE) : x;
}

/* ---- blocks, under the original and the diffusers names ---- */

/* keeps a pixel of zeros at zero; the reference has no eps but a lower limit of 1e-12 for the norm */
#define NORM_EPS 1e-24f

static const dv_conv3d_opts wan_usual = {.before = DV_BEFORE_ZERO};
static const dv_conv3d_opts wan_point = {.frames = 1, .k = 1};

/* silu(norm x); names: of gamma */
static dv_value wan_norm_silu(dv_graph *g, dv_value x, const char *names) {
    return dv_activation(g, dv_rms_norm(g, x, names, NORM_EPS), DVK_ACT_SILU, 0.0f);
}

/* x + conv(silu(norm(conv(silu(norm x))))). If the channel count changes, x goes through a 1x1x1 convolution. */
static dv_value wan_resnet(dv_graph *g, dv_value x, const char *names, int64_t c_out) {
    char part[DV_NAMES_BYTES];
    dv_value skip = x;
    if (dv_shape_of(g, x).c != c_out) {
        skip = dv_conv3d(g, x, dv_names_join(part, names, ".shortcut|.conv_shortcut"), c_out, &wan_point);
    }
    dv_value y = wan_norm_silu(g, x, dv_names_join(part, names, ".residual.0.gamma|.norm1.gamma"));
    y = dv_conv3d(g, y, dv_names_join(part, names, ".residual.2|.conv1"), c_out, &wan_usual);
    y = wan_norm_silu(g, y, dv_names_join(part, names, ".residual.3.gamma|.norm2.gamma"));
    y = dv_conv3d(g, y, dv_names_join(part, names, ".residual.6|.conv2"), c_out, &wan_usual);
    return dv_add(g, 1.0f, y, 1.0f, skip);
}

/* x + proj(attention(q, k, v of norm x)), one head over a frame's pixels. */
static dv_value wan_attention(dv_graph *g, dv_value x, const char *names) {
    char part[DV_NAMES_BYTES];
    const int64_t c = dv_shape_of(g, x).c;
    dv_value qkv[3];
    const dv_value n = dv_rms_norm(g, x, dv_names_join(part, names, ".norm.gamma"), NORM_EPS);
    dv_split_qkv(g, dv_conv(g, n, dv_names_join(part, names, ".to_qkv"), 3 * c, 1, NULL), c, qkv);
    const dv_value a = dv_attention(g, qkv[0], qkv[1], qkv[2], 1, 1.0f / sqrtf((float)dv_max(c, 1)));
    return dv_add(g, 1.0f, dv_conv(g, a, dv_names_join(part, names, ".proj"), c, 1, NULL), 1.0f, x);
}

/* A single picture has no other frames to share time with. */
static bool is_alone(const dv_graph *g, dv_value x) {
    return dv_shape_of(g, x).n == 1 && !g->continues && !g->keeps;
}

/* The first frame of a clip passes unchanged. After it, two frames and the one before them become one. */
static dv_value wan_half_time(dv_graph *g, dv_value x, const char *names) {
    static const dv_conv3d_opts halve = {.step = 2, .k = 1, .before = DV_BEFORE_ZERO};
    if (is_alone(g, x)) {
        return x;
    }
    const dv_value y = dv_conv3d(g, x, names, dv_shape_of(g, x).c, &halve);
    if (g->continues || dv_shape_of(g, x).n < 2) {
        return g->continues ? y : x; /* no node reads y, but it keeps the frame for the next slice */
    }
    const dv_value both[2] = {dv_take_frames(g, x, 0, 1), dv_take_frames(g, y, 1, dv_shape_of(g, y).n - 1)};
    return dv_join_frames(g, both, 2);
}

/* The first frame of a clip passes unchanged, and the other frames do not read it. Each of the others becomes two. */
static dv_value wan_double_time(dv_graph *g, dv_value x, const char *names) {
    static const dv_conv3d_opts twofold = {.k = 1, .before = DV_BEFORE_ZERO};
    const dv_shape s = dv_shape_of(g, x);
    if (is_alone(g, x)) {
        return x;
    }
    if (g->continues) {
        return dv_channels_to_frames(g, dv_conv3d(g, x, names, 2 * s.c, &twofold), 2);
    }
    dv_value seen[2] = {blank_frame(g, x), DV_NO_VALUE};
    if (s.n > 1) {
        seen[1] = dv_take_frames(g, x, 1, s.n - 1);
    }
    const dv_value y = dv_conv3d(g, dv_join_frames(g, seen, s.n > 1 ? 2 : 1), names, 2 * s.c, &twofold);
    if (s.n < 2) {
        return x; /* y is kept for the next slice, as above */
    }
    const dv_value rest = dv_channels_to_frames(g, dv_take_frames(g, y, 1, s.n - 1), 2);
    const dv_value both[2] = {dv_take_frames(g, x, 0, 1), rest};
    return dv_join_frames(g, both, 2);
}

enum { MAX_LEVELS = 8, MAX_RESNETS = 16, NAME_BYTES = 192 };
typedef struct half {
    bool encoder, there;
    bool nested; /* levels have a number of their own, and Wan 2.2's shortcuts */
    int64_t levels, resnets;
    int64_t width[MAX_LEVELS]; /* in execution order */
    int64_t times[MAX_LEVELS]; /* factor by which time shrinks or grows after the level; the last level's is 1 */
    int64_t picture, latent;   /* channels at both ends; the encoder's latent end has moments, 2z */
} half;

typedef struct cfg {
    half encoder, decoder;
    int64_t z, patch, times; /* times: frames per latent */
    const char *family;
} cfg;

/* ---- names ---- */

/* Block j of a level, or the layer behind its last block. Flat names count through all levels. */
static const char *place_names(char out[NAME_BYTES], const half *s, int64_t level, int64_t j) {
    const bool encoder = s->encoder;
    const int l = (int)level, k = (int)j, flat = (int)(level * (s->resnets + 1) + j);
    const bool resnet = j < s->resnets;
    if (!s->nested && encoder) {
        snprintf(out, NAME_BYTES, "encoder.downsamples.%d|encoder.down_blocks.%d", flat, flat);
    } else if (!s->nested && resnet) {
        snprintf(out, NAME_BYTES, "decoder.upsamples.%d|decoder.up_blocks.%d.resnets.%d", flat, l, k);
    } else if (!s->nested) {
        snprintf(out, NAME_BYTES, "decoder.upsamples.%d|decoder.up_blocks.%d.upsamplers.0", flat, l);
    } else if (encoder && resnet) {
        snprintf(out, NAME_BYTES, "encoder.downsamples.%d.downsamples.%d|encoder.down_blocks.%d.resnets.%d", l, k, l,
                 k);
    } else if (encoder) {
        snprintf(out, NAME_BYTES, "encoder.downsamples.%d.downsamples.%d|encoder.down_blocks.%d.downsampler", l, k, l);
    } else if (resnet) {
        snprintf(out, NAME_BYTES, "decoder.upsamples.%d.upsamples.%d|decoder.up_blocks.%d.resnets.%d", l, k, l, k);
    } else {
        snprintf(out, NAME_BYTES, "decoder.upsamples.%d.upsamples.%d|decoder.up_blocks.%d.upsampler", l, k, l);
    }
    return out;
}

static int64_t place_dim(const dv_tensors *t, const half *s, int64_t level, int64_t j, const char *rest, int32_t axis) {
    char names[NAME_BYTES];
    char full[DV_NAMES_BYTES];
    return dv_dim(t, dv_names_join(full, place_names(names, s, level, j), rest), axis);
}

static const char first_conv[] = ".residual.2.weight|.conv1.weight";

static const char *end_name(bool encoder, bool last) {
    return encoder ? last ? "encoder.head.2|encoder.conv_out" : "encoder.conv1|encoder.conv_in"
           : last  ? "decoder.head.2|decoder.conv_out"
                   : "decoder.conv1|decoder.conv_in";
}

/* ---- detection and configuration ---- */

static bool is_nested(const dv_tensors *t) {
    return dv_has(t, "decoder.upsamples.0.upsamples.0.residual.2.weight|"
                     "encoder.downsamples.0.downsamples.0.residual.2.weight|"
                     "encoder.down_blocks.0.resnets.0.norm1.gamma|decoder.up_blocks.0.upsampler.resample.1.weight");
}

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    const bool gammas = dv_has(t, "decoder.middle.0.residual.0.gamma|decoder.mid_block.resnets.0.norm1.gamma|"
                                  "encoder.middle.0.residual.0.gamma|encoder.mid_block.resnets.0.norm1.gamma");
    /* Qwen-Image 2.1: the nested names without a time axis */
    const bool relative = is_nested(t) &&
                          (dv_dim(t, "decoder.head.2.weight|decoder.conv_out.weight", 2) == 1 ||
                           dv_dim(t, "decoder.head.2.weight|decoder.conv_out.weight", 4) == 0) &&
                          dv_has(t, "decoder.head.2.weight|decoder.conv_out.weight");
    return gammas && !relative ? 20 : 0;
}

static void count_levels(const dv_tensors *t, bool encoder, half *s) {
    s->resnets = MAX_RESNETS; /* provisional: block names at level 0 do not depend on it */
    int64_t resnets = 0;
    while (resnets < MAX_RESNETS && place_dim(t, s, 0, resnets, first_conv, 0) > 0) {
        resnets++;
    }
    const char *counted = encoder ? "encoder.down_blocks.0.resnets" : "decoder.up_blocks.0.resnets";
    /* also counts blocks without a convolution */
    s->resnets = resnets = dv_max(resnets, dv_sequence_length(t, counted));
    const int64_t original = dv_sequence_length(t, encoder ? "encoder.downsamples" : "decoder.upsamples");
    const int64_t other = dv_sequence_length(t, encoder ? "encoder.down_blocks" : "decoder.up_blocks");
    const int64_t flat = (dv_max(original, encoder ? other : 0) + 1) / (resnets + 1);
    s->levels = s->nested ? dv_max(original, other) : dv_max(flat, encoder ? 0 : other);
}

static davy_result find_levels(const dv_tensors *t, bool encoder, half *s) {
    const char *side = encoder ? "encoder" : "decoder";
    s->nested = is_nested(t);
    count_levels(t, encoder, s);
    if (s->levels < 1 || s->levels > MAX_LEVELS || s->resnets < 1) {
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "the %s has %d levels of %d blocks; 1 to %d levels of at least 1 block are supported", side,
                       (int)s->levels, (int)s->resnets, MAX_LEVELS);
    }
    for (int64_t i = 0; i < s->levels; i++) {
        const bool last = i + 1 == s->levels;
        s->width[i] = place_dim(t, s, i, 0, first_conv, 0);
        s->times[i] = !last && place_dim(t, s, i, s->resnets, ".time_conv.weight", 0) > 0 ? 2 : 1;
        if (s->width[i] < 1 || (!last && place_dim(t, s, i, s->resnets, ".resample.1.weight", 0) < 1)) {
            return dv_fail(DAVY_E_TENSOR, "the %s has no first block at level %d, or nothing behind its %d blocks",
                           side, (int)i, (int)s->resnets);
        }
    }
    return DAVY_OK;
}

static int64_t frames_of(const half *s) {
    int64_t frames = 1;
    for (int64_t i = 0; i < s->levels; i++) {
        frames *= s->times[i];
    }
    return frames;
}

static int64_t end_dim(const dv_tensors *t, bool encoder, bool last, int32_t axis) {
    char full[DV_NAMES_BYTES];
    return dv_dim(t, dv_names_join(full, end_name(encoder, last), ".weight"), axis);
}

static davy_result read_half(const dv_tensors *t, bool encoder, half *s) {
    s->encoder = encoder;
    s->there = end_dim(t, encoder, false, 0) > 0 && end_dim(t, encoder, true, 0) > 0;
    if (!s->there) {
        return DAVY_OK;
    }
    s->picture = encoder ? end_dim(t, true, false, 1) : end_dim(t, false, true, 0);
    s->latent = encoder ? end_dim(t, true, true, 0) : end_dim(t, false, false, 1);
    return find_levels(t, encoder, s);
}

static davy_result check_halves(const cfg *c) {
    const half *e = &c->encoder;
    const half *d = &c->decoder;
    if (!e->there && !d->there) {
        return dv_fail(DAVY_E_TENSOR,
                       "the encoder's first or last convolution is missing, and so is one of the decoder's");
    }
    if (e->there && (e->latent % 2 != 0 || e->latent < 2)) {
        return dv_fail(DAVY_E_SHAPE,
                       "the encoder has %d output channels; expected an even number, for means and variances",
                       (int)e->latent);
    }
    if (e->there && d->there &&
        (e->latent != 2 * d->latent || e->levels != d->levels || frames_of(e) != frames_of(d))) {
        return dv_fail(DAVY_E_SHAPE,
                       "the encoder has %d latent channels, %d frames per latent and %d levels, the decoder %d, %d and "
                       "%d; all must be equal",
                       (int)(e->latent / 2), (int)frames_of(e), (int)e->levels, (int)d->latent, (int)frames_of(d),
                       (int)d->levels);
    }
    for (int i = 0; i < 2; i++) {
        const half *s = i == 0 ? e : d;
        if (s->there && s->picture != (s->nested ? 12 : 3)) {
            return dv_fail(
                DAVY_E_UNSUPPORTED, "a Wan %s autoencoder whose %s has %d channels at the picture's end, not %d",
                s->nested ? "2.2" : "2.1", i == 0 ? "encoder" : "decoder", (int)s->picture, s->nested ? 12 : 3);
        }
    }
    return DAVY_OK;
}

static bool contains(const char *text, const char *part) { /* ignores ASCII case of text */
    for (; text != NULL && *text != '\0'; text++) {
        if (dv_starts_with(text, part)) {
            return true;
        }
    }
    return false;
}

static const char *family_of(const dv_probe *probe, const cfg *c) {
    const dv_json *name = probe->config != NULL ? dv_json_get(probe->config, "_class_name") : NULL;
    const char *class_name = name != NULL ? dv_json_string(name) : NULL;
    if (c->patch == 2) {
        return "Wan 2.2";
    }
    return contains(class_name, "qwen") || contains(probe->file_name, "qwen") ? "Qwen-Image"
           : contains(class_name, "wan") || contains(probe->file_name, "wan") ? "Wan 2.1"
                                                                              : "Wan 2.1 or Qwen-Image";
}

static davy_result config(const dv_probe *probe, void *out) {
    cfg *c = out;
    davy_result r = read_half(probe->tensors, true, &c->encoder);
    r = r < 0 ? r : read_half(probe->tensors, false, &c->decoder);
    r = r < 0 ? r : check_halves(c);
    if (r < 0) {
        return r;
    }
    const half *s = c->decoder.there ? &c->decoder : &c->encoder;
    c->z = c->decoder.there ? s->latent : s->latent / 2;
    c->patch = s->picture == 12 ? 2 : 1;
    c->times = frames_of(s);
    c->family = family_of(probe, c);
    return DAVY_OK;
}

static int64_t factor_of(const cfg *c) {
    return c->patch << ((c->decoder.there ? c->decoder.levels : c->encoder.levels) - 1);
}

static dv_autoencoder common(const cfg *c) {
    return (dv_autoencoder){.encodes = c->encoder.there,
                            .decodes = c->decoder.there,
                            .moments = true,
                            .z = c->z,
                            .factor = factor_of(c),
                            .times = c->times};
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    const dv_autoencoder a = common(c);
    dv_autoencoder_info(&a, c->family, out);
    out->latent_scale = 0.0f; /* every channel has its own scale */
    out->latent_shift = 0.0f;
}

static void clip(const void *config_, dv_stage stage, dv_clip_rule *out) {
    const dv_autoencoder a = common(config_);
    dv_autoencoder_clip(&a, stage, out);
}

/* ---- the network ---- */

static dv_value mid(dv_graph *g, dv_value x, bool encoder) {
    const int64_t width = dv_shape_of(g, x).c;
    x = wan_resnet(
        g, x, encoder ? "encoder.middle.0|encoder.mid_block.resnets.0" : "decoder.middle.0|decoder.mid_block.resnets.0",
        width);
    x = wan_attention(g, x,
                      encoder ? "encoder.middle.1|encoder.mid_block.attentions.0"
                              : "decoder.middle.1|decoder.mid_block.attentions.0");
    return wan_resnet(
        g, x, encoder ? "encoder.middle.2|encoder.mid_block.resnets.1" : "decoder.middle.2|decoder.mid_block.resnets.1",
        width);
}

static dv_value down(dv_graph *g, const half *s, int64_t level, dv_value x) {
    static const dv_conv_opts halve = {.stride = 2, .pad_bottom_right = true};
    char names[NAME_BYTES];
    char part[DV_NAMES_BYTES];
    place_names(names, s, level, s->resnets);
    x = dv_conv(g, x, dv_names_join(part, names, ".resample.1"), s->width[level], 3, &halve);
    return s->times[level] == 2 ? wan_half_time(g, x, dv_names_join(part, names, ".time_conv")) : x;
}

static dv_value up(dv_graph *g, const half *s, int64_t level, dv_value x) {
    char names[NAME_BYTES];
    char part[DV_NAMES_BYTES];
    const int64_t c_out = place_dim(g->weights, s, level, s->resnets, ".resample.1.weight", 0);
    place_names(names, s, level, s->resnets);
    x = s->times[level] == 2 ? wan_double_time(g, x, dv_names_join(part, names, ".time_conv")) : x;
    return dv_conv(g, dv_upsample(g, x, 2), dv_names_join(part, names, ".resample.1"), c_out, 3, NULL);
}

static dv_value run_level(dv_graph *g, const half *s, bool encoder, int64_t level, dv_value x) {
    const dv_value before = x;
    const bool last = level + 1 == s->levels;
    char names[NAME_BYTES];
    for (int64_t i = 0; i < s->resnets; i++) {
        x = wan_resnet(g, x, place_names(names, s, level, i), s->width[level]);
    }
    if (!last) {
        x = encoder ? down(g, s, level, x) : up(g, s, level, x);
    }
    if (!s->nested || (!encoder && last)) {
        return x;
    }
    const int64_t c_out = dv_shape_of(g, x).c, space = last ? 1 : 2;
    const dv_value past = encoder ? mean_shortcut(g, before, c_out, s->times[level], space)
                                  : copy_shortcut(g, before, c_out, s->times[level], space);
    return dv_add(g, 1.0f, x, 1.0f, past);
}

/* The file orders the pixels of a patch by columns, this library by rows. */
static dv_pick patch_pick(int64_t patch) {
    return (dv_pick){0, {3, patch, patch}, {patch * patch, 1, patch}};
}

static void build_encoder(const void *config_, dv_graph *g, int64_t h, int64_t w) {
    const cfg *c = config_;
    const half *s = &c->encoder;
    char part[DV_NAMES_BYTES];
    const int64_t width = end_dim(g->weights, true, false, 0);
    dv_value x = dv_input(g, (dv_shape){1, h, w, 3});
    if (c->patch > 1) {
        const dv_pick out = {0, {width}, {1}};
        const dv_pick in = patch_pick(c->patch);
        dv_conv3d_opts opts = {.before = DV_BEFORE_ZERO, .derived = true};
        opts.weight = dv_param_picked(g, dv_names_join(part, end_name(true, false), ".weight"), &out, &in, 3, 3);
        opts.bias = dv_param_stored(g, dv_names_join(part, end_name(true, false), ".bias"), 1, &width);
        x = dv_conv3d(g, dv_pixel_unshuffle(g, x, c->patch), end_name(true, false), width, &opts);
    } else {
        x = dv_conv3d(g, x, end_name(true, false), width, &wan_usual);
    }
    for (int64_t i = 0; i < s->levels; i++) {
        x = run_level(g, s, true, i, x);
    }
    x = wan_norm_silu(g, mid(g, x, true), "encoder.head.0.gamma|encoder.norm_out.gamma");
    x = dv_conv3d(g, x, end_name(true, true), s->latent, &wan_usual);
    dv_output(g, dv_conv3d(g, x, "conv1|quant_conv", s->latent, &wan_point));
}

static void build_decoder(const void *config_, dv_graph *g, int64_t h, int64_t w) {
    const cfg *c = config_;
    const half *s = &c->decoder;
    char part[DV_NAMES_BYTES];
    dv_value x = dv_input(g, (dv_shape){1, h, w, c->z});
    x = dv_conv3d(g, x, "conv2|post_quant_conv", s->latent, &wan_point);
    x = dv_conv3d(g, x, end_name(false, false), end_dim(g->weights, false, false, 0), &wan_usual);
    x = mid(g, x, false);
    for (int64_t i = 0; i < s->levels; i++) {
        x = run_level(g, s, false, i, x);
    }
    x = wan_norm_silu(g, x, "decoder.head.0.gamma|decoder.norm_out.gamma");
    if (c->patch > 1) {
        const dv_pick out = patch_pick(c->patch);
        const dv_pick in = {0, {dv_shape_of(g, x).c}, {1}};
        dv_conv3d_opts opts = {.before = DV_BEFORE_ZERO, .derived = true};
        opts.weight = dv_param_picked(g, dv_names_join(part, end_name(false, true), ".weight"), &out, &in, 3, 3);
        opts.bias = dv_param_picked_vector(g, dv_names_join(part, end_name(false, true), ".bias"), &out);
        x = dv_conv3d(g, x, end_name(false, true), s->picture, &opts);
        dv_output(g, dv_pixel_shuffle(g, x, c->patch, DV_NO_VALUE));
        return;
    }
    dv_output(g, dv_conv3d(g, x, end_name(false, true), s->picture, &wan_usual));
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const dv_autoencoder a = common(config_);
    const dv_halves halves = {build_encoder, build_decoder, .facts = &a, .cfg = config_};
    return dv_autoencoder_build(&halves, stage, h, w, g);
}

const dv_arch dv_arch_vae_wan = {
    .name = "vae_wan",
    .task = DAVY_TASK_VAE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .clip = clip,
    .range = DAVY_RANGE_SIGNED_UNIT,
};
