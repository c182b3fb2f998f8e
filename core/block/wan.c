/* wan.c - see wan.h. */
#include "core/block/wan.h"

#include <math.h>

#include "core/block/shortcut.h"
#include "core/block/swin.h"
#include "core/block/weights.h"

#define NORM_EPS 1e-24f /* a pixel of zeros stays one; the reference has no eps but a least norm of 1e-12 */

const dv_conv3d_opts dv_wan_usual = {.before = DV_BEFORE_ZERO};
const dv_conv3d_opts dv_wan_point = {.frames = 1, .k = 1};

dv_value dv_wan_norm_silu(dv_graph *g, dv_value x, const char *names) {
    return dv_activation(g, dv_rms_norm(g, x, names, NORM_EPS), DVK_ACT_SILU, 0.0f);
}

dv_value dv_wan_resnet(dv_graph *g, dv_value x, const char *names, int64_t c_out) {
    char part[DV_NAMES_BYTES];
    dv_value skip = x;
    if (dv_shape_of(g, x).c != c_out) {
        skip = dv_conv3d(g, x, dv_names_join(part, names, ".shortcut|.conv_shortcut"), c_out, &dv_wan_point);
    }
    dv_value y = dv_wan_norm_silu(g, x, dv_names_join(part, names, ".residual.0.gamma|.norm1.gamma"));
    y = dv_conv3d(g, y, dv_names_join(part, names, ".residual.2|.conv1"), c_out, &dv_wan_usual);
    y = dv_wan_norm_silu(g, y, dv_names_join(part, names, ".residual.3.gamma|.norm2.gamma"));
    y = dv_conv3d(g, y, dv_names_join(part, names, ".residual.6|.conv2"), c_out, &dv_wan_usual);
    return dv_add(g, 1.0f, y, 1.0f, skip);
}

dv_value dv_wan_attention(dv_graph *g, dv_value x, const char *names) {
    char part[DV_NAMES_BYTES];
    const int64_t c = dv_shape_of(g, x).c;
    dv_value qkv[3];
    const dv_value n = dv_rms_norm(g, x, dv_names_join(part, names, ".norm.gamma"), NORM_EPS);
    dv_split_qkv(g, dv_conv(g, n, dv_names_join(part, names, ".to_qkv"), 3 * c, 1, NULL), c, qkv);
    const dv_value a = dv_attention(g, qkv[0], qkv[1], qkv[2], 1, 1.0f / sqrtf((float)dv_max(c, 1)));
    return dv_add(g, 1.0f, dv_conv(g, a, dv_names_join(part, names, ".proj"), c, 1, NULL), 1.0f, x);
}

/* A picture and nothing else has no other frames to share time with. */
static bool is_alone(const dv_graph *g, dv_value x) {
    return dv_shape_of(g, x).n == 1 && !g->continues && !g->keeps;
}

dv_value dv_wan_half_time(dv_graph *g, dv_value x, const char *names) {
    static const dv_conv3d_opts halve = {.step = 2, .k = 1, .before = DV_BEFORE_ZERO};
    if (is_alone(g, x)) {
        return x;
    }
    const dv_value y = dv_conv3d(g, x, names, dv_shape_of(g, x).c, &halve);
    if (g->continues || dv_shape_of(g, x).n < 2) {
        return g->continues ? y : x; /* unread, it still keeps the frame for the next slice */
    }
    const dv_value both[2] = {dv_take_frames(g, x, 0, 1), dv_take_frames(g, y, 1, dv_shape_of(g, y).n - 1)};
    return dv_join_frames(g, both, 2);
}

dv_value dv_wan_double_time(dv_graph *g, dv_value x, const char *names) {
    static const dv_conv3d_opts twofold = {.k = 1, .before = DV_BEFORE_ZERO};
    const dv_shape s = dv_shape_of(g, x);
    if (is_alone(g, x)) {
        return x;
    }
    if (g->continues) {
        return dv_channels_to_frames(g, dv_conv3d(g, x, names, 2 * s.c, &twofold), 2);
    }
    dv_value seen[2] = {dv_blank_frame(g, x), DV_NO_VALUE};
    if (s.n > 1) {
        seen[1] = dv_take_frames(g, x, 1, s.n - 1);
    }
    const dv_value y = dv_conv3d(g, dv_join_frames(g, seen, s.n > 1 ? 2 : 1), names, 2 * s.c, &twofold);
    if (s.n < 2) {
        return x; /* as above */
    }
    const dv_value rest = dv_channels_to_frames(g, dv_take_frames(g, y, 1, s.n - 1), 2);
    const dv_value both[2] = {dv_take_frames(g, x, 0, 1), rest};
    return dv_join_frames(g, both, 2);
}
