/* vae_taehv.c - the TAEHV family of tiny video autoencoders: taehv, taew2_1, taew2_2, taehv1_5, taeltx_2 and their
 * "super" decoders, taeh3, lighttae. They are chains of convolutions and of blocks that also read the previous
 * frame. Here a chain is a string with one letter per layer, since the files name layers by their place in the
 * chain. Pictures are [0,1]; latents are the diffusion model's own. docs/arch/vae_taehv.md. */
#include <stdio.h>
#include <string.h>

#include "core/arch/arch.h"
#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/block/autoencoder.h"
#include "core/block/derived.h"
#include "core/block/weights.h"
#include "core/graph/network.h"

/* ---- pieces ---- */

/* Some clips are encoded in pieces, each as if it were a clip of its own. Blank frames before a piece make its
 * first frame the last one of a latent. Of a clip's last piece only the first latents count. So a clip begins with
 * that many latents and continues with whole pieces. Graphs are of a slice: one that continues a clip begins behind
 * the part of a last piece that counts. */

typedef struct clip_pieces {
    int64_t frames; /* per piece; 0: clips are not cut */
    int64_t times;  /* frames per latent */
    int64_t last;   /* latents of a clip's last piece that count */
} clip_pieces;

static int64_t latents_of(const clip_pieces *p) {
    return dv_div_up(p->frames, p->times);
}

static int64_t blanks_of(const clip_pieces *p) {
    return latents_of(p) * p->times - p->frames;
}

/* dv_arch.clip */
static void clip_pieces_clip(const clip_pieces *p, dv_stage stage, dv_clip_rule *out) {
    const int64_t frames = p->last * p->times - blanks_of(p), step = latents_of(p);
    *out = stage == DV_STAGE_ENCODE
               ? (dv_clip_rule){.first = frames, .step = p->frames, .first_out = p->last, .step_out = step}
               : (dv_clip_rule){.first = p->last, .step = step, .first_out = frames, .step_out = p->frames};
    out->spare = out->step - out->first; /* the rest of a last piece does not count */
}

/* Whether the number of a slice's frames, or latents, obeys the rule; a single picture always does. */
static davy_result clip_pieces_check(const clip_pieces *p, dv_stage stage, const dv_graph *g) {
    dv_clip_rule rule;
    clip_pieces_clip(p, stage, &rule);
    const bool alone = g->pictures == 1 && !g->continues && !g->keeps;
    const int64_t least = g->continues ? rule.step : rule.first;
    if (!alone && (g->pictures < least || (g->pictures - least) % rule.step != 0)) {
        return dv_fail(DAVY_E_SHAPE, "%d %s are not possible for a clip in pieces; use %d plus a multiple of %d",
                       (int)g->pictures, stage == DV_STAGE_ENCODE ? "frames" : "latents", (int)least, (int)rule.step);
    }
    return DAVY_OK;
}

/* The first frame of the next piece after frame `at`. */
static int64_t next_piece(const clip_pieces *p, const dv_graph *g, int64_t each, int64_t at) {
    const int64_t piece = latents_of(p) * each;
    const int64_t offset = g->continues ? p->last * each : 0;
    return (at + offset) / piece * piece + piece - offset;
}

static dv_value joined(dv_graph *g, dv_value a, dv_value b) {
    const dv_value both[2] = {a, b};
    return a == DV_NO_VALUE ? b : dv_join_frames(g, both, 2);
}

static dv_value blank(dv_graph *g, dv_value x, int64_t at) {
    const dv_value frame = dv_take_frames(g, x, at, 1);
    return dv_add(g, 0.0f, frame, 0.0f, frame);
}

