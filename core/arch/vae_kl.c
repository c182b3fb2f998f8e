/* vae_kl.c - AutoencoderKL, the image autoencoder of Stable Diffusion 1, 2, XL and 3, of FLUX.1 and FLUX.2, and of
 * the x4 upscaler. It supports the original (ldm) and the diffusers names. All are one network with different
 * widths. They differ in the scale of their latents, which the weights do not contain. docs/arch/vae_kl.md. */
#include "core/arch/arch.h"

#include <stdio.h>
#include <string.h>

#include "core/block/autoencoder.h"
#include "core/block/weights.h"
#include "core/base/error.h"
#include "core/base/utf8.h"

enum { MAX_LEVELS = 8, NAME_BYTES = 192 };
#define NORM_EPS 1e-6f

typedef struct half {
    bool there;
    int64_t levels, resnets;
    int64_t width[MAX_LEVELS]; /* by level, 0 at full size */
    int64_t picture, latent;   /* channels at both ends; the encoder's latent end has moments, 2z */
    bool quant;                /* a 1x1 convolution at the latent end */
} half;

typedef struct cfg {
    half encoder, decoder;
    int64_t groups, z;
    float scale, shift; /* 0: unknown */
    const char *family;
} cfg;

/* ---- families ---- */

typedef struct family {
    const char *key; /* value of meta key "checkpoint" of a full checkpoint */
    const char *name;
    int64_t z;
    float scale, shift;
} family;

static const family families[] = {
    {"sd1", "SD 1", 4, 0.18215f, 0.0f},       {"sd2", "SD 2", 4, 0.18215f, 0.0f},
    {"sdxl", "SDXL", 4, 0.13025f, 0.0f},      {"sd3", "SD 3", 16, 1.5305f, 0.0609f},
    {"flux", "FLUX.1", 16, 0.3611f, 0.1159f},
};

/* Parts of file names, in lower case. The first one that occurs and fits z decides. */
static const struct {
    const char *part, *key;
} file_names[] = {
    {"sdxl", "sdxl"}, {"sd_xl", "sdxl"},     {"sd-xl", "sdxl"},
    {"sd3", "sd3"},   {"sd_3", "sd3"},       {"stable-diffusion-3", "sd3"},
    {"flux", "flux"}, {"vae-ft-mse", "sd1"}, {"vae-ft-ema", "sd1"},
    {"kl-f8", "sd1"}, {"sd15", "sd1"},       {"sd1.5", "sd1"},
    {"sd1_5", "sd1"}, {"v1-5", "sd1"},       {"sd21", "sd2"},
    {"v2-1", "sd2"},
};

/* Published files, recognised under any name. */
static const struct {
    uint64_t bytes;
    const char *sha256, *key;
} known_files[] = {
    {335304388, "afc8e28272cd15db3919bacdb6918ce9c1ed22e96cb12c4d5ed0fba823529e38", "flux"},
    {334641164, "63aeecb90ff7bc1c115395962d3e803571385b61938377bc7089b36e81e92e2e", "sdxl"},
    {334641190, "735e4c3a447a3255760d7f86845f09f937809baa529c17370d83e4c3758f3c75", "sd1"},
};

static bool contains(const char *text, const char *part) { /* ignores ASCII case of text */
    for (; *text != '\0'; text++) {
        if (dv_starts_with(text, part)) {
            return true;
        }
    }
    return false;
}

static void take_family(cfg *c, const char *key) {
    for (size_t i = 0; i < DV_ARRAY_LEN(families) && key != NULL; i++) {
        if (strcmp(families[i].key, key) == 0 && families[i].z == c->z) {
            c->family = families[i].name;
            c->scale = families[i].scale;
            c->shift = families[i].shift;
            return;
        }
    }
}

/* The family with these numbers of a configuration; NULL: none. */
static const char *name_of_scale(int64_t z, double scale) {
    for (size_t i = 0; i < DV_ARRAY_LEN(families); i++) {
        const double difference = scale - (double)families[i].scale;
        if (families[i].z == z && difference > -1e-6 && difference < 1e-6) {
            return families[i].name;
        }
    }
    return NULL;
}

