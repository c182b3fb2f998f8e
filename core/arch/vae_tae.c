/* vae_tae.c - the TAESD family of tiny autoencoders: taesd, taesdxl, taesd3, taef1 (8x), taef2 (8x, with pooled
 * blocks), taesana (32x). They are chains of 3x3 convolutions and residual blocks. Here a chain is a string with
 * one letter per layer, since the files name layers by their place in the chain. Pictures are [0,1]; latents are
 * the diffusion model's own (scaled). docs/arch/vae_tae.md. */
#include "core/arch/arch.h"

#include <stdio.h>
#include <string.h>

#include "core/block/autoencoder.h"
#include "core/block/weights.h"
#include "core/base/error.h"

/* l: 3 tanh(x/3)   c: conv   n: conv without bias   s: conv, stride 2   d: conv without bias, stride 2   r: ReLU
 * b: block   u: nearest x2 */
static const char encoder_8x[] = "cbdbbbdbbbdbbbc";
static const char decoder_8x[] = "lcrbbbunbbbunbbbunbc";
static const char encoder_32x[] = "srsrbdbbbdbbbdbbbc";
static const char decoder_32x[] = "lcrbbbunbbbunbbbunbbbunbbbunbc";

enum { MAX_PREFIX = 32, NAME_BYTES = 96, POOL_GROUPS = 4 };
#define POOL_EPS 1e-5f

typedef struct half {
    bool there;
    char prefix[MAX_PREFIX]; /* "", "encoder.", "taesd_decoder.", "decoder.layers." */
    int32_t offset;          /* index in the name = place in the chain - offset */
    bool large;              /* 32x */
    int64_t latent;
} half;

typedef struct cfg {
    half encoder, decoder;
    int64_t in, out;
    bool pooled;
} cfg;

/* ---- names and detection ---- */

static const char *layer_name(char out[NAME_BYTES], const half *s, int place, const char *rest) {
    snprintf(out, NAME_BYTES, "%s%d%s", s->prefix, place - (int)s->offset, rest);
    return out;
}

static bool has_layer(const dv_tensors *t, const half *s, int place, const char *rest) {
    char name[NAME_BYTES];
    return dv_has(t, layer_name(name, s, place, rest));
}

static const char *chain_of(const half *s, bool encoder) {
    return encoder ? s->large ? encoder_32x : encoder_8x : s->large ? decoder_32x : decoder_8x;
}

/* A half is recognised by its first block and its last convolution, whose place distinguishes 8x from 32x. */
static bool find_half(const dv_tensors *t, const char *prefix, int32_t offset, bool encoder, half *s) {
    half found = {.there = true, .offset = offset};
    snprintf(found.prefix, sizeof found.prefix, "%s", prefix);
    for (int large = 0; large < 2; large++) {
        found.large = large == 1;
        const char *chain = chain_of(&found, encoder);
        const int first = (int)strcspn(chain, "cs");
        const int block = (int)strcspn(chain, "b");
        const int last = (int)strlen(chain) - 1;
        /* The next place must be free; otherwise the chain is longer. */
        if (has_layer(t, &found, first, ".weight") && has_layer(t, &found, block, ".conv.0.weight") &&
            has_layer(t, &found, block, ".conv.4.weight") && has_layer(t, &found, last, ".bias") &&
            !has_layer(t, &found, last + 1, ".bias") && !has_layer(t, &found, last + 1, ".conv.0.weight")) {
            char name[NAME_BYTES];
            const int latent = encoder ? last : first;
            found.latent = dv_dim(t, layer_name(name, &found, latent, ".weight"), encoder ? 0 : 1);
            *s = found;
            return true;
        }
    }
    return false;
}

static void find_halves(const dv_tensors *t, cfg *c) {
    static const struct {
        const char *encoder, *decoder;
        int32_t decoder_offset;
    } layouts[] = {
        {"encoder.layers.", "decoder.layers.", 1}, /* diffusers does not count the clamp as a layer */
        {"taesd_encoder.", "taesd_decoder.", 0},
        {"encoder.", "decoder.", 0},
    };
    for (size_t i = 0; i < DV_ARRAY_LEN(layouts) && !c->encoder.there && !c->decoder.there; i++) {
        find_half(t, layouts[i].encoder, 0, true, &c->encoder);
        find_half(t, layouts[i].decoder, layouts[i].decoder_offset, false, &c->decoder);
    }
    if (!c->encoder.there && !c->decoder.there && !find_half(t, "", 0, true, &c->encoder)) {
        find_half(t, "", 0, false, &c->decoder);
    }
}

static int32_t match(const dv_probe *probe) {
    cfg c;
    memset(&c, 0, sizeof c);
    find_halves(probe->tensors, &c);
    return (c.encoder.there || c.decoder.there) && !dv_has(probe->tensors, "decoder.22.bias") ? 10
                                                                                              /* TAEHV has that
                                                                                               * tensor */
                                                                                              : 0;
}

