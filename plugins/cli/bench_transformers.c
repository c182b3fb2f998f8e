/* bench_transformers.c - the tensors of SwinIR, DRCT, HAT and DAT-2, as large as they were released. */
#include <stdbool.h>

#include "plugins/cli/bench_builder.h"

enum { FEATURES = 180, HEADS = 6, GROUPS = 6, BLOCKS = 6 };

/* A linear layer with a bias. */
static void linear(builder *b, const char *name, int64_t out, int64_t in) {
    matrix(b, name, out, in, 0);
    vector(b, name, "bias", out, -7);
}

/* side: of the table */
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

/* What is before and behind the groups. */
static void frame(builder *b) {
    conv(b, "conv_first", FEATURES, 3, 3);
    norm(b, "norm", FEATURES);
    conv(b, "conv_after_body", FEATURES, FEATURES, 3);
    conv(b, "conv_before_upsample.0", 64, FEATURES, 3);
    conv(b, "upsample.0", 256, 64, 3);
    conv(b, "upsample.2", 256, 64, 3);
    conv(b, "conv_last", 3, 64, 3);
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

void bench_dat(builder *b) {
    frame(b);
    norm(b, "before_RG.1", FEATURES);
    for (int i = 0; i < GROUPS; i++) {
        for (int j = 0; j < BLOCKS; j++) {
            const label block = named("layers.%d.blocks.%d", i, j);
            norm(b, named("%s.norm1", block.text).text, FEATURES);
            dat_attention(b, named("%s.attn", block.text).text, j % 2 == 0);
            norm(b, named("%s.norm2", block.text).text, FEATURES);
            linear(b, named("%s.ffn.fc1", block.text).text, 2 * FEATURES, FEATURES);
            norm(b, named("%s.ffn.sg.norm", block.text).text, FEATURES);
            depthwise(b, named("%s.ffn.sg.conv", block.text).text, FEATURES);
            vector(b, named("%s.ffn.sg.conv", block.text).text, "bias", FEATURES, -7);
            linear(b, named("%s.ffn.fc2", block.text).text, FEATURES, FEATURES);
        }
        conv(b, named("layers.%d.conv", i).text, FEATURES, FEATURES, 3);
    }
}