/* Reads config.json if it describes an autoencoder; folders also hold configurations of other parts. */
static bool take_config(cfg *c, const dv_json *config) {
    double scale = 0.0;
    double shift = 0.0;
    if (config == NULL || !dv_json_double(dv_json_get(config, "scaling_factor"), &scale)) {
        return false;
    }
    if (dv_json_is_array(dv_json_get(config, "latents_mean"))) {
        c->family = "normalised per channel"; /* Playground 2.5: a single factor does not describe it */
        return true;
    }
    dv_json_double(dv_json_get(config, "shift_factor"), &shift);
    c->scale = (float)scale;
    c->shift = (float)shift;
    c->family = name_of_scale(c->z, scale);
    return true;
}

/* FLUX.1's file is named by two letters, in which other names end as well ("vae.safetensors"). */
static bool is_ae(const char *file_name) {
    return dv_starts_with(file_name, "ae.safetensors") || dv_starts_with(file_name, "ae.sft");
}

/* A diffusers configuration without a scale has the default one: all of SD 1's and some of SD 2's. */
static bool is_default(const cfg *c, const dv_json *config) {
    const char *class_name = config != NULL ? dv_json_string(dv_json_get(config, "_class_name")) : NULL;
    return c->z == 4 && class_name != NULL && strcmp(class_name, "AutoencoderKL") == 0;
}

/* Looks at unambiguous shapes, the configuration, siblings in a checkpoint, then the file's name. A hash of the
 * file comes last, since it takes a second. */
static void find_family(cfg *c, const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    const int64_t levels = c->decoder.there ? c->decoder.levels : c->encoder.levels;
    if (dv_has(t, "bn.running_mean")) {
        c->family = "FLUX.2"; /* its latents are folded and normalised with bn; raw latents need neither */
        return;
    }
    if (take_config(c, probe->config)) {
        return;
    }
    if (c->z == 4 && levels == 3) {
        c->family = "SD x4 upscaler";
        c->scale = 0.08333f;
        return;
    }
    const char *name = probe->file_name != NULL ? probe->file_name : "";
    take_family(c, dv_tensors_meta(t, "checkpoint"));
    for (size_t i = 0; i < DV_ARRAY_LEN(file_names) && c->family == NULL; i++) {
        if (contains(name, file_names[i].part)) {
            take_family(c, file_names[i].key);
        }
    }
    if (c->family == NULL && is_ae(name)) {
        take_family(c, "flux");
    }
    for (size_t i = 0; i < DV_ARRAY_LEN(known_files) && c->family == NULL; i++) {
        if (dv_tensors_are_file(t, known_files[i].bytes, known_files[i].sha256)) {
            take_family(c, known_files[i].key);
        }
    }
    if (c->family == NULL && is_default(c, probe->config)) {
        take_family(c, "sd1");
    }
}

/* ---- names ---- */

/* Level 0 has the full size in both halves; diffusers counts the decoder's levels from the other end. */
static const char *resnet_names(char out[NAME_BYTES], const half *s, bool encoder, int64_t level, int64_t index) {
    const int d = (int)(encoder ? level : s->levels - 1 - level);
    if (encoder) {
        snprintf(out, NAME_BYTES, "encoder.down.%d.block.%d|encoder.down_blocks.%d.resnets.%d", (int)level, (int)index,
                 d, (int)index);
    } else {
        snprintf(out, NAME_BYTES, "decoder.up.%d.block.%d|decoder.up_blocks.%d.resnets.%d", (int)level, (int)index, d,
                 (int)index);
    }
    return out;
}

