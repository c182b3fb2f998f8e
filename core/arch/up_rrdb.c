/* up_rrdb.c - RRDBNet: ESRGAN, Real-ESRGAN, BSRGAN/RealSR, ESRGAN+, with pixel unshuffle in front for x2 and x1.
 * Residual blocks of densely connected convolutions at the input's size, then nearest x2 and a convolution per
 * doubling. Files name the layers in one of three ways. docs/arch/up_rrdb.md. */
#include "core/arch/arch.h"

#include <stdio.h>
#include <string.h>

#include "core/block/weights.h"
#include "core/base/error.h"

#define LRELU_SLOPE 0.2f
#define RESIDUAL    0.2f

typedef enum dialect { OLD = 0, NEW = 1, BSRGAN = 2 } dialect;

typedef struct cfg {
    dialect names;
    int64_t features, growth, blocks, doublings, unshuffle;
    int64_t in, out, scale; /* of the picture; unshuffle is taken into account */
    bool plus;              /* ESRGAN+: the 1x1 side branches */
} cfg;

enum { NAME_BYTES = 96, MAX_BLOCKS = 512 };

/* ---- names ---- */

static const char *const block_prefix[] = {[OLD] = "model.1.sub", [NEW] = "body", [BSRGAN] = "RRDB_trunk"};

/* convolutions 1 to 5; 0: the side branch of ESRGAN+. */
static const char *dense_name(char out[NAME_BYTES], dialect d, int64_t block, int rdb, int conv) {
    const char *dense = d == NEW ? "rdb" : "RDB";
    if (conv == 0) {
        snprintf(out, NAME_BYTES, "%s.%d.%s%d.conv1x1", block_prefix[d], (int)block, dense, rdb);
    } else {
        snprintf(out, NAME_BYTES, "%s.%d.%s%d.conv%d%s", block_prefix[d], (int)block, dense, rdb, conv,
                 d == OLD ? ".0" : "");
    }
    return out;
}

/* The old layout numbers its layers: 0 first, 1 blocks and trunk, 3u per doubling; HR and last are 2 and 4 behind
 * these. */
static const char *up_name(char out[NAME_BYTES], dialect d, int64_t u) {
    if (d == OLD) {
        snprintf(out, NAME_BYTES, "model.%d", (int)(3 * u));
    } else {
        snprintf(out, NAME_BYTES, "%s%d", d == NEW ? "conv_up" : "upconv", (int)u);
    }
    return out;
}

static const char *trunk_name(char out[NAME_BYTES], const cfg *c) {
    if (c->names == OLD) {
        snprintf(out, NAME_BYTES, "model.1.sub.%d", (int)c->blocks);
    } else {
        snprintf(out, NAME_BYTES, "%s", c->names == NEW ? "conv_body" : "trunk_conv");
    }
    return out;
}

static const char *tail_name(char out[NAME_BYTES], const cfg *c, bool last) {
    if (c->names == OLD) {
        snprintf(out, NAME_BYTES, "model.%d", (int)(3 * c->doublings + (last ? 4 : 2)));
    } else {
        snprintf(out, NAME_BYTES, "%s", last ? "conv_last" : c->names == NEW ? "conv_hr" : "HRconv");
    }
    return out;
}

static const char *first_name(dialect d) {
    return d == OLD ? "model.0" : "conv_first";
}

static bool find_dialect(const dv_tensors *t, dialect *out) {
    if (dv_has(t, "model.0.weight") &&
        dv_has(t, "model.1.sub.0.RDB1.conv1.0.weight|model.1.sub.0.RDB1.conv1x1.weight")) {
        *out = OLD;
    } else if (dv_has(t, "conv_first.weight") && dv_has(t, "conv_last.weight") &&
               dv_has(t, "body.0.rdb1.conv1.weight") && dv_has(t, "conv_body.weight")) {
        *out = NEW;
    } else if (dv_has(t, "conv_first.weight") && dv_has(t, "conv_last.weight") &&
               dv_has(t, "RRDB_trunk.0.RDB1.conv1.weight") && dv_has(t, "trunk_conv.weight")) {
        *out = BSRGAN;
    } else {
        return false;
    }
    return true;
}