/* A slice's frames with the blank ones inserted. */
static dv_value clip_pieces_begin(const clip_pieces *p, dv_graph *g, dv_value x) {
    const int64_t frames = dv_shape_of(g, x).n;
    const int64_t rest = (latents_of(p) - p->last) * p->times; /* frames of a piece that the slice before has begun */
    dv_value out = DV_NO_VALUE;
    for (int64_t at = 0, next; at < frames; at = next) {
        const bool begins = at > 0 || !g->continues;
        next = dv_min(frames, at + (begins ? p->frames : rest));
        for (int64_t i = 0; i < blanks_of(p) && begins; i++) {
            out = joined(g, out, blank(g, x, at));
        }
        out = joined(g, out, dv_take_frames(g, x, at, next - at));
    }
    return out;
}

/* For a layer that reads the previous frame, with `each` frames per latent. A frame of zeros is inserted before
 * every piece that begins inside the slice; clip_pieces_recollect removes its result. `frames` excludes the zeros. */
static dv_value clip_pieces_forget(const clip_pieces *p, dv_graph *g, dv_value x, int64_t each) {
    const int64_t frames = dv_shape_of(g, x).n;
    dv_value out = DV_NO_VALUE;
    for (int64_t at = 0, next; at < frames; at = next) {
        next = dv_min(frames, next_piece(p, g, each, at));
        out = at > 0 ? joined(g, out, blank(g, x, at)) : out;
        out = joined(g, out, dv_take_frames(g, x, at, next - at));
    }
    return out;
}

static dv_value clip_pieces_recollect(const clip_pieces *p, dv_graph *g, dv_value x, int64_t frames, int64_t each) {
    dv_value out = DV_NO_VALUE;
    int64_t skipped = 0;
    for (int64_t at = 0, next; at < frames; at = next, skipped++) {
        next = dv_min(frames, next_piece(p, g, each, at));
        out = joined(g, out, dv_take_frames(g, x, at + skipped, next - at));
    }
    return out;
}

/* The decoded frames without the results of blank ones. */
static dv_value clip_pieces_shown(const clip_pieces *p, dv_graph *g, dv_value x) {
    const int64_t frames = dv_shape_of(g, x).n;
    dv_value out = DV_NO_VALUE;
    for (int64_t at = 0, next; at < frames; at = next) {
        const int64_t drop = at > 0 || !g->continues ? blanks_of(p) : 0;
        next = dv_min(frames, next_piece(p, g, p->times, at));
        out = joined(g, out, dv_take_frames(g, x, at + drop, next - at - drop));
    }
    return out;
}

/* l: 3 tanh(x/3)   c: conv   n: conv without bias   d: n with stride 2   o: 1x1 conv without bias   r: ReLU
 * m, s: blocks of memory, small and super   p: frames to one   g: one to frames   u: nearest x2   x: pixel shuffle
 * by 2 */
static const char encoder_chain[] = "crpdmmmpdmmmpdmmmc";
static const char decoder_chain[] = "lcrmmmugnmmmugnmmmugnrc";
static const char super_chain[] = "ossscrxgssscrxgssscrxgc";

enum { NAME_BYTES = 64, MOST_TIMES = 4 };

typedef struct cfg {
    bool encodes, decodes, super, leaky;
    int64_t z, patch;
    int64_t shrink, grow; /* frames per latent, in the encoder and in the decoder */
    clip_pieces pieces;   /* MiniMax H3's */
} cfg;

static const char *chain_of(const cfg *c, bool encoder) {
    return encoder ? encoder_chain : c->super ? super_chain : decoder_chain;
}

static const char *layer_name(char out[NAME_BYTES], bool encoder, int place, const char *rest) {
    snprintf(out, NAME_BYTES, "%s.%d%s", encoder ? "encoder" : "decoder", place, rest);
    return out;
}

static int64_t layer_dim(const dv_tensors *t, bool encoder, int place, const char *rest, int32_t axis) {
    char name[NAME_BYTES];
    return dv_dim(t, layer_name(name, encoder, place, rest), axis);
}

/* ---- detection and configuration ---- */

static bool has_encoder(const dv_tensors *t) {
    return dv_has(t, "encoder.0.weight") && dv_has(t, "encoder.4.conv.0.weight") && dv_has(t, "encoder.17.bias");
}

