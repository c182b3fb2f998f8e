/* fake_clips.c - see fake_clips.h. */
#include "tests/lib/fake_clips.h"

void fake_conv3d(dv_tensors *t, const char *name, int64_t o, int64_t i, int64_t frames, int64_t k) {
    const int64_t shape[5] = {o, i, frames, k, k};
    fake_add(t, 5, shape, "%s.weight", name);
    fake_add(t, 1, shape, "%s.bias", name);
}

static void fake_resnet3d(dv_tensors *t, const char *name, int64_t in, int64_t out) {
    fake_norm(t, fake_name("%s.norm1", name), in);
    fake_conv3d(t, fake_name("%s.conv1", name), out, in, 3, 3);
    fake_norm(t, fake_name("%s.norm2", name), out);
    fake_conv3d(t, fake_name("%s.conv2", name), out, out, 3, 3);
    if (in != out) {
        fake_conv3d(t, fake_name("%s.conv_shortcut", name), out, in, 1, 1);
    }
}

static void fake_mid3d(dv_tensors *t, const char *side, int64_t c) {
    static const char *const projections[] = {"to_q", "to_k", "to_v", "to_out.0"};
    const int64_t square[2] = {c, c};
    char name[64];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s.mid_block.resnets.%d", side, i);
        fake_resnet3d(t, name, c, c);
    }
    for (int i = 0; i < 4; i++) {
        fake_add(t, 2, square, "%s.mid_block.attentions.0.%s.weight", side, projections[i]);
        fake_add(t, 1, square, "%s.mid_block.attentions.0.%s.bias", side, projections[i]);
    }
    fake_norm(t, fake_name("%s.mid_block.attentions.0.group_norm", side), c);
}

dv_tensors *fake_seedvr2_of(const int64_t *width, int levels, int64_t z) {
    char name[64];
    dv_tensors *t = fake_new();
    const int last = levels - 1;
    fake_conv3d(t, "encoder.conv_in", width[0], 3, 3, 3);
    fake_conv3d(t, "decoder.conv_in", width[last], z, 3, 3);
    for (int level = 0; level < levels; level++) {
        const int64_t in = width[level > 0 ? level - 1 : 0], out = width[level];
        const int64_t from = width[level > 0 ? levels - level : last], to = width[last - level];
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "encoder.down_blocks.%d.resnets.%d", level, i);
            if (i < 2) {
                fake_resnet3d(t, name, i == 0 ? in : out, out);
            }
            snprintf(name, sizeof name, "decoder.up_blocks.%d.resnets.%d", level, i);
            fake_resnet3d(t, name, i == 0 ? from : to, to);
        }
        if (level < last) {
            snprintf(name, sizeof name, "encoder.down_blocks.%d.downsamplers.0.conv", level);
            fake_conv3d(t, name, out, out, level == 0 ? 1 : 3, 3);
            snprintf(name, sizeof name, "decoder.up_blocks.%d.upsamplers.0.upscale_conv", level);
            fake_conv3d(t, name, (level < last - 1 ? 8 : 4) * to, to, 1, 1);
            snprintf(name, sizeof name, "decoder.up_blocks.%d.upsamplers.0.conv", level);
            fake_conv3d(t, name, to, to, 3, 3);
        }
    }
    fake_mid3d(t, "encoder", width[last]);
    fake_mid3d(t, "decoder", width[last]);
    fake_norm(t, "encoder.conv_norm_out", width[last]);
    fake_norm(t, "decoder.conv_norm_out", width[0]);
    fake_conv3d(t, "encoder.conv_out", 2 * z, width[last], 3, 3);
    fake_conv3d(t, "decoder.conv_out", 3, width[0], 3, 3);
    fake_done(t);
    return t;
}

dv_tensors *fake_seedvr2(void) {
    static const int64_t width[3] = {32, 32, 64};
    return fake_seedvr2_of(width, 3, 4);
}

/* ---- frames: planes of f32, [t][c][h][w] ---- */

int64_t frames_bytes(int64_t n, int64_t c, int64_t h, int64_t w) {
    return n * c * h * w * (int64_t)sizeof(float);
}

dvk_image frames_image(void *data, int64_t n, int64_t c, int64_t h, int64_t w) {
    return (dvk_image){.data = data,
                       .dtype = DVK_F32,
                       .channels = (int32_t)c,
                       .n = n,
                       .h = h,
                       .w = w,
                       .sn = frames_bytes(1, c, h, w),
                       .sh = w * 4,
                       .sw = 4,
                       .sc = h * w * 4,
                       .identity_map = 1};
}

float *made_up_frames(int64_t n, int64_t c, int64_t h, int64_t w) {
    float *p = malloc((size_t)frames_bytes(n, c, h, w));
    for (int64_t i = 0; p != NULL && i < n * c * h * w; i++) {
        const double x = (double)(i % w), y = (double)(i / w % h), k = (double)(i / (h * w));
        p[i] = (float)(0.6 * sin(0.31 * x + 0.17 * y + 0.9 * k) + 0.3 * cos(0.07 * x * y - k));
    }
    return p;
}
