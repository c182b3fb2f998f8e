/* fake_convnets.c - see fake_convnets.h. */
#include "tests/lib/fake_convnets.h"

dv_tensors *fake_spanf3(int64_t nf, int blocks, int64_t unshuffle, int64_t shuffle, int parts) {
    dv_tensors *t = fake_new();
    fake_conv3xc(t, unshuffle > 1 ? "conv_1.1" : "conv_1", nf, 3 * unshuffle * unshuffle, parts);
    for (int i = 0; i < 3 * blocks; i++) {
        char name[64];
        snprintf(name, sizeof name, "block_%d.c%d_r", i / 3 + 1, i % 3 + 1);
        fake_conv3xc(t, name, nf, nf, parts);
        if (i % 3 == 2) {
            fake_conv(t, fake_name("block_%d.att_conv", i / 3 + 1), nf, nf, 1, 1);
        }
    }
    fake_conv(t, "conv_cat", nf, 4 * nf, 1, 1);
    fake_conv3xc(t, "to_pixel", 3 * shuffle * shuffle, nf, parts);
    fake_done(t);
    return t;
}

static void fake_large(dv_tensors *t, const char *at, const fake_plksr_spec *s) {
    const int64_t p = s->nf / 4, n = s->k / 3;
    const int64_t mn[4] = {p, p, s->k, n}, nm[4] = {p, p, n, s->k};
    if (s->large == 0) {
        fake_conv(t, fake_name("%s.lk.conv", at), p, p, s->k, 1);
    }
    for (int i = 0; s->large == 1 && i < 4; i++) {
        fake_conv(t, fake_name("%s.lk.convs.%d", at, i), p, p, 5, 1);
    }
    if (s->large == 2) {
        fake_add(t, 4, mn, "%s.lk.mn_conv.weight", at);
        fake_add(t, 1, mn, "%s.lk.mn_conv.bias", at);
        fake_add(t, 4, nm, "%s.lk.nm_conv.weight", at);
        fake_add(t, 1, nm, "%s.lk.nm_conv.bias", at);
        fake_conv(t, fake_name("%s.lk.nn_conv", at), p, p, n, 1);
    }
}

dv_tensors *fake_plksr(fake_plksr_spec s) {
    const int64_t last = 3 * s.scale * s.scale;
    const int64_t groups = s.scale % 2 == 0 ? 4 : 3;
    dv_tensors *t = fake_new();
    fake_conv(t, "feats.0", s.nf, 3, 3, 1);
    for (int i = 1; i <= s.blocks; i++) {
        char at[64];
        const char *mixer = s.real ? "channel_mixer" : "channe_mixer";
        snprintf(at, sizeof at, "feats.%d", i);
        fake_conv(t, fake_name("%s.%s.0", at, mixer), 2 * s.nf, s.nf, s.mixer[0] > 0 ? s.mixer[0] : 3, 1);
        fake_conv(t, fake_name("%s.%s.2", at, mixer), s.nf, 2 * s.nf, s.mixer[1] > 0 ? s.mixer[1] : 3, 1);
        fake_large(t, at, &s);
        if (s.gates) {
            fake_conv(t, fake_name("%s.attn.f.0", at), s.nf, s.nf, 3, 1);
        }
        fake_conv(t, fake_name("%s.refine", at), s.nf, s.nf, 1, 1);
        if (s.real) {
            fake_norm(t, fake_name("%s.%s", at, s.layer_norm ? "layer_norm" : "norm"), s.nf);
        }
    }
    fake_conv(t, fake_name("feats.%d", s.blocks + (s.real ? 2 : 1)), last, s.nf, 3, 1);
    if (s.samples) {
        fake_conv(t, "to_img.offset", 2 * groups * s.scale * s.scale, last, 1, 1);
        fake_conv(t, "to_img.scope", 2 * groups * s.scale * s.scale, last, 1, 0);
        fake_conv(t, "to_img.end_conv", 3, last, 1, 1);
    }
    fake_done(t);
    return t;
}

static void fake_unet_pair(dv_tensors *t, const char *at, int64_t in, int64_t middle, int64_t out, int se) {
    fake_conv(t, fake_name("%s.conv.0", at), middle, in, 3, 1);
    fake_conv(t, fake_name("%s.conv.2", at), out, middle, 3, 1);
    if (se) {
        const int64_t hidden = out < 8 ? 1 : out / 8;
        fake_conv(t, fake_name("%s.seblock.conv1", at), hidden, out, 1, 1);
        fake_conv(t, fake_name("%s.seblock.conv2", at), out, hidden, 1, 1);
    }
}

void fake_transposed(dv_tensors *t, const char *name, int64_t in, int64_t out, int64_t k) {
    fake_conv(t, name, in, out, k, 0);
    fake_vector(t, fake_name("%s.bias", name), out);
}