static int32_t match(const dv_probe *probe) {
    const dv_tensors *t = probe->tensors;
    const bool decoder = dv_has(t, "decoder.22.bias") && dv_dim(t, "decoder.1.weight|decoder.0.weight", 3) > 0;
    return decoder || (has_encoder(t) && dv_has(t, "encoder.7.conv.weight")) ? 20 : 0;
}

/* Number of frames that a chain reduces to one, or expands one to. */
static davy_result find_times(const dv_tensors *t, const cfg *c, bool encoder, int64_t *out) {
    const char *chain = chain_of(c, encoder);
    *out = 1;
    for (int place = 0; chain[place] != '\0'; place++) {
        if (chain[place] == 'p' || chain[place] == 'g') {
            const int64_t many = layer_dim(t, encoder, place, ".conv.weight", encoder ? 1 : 0);
            const int64_t one = layer_dim(t, encoder, place, ".conv.weight", encoder ? 0 : 1);
            if (one < 1 || many % one != 0 || many / one > MOST_TIMES) {
                char name[NAME_BYTES];
                return dv_fail(DAVY_E_SHAPE, "tensor '%s' is missing, or its channels are no whole number of frames",
                               layer_name(name, encoder, place, ".conv.weight"));
            }
            *out *= many / one;
        }
    }
    return DAVY_OK;
}

static bool contains(const char *text, const char *part) { /* ignores ASCII case of text */
    for (; *text != '\0'; text++) {
        if (dv_starts_with(text, part)) {
            return true;
        }
    }
    return false;
}

/* Only the file's name identifies the one family with another activation. */
static davy_result find_activation(const dv_probe *probe, cfg *c) {
    const dv_json *given = probe->config != NULL ? dv_json_get(probe->config, "act_fn") : NULL;
    const char *act = given != NULL ? dv_json_string(given) : NULL;
    if (act != NULL && strcmp(act, "relu") != 0 && strcmp(act, "leaky_relu") != 0) {
        return dv_fail(DAVY_E_UNSUPPORTED, "config.json: act_fn is '%s'; only relu and leaky_relu are supported", act);
    }
    c->leaky = act != NULL ? strcmp(act, "leaky_relu") == 0
                           : c->z == 32 && c->patch == 2 &&
                                 contains(probe->file_name != NULL ? probe->file_name : "", "lighttae");
    return DAVY_OK;
}

static davy_result check(const dv_tensors *t, const cfg *c) {
    const int64_t taken = layer_dim(t, true, 0, ".weight", 1);
    if (c->z < 1 || c->patch < 1) {
        return dv_fail(DAVY_E_SHAPE,
                       "the first or last convolution has no channels of latents or of patches of pixels");
    }
    if (c->encodes && c->decodes &&
        (layer_dim(t, true, 17, ".weight", 0) != c->z || taken != 3 * c->patch * c->patch || c->shrink != c->grow)) {
        return dv_fail(DAVY_E_SHAPE,
                       "the encoder has %d latent channels, %d frames per latent and %d picture channels, the decoder "
                       "%d, %d and %d; all must be equal",
                       (int)layer_dim(t, true, 17, ".weight", 0), (int)c->shrink, (int)taken, (int)c->z, (int)c->grow,
                       (int)(3 * c->patch * c->patch));
    }
    if (c->pieces.frames > 0 && ((c->encodes && c->shrink != 4) || (c->decodes && c->grow != 4))) {
        return dv_fail(DAVY_E_SHAPE,
                       "the tiny autoencoder for MiniMax H3 (taeh3) must have 4 frames per latent, this one has %d",
                       (int)(c->encodes ? c->shrink : c->grow));
    }
    return DAVY_OK;
}

