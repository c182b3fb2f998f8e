/* oblong.c - see oblong.h. */
#include "core/block/oblong.h"

#include <stdio.h>
#include <string.h>

#include "core/block/dat.h"
#include "core/block/weights.h"
#include "core/base/error.h"

#define FIRST "layers.0.blocks.0.attn.attns.0."

/* Files of training tools keep what belongs to a window: all offsets, (2 h - 1)(2 w - 1), and with them an index of h w
 * pixels. Without that, the sides are taken for powers of two; always, the first for the smaller one. */
static bool stored_split(const dv_tensors *t, dv_window_split *split) {
    const int64_t offsets = dv_dim(t, FIRST "rpe_biases", 0);
    const int64_t pixels = dv_dim(t, FIRST "relative_position_index", 0);
    for (int64_t h = 1; h <= DV_MAX_WINDOW; h++) {
        for (int64_t w = h; w <= DV_MAX_WINDOW; w++) {
            const bool fits = pixels > 0 ? h * w == pixels : (h & (h - 1)) == 0 && (w & (w - 1)) == 0;
            if (fits && (2 * h - 1) * (2 * w - 1) == offsets) {
                split->side[0] = h;
                split->side[1] = w;
                return true;
            }
        }
    }
    return false;
}

davy_result dv_window_split_find(const dv_probe *probe, const char *family, dv_window_split *out) {
    *out = (dv_window_split){.side = {8, 32}};
    if (probe->split[0] > 0) {
        memcpy(out->side, probe->split, sizeof out->side);
    } else {
        out->assumed = !stored_split(probe->tensors, out);
    }
    const int64_t least = dv_min(out->side[0], out->side[1]);
    const int64_t most = dv_max(out->side[0], out->side[1]);
    if (least < 1 || most > DV_MAX_WINDOW || most % least != 0) {
        return dv_fail(DAVY_E_UNSUPPORTED, "a %s network with windows of %d x %d", family, (int)out->side[0],
                       (int)out->side[1]);
    }
    return DAVY_OK;
}

bool dv_window_split_shifts(int64_t group, int64_t block) {
    return group % 2 == 0 ? block > 0 && (block - 2) % 4 == 0 : block % 4 == 0;
}

dv_value dv_window_split_attention(dv_graph *g, const dv_value qkv[3], const char *name, const dv_window_split *split,
                                   dv_heads heads, bool shifted) {
    const dv_shape s = dv_shape_of(g, qkv[0]);
    const int64_t most = dv_max(split->side[0], split->side[1]);
    const int64_t half = dv_heads_width(heads) / 2;
    dv_value parts[2];
    for (int i = 0; i < 2; i++) {
        char bias[DV_NAMES_BYTES];
        const int64_t h = split->side[i];
        const int64_t w = split->side[1 - i];
        const dv_window window = {.h = (int32_t)h,
                                  .w = (int32_t)w,
                                  .shift_y = shifted ? (int32_t)h / 2 : 0,
                                  .shift_x = shifted ? (int32_t)w / 2 : 0,
                                  .padded_h = dv_div_up(s.h, most) * most,
                                  .padded_w = dv_div_up(s.w, most) * most};
        dv_value of[3];
        for (int k = 0; k < 3; k++) {
            of[k] = dv_slice(g, qkv[k], i * half, half);
        }
        snprintf(bias, sizeof bias, "%s.attns.%d.pos", name, i);
        parts[i] = dv_window_attention(g, of, heads.count / 2, dv_heads_scale(heads), &window,
                                       dv_dynamic_bias(g, bias, heads.count / 2, h, w));
    }
    return dv_concat(g, parts, 2);
}

/* u2 begins where kernels like it, as heads do. */
dv_value dv_gated_mlp(dv_graph *g, dv_value x, const char *name) {
    char part[DV_NAMES_BYTES];
    const int64_t outputs = dv_dim(g->weights, dv_names_join(part, name, ".fc1.weight"), 0);
    const dv_heads halves = dv_heads_of(g, part, outputs, 2);
    dv_value u = dv_linear_to_heads(g, x, dv_names_join(part, name, ".fc1"), halves, 1);
    u = dv_activation(g, u, DVK_ACT_GELU, 0.0f);
    const dv_value second = dv_slice(g, u, halves.padded, halves.dim);
    dv_value gate = dv_layer_norm(g, second, dv_names_join(part, name, ".sg.norm"), DV_SWIN_EPS);
    gate = dv_depthwise(g, gate, dv_names_join(part, name, ".sg.conv"), 3, NULL);
    u = dv_multiply(g, dv_slice(g, u, 0, halves.dim), gate, DVK_ACT_NONE);
    return dv_linear(g, u, dv_names_join(part, name, ".fc2"), dv_shape_of(g, x).c);
}