/* ---- configuration ---- */

static int32_t match(const dv_probe *probe) {
    dialect d = OLD;
    return find_dialect(probe->tensors, &d) ? 10 : 0;
}

static davy_result count_layers(const dv_tensors *t, cfg *c) {
    char name[NAME_BYTES + 8];
    c->blocks =
        dv_sequence_length(t, block_prefix[c->names]) - (c->names == OLD ? 1 : 0); /* the last one is the trunk conv */
    if (c->blocks < 1 || c->blocks > MAX_BLOCKS) {
        return dv_fail(DAVY_E_SHAPE, "'%s' has %d blocks, expected 1 to %d", block_prefix[c->names], (int)c->blocks,
                       MAX_BLOCKS);
    }
    if (c->names == OLD) {
        const int64_t layers = dv_sequence_length(t, "model");
        if (layers < 5 || (layers - 5) % 3 != 0) {
            return dv_fail(DAVY_E_SHAPE, "'model' has %d layers, expected 5, 8, 11 or 14", (int)layers);
        }
        c->doublings = (layers - 5) / 3;
    } else {
        char base[NAME_BYTES];
        do {
            c->doublings++;
            snprintf(name, sizeof name, "%s.weight", up_name(base, c->names, c->doublings));
        } while (c->doublings < 8 && dv_has(t, name));
        c->doublings--;
    }
    return c->doublings <= 4 ? DAVY_OK
                             : dv_fail(DAVY_E_UNSUPPORTED, "the RRDBNet enlarges by 2^%d; at most 2^4 is supported",
                                       (int)c->doublings);
}

static int64_t output_channels(const dv_tensors *t, const cfg *c) {
    char base[NAME_BYTES];
    char name[NAME_BYTES + 8];
    snprintf(name, sizeof name, "%s.weight", tail_name(base, c, true));
    return dv_dim(t, name, 0);
}

static davy_result config(const dv_probe *probe, void *out) {
    const dv_tensors *t = probe->tensors;
    cfg *c = out;
    char base[NAME_BYTES];
    char name[NAME_BYTES + 8];
    if (!find_dialect(t, &c->names)) {
        return dv_fail(DAVY_E_ARCH, "the weights are not of an RRDBNet");
    }
    const davy_result r = count_layers(t, c);
    if (r < 0) {
        return r;
    }
    snprintf(name, sizeof name, "%s.weight", first_name(c->names));
    c->features = dv_dim(t, name, 0);
    const int64_t in = dv_dim(t, name, 1);
    snprintf(name, sizeof name, "%s.weight", dense_name(base, c->names, 0, 1, 1));
    c->growth = dv_dim(t, name, 0);
    c->plus = dv_any_contains(t, ".conv1x1.");
    c->out = output_channels(t, c);
    c->unshuffle = in == 4 * c->out ? 2 : in == 16 * c->out ? 4 : 1;
    c->in = in / (c->unshuffle * c->unshuffle);
    const int64_t enlarged = (int64_t)1 << c->doublings;
    if (enlarged % c->unshuffle != 0) {
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "the RRDBNet makes pictures smaller (x%d after unshuffle by %d), which is not supported",
                       (int)enlarged, (int)c->unshuffle);
    }
    c->scale = enlarged / c->unshuffle;
    if (c->in < 1 || c->in > 4 || c->out < 1 || c->out > 4) {
        return dv_fail(DAVY_E_UNSUPPORTED, "the RRDBNet has %d input and %d output channels; 1 to 4 are supported",
                       (int)in, (int)c->out);
    }
    return DAVY_OK;
}

static void info(const void *config_, davy_model_info *out) {
    const cfg *c = config_;
    snprintf(out->variant, sizeof out->variant, "%s%d features, %d blocks, x%d", c->plus ? "ESRGAN+, " : "",
             (int)c->features, (int)c->blocks, (int)c->scale);
    out->features = DAVY_MODEL_UPSCALES;
    out->in_channels = (int32_t)c->in;
    out->out_channels = (int32_t)c->out;
    out->spatial_factor = 1;
    out->scale_num = (int32_t)c->scale;
    out->scale_den = 1;
    out->size_multiple = 1; /* the network pads and crops */
    out->size_min = 1;
}