static const char *sampler_names(char out[NAME_BYTES], const half *s, bool encoder, int64_t level) {
    if (encoder) {
        snprintf(out, NAME_BYTES, "encoder.down.%d.downsample.conv|encoder.down_blocks.%d.downsamplers.0.conv",
                 (int)level, (int)level);
    } else {
        snprintf(out, NAME_BYTES, "decoder.up.%d.upsample.conv|decoder.up_blocks.%d.upsamplers.0.conv", (int)level,
                 (int)(s->levels - 1 - level));
    }
    return out;
}

static const char quant_names[] = "quant_conv|encoder.quant_conv";
static const char post_quant_names[] = "post_quant_conv|decoder.post_quant_conv";

/* ---- detection and configuration ---- */

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    const bool encoder =
        dv_dim(t, "encoder.down.0.block.0.conv1.weight|encoder.down_blocks.0.resnets.0.conv1.weight", 3) == 3;
    const bool decoder =
        dv_dim(t, "decoder.up.0.block.0.conv1.weight|decoder.up_blocks.0.resnets.0.conv1.weight", 3) == 3;
    /* Related networks with these names: SeedVR2, SVD, HunyuanImage (64 channels), VQ models, any 3-D network. */
    const bool relative =
        dv_has(t, "decoder.up_blocks.2.upsamplers.0.upscale_conv.weight|decoder.mid.block_1.mix_factor|"
                  "quantize.embedding.weight|decoder.mid.block_1.time_stack.in_layers.0.weight") ||
        dv_dim(t, "decoder.conv_in.weight|encoder.conv_in.weight", 4) != 0 ||
        dv_dim(t, "decoder.conv_in.weight", 1) == 64;
    return (encoder || decoder) && !relative ? 10 : 0;
}

/* Under ldm's names (.attn.) or diffusers' (.attentions.). The middle is not a level. */
static bool levels_attend(const dv_tensors *t, bool encoder) {
    bool found = false;
    for (int64_t i = 0; i < t->count && !found; i++) {
        const char *name = t->refs[i].name;
        found = (encoder ? strncmp(name, "encoder.down", 12) : strncmp(name, "decoder.up", 10)) == 0 &&
                (strstr(name, ".attn.") != NULL || strstr(name, ".attentions.") != NULL);
    }
    return found;
}

static davy_result find_levels(const dv_tensors *t, bool encoder, half *s) {
    const char *side = encoder ? "encoder" : "decoder";
    char names[NAME_BYTES];
    char full[DV_NAMES_BYTES];
    s->levels = dv_max(dv_sequence_length(t, encoder ? "encoder.down" : "decoder.up"),
                       dv_sequence_length(t, encoder ? "encoder.down_blocks" : "decoder.up_blocks"));
    if (s->levels < 1 || s->levels > MAX_LEVELS) {
        return dv_fail(DAVY_E_UNSUPPORTED, "the %s has %d levels; 1 to %d are supported", side, (int)s->levels,
                       MAX_LEVELS);
    }
    snprintf(names, sizeof names, "decoder.up_blocks.%d.resnets", (int)s->levels - 1);
    s->resnets = dv_max(dv_sequence_length(t, encoder ? "encoder.down.0.block" : "decoder.up.0.block"),
                        dv_sequence_length(t, encoder ? "encoder.down_blocks.0.resnets" : names));
    for (int64_t i = 0; i < s->levels; i++) {
        s->width[i] = dv_dim(t, dv_names_join(full, resnet_names(names, s, encoder, i, 0), ".conv1.weight"), 0);
        if (s->width[i] < 1 || s->resnets < 1) {
            return dv_fail(DAVY_E_TENSOR, "the %s has no first block at level %d; the file may be incomplete", side,
                           (int)i);
        }
    }
    if (levels_attend(t, encoder)) {
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "the %s has attention inside its levels (a kl-f16 or kl-f32 network), which is not supported",
                       side);
    }
    return DAVY_OK;
}