static davy_result config(const dv_probe *probe, void *out) {
    const dv_tensors *t = probe->tensors;
    cfg *c = out;
    find_halves(t, c);
    if (!c->encoder.there && !c->decoder.there) {
        return dv_fail(DAVY_E_ARCH, "the weights are not of a tiny autoencoder");
    }
    char name[NAME_BYTES];
    c->in = c->encoder.there ? dv_dim(t, layer_name(name, &c->encoder, 0, ".weight"), 1) : 3;
    const int last = (int)strlen(chain_of(&c->decoder, false)) - 1;
    c->out = c->decoder.there ? dv_dim(t, layer_name(name, &c->decoder, last, ".weight"), 0) : 3;
    c->pooled = dv_any_contains(t, ".pool.0.");
    if (c->encoder.there && c->decoder.there &&
        (c->encoder.latent != c->decoder.latent || c->encoder.large != c->decoder.large)) {
        return dv_fail(DAVY_E_SHAPE, "the encoder has %d latent channels (%s), the decoder %d (%s); both must be equal",
                       (int)c->encoder.latent, c->encoder.large ? "32x" : "8x", (int)c->decoder.latent,
                       c->decoder.large ? "32x" : "8x");
    }
    if (c->in != 3 || c->out != 3) {
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "the tiny autoencoder's pictures have %d and %d channels; only 3 are supported", (int)c->in,
                       (int)c->out);
    }
    return DAVY_OK;
}

static dv_autoencoder common(const cfg *c) {
    const half *s = c->encoder.there ? &c->encoder : &c->decoder;
    return (dv_autoencoder){
        .encodes = c->encoder.there, .decodes = c->decoder.there, .z = s->latent, .factor = s->large ? 32 : 8};
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    const dv_autoencoder a = common(c);
    dv_autoencoder_info(&a, "", out);
    snprintf(out->variant, sizeof out->variant, "%dx, %d latent channels%s%s", (int)a.factor, (int)a.z,
             c->pooled ? ", pooled blocks" : "", dv_autoencoder_part(&a));
    out->latent_scale = 1.0f; /* its latents are scaled already */
    out->latent_shift = 0.0f;
}

/* ---- the network ---- */

static dv_value relu(dv_graph *g, dv_value x) {
    return dv_activation(g, x, DVK_ACT_RELU, 0.0f);
}

/* taef2: x + W3 relu(norm(W0 x)), both 1x1, in front of the block itself. */
static dv_value pool(dv_graph *g, const half *s, int place, dv_value x) {
    static const dv_conv_opts no_bias = {.no_bias = true};
    char name[NAME_BYTES];
    const int64_t wide = dv_dim(g->weights, layer_name(name, s, place, ".pool.0.weight"), 0);
    dv_value y = dv_conv(g, x, layer_name(name, s, place, ".pool.0"), wide, 1, &no_bias);
    y = relu(g, dv_group_norm(g, y, layer_name(name, s, place, ".pool.1"), POOL_GROUPS, POOL_EPS));
    y = dv_conv(g, y, layer_name(name, s, place, ".pool.3"), dv_shape_of(g, x).c, 1, &no_bias);
    return dv_add(g, 1.0f, y, 1.0f, x);
}

static dv_value block(dv_graph *g, const half *s, int place, dv_value x) {
    static const dv_conv_opts no_bias = {.no_bias = true};
    char name[NAME_BYTES];
    if (has_layer(g->weights, s, place, ".pool.0.weight")) {
        x = pool(g, s, place, x);
    }
    const int64_t c_out = dv_dim(g->weights, layer_name(name, s, place, ".conv.4.weight"), 0);
    dv_value y = relu(g, dv_conv(g, x, layer_name(name, s, place, ".conv.0"), c_out, 3, NULL));
    y = relu(g, dv_conv(g, y, layer_name(name, s, place, ".conv.2"), c_out, 3, NULL));
    if (has_layer(g->weights, s, place, ".skip.weight")) {
        x = dv_conv(g, x, layer_name(name, s, place, ".skip"), c_out, 1, &no_bias);
    }
    y = dv_conv(g, y, layer_name(name, s, place, ".conv.4"), c_out, 3, NULL);
    return relu(g, dv_add(g, 1.0f, y, 1.0f, x));
}

static dv_value layer(dv_graph *g, const half *s, int place, char kind, dv_value x) {
    char name[NAME_BYTES];
    const dv_conv_opts opts = {.stride = kind == 's' || kind == 'd' ? 2 : 1, .no_bias = kind == 'n' || kind == 'd'};
    switch (kind) {
    case 'l':
        return dv_activation(g, x, DVK_ACT_CLAMP3, 0.0f);
    case 'r':
        return relu(g, x);
    case 'u':
        return dv_upsample(g, x, 2);
    case 'b':
        return block(g, s, place, x);
    default: {
        const int64_t c_out = dv_dim(g->weights, layer_name(name, s, place, ".weight"), 0);
        return dv_conv(g, x, layer_name(name, s, place, ""), c_out, 3, &opts);
    }
    }
}

static void build_half(const cfg *c, dv_graph *g, int64_t h, int64_t w, bool encoder) {
    const half *s = encoder ? &c->encoder : &c->decoder;
    const dv_shape shape = {1, h, w, encoder ? c->in : s->latent};
    const char *chain = chain_of(s, encoder);
    dv_value x = dv_input(g, shape);
    for (int place = 0; chain[place] != '\0'; place++) {
        x = layer(g, s, place, chain[place], x);
    }
    dv_output(g, x);
}

static void build_encoder(const void *config_, dv_graph *g, int64_t h, int64_t w) {
    build_half(config_, g, h, w, true);
}

static void build_decoder(const void *config_, dv_graph *g, int64_t h, int64_t w) {
    build_half(config_, g, h, w, false);
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const dv_autoencoder a = common(config_);
    const dv_halves halves = {build_encoder, build_decoder, .facts = &a, .cfg = config_};
    return dv_autoencoder_build(&halves, stage, h, w, g);
}

const dv_arch dv_arch_vae_tae = {
    .name = "vae_tae",
    .task = DAVY_TASK_VAE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .range = DAVY_RANGE_UNIT,
};