/* ---- the network ---- */

static dv_value lrelu(dv_graph *g, dv_value x) {
    return dv_activation(g, x, DVK_ACT_LRELU, LRELU_SLOPE);
}

/* Each convolution reads the block's input and all results before it. The last result is a residual. */
static dv_value dense_block(const cfg *c, dv_graph *g, dv_value x, int64_t block, int rdb) {
    static const dv_conv_opts no_bias = {.no_bias = true};
    char name[NAME_BYTES];
    dv_value parts[5] = {x, DV_NO_VALUE, DV_NO_VALUE, DV_NO_VALUE, DV_NO_VALUE};
    for (int k = 1; k <= 4; k++) {
        const dv_value in = k == 1 ? x : dv_concat(g, parts, k);
        dv_value y = lrelu(g, dv_conv(g, in, dense_name(name, c->names, block, rdb, k), c->growth, 3, NULL));
        if (c->plus && k == 2) {
            y = dv_add(g, 1.0f, y, 1.0f,
                       dv_conv(g, x, dense_name(name, c->names, block, rdb, 0), c->growth, 1, &no_bias));
        } else if (c->plus && k == 4) {
            y = dv_add(g, 1.0f, y, 1.0f, parts[2]);
        }
        parts[k] = y;
    }
    const char *last = dense_name(name, c->names, block, rdb, 5);
    return dv_add(g, RESIDUAL, dv_conv(g, dv_concat(g, parts, 5), last, c->features, 3, NULL), 1.0f, x);
}

static dv_value body(const cfg *c, dv_graph *g, dv_value f) {
    char name[NAME_BYTES];
    dv_value x = f;
    for (int64_t i = 0; i < c->blocks; i++) {
        dv_value y = x;
        for (int rdb = 1; rdb <= 3; rdb++) {
            y = dense_block(c, g, y, i, rdb);
        }
        x = dv_add(g, RESIDUAL, y, 1.0f, x);
    }
    return dv_add(g, 1.0f, dv_conv(g, x, trunk_name(name, c), c->features, 3, NULL), 1.0f, f);
}

static davy_result build(const void *config_, dv_stage stage, int64_t h, int64_t w, dv_graph *g) {
    const cfg *c = config_;
    if (stage != DV_STAGE_UPSCALE) {
        return dv_fail(DAVY_E_UNSUPPORTED, "these weights upscale pictures; they neither encode nor decode");
    }
    const dv_shape shape = {1, h, w, c->in};
    const int64_t k = c->unshuffle;
    char name[NAME_BYTES];
    dv_value x = dv_input(g, shape);
    if (k > 1) {
        x = dv_pad_to(g, x, dv_div_up(h, k) * k, dv_div_up(w, k) * k, DVK_PAD_REFLECT);
        x = dv_pixel_unshuffle(g, x, k);
    }
    x = body(c, g, dv_conv(g, x, first_name(c->names), c->features, 3, NULL));
    for (int64_t u = 1; u <= c->doublings; u++) {
        x = lrelu(g, dv_conv(g, dv_upsample(g, x, 2), up_name(name, c->names, u), c->features, 3, NULL));
    }
    x = lrelu(g, dv_conv(g, x, tail_name(name, c, false), c->features, 3, NULL));
    x = dv_conv(g, x, tail_name(name, c, true), c->out, 3, NULL);
    dv_output(g, dv_crop_to(g, x, h * c->scale, w * c->scale));
    return dv_graph_check(g);
}

const dv_arch dv_arch_up_rrdb = {
    .name = "rrdb",
    .task = DAVY_TASK_UPSCALE,
    .match = match,
    .config = config,
    .info = info,
    .build = build,
    .range = DAVY_RANGE_UNIT,
};