static davy_result read_halves(const dv_tensors *t, cfg *c) {
    half *e = &c->encoder;
    half *d = &c->decoder;
    davy_result r = DAVY_OK;
    e->there = dv_has(t, "encoder.conv_in.weight") && dv_has(t, "encoder.conv_out.weight");
    d->there = dv_has(t, "decoder.conv_in.weight") && dv_has(t, "decoder.conv_out.weight");
    if (e->there) {
        r = find_levels(t, true, e);
        e->quant = dv_has(t, "quant_conv.weight|encoder.quant_conv.weight");
        e->picture = dv_dim(t, "encoder.conv_in.weight", 1);
        e->latent = dv_dim(t, e->quant ? "quant_conv.weight|encoder.quant_conv.weight" : "encoder.conv_out.weight", 0);
    }
    if (d->there && r == DAVY_OK) {
        r = find_levels(t, false, d);
        d->quant = dv_has(t, "post_quant_conv.weight|decoder.post_quant_conv.weight");
        d->picture = dv_dim(t, "decoder.conv_out.weight", 0);
        d->latent =
            dv_dim(t, d->quant ? "post_quant_conv.weight|decoder.post_quant_conv.weight" : "decoder.conv_in.weight", 1);
    }
    return r;
}

static davy_result check_halves(const cfg *c) {
    const half *e = &c->encoder;
    const half *d = &c->decoder;
    if (!e->there && !d->there) {
        return dv_fail(DAVY_E_TENSOR,
                       "tensors encoder.conv_in and conv_out are missing, and so are decoder.conv_in and conv_out");
    }
    if (e->there && (e->latent % 2 != 0 || e->latent < 2)) {
        return dv_fail(DAVY_E_SHAPE,
                       "the encoder has %d output channels; expected an even number, for means and variances",
                       (int)e->latent);
    }
    if (e->there && d->there && (e->latent != 2 * d->latent || e->levels != d->levels)) {
        return dv_fail(DAVY_E_SHAPE,
                       "the encoder has %d latent channels and %d levels, the decoder %d and %d; both must be equal",
                       (int)(e->latent / 2), (int)e->levels, (int)d->latent, (int)d->levels);
    }
    if ((e->there && e->picture != 3) || (d->there && d->picture != 3)) {
        return dv_fail(DAVY_E_UNSUPPORTED, "the autoencoder's pictures have %d channels; only 3 are supported",
                       (int)(e->there ? e->picture : d->picture));
    }
    return DAVY_OK;
}

static davy_result config(const dv_probe *probe, void *out) {
    cfg *c = out;
    davy_result r = read_halves(probe->tensors, c);
    r = r < 0 ? r : check_halves(c);
    if (r < 0) {
        return r;
    }
    c->z = c->decoder.there ? c->decoder.latent : c->encoder.latent / 2;
    c->groups = 32;
    int64_t groups = 0;
    const dv_json *act = probe->config != NULL ? dv_json_get(probe->config, "act_fn") : NULL;
    if (probe->config != NULL && dv_json_int(dv_json_get(probe->config, "norm_num_groups"), &groups) && groups > 0) {
        c->groups = groups;
    }
    if (dv_json_string(act) != NULL && strcmp(dv_json_string(act), "silu") != 0) {
        return dv_fail(DAVY_E_UNSUPPORTED, "config.json: act_fn is '%s'; only silu is supported", dv_json_string(act));
    }
    find_family(c, probe);
    return DAVY_OK;
}

static dv_autoencoder common(const cfg *c) {
    const half *s = c->decoder.there ? &c->decoder : &c->encoder;
    return (dv_autoencoder){.encodes = c->encoder.there,
                            .decodes = c->decoder.there,
                            .moments = true,
                            .z = c->z,
                            .factor = (int64_t)1 << (s->levels - 1)};
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    const dv_autoencoder a = common(c);
    dv_autoencoder_info(&a, c->family != NULL ? c->family : "scale unknown", out);
    out->latent_scale = c->scale;
    out->latent_shift = c->shift;
}

/* ---- the network ---- */