dv_tensors *fake_cugan_narrow(fake_cugan_spec s, int64_t by) {
    const int64_t c32 = 32 / by, c64 = 64 / by, c128 = 128 / by, c256 = 256 / by;
    dv_tensors *t = fake_new();
    fake_unet_pair(t, "unet1.conv1", s.in, c32, c64, 0);
    fake_conv(t, "unet1.conv1_down", c64, c64, 2, 1);
    fake_unet_pair(t, "unet1.conv2", c64, c128, c64, 1);
    fake_transposed(t, "unet1.conv2_up", c64, c64, 2);
    fake_conv(t, "unet1.conv3", c64, c64, 3, 1);
    if (s.k == 3) {
        fake_conv(t, "unet1.conv_bottom", s.bottom, c64, 3, 1);
    } else {
        fake_transposed(t, "unet1.conv_bottom", c64, s.bottom, s.k);
    }
    fake_unet_pair(t, "unet2.conv1", s.bottom, c32, c64, 0);
    fake_conv(t, "unet2.conv1_down", c64, c64, 2, 1);
    fake_unet_pair(t, "unet2.conv2", c64, c64, c128, 1);
    fake_conv(t, "unet2.conv2_down", c128, c128, 2, 1);
    fake_unet_pair(t, "unet2.conv3", c128, c256, c128, 1);
    fake_transposed(t, "unet2.conv3_up", c128, c128, 2);
    fake_unet_pair(t, "unet2.conv4", c128, c64, c64, 1);
    fake_transposed(t, "unet2.conv4_up", c64, c64, 2);
    fake_conv(t, "unet2.conv5", c64, c64, 3, 1);
    fake_conv(t, "unet2.conv_bottom", s.out, c64, 3, 1);
    if (s.final > 0) {
        fake_conv(t, "conv_final", s.final, s.out, 3, 1);
    }
    if (s.pro) {
        fake_vector(t, "pro", 1);
    }
    fake_done(t);
    return t;
}

dv_tensors *fake_cugan(fake_cugan_spec s) {
    return fake_cugan_narrow(s, 1);
}

dv_tensors *fake_upconv7(void) {
    static const int64_t channels[] = {3, 16, 32, 64, 128, 128, 256};
    dv_tensors *t = fake_new();
    for (int i = 0; i < 6; i++) {
        fake_conv(t, fake_name("net.%d", 2 * i), channels[i + 1], channels[i], 3, 1);
    }
    fake_transposed(t, "net.12", 256, 3, 4);
    fake_done(t);
    return t;
}

dv_tensors *fake_omnisr(int64_t nf, int groups, int64_t window, int64_t scale) {
    dv_tensors *t = fake_new();
    fake_conv(t, "input", nf, 3, 3, 1);
    fake_conv(t, "output", nf, nf, 3, 1);
    fake_conv(t, "up.0", 3 * scale * scale, nf, 3, 1);
    for (int i = 0; i < groups; i++) {
        const int64_t heads[3] = {4, 1, 1}, few = nf / 4 > 16 ? nf / 4 : 16;
        const int64_t matrix[2] = {nf / 4, nf}, back[2] = {nf, nf / 4}, qkv[2] = {3 * nf, nf}, out[2] = {nf, nf};
        const int64_t table[2] = {(2 * window - 1) * (2 * window - 1), 4};
        char at[96];
        snprintf(at, sizeof at, "residual_layer.%d.residual_layer.0.layer", i);
        fake_conv(t, fake_name("%s.0.fn.0", at), nf, nf, 1, 1);
        fake_conv(t, fake_name("%s.0.fn.2", at), nf, 1, 3, 1);
        fake_add(t, 2, matrix, "%s.0.fn.4.gate.1.weight", at);
        fake_add(t, 2, back, "%s.0.fn.4.gate.3.weight", at);
        fake_conv(t, fake_name("%s.0.fn.5", at), nf, nf, 1, 1);
        for (int k = 2; k <= 12; k++) {
            if (k == 2 || k == 8) {
                fake_add(t, 2, qkv, "%s.%d.fn.to_qkv.weight", at, k);
                fake_add(t, 2, out, "%s.%d.fn.to_out.0.weight", at, k);
                if (window > 0) {
                    fake_add(t, 2, table, "%s.%d.fn.rel_pos_bias.weight", at, k);
                }
            } else if (k == 5 || k == 11) {
                fake_add(t, 3, heads, "%s.%d.fn.temperature", at, k);
                fake_conv(t, fake_name("%s.%d.fn.qkv", at, k), 3 * nf, nf, 1, 0);
                fake_conv(t, fake_name("%s.%d.fn.qkv_dwconv", at, k), 3 * nf, 1, 3, 0);
                fake_conv(t, fake_name("%s.%d.fn.project_out", at, k), nf, nf, 1, 0);
            } else if (k % 2 == 0) {
                fake_conv(t, fake_name("%s.%d.fn.project_in", at, k), 2 * nf, nf, 1, 0);
                fake_conv(t, fake_name("%s.%d.fn.dwconv", at, k), 2 * nf, 1, 3, 0);
                fake_conv(t, fake_name("%s.%d.fn.project_out", at, k), nf, nf, 1, 0);
            } else {
                continue;
            }
            fake_norm(t, fake_name("%s.%d.norm", at, k), nf);
        }
        fake_conv(t, fake_name("residual_layer.%d.residual_layer.1", i), nf, nf, 1, 1);
        fake_conv(t, fake_name("residual_layer.%d.esa.conv1", i), few, nf, 1, 1);
        fake_conv(t, fake_name("residual_layer.%d.esa.conv_f", i), few, few, 1, 1);
        fake_conv(t, fake_name("residual_layer.%d.esa.conv2", i), few, few, 3, 1);
        fake_conv(t, fake_name("residual_layer.%d.esa.conv3", i), few, few, 3, 1);
        fake_conv(t, fake_name("residual_layer.%d.esa.conv4", i), nf, few, 1, 1);
    }
    fake_done(t);
    return t;
}