static davy_result config(const dv_probe *probe, void *out) {
    const dv_tensors *t = probe->tensors;
    cfg *c = out;
    c->encodes = has_encoder(t);
    c->decodes = dv_has(t, "decoder.22.bias");
    c->super = dv_has(t, "decoder.0.weight");
    c->z = !c->decodes ? layer_dim(t, true, 17, ".weight", 0) : layer_dim(t, false, c->super ? 0 : 1, ".weight", 1);
    const int64_t channels = c->decodes ? dv_dim(t, "decoder.22.bias", 0) : layer_dim(t, true, 0, ".weight", 1);
    c->patch = channels % 3 == 0 ? dv_square_root(channels / 3) : 0;
    davy_result r = c->encodes ? find_times(t, c, true, &c->shrink) : DAVY_OK;
    r = r == DAVY_OK && c->decodes ? find_times(t, c, false, &c->grow) : r;
    if (c->z == 24 && c->patch == 2) {
        c->pieces = (clip_pieces){.frames = 17, .times = 4, .last = 2};
    }
    r = r < 0 ? r : check(t, c);
    return r < 0 ? r : find_activation(probe, c);
}

static dv_autoencoder common(const cfg *c) {
    return (dv_autoencoder){.encodes = c->encodes, .decodes = c->decodes, .z = c->z, .factor = 8 * c->patch};
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    const dv_autoencoder a = common(c);
    dv_autoencoder_info(&a, "", out);
    snprintf(out->variant, sizeof out->variant, "%dx, %d latent channels%s%s%s%s", (int)a.factor, (int)c->z,
             c->pieces.frames > 0 ? ", H3" : "", c->super ? ", super decoder" : "", c->leaky ? ", leaky" : "",
             dv_autoencoder_part(&a));
    out->latent_scale = 1.0f; /* its latents are the diffusion model's already */
    out->latent_shift = 0.0f;
}

/* ---- frames and latents ---- */

/* All but the last of the frames decoded from the first latent do not belong to the clip. */
static void clip(const void *config_, dv_stage stage, dv_clip_rule *out) {
    const cfg *c = config_;
    if (c->pieces.frames > 0) {
        clip_pieces_clip(&c->pieces, stage, out);
        return;
    }
    *out = stage == DV_STAGE_ENCODE
               ? (dv_clip_rule){.first = c->shrink, .step = c->shrink, .first_out = 1, .step_out = 1}
               : (dv_clip_rule){.first = 1, .step = 1, .first_out = 1, .step_out = c->grow};
}

static davy_result check_frames(const cfg *c, dv_stage stage, const dv_graph *g) {
    if (c->pieces.frames > 0) {
        return clip_pieces_check(&c->pieces, stage, g);
    }
    if (stage == DV_STAGE_ENCODE && g->keeps && g->pictures % c->shrink != 0) {
        return dv_fail(DAVY_E_SHAPE, "%d frames are not possible while more frames follow; use a multiple of %d",
                       (int)g->pictures, (int)c->shrink);
    }
    return DAVY_OK;
}

/* ---- the network ---- */

static dv_value relu(const cfg *c, dv_graph *g, dv_value x) {
    return c->leaky ? dv_activation(g, x, DVK_ACT_LRELU, 0.2f) : dv_activation(g, x, DVK_ACT_RELU, 0.0f);
}

/* The file stores the channels of a frame before those of the previous frame. */
static dv_pick newest_last(int64_t channels) {
    return (dv_pick){channels, {2, channels}, {-channels, 1}};
}