static dv_value mid(const cfg *c, dv_graph *g, dv_value x, bool encoder) {
    const dv_norm_spec norm = {c->groups, NORM_EPS};
    const int64_t width = dv_shape_of(g, x).c;
    x = dv_resnet_block(g, x,
                        encoder ? "encoder.mid.block_1|encoder.mid_block.resnets.0"
                                : "decoder.mid.block_1|decoder.mid_block.resnets.0",
                        width, norm);
    x = dv_attention_block(g, x,
                           encoder ? "encoder.mid.attn_1|encoder.mid_block.attentions.0"
                                   : "decoder.mid.attn_1|decoder.mid_block.attentions.0",
                           norm);
    return dv_resnet_block(g, x,
                           encoder ? "encoder.mid.block_2|encoder.mid_block.resnets.1"
                                   : "decoder.mid.block_2|decoder.mid_block.resnets.1",
                           width, norm);
}

static dv_value level(const cfg *c, dv_graph *g, dv_value x, bool encoder, int64_t index) {
    const dv_norm_spec norm = {c->groups, NORM_EPS};
    const half *s = encoder ? &c->encoder : &c->decoder;
    char names[NAME_BYTES];
    for (int64_t i = 0; i < s->resnets; i++) {
        x = dv_resnet_block(g, x, resnet_names(names, s, encoder, index, i), s->width[index], norm);
    }
    return x;
}

static void build_encoder(const void *config_, dv_graph *g, int64_t h, int64_t w) {
    const cfg *c = config_;
    static const dv_conv_opts down = {.stride = 2, .pad_bottom_right = true};
    const dv_norm_spec norm = {c->groups, NORM_EPS};
    const half *s = &c->encoder;
    const dv_shape shape = {1, h, w, s->picture};
    char names[NAME_BYTES];
    dv_value x = dv_conv(g, dv_input(g, shape), "encoder.conv_in", s->width[0], 3, NULL);
    for (int64_t i = 0; i < s->levels; i++) {
        x = level(c, g, x, true, i);
        if (i < s->levels - 1) {
            x = dv_conv(g, x, sampler_names(names, s, true, i), s->width[i], 3, &down);
        }
    }
    x = dv_norm_silu(g, mid(c, g, x, true), "encoder.norm_out|encoder.conv_norm_out", norm);
    const int64_t moments = dv_dim(g->weights, "encoder.conv_out.weight", 0);
    x = dv_conv(g, x, "encoder.conv_out", moments, 3, NULL);
    dv_output(g, s->quant ? dv_conv(g, x, quant_names, s->latent, 1, NULL) : x);
}

static void build_decoder(const void *config_, dv_graph *g, int64_t h, int64_t w) {
    const cfg *c = config_;
    const dv_norm_spec norm = {c->groups, NORM_EPS};
    const half *s = &c->decoder;
    const dv_shape shape = {1, h, w, s->latent};
    char names[NAME_BYTES];
    dv_value x = dv_input(g, shape);
    if (s->quant) {
        x = dv_conv(g, x, post_quant_names, dv_dim(g->weights, "decoder.conv_in.weight", 1), 1, NULL);
    }
    x = mid(c, g, dv_conv(g, x, "decoder.conv_in", s->width[s->levels - 1], 3, NULL), false);
    for (int64_t i = s->levels - 1; i >= 0; i--) {
        x = level(c, g, x, false, i);
        if (i > 0) {
            x = dv_conv(g, dv_upsample(g, x, 2), sampler_names(names, s, false, i), s->width[i], 3, NULL);
        }
    }
    x = dv_norm_silu(g, x, "decoder.norm_out|decoder.conv_norm_out", norm);
    dv_output(g, dv_conv(g, x, "decoder.conv_out", s->picture, 3, NULL));
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const dv_autoencoder a = common(config_);
    const dv_halves halves = {build_encoder, build_decoder, .facts = &a, .cfg = config_};
    return dv_autoencoder_build(&halves, stage, h, w, g);
}

const dv_arch dv_arch_vae_kl = {
    .name = "vae_kl",
    .task = DAVY_TASK_VAE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .range = DAVY_RANGE_SIGNED_UNIT,
};
