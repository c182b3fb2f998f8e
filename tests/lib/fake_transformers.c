/* fake_transformers.c - see fake_transformers.h. */
#include "tests/lib/fake_transformers.h"

static void fake_linear(dv_tensors *t, const char *name, int64_t o, int64_t i) {
    const int64_t shape[2] = {o, i};
    fake_add(t, 2, shape, "%s.weight", name);
    fake_add(t, 1, shape, "%s.bias", name);
}

/* side: of the table; (2 window - 1) or (window + keys - 1) */
static void fake_table(dv_tensors *t, const char *name, int64_t side, int64_t heads) {
    const int64_t shape[2] = {side * side, heads};
    fake_add(t, 2, shape, "%s.relative_position_bias_table", name);
}

static void fake_mlp(dv_tensors *t, const char *name, int64_t c, int64_t hidden) {
    fake_norm(t, fake_name("%s.norm2", name), c);
    fake_linear(t, fake_name("%s.mlp.fc1", name), hidden, c);
    fake_linear(t, fake_name("%s.mlp.fc2", name), c, hidden);
}

static void fake_swin_block(dv_tensors *t, const char *name, int64_t c, int64_t heads, int64_t window) {
    fake_norm(t, fake_name("%s.norm1", name), c);
    fake_linear(t, fake_name("%s.attn.qkv", name), 3 * c, c);
    fake_linear(t, fake_name("%s.attn.proj", name), c, c);
    fake_table(t, fake_name("%s.attn", name), 2 * window - 1, heads);
    fake_mlp(t, name, c, 2 * c);
}

/* conv_first, norm, conv_after_body and the tail "pixelshuffle" by 2 */
static void fake_frame(dv_tensors *t, int64_t c) {
    fake_conv(t, "conv_first", c, 3, 3, 1);
    fake_norm(t, "norm", c);
    fake_conv(t, "conv_after_body", c, c, 3, 1);
    fake_conv(t, "conv_before_upsample.0", 16, c, 3, 1);
    fake_conv(t, "upsample.0", 64, 16, 3, 1);
    fake_conv(t, "conv_last", 3, 16, 3, 1);
}

dv_tensors *fake_swinir(int64_t c, int64_t heads, int64_t window, int direct) {
    dv_tensors *t = fake_new();
    if (direct) {
        fake_conv(t, "conv_first", c, 3, 3, 1);
        fake_norm(t, "norm", c);
        fake_conv(t, "upsample.0", 12, c, 3, 1);
        for (int i = 0; i < 6; i++) {
            const char *name =
                i < 3 ? fake_name("layers.0.conv.%d", 2 * i) : fake_name("conv_after_body.%d", 2 * i - 6);
            fake_conv(t, name, i % 3 == 2 ? c : c / 4, i % 3 == 0 ? c : c / 4, i % 3 == 1 ? 1 : 3, 1);
        }
    } else {
        fake_frame(t, c);
        fake_conv(t, "layers.0.conv", c, c, 3, 1);
        fake_norm(t, "patch_embed.norm", c);
    }
    for (int j = 0; j < 2; j++) {
        char block[64];
        snprintf(block, sizeof block, "layers.0.residual_group.blocks.%d", j);
        fake_swin_block(t, block, c, heads, window);
    }
    fake_done(t);
    return t;
}

dv_tensors *fake_srformer(int64_t c, int64_t heads, int64_t window) {
    dv_tensors *t = fake_new();
    fake_frame(t, c);
    fake_norm(t, "patch_embed.norm", c);
    for (int j = 0; j < 2; j++) {
        char block[64];
        snprintf(block, sizeof block, "layers.0.residual_group.blocks.%d", j);
        fake_norm(t, fake_name("%s.norm1", block), c);
        fake_linear(t, fake_name("%s.attn.q", block), c, c);
        fake_linear(t, fake_name("%s.attn.kv", block), c / 2, c);
        fake_linear(t, fake_name("%s.attn.proj", block), c, c);
        fake_table(t, fake_name("%s.attn", block), window - 1, heads);
        fake_mlp(t, block, c, 2 * c);
        fake_conv(t, fake_name("%s.mlp.dwconv.depthwise_conv.0", block), 2 * c, 1, 5, 1);
    }
    fake_conv(t, "layers.0.conv", c, c, 3, 1);
    fake_done(t);
    return t;
}

dv_tensors *fake_drct(int64_t c, int64_t growth, int64_t window) {
    dv_tensors *t = fake_new();
    fake_frame(t, c);
    for (int k = 0; k < 5; k++) {
        char block[64];
        snprintf(block, sizeof block, "layers.0.swin%d", k + 1);
        fake_swin_block(t, block, c + k * growth, 2, window);
        fake_conv(t, fake_name("layers.0.adjust%d", k + 1), k < 4 ? growth : c, c + k * growth, 1, 1);
    }
    fake_done(t);
    return t;
}

