/* transformers.c - the tensors of SwinIR, SRFormer, DRCT, HAT, DAT-2, RGT and ATD in their released sizes. */
#include <stdbool.h>

#include "plugins/cli/bench/builder.h"

enum { FEATURES = 180, HEADS = 6, GROUPS = 6, BLOCKS = 6, RGT_GROUPS = 8 };

/* A linear layer with a bias. */
static void linear(builder *b, const char *name, int64_t out, int64_t in) {
    matrix(b, name, out, in, 0);
    vector(b, name, "bias", out, -7);
}

/* A table of relative positions with side x side entries. */
static void table(builder *b, const char *name, int64_t side, int64_t heads) {
    const int64_t shape[2] = {side * side, heads};
    plain(b, named("%s.relative_position_bias_table", name).text, 2, shape, -2);
}

static void attention(builder *b, const char *name, int64_t c) {
    linear(b, named("%s.qkv", name).text, 3 * c, c);
    linear(b, named("%s.proj", name).text, c, c);
}

static void mlp(builder *b, const char *name, int64_t c, int64_t hidden) {
    norm(b, named("%s.norm2", name).text, c);
    linear(b, named("%s.mlp.fc1", name).text, hidden, c);
    linear(b, named("%s.mlp.fc2", name).text, c, hidden);
}

static void swin_block(builder *b, const char *name, int64_t c, int64_t heads, int64_t window, int64_t hidden) {
    const label attn = named("%s.attn", name);
    norm(b, named("%s.norm1", name).text, c);
    attention(b, attn.text, c);
    table(b, attn.text, 2 * window - 1, heads);
    mlp(b, name, c, hidden);
}

/* The convolutions before and after the groups. */
static void frame_of(builder *b, int64_t c) {
    conv(b, "conv_first", c, 3, 3);
    norm(b, "norm", c);
    conv(b, "conv_after_body", c, c, 3);
    conv(b, "conv_before_upsample.0", 64, c, 3);
    conv(b, "upsample.0", 256, 64, 3);
    conv(b, "upsample.2", 256, 64, 3);
    conv(b, "conv_last", 3, 64, 3);
}

static void frame(builder *b) {
    frame_of(b, FEATURES);
}

void bench_swinir(builder *b) {
    frame(b);
    norm(b, "patch_embed.norm", FEATURES);
    for (int i = 0; i < GROUPS; i++) {
        for (int j = 0; j < BLOCKS; j++) {
            swin_block(b, named("layers.%d.residual_group.blocks.%d", i, j).text, FEATURES, HEADS, 8, 2 * FEATURES);
        }
        conv(b, named("layers.%d.conv", i).text, FEATURES, FEATURES, 3);
    }
}

void bench_srformer(builder *b) {
    frame(b);
    norm(b, "patch_embed.norm", FEATURES);
    for (int i = 0; i < GROUPS; i++) {
        for (int j = 0; j < BLOCKS; j++) {
            const label block = named("layers.%d.residual_group.blocks.%d", i, j);
            const label attn = named("%s.attn", block.text);
            const label mixer = named("%s.mlp.dwconv.depthwise_conv.0", block.text);
            norm(b, named("%s.norm1", block.text).text, FEATURES);
            linear(b, named("%s.q", attn.text).text, FEATURES, FEATURES);
            linear(b, named("%s.kv", attn.text).text, FEATURES / 2, FEATURES);
            linear(b, named("%s.proj", attn.text).text, FEATURES, FEATURES);
            table(b, attn.text, 21, HEADS); /* windows of 22 */
            mlp(b, block.text, FEATURES, 2 * FEATURES);
            matrix(b, mixer.text, 2 * FEATURES, 1, 5);
            vector(b, mixer.text, "bias", 2 * FEATURES, -7);
        }
        conv(b, named("layers.%d.conv", i).text, FEATURES, FEATURES, 3);
    }
}

void bench_drct(builder *b) {
    static const int64_t heads[5] = {6, 4, 2, 6, 4};
    frame(b);
    norm(b, "patch_embed.norm", FEATURES);
    for (int i = 0; i < GROUPS; i++) {
        for (int k = 0; k < 5; k++) {
            const int64_t c = FEATURES + 32 * k;
            swin_block(b, named("layers.%d.swin%d", i, k + 1).text, c, heads[k], 16, k < 3 ? 2 * c : c);
            conv(b, named("layers.%d.adjust%d", i, k + 1).text, k < 4 ? 32 : FEATURES, c, 1);
        }
    }
}

