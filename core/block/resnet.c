/* resnet.c - see resnet.h. */
#include "core/block/resnet.h"

#include <math.h>

#include "core/block/weights.h"

dv_value dv_norm_silu(dv_graph *g, dv_value x, const char *names, dv_norm_spec norm) {
    return dv_activation(g, dv_group_norm(g, x, names, norm.groups, norm.eps), DVK_ACT_SILU, 0.0f);
}

dv_value dv_resnet_block(dv_graph *g, dv_value x, const char *names, int64_t c_out, dv_norm_spec norm) {
    char name[DV_NAMES_BYTES];
    dv_value skip = x;
    if (dv_shape_of(g, x).c != c_out) {
        skip = dv_conv(g, x, dv_names_join(name, names, ".nin_shortcut|.conv_shortcut"), c_out, 1, NULL);
    }
    dv_value y = dv_norm_silu(g, x, dv_names_join(name, names, ".norm1"), norm);
    y = dv_conv(g, y, dv_names_join(name, names, ".conv1"), c_out, 3, NULL);
    y = dv_norm_silu(g, y, dv_names_join(name, names, ".norm2"), norm);
    y = dv_conv(g, y, dv_names_join(name, names, ".conv2"), c_out, 3, NULL);
    return dv_add(g, 1.0f, y, 1.0f, skip);
}

dv_value dv_attention_block(dv_graph *g, dv_value x, const char *names, dv_norm_spec norm) {
    char name[DV_NAMES_BYTES];
    const int64_t c = dv_shape_of(g, x).c;
    const dv_value n = dv_group_norm(g, x, dv_names_join(name, names, ".norm|.group_norm"), norm.groups, norm.eps);
    const dv_value q = dv_conv(g, n, dv_names_join(name, names, ".q|.to_q|.query"), c, 1, NULL);
    const dv_value k = dv_conv(g, n, dv_names_join(name, names, ".k|.to_k|.key"), c, 1, NULL);
    const dv_value v = dv_conv(g, n, dv_names_join(name, names, ".v|.to_v|.value"), c, 1, NULL);
    const dv_value a = dv_attention(g, q, k, v, 1, 1.0f / sqrtf((float)dv_max(c, 1)));
    const dv_value y = dv_conv(g, a, dv_names_join(name, names, ".proj_out|.to_out.0|.proj_attn"), c, 1, NULL);
    return dv_add(g, 1.0f, y, 1.0f, x);
}