dv_tensors *fake_hat(int64_t c, int64_t heads, int64_t window, int64_t keys) {
    dv_tensors *t = fake_new();
    fake_frame(t, c);
    for (int j = 0; j < 2; j++) {
        char block[64];
        snprintf(block, sizeof block, "layers.0.residual_group.blocks.%d", j);
        fake_swin_block(t, block, c, heads, window);
        fake_conv(t, fake_name("%s.conv_block.cab.0", block), c / 2, c, 3, 1);
        fake_conv(t, fake_name("%s.conv_block.cab.2", block), c, c / 2, 3, 1);
        fake_conv(t, fake_name("%s.conv_block.cab.3.attention.1", block), c / 4, c, 1, 1);
        fake_conv(t, fake_name("%s.conv_block.cab.3.attention.3", block), c, c / 4, 1, 1);
    }
    const char overlap[] = "layers.0.residual_group.overlap_attn";
    fake_norm(t, fake_name("%s.norm1", overlap), c);
    fake_linear(t, fake_name("%s.qkv", overlap), 3 * c, c);
    fake_linear(t, fake_name("%s.proj", overlap), c, c);
    fake_table(t, overlap, window + keys - 1, heads);
    fake_mlp(t, overlap, c, 2 * c);
    fake_conv(t, "layers.0.conv", c, c, 3, 1);
    fake_done(t);
    return t;
}

static void fake_gates(dv_tensors *t, const char *attn, int64_t c) {
    fake_conv(t, fake_name("%s.dwconv.0", attn), c, 1, 3, 1);
    fake_norm(t, fake_name("%s.dwconv.1", attn), c);
    fake_conv(t, fake_name("%s.channel_interaction.1", attn), c / 4, c, 1, 1);
    fake_norm(t, fake_name("%s.channel_interaction.2", attn), c / 4);
    fake_conv(t, fake_name("%s.channel_interaction.4", attn), c, c / 4, 1, 1);
    fake_conv(t, fake_name("%s.spatial_interaction.0", attn), c / 8, c, 1, 1);
    fake_norm(t, fake_name("%s.spatial_interaction.1", attn), c / 8);
    fake_conv(t, fake_name("%s.spatial_interaction.3", attn), 1, c / 8, 1, 1);
}

static void fake_bias_net(dv_tensors *t, const char *pos, int64_t hidden, int64_t heads) {
    fake_linear(t, fake_name("%s.pos_proj", pos), hidden, 2);
    for (int i = 1; i <= 3; i++) {
        fake_norm(t, fake_name("%s.pos%d.0", pos, i), hidden);
        fake_linear(t, fake_name("%s.pos%d.2", pos, i), i < 3 ? hidden : heads, hidden);
    }
}

static void fake_gated_mlp(dv_tensors *t, const char *block, const char *part, int64_t c) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", block, part);
    fake_linear(t, fake_name("%s.fc1", name), 2 * c, c);
    fake_norm(t, fake_name("%s.sg.norm", name), c);
    fake_conv(t, fake_name("%s.sg.conv", name), c, 1, 3, 1);
    fake_linear(t, fake_name("%s.fc2", name), c, c);
}

static void fake_recursion(dv_tensors *t, const char *attn, int64_t c) {
    fake_conv(t, fake_name("%s.reduction1", attn), c, 1, 4, 1);
    fake_conv(t, fake_name("%s.dwconv", attn), c, 1, 3, 1);
    fake_conv(t, fake_name("%s.conv", attn), c / 2, c, 1, 1);
    fake_norm(t, fake_name("%s.norm_act.0", attn), c / 2);
    fake_linear(t, fake_name("%s.q", attn), c / 2, c);
    fake_linear(t, fake_name("%s.k", attn), c / 2, c / 2);
    fake_linear(t, fake_name("%s.v", attn), c, c / 2);
    fake_conv(t, fake_name("%s.cpe", attn), c, 1, 3, 1);
}