/* relu(x + conv(relu(conv(relu(conv(x and the previous x)))))) */
static dv_value memory(const cfg *c, dv_graph *g, bool encoder, int place, dv_value x) {
    static const dv_conv_opts no_bias = {.no_bias = true};
    char name[NAME_BYTES];
    const int64_t width = dv_shape_of(g, x).c;
    const int64_t c_out = layer_dim(g->weights, encoder, place, ".conv.4.weight", 0);
    const dv_pick out = {0, {c_out}, {1}};
    const dv_pick in = newest_last(width);
    dv_conv_opts first = {.derived = true};
    first.weight = dv_param_picked(g, layer_name(name, encoder, place, ".conv.0.weight"), &out, &in, 1, 3);
    first.bias = dv_param_stored(g, layer_name(name, encoder, place, ".conv.0.bias"), 1, &c_out);
    dv_value y = dv_recall(g, x, 2, DV_BEFORE_ZERO);
    y = relu(c, g, dv_conv(g, y, layer_name(name, encoder, place, ".conv.0"), c_out, 3, &first));
    y = relu(c, g, dv_conv(g, y, layer_name(name, encoder, place, ".conv.2"), c_out, 3, NULL));
    if (dv_has(g->weights, layer_name(name, encoder, place, ".skip.weight"))) {
        x = dv_conv(g, x, layer_name(name, encoder, place, ".skip"), c_out, 1, &no_bias);
    }
    y = dv_conv(g, y, layer_name(name, encoder, place, ".conv.4"), c_out, 3, NULL);
    return relu(c, g, dv_add(g, 1.0f, y, 1.0f, x));
}

/* x + narrow(relu(wide(7x7 depthwise of x and the previous x))) */
static dv_value super_memory(const cfg *c, dv_graph *g, int place, dv_value x) {
    static const dv_conv_opts no_bias = {.no_bias = true};
    char name[NAME_BYTES];
    const int64_t width = dv_shape_of(g, x).c;
    const int64_t wide = layer_dim(g->weights, false, place, ".conv.1.weight", 0);
    const dv_pick out = {0, {wide}, {1}};
    const dv_pick in = newest_last(width);
    dv_conv_opts each = {.derived = true, .weight = DV_NO_PARAM, .bias = DV_NO_PARAM};
    dv_conv_opts all = {.derived = true};
    each.weight = dv_param_picked_depthwise(g, layer_name(name, false, place, ".conv.0.weight"), 7, &in);
    all.weight = dv_param_picked(g, layer_name(name, false, place, ".conv.1.weight"), &out, &in, 1, 1);
    all.bias = dv_param_stored(g, layer_name(name, false, place, ".conv.1.bias"), 1, &wide);
    dv_value y = dv_recall(g, x, 2, DV_BEFORE_ZERO);
    y = dv_depthwise(g, y, layer_name(name, false, place, ".conv.0"), 7, &each);
    y = relu(c, g, dv_conv(g, y, layer_name(name, false, place, ".conv.1"), wide, 1, &all));
    y = dv_conv(g, y, layer_name(name, false, place, ".conv.3"), width, 1, &no_bias);
    return dv_add(g, 1.0f, y, 1.0f, x);
}

static dv_value between_times(dv_graph *g, bool encoder, int place, dv_value x) {
    static const dv_conv_opts no_bias = {.no_bias = true};
    char name[NAME_BYTES];
    const int64_t c_out = layer_dim(g->weights, encoder, place, ".conv.weight", 0);
    const int64_t c_in = layer_dim(g->weights, encoder, place, ".conv.weight", 1);
    layer_name(name, encoder, place, ".conv");
    if (encoder) {
        return dv_conv(g, dv_frames_to_channels(g, x, c_in / dv_max(c_out, 1)), name, c_out, 1, &no_bias);
    }
    return dv_channels_to_frames(g, dv_conv(g, x, name, c_out, 1, &no_bias), c_out / dv_max(c_in, 1));
}

static dv_value layer(const cfg *c, dv_graph *g, bool encoder, int place, dv_value x) {
    const char kind = chain_of(c, encoder)[place];
    char name[NAME_BYTES];
    const dv_conv_opts opts = {.stride = kind == 'd' ? 2 : 1, .no_bias = kind == 'n' || kind == 'd' || kind == 'o'};
    switch (kind) {
    case 'l':
        return dv_activation(g, x, DVK_ACT_CLAMP3, 0.0f);
    case 'r':
        return relu(c, g, x);
    case 'u':
        return dv_upsample(g, x, 2);
    case 'x':
        return dv_pixel_shuffle(g, x, 2, DV_NO_VALUE);
    case 'p':
    case 'g':
        return between_times(g, encoder, place, x);
    case 'm':
        return memory(c, g, encoder, place, x);
    case 's':
        return super_memory(c, g, place, x);
    default: {
        const int64_t c_out = layer_dim(g->weights, encoder, place, ".weight", 0);
        return dv_conv(g, x, layer_name(name, encoder, place, ""), c_out, kind == 'o' ? 1 : 3, &opts);
    }
    }
}

