/* vae_seedvr2.c - the video autoencoder of SeedVR2: AutoencoderKL with convolutions that read two earlier frames.
 * Four frames become one latent. Group norms and attention work on one frame at a time. docs/arch/vae_seedvr2.md. */
#include "core/arch/arch.h"

#include <stdio.h>
#include <string.h>

#include "core/block/autoencoder.h"
#include "core/block/upsampler.h"
#include "core/block/weights.h"
#include "core/base/error.h"

enum { MAX_LEVELS = 8, NAME_BYTES = 128 };
#define LATENT_SCALE 0.9152f

static const dv_norm_spec norm = {32, 1e-6f};
static const dv_conv3d_opts point = {.frames = 1, .k = 1}; /* 1 x 1 x 1 */

typedef struct half {
    bool there;
    int64_t levels, resnets;
    int64_t width[MAX_LEVELS]; /* in execution order */
    int64_t times[MAX_LEVELS]; /* factor by which time shrinks or grows after the level; the last level's is unused */
    int64_t picture, latent;   /* channels at both ends; the encoder's latent end has moments, 2z */
} half;

typedef struct cfg {
    half encoder, decoder;
    int64_t z, times; /* frames per latent */
} cfg;

/* ---- detection and configuration ---- */

static int32_t match(const dv_probe *probe) {
    return dv_has(probe->tensors, "decoder.up_blocks.2.upsamplers.0.upscale_conv.weight|"
                                  "decoder.up_blocks.0.upsamplers.0.upscale_conv.weight") ||
                   dv_dim(probe->tensors, "encoder.down_blocks.0.downsamplers.0.conv.weight", 4) == 3
               ? 20
               : 0;
}

static const char *level_name(char out[NAME_BYTES], bool encoder, int64_t level, const char *rest) {
    snprintf(out, NAME_BYTES, "%s.%d.%s", encoder ? "encoder.down_blocks" : "decoder.up_blocks", (int)level, rest);
    return out;
}

/* Factor in time at the end of a level: 1 or 2; 0: the level ends in neither. */
static int64_t times_of(const dv_tensors *t, bool encoder, int64_t level, int64_t width) {
    char name[NAME_BYTES];
    if (encoder) {
        const int64_t frames = dv_dim(t, level_name(name, true, level, "downsamplers.0.conv.weight"), 2);
        return frames == 3 ? 2 : frames == 1 ? 1 : 0;
    }
    const int64_t parts = dv_dim(t, level_name(name, false, level, "upsamplers.0.upscale_conv.weight"), 0);
    return parts == 8 * width ? 2 : parts == 4 * width ? 1 : 0;
}