dv_tensors *fake_rgt(int64_t c, int64_t heads) {
    dv_tensors *t = fake_new();
    fake_frame(t, c);
    fake_norm(t, "before_RG.1", c);
    for (int b = 0; b < 3; b++) {
        char block[64];
        char attn[64];
        snprintf(block, sizeof block, "layers.0.blocks.%d", b);
        snprintf(attn, sizeof attn, "layers.0.blocks.%d.attn", b);
        fake_norm(t, fake_name("%s.norm1", block), c);
        fake_norm(t, fake_name("%s.norm2", block), c);
        fake_add(t, 1, &c, "%s.gamma", block);
        fake_linear(t, fake_name("%s.proj", attn), c, c);
        if (b % 2 == 1) {
            fake_recursion(t, attn, c);
        } else {
            fake_linear(t, fake_name("%s.qkv", attn), 3 * c, c);
            fake_conv(t, fake_name("%s.get_v", attn), c, 1, 3, 1);
        }
        for (int i = 0; i < 2 && b % 2 == 0; i++) {
            char pos[96];
            snprintf(pos, sizeof pos, "%s.attns.%d.pos", attn, i);
            fake_bias_net(t, pos, 3, heads / 2);
        }
        fake_gated_mlp(t, block, "mlp", c);
    }
    fake_conv(t, "layers.0.conv", c, c, 3, 1);
    fake_done(t);
    return t;
}

static void fake_atd_layer(dv_tensors *t, const char *name, int64_t c, int64_t heads, const int64_t of[3], int last) {
    const int64_t tokens = of[1];
    const int64_t column[2] = {tokens, 1};
    const int64_t one[2] = {1, 1};
    fake_norm(t, fake_name("%s.norm1", name), c);
    fake_norm(t, fake_name("%s.norm2", name), c);
    fake_linear(t, fake_name("%s.wqkv", name), 3 * c, c);
    fake_table(t, fake_name("%s.attn_win", name), 2 * of[0] - 1, heads);
    fake_linear(t, fake_name("%s.attn_win.proj", name), c, c);
    fake_add(t, 1, &tokens, "%s.attn_atd.scale", name);
    fake_linear(t, fake_name("%s.attn_atd.wq", name), of[2], c);
    fake_linear(t, fake_name("%s.attn_atd.wk", name), of[2], c);
    fake_linear(t, fake_name("%s.attn_atd.wv", name), c, c);
    fake_add(t, 2, one, "%s.attn_aca.logit_scale", name);
    fake_linear(t, fake_name("%s.attn_aca.proj", name), c, c);
    fake_linear(t, fake_name("%s.convffn.fc1", name), 2 * c, c);
    fake_conv(t, fake_name("%s.convffn.dwconv.depthwise_conv.0", name), 2 * c, 1, 5, 1);
    fake_linear(t, fake_name("%s.convffn.fc2", name), c, 2 * c);
    if (!last) {
        fake_add(t, 1, &tokens, "%s.norm3.weight", name);
        fake_add(t, 2, column, "%s.sigma", name);
    }
}

dv_tensors *fake_atd(int64_t c, int64_t heads, const int64_t of[3]) {
    const int64_t tokens[2] = {of[1], c};
    dv_tensors *t = fake_new();
    fake_frame(t, c);
    fake_norm(t, "patch_embed.norm", c);
    fake_add(t, 2, tokens, "layers.0.residual_group.td");
    for (int j = 0; j < 2; j++) {
        char name[64];
        snprintf(name, sizeof name, "layers.0.residual_group.layers.%d", j);
        fake_atd_layer(t, name, c, heads, of, j == 1);
    }
    fake_conv(t, "layers.0.conv", c, c, 3, 1);
    fake_done(t);
    return t;
}

dv_tensors *fake_dat(int64_t c, int64_t heads) {
    dv_tensors *t = fake_new();
    fake_frame(t, c);
    fake_norm(t, "before_RG.1", c);
    for (int b = 0; b < 3; b++) {
        const int64_t temperature[3] = {heads, 1, 1};
        char block[64];
        char attn[64];
        snprintf(block, sizeof block, "layers.0.blocks.%d", b);
        snprintf(attn, sizeof attn, "layers.0.blocks.%d.attn", b);
        fake_norm(t, fake_name("%s.norm1", block), c);
        fake_norm(t, fake_name("%s.norm2", block), c);
        fake_linear(t, fake_name("%s.qkv", attn), 3 * c, c);
        fake_linear(t, fake_name("%s.proj", attn), c, c);
        fake_gates(t, attn, c);
        if (b % 2 == 1) {
            fake_add(t, 3, temperature, "%s.temperature", attn);
        }
        for (int i = 0; i < 2 && b % 2 == 0; i++) {
            char pos[96];
            snprintf(pos, sizeof pos, "%s.attns.%d.pos", attn, i);
            fake_bias_net(t, pos, 3, heads / 2);
        }
        fake_gated_mlp(t, block, "ffn", c);
    }
    fake_conv(t, "layers.0.conv", c, c, 3, 1);
    fake_done(t);
    return t;
}