void bench_hat(builder *b) {
    frame(b);
    norm(b, "patch_embed.norm", FEATURES);
    for (int i = 0; i < GROUPS; i++) {
        for (int j = 0; j < BLOCKS; j++) {
            const label block = named("layers.%d.residual_group.blocks.%d", i, j);
            const label gated = named("%s.conv_block.cab", block.text);
            swin_block(b, block.text, FEATURES, HEADS, 16, 2 * FEATURES);
            conv(b, named("%s.0", gated.text).text, FEATURES / 3, FEATURES, 3);
            conv(b, named("%s.2", gated.text).text, FEATURES, FEATURES / 3, 3);
            conv(b, named("%s.3.attention.1", gated.text).text, 6, FEATURES, 1);
            conv(b, named("%s.3.attention.3", gated.text).text, FEATURES, 6, 1);
        }
        const label overlap = named("layers.%d.residual_group.overlap_attn", i);
        norm(b, named("%s.norm1", overlap.text).text, FEATURES);
        attention(b, overlap.text, FEATURES);
        table(b, overlap.text, 39, HEADS);
        mlp(b, overlap.text, FEATURES, 2 * FEATURES);
        conv(b, named("layers.%d.conv", i).text, FEATURES, FEATURES, 3);
    }
}

static void position_net(builder *b, const char *name) {
    linear(b, named("%s.pos_proj", name).text, 5, 2);
    for (int i = 1; i <= 3; i++) {
        norm(b, named("%s.pos%d.0", name, i).text, 5);
        linear(b, named("%s.pos%d.2", name, i).text, i < 3 ? 5 : HEADS / 2, 5);
    }
}

static void dat_attention(builder *b, const char *name, bool spatial) {
    static const int64_t temperature[3] = {HEADS, 1, 1};
    attention(b, name, FEATURES);
    depthwise(b, named("%s.dwconv.0", name).text, FEATURES);
    vector(b, named("%s.dwconv.0", name).text, "bias", FEATURES, -7);
    norm(b, named("%s.dwconv.1", name).text, FEATURES);
    conv(b, named("%s.channel_interaction.1", name).text, FEATURES / 8, FEATURES, 1);
    norm(b, named("%s.channel_interaction.2", name).text, FEATURES / 8);
    conv(b, named("%s.channel_interaction.4", name).text, FEATURES, FEATURES / 8, 1);
    conv(b, named("%s.spatial_interaction.0", name).text, FEATURES / 16, FEATURES, 1);
    norm(b, named("%s.spatial_interaction.1", name).text, FEATURES / 16);
    conv(b, named("%s.spatial_interaction.3", name).text, 1, FEATURES / 16, 1);
    if (!spatial) {
        plain(b, named("%s.temperature", name).text, 3, temperature, ONES);
        return;
    }
    position_net(b, named("%s.attns.0.pos", name).text);
    position_net(b, named("%s.attns.1.pos", name).text);
}

static void gated_mlp(builder *b, const char *name, int64_t factor) {
    const int64_t half = FEATURES * factor / 2;
    linear(b, named("%s.fc1", name).text, 2 * half, FEATURES);
    norm(b, named("%s.sg.norm", name).text, half);
    depthwise(b, named("%s.sg.conv", name).text, half);
    vector(b, named("%s.sg.conv", name).text, "bias", half, -7);
    linear(b, named("%s.fc2", name).text, FEATURES, half);
}

void bench_dat(builder *b) {
    frame(b);
    norm(b, "before_RG.1", FEATURES);
    for (int i = 0; i < GROUPS; i++) {
        for (int j = 0; j < BLOCKS; j++) {
            const label block = named("layers.%d.blocks.%d", i, j);
            norm(b, named("%s.norm1", block.text).text, FEATURES);
            dat_attention(b, named("%s.attn", block.text).text, j % 2 == 0);
            norm(b, named("%s.norm2", block.text).text, FEATURES);
            gated_mlp(b, named("%s.ffn", block.text).text, 2);
        }
        conv(b, named("layers.%d.conv", i).text, FEATURES, FEATURES, 3);
    }
}

static void own_channels(builder *b, const char *name, int64_t side) {
    matrix(b, name, FEATURES, 1, side);
    vector(b, name, "bias", FEATURES, -7);
}