static davy_result find_levels(const dv_tensors *t, bool encoder, half *s) {
    const char *side = encoder ? "encoder" : "decoder";
    char name[NAME_BYTES];
    s->levels = dv_sequence_length(t, encoder ? "encoder.down_blocks" : "decoder.up_blocks");
    if (s->levels < 1 || s->levels > MAX_LEVELS) {
        return dv_fail(DAVY_E_UNSUPPORTED, "the %s has %d levels; 1 to %d are supported", side, (int)s->levels,
                       MAX_LEVELS);
    }
    s->resnets = dv_sequence_length(t, encoder ? "encoder.down_blocks.0.resnets" : "decoder.up_blocks.0.resnets");
    for (int64_t i = 0; i < s->levels; i++) {
        s->width[i] = dv_dim(t, level_name(name, encoder, i, "resnets.0.conv1.weight"), 0);
        s->times[i] = i + 1 < s->levels ? times_of(t, encoder, i, s->width[i]) : 1;
        if (s->width[i] < 1 || s->resnets < 1) {
            return dv_fail(DAVY_E_TENSOR, "the %s has no first block at level %d; the file may be incomplete", side,
                           (int)i);
        }
        if (s->times[i] < 1) {
            return dv_fail(DAVY_E_SHAPE, "the %s's level %d does not end in a %s of one or two frames", side, (int)i,
                           encoder ? "downsampler" : "upsampler");
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

static davy_result read_halves(const dv_tensors *t, cfg *c) {
    half *e = &c->encoder;
    half *d = &c->decoder;
    davy_result r = DAVY_OK;
    e->there = dv_has(t, "encoder.conv_in.weight") && dv_has(t, "encoder.conv_out.weight");
    d->there = dv_has(t, "decoder.conv_in.weight") && dv_has(t, "decoder.conv_out.weight");
    if (e->there) {
        r = find_levels(t, true, e);
        e->picture = dv_dim(t, "encoder.conv_in.weight", 1);
        e->latent = dv_dim(t, "encoder.conv_out.weight", 0);
    }
    if (d->there && r == DAVY_OK) {
        r = find_levels(t, false, d);
        d->picture = dv_dim(t, "decoder.conv_out.weight", 0);
        d->latent = dv_dim(t, "decoder.conv_in.weight", 1);
    }
    return r;
}

static davy_result config(const dv_probe *probe, void *out) {
    const dv_tensors *t = probe->tensors;
    cfg *c = out;
    const half *e = &c->encoder;
    const half *d = &c->decoder;
    const davy_result r = read_halves(t, c);
    if (r < 0) {
        return r;
    }
    if (!e->there && !d->there) {
        return dv_fail(DAVY_E_TENSOR,
                       "tensors encoder.conv_in and conv_out are missing, and so are decoder.conv_in and conv_out");
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
    if ((e->there && e->picture != 3) || (d->there && d->picture != 3)) {
        return dv_fail(DAVY_E_UNSUPPORTED, "the autoencoder's pictures have %d channels; only 3 are supported",
                       (int)(e->there ? e->picture : d->picture));
    }
    if (dv_has(t, "quant_conv.weight|post_quant_conv.weight")) {
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "the video autoencoder has a quant_conv; SeedVR2's has none, so it is not supported");
    }
    c->z = d->there ? d->latent : e->latent / 2;
    c->times = frames_of(d->there ? d : e);
    return DAVY_OK;
}

static const half *some_half(const cfg *c) {
    return c->decoder.there ? &c->decoder : &c->encoder;
}

static dv_autoencoder common(const cfg *c) {
    return (dv_autoencoder){.encodes = c->encoder.there,
                            .decodes = c->decoder.there,
                            .moments = true,
                            .z = c->z,
                            .factor = (int64_t)1 << (some_half(c)->levels - 1),
                            .times = c->times};
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    const dv_autoencoder a = common(c);
    dv_autoencoder_info(&a, "SeedVR2", out);
    out->latent_scale = LATENT_SCALE;
    out->latent_shift = 0.0f;
}

static void clip(const void *config_, dv_stage stage, dv_clip_rule *out) {
    const dv_autoencoder a = common(config_);
    dv_autoencoder_clip(&a, stage, out);
    out->second = stage == DV_STAGE_DECODE;
}

/* ---- the network ---- */

static dv_value resnet(dv_graph *g, dv_value x, const char *name, int64_t c_out) {
    char part[DV_NAMES_BYTES];
    dv_value skip = x;
    if (dv_shape_of(g, x).c != c_out) {
        skip = dv_conv3d(g, x, dv_names_join(part, name, ".conv_shortcut"), c_out, &point);
    }
    dv_value y = dv_norm_silu(g, x, dv_names_join(part, name, ".norm1"), norm);
    y = dv_conv3d(g, y, dv_names_join(part, name, ".conv1"), c_out, NULL);
    y = dv_norm_silu(g, y, dv_names_join(part, name, ".norm2"), norm);
    y = dv_conv3d(g, y, dv_names_join(part, name, ".conv2"), c_out, NULL);
    return dv_add(g, 1.0f, y, 1.0f, skip);
}

static dv_value mid(dv_graph *g, dv_value x, bool encoder) {
    const int64_t width = dv_shape_of(g, x).c;
    x = resnet(g, x, encoder ? "encoder.mid_block.resnets.0" : "decoder.mid_block.resnets.0", width);
    x = dv_attention_block(g, x, encoder ? "encoder.mid_block.attentions.0" : "decoder.mid_block.attentions.0", norm);
    return resnet(g, x, encoder ? "encoder.mid_block.resnets.1" : "decoder.mid_block.resnets.1", width);
}

static dv_value level(dv_graph *g, const half *s, dv_value x, bool encoder, int64_t index) {
    char name[NAME_BYTES];
    char part[64];
    for (int64_t i = 0; i < s->resnets; i++) {
        snprintf(part, sizeof part, "resnets.%d", (int)i);
        x = resnet(g, x, level_name(name, encoder, index, part), s->width[index]);
    }
    return x;
}

static void build_encoder(const void *config_, dv_graph *g, int64_t h, int64_t w) {
    const cfg *c = config_;
    const half *s = &c->encoder;
    const dv_shape shape = {1, h, w, s->picture};
    char name[NAME_BYTES];
    dv_value x = dv_conv3d(g, dv_input(g, shape), "encoder.conv_in", s->width[0], NULL);
    for (int64_t i = 0; i < s->levels; i++) {
        x = level(g, s, x, true, i);
        if (i + 1 < s->levels) {
            const dv_conv3d_opts down = {.frames = s->times[i] == 2 ? 3 : 1,
                                         .step = (int32_t)s->times[i],
                                         .stride = 2,
                                         .pad_bottom_right = true};
            x = dv_conv3d(g, x, level_name(name, true, i, "downsamplers.0.conv"), s->width[i], &down);
        }
    }
    x = dv_norm_silu(g, mid(g, x, true), "encoder.conv_norm_out", norm);
    dv_output(g, dv_conv3d(g, x, "encoder.conv_out", s->latent, NULL));
}

static void build_decoder(const void *config_, dv_graph *g, int64_t h, int64_t w) {
    const cfg *c = config_;
    const half *s = &c->decoder;
    const dv_shape shape = {1, h, w, s->latent};
    char name[NAME_BYTES];
    dv_value x = dv_conv3d(g, dv_input(g, shape), "decoder.conv_in", s->width[0], NULL);
    x = mid(g, x, false);
    for (int64_t i = 0; i < s->levels; i++) {
        x = level(g, s, x, false, i);
        if (i + 1 < s->levels) {
            x = dv_upsampler(g, x, level_name(name, false, i, "upsamplers.0"), s->times[i]);
        }
    }
    x = dv_norm_silu(g, x, "decoder.conv_norm_out", norm);
    dv_output(g, dv_conv3d(g, x, "decoder.conv_out", s->picture, NULL));
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const dv_autoencoder a = common(config_);
    const dv_halves halves = {build_encoder, build_decoder, .facts = &a, .cfg = config_};
    return dv_autoencoder_build(&halves, stage, h, w, g);
}

const dv_arch dv_arch_vae_seedvr2 = {
    .name = "vae_seedvr2",
    .task = DAVY_TASK_VAE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .clip = clip,
    .range = DAVY_RANGE_SIGNED_UNIT,
};