/* Repeats the last frame until the clip is a whole number of latents. */
static dv_value completed(const cfg *c, dv_graph *g, dv_value x) {
    const int64_t frames = dv_shape_of(g, x).n;
    const int64_t times = c->shrink;
    dv_value last = DV_NO_VALUE;
    for (int64_t missing = (times - frames % times) % times; missing > 0; missing--) {
        last = last == DV_NO_VALUE ? dv_take_frames(g, x, frames - 1, 1) : last;
        const dv_value both[2] = {x, last};
        x = dv_join_frames(g, both, 2);
    }
    return x;
}

static void build_encoder(const void *config_, dv_graph *g, int64_t h, int64_t w) {
    const cfg *c = config_;
    dv_value x = dv_input(g, (dv_shape){1, h, w, 3});
    x = c->pieces.frames > 0 ? clip_pieces_begin(&c->pieces, g, x) : completed(c, g, x);
    const int64_t latents = dv_shape_of(g, x).n / c->shrink;
    x = c->patch > 1 ? dv_pixel_unshuffle(g, x, c->patch) : x;
    for (int place = 0; encoder_chain[place] != '\0'; place++) {
        const int64_t frames = dv_shape_of(g, x).n;
        const bool forgets = c->pieces.frames > 0 && encoder_chain[place] == 'm' && frames > 0;
        const int64_t each = forgets ? frames / latents : 1;
        x = forgets ? clip_pieces_forget(&c->pieces, g, x, each) : x;
        x = layer(c, g, true, place, x);
        x = forgets ? clip_pieces_recollect(&c->pieces, g, x, frames, each) : x;
    }
    dv_output(g, x);
}

static dv_value shown(const cfg *c, dv_graph *g, dv_value x) {
    const int64_t drop = g->continues ? 0 : c->grow - 1;
    return c->pieces.frames > 0 ? clip_pieces_shown(&c->pieces, g, x)
                                : dv_take_frames(g, x, drop, dv_shape_of(g, x).n - drop);
}

static void build_decoder(const void *config_, dv_graph *g, int64_t h, int64_t w) {
    const cfg *c = config_;
    const char *chain = chain_of(c, false);
    const int last_growth = (int)(strrchr(chain, 'g') - chain);
    dv_value x = dv_input(g, (dv_shape){1, h, w, c->z});
    for (int place = 0; chain[place] != '\0'; place++) {
        const bool first_grows =
            chain[place] == 'u' && chain[place + 1] == 'g'; /* the same result for a quarter of the work */
        x = layer(c, g, false, first_grows ? place + 1 : place, x);
        if (place + first_grows == last_growth) { /* no later layer reads the previous frame */
            x = shown(c, g, x);
        }
        if (first_grows) {
            x = layer(c, g, false, place++, x);
        }
    }
    dv_output(g, c->patch > 1 ? dv_pixel_shuffle(g, x, c->patch, DV_NO_VALUE) : x);
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const cfg *c = config_;
    const dv_autoencoder a = common(c);
    const dv_halves halves = {build_encoder, build_decoder, .facts = &a, .cfg = c};
    const bool there = stage == DV_STAGE_ENCODE ? c->encodes : stage == DV_STAGE_DECODE && c->decodes;
    const davy_result r = there ? check_frames(c, stage, g) : DAVY_OK;
    return r < 0 ? r : dv_autoencoder_build(&halves, stage, h, w, g);
}

const dv_arch dv_arch_vae_taehv = {
    .name = "vae_taehv",
    .task = DAVY_TASK_VAE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .clip = clip,
    .range = DAVY_RANGE_UNIT,
};