static void rgt_attention(builder *b, const char *name, bool local) {
    linear(b, named("%s.proj", name).text, FEATURES, FEATURES);
    if (local) {
        linear(b, named("%s.qkv", name).text, 3 * FEATURES, FEATURES);
        own_channels(b, named("%s.get_v", name).text, 3);
        position_net(b, named("%s.attns.0.pos", name).text);
        position_net(b, named("%s.attns.1.pos", name).text);
        return;
    }
    own_channels(b, named("%s.reduction1", name).text, 4);
    own_channels(b, named("%s.dwconv", name).text, 3);
    conv(b, named("%s.conv", name).text, FEATURES / 2, FEATURES, 1);
    norm(b, named("%s.norm_act.0", name).text, FEATURES / 2);
    linear(b, named("%s.q", name).text, FEATURES / 2, FEATURES);
    linear(b, named("%s.k", name).text, FEATURES / 2, FEATURES / 2);
    linear(b, named("%s.v", name).text, FEATURES, FEATURES / 2);
    own_channels(b, named("%s.cpe", name).text, 3);
}

void bench_rgt(builder *b) {
    static const int64_t features = FEATURES;
    frame(b);
    norm(b, "before_RG.1", FEATURES);
    for (int i = 0; i < RGT_GROUPS; i++) {
        for (int j = 0; j < BLOCKS; j++) {
            const label block = named("layers.%d.blocks.%d", i, j);
            norm(b, named("%s.norm1", block.text).text, FEATURES);
            rgt_attention(b, named("%s.attn", block.text).text, j % 2 == 0);
            norm(b, named("%s.norm2", block.text).text, FEATURES);
            gated_mlp(b, named("%s.mlp", block.text).text, 2);
            plain(b, named("%s.gamma", block.text).text, 1, &features, -2);
        }
        conv(b, named("layers.%d.conv", i).text, FEATURES, FEATURES, 3);
    }
}

enum { ATD_FEATURES = 210, ATD_TOKENS = 128, ATD_QUERY = 20 };

static void atd_layer(builder *b, const char *name) {
    static const int64_t tokens = ATD_TOKENS, column[2] = {ATD_TOKENS, 1}, one[2] = {1, 1};
    const int64_t c = ATD_FEATURES;
    const label mixer = named("%s.convffn.dwconv.depthwise_conv.0", name);
    norm(b, named("%s.norm1", name).text, c);
    norm(b, named("%s.norm2", name).text, c);
    norm(b, named("%s.norm3", name).text, tokens);
    plain(b, named("%s.sigma", name).text, 2, column, -2);
    linear(b, named("%s.wqkv", name).text, 3 * c, c);
    table(b, named("%s.attn_win", name).text, 31, HEADS);
    linear(b, named("%s.attn_win.proj", name).text, c, c);
    plain(b, named("%s.attn_atd.scale", name).text, 1, &tokens, -2);
    linear(b, named("%s.attn_atd.wq", name).text, ATD_QUERY, c);
    linear(b, named("%s.attn_atd.wk", name).text, ATD_QUERY, c);
    linear(b, named("%s.attn_atd.wv", name).text, c, c);
    plain(b, named("%s.attn_aca.logit_scale", name).text, 2, one, -2);
    linear(b, named("%s.attn_aca.proj", name).text, c, c);
    linear(b, named("%s.convffn.fc1", name).text, 2 * c, c);
    matrix(b, mixer.text, 2 * c, 1, 5);
    vector(b, mixer.text, "bias", 2 * c, -7);
    linear(b, named("%s.convffn.fc2", name).text, c, 2 * c);
}

void bench_atd(builder *b) {
    static const int64_t tokens[2] = {ATD_TOKENS, ATD_FEATURES};
    frame_of(b, ATD_FEATURES);
    norm(b, "patch_embed.norm", ATD_FEATURES);
    for (int i = 0; i < GROUPS; i++) {
        plain(b, named("layers.%d.residual_group.td", i).text, 2, tokens, -1);
        for (int j = 0; j < BLOCKS; j++) {
            atd_layer(b, named("layers.%d.residual_group.layers.%d", i, j).text);
        }
        conv(b, named("layers.%d.conv", i).text, ATD_FEATURES, ATD_FEATURES, 3);
    }
}
