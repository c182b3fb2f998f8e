/* weights.c - random weights for networks that are too large to ship. Speed depends on the shapes, not on the values. The
 * magnitudes keep activations in a normal range, because infinities and denormal numbers would change the speed. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/bench/bench.h"
#include "plugins/cli/bench/builder.h"
#include "plugins/cli/say.h"

static void compact(builder *b, int layers) {
    conv(b, "body.0", 64, 3, 3);
    vector(b, "body.1", "weight", 64, -3);
    for (int i = 0; i < layers; i++) {
        conv(b, named("body.%d", 2 * i + 2).text, 64, 64, 3);
        vector(b, named("body.%d", 2 * i + 3).text, "weight", 64, -3);
    }
    conv(b, named("body.%d", 2 * layers + 2).text, 48, 64, 3);
}

static void rrdb(builder *b) {
    conv(b, "conv_first", 64, 3, 3);
    for (int i = 0; i < 23; i++) {
        for (int j = 1; j <= 3; j++) {
            for (int k = 1; k <= 5; k++) {
                conv(b, named("body.%d.rdb%d.conv%d", i, j, k).text, k < 5 ? 32 : 64, 64 + 32 * (k - 1), 3);
            }
        }
    }
    static const char *const tail[] = {"conv_body", "conv_up1", "conv_up2", "conv_hr"};
    for (size_t i = 0; i < 4; i++) {
        conv(b, tail[i], 64, 64, 3);
    }
    conv(b, "conv_last", 3, 64, 3);
}

static void span(builder *b) {
    const int64_t wide = 48;
    conv(b, "conv_1.eval_conv", wide, 3, 3);
    for (int i = 1; i <= 6; i++) {
        for (int k = 1; k <= 3; k++) {
            conv(b, named("block_%d.c%d_r.eval_conv", i, k).text, wide, wide, 3);
        }
    }
    conv(b, "conv_2.eval_conv", wide, wide, 3);
    conv(b, "conv_cat", wide, 4 * wide, 1);
    conv(b, "upsampler.0", 12, wide, 3);
}

/* The variant "balanced": eight blocks of 64 features, at half the size of the picture. */
static void spanf3(builder *b) {
    const int64_t wide = 64;
    conv(b, "conv_1.1.eval_conv", wide, 12, 3);
    for (int i = 1; i <= 8; i++) {
        for (int k = 1; k <= 3; k++) {
            conv(b, named("block_%d.c%d_r.eval_conv", i, k).text, wide, wide, 3);
        }
        conv(b, named("block_%d.att_conv", i).text, wide, wide, 1);
    }
    conv(b, "conv_cat", wide, 4 * wide, 1);
    conv(b, "to_pixel.eval_conv", 48, wide, 3);
}

static void realplksr(builder *b) {
    conv(b, "feats.0", 64, 3, 3);
    for (int i = 1; i <= 28; i++) {
        conv(b, named("feats.%d.channel_mixer.0", i).text, 128, 64, 3);
        conv(b, named("feats.%d.channel_mixer.2", i).text, 64, 128, 3);
        conv(b, named("feats.%d.lk.conv", i).text, 16, 16, 17);
        conv(b, named("feats.%d.attn.f.0", i).text, 64, 64, 3);
        conv(b, named("feats.%d.refine", i).text, 64, 64, 1);
        norm(b, named("feats.%d.norm", i).text, 64);
    }
    conv(b, "feats.30", 48, 64, 3);
}

static void omnisr_layer(builder *b, int group, int index) {
    const label l = named("residual_layer.%d.residual_layer.0.layer.%d", group, index);
    const bool attends = index == 2 || index == 8, of_channels = index == 5 || index == 11;
    norm(b, named("%s.norm", l.text).text, 64);
    if (attends) {
        matrix(b, named("%s.fn.to_qkv", l.text).text, 192, 64, 0);
        matrix(b, named("%s.fn.to_out.0", l.text).text, 64, 64, 0);
        matrix(b, named("%s.fn.rel_pos_bias", l.text).text, 225, 4, 0);
        return;
    }
    const int64_t wide = of_channels ? 192 : 128;
    matrix(b, named("%s.fn.%s", l.text, of_channels ? "qkv" : "project_in").text, wide, 64, 1);
    depthwise(b, named("%s.fn.%s", l.text, of_channels ? "qkv_dwconv" : "dwconv").text, wide);
    matrix(b, named("%s.fn.project_out", l.text).text, 64, 64, 1);
    if (of_channels) {
        tensor_def *t = add(b);
        if (t != NULL) {
            *t = (tensor_def){.ndim = 3, .shape = {4, 1, 1}, .exponent = ONES};
            snprintf(t->name, sizeof t->name, "%s.fn.temperature", l.text);
        }
    }
}

static void omnisr(builder *b) {
    conv(b, "input", 64, 3, 3);
    for (int i = 0; i < 5; i++) {
        const label l = named("residual_layer.%d.residual_layer.0.layer.0.fn", i);
        conv(b, named("%s.0", l.text).text, 64, 64, 1);
        depthwise(b, named("%s.2", l.text).text, 64);
        vector(b, named("%s.2", l.text).text, "bias", 64, -7);
        matrix(b, named("%s.4.gate.1", l.text).text, 16, 64, 0);
        matrix(b, named("%s.4.gate.3", l.text).text, 64, 16, 0);
        conv(b, named("%s.5", l.text).text, 64, 64, 1);
        static const int layers[] = {2, 4, 5, 6, 8, 10, 11, 12};
        for (size_t k = 0; k < sizeof layers / sizeof layers[0]; k++) {
            omnisr_layer(b, i, layers[k]);
        }
        conv(b, named("residual_layer.%d.residual_layer.1", i).text, 64, 64, 1);
        const label esa = named("residual_layer.%d.esa", i);
        conv(b, named("%s.conv1", esa.text).text, 16, 64, 1);
        conv(b, named("%s.conv2", esa.text).text, 16, 16, 3);
        conv(b, named("%s.conv3", esa.text).text, 16, 16, 3);
        conv(b, named("%s.conv_f", esa.text).text, 16, 16, 1);
        conv(b, named("%s.conv4", esa.text).text, 64, 16, 1);
    }
    conv(b, "output", 64, 64, 3);
    conv(b, "up.0", 48, 64, 3);
}

static void taesd_block(builder *b, int index) {
    for (int i = 0; i <= 4; i += 2) {
        conv(b, named("%d.conv.%d", index, i).text, 64, 64, 3);
    }
}

static void taesd(builder *b, int encoder) {
    /* indices of the blocks and of the convolutions without bias */
    static const int blocks[2][10] = {{3, 4, 5, 8, 9, 10, 13, 14, 15, 18}, {1, 3, 4, 5, 7, 8, 9, 11, 12, 13}};
    static const int plain[2][3] = {{7, 12, 17}, {2, 6, 10}};
    conv(b, encoder ? "0" : "1", 64, encoder ? 3 : 4, 3);
    for (int i = 0; i < 10; i++) {
        taesd_block(b, blocks[encoder][i]);
    }
    for (int i = 0; i < 3; i++) {
        matrix(b, named("%d", plain[encoder][i]).text, 64, 64, 3);
    }
    conv(b, encoder ? "14" : "19", encoder ? 4 : 3, 64, 3);
}

static void resnet(builder *b, const char *name, int64_t in, int64_t out) {
    norm(b, named("%s.norm1", name).text, in);
    conv(b, named("%s.conv1", name).text, out, in, 3);
    norm(b, named("%s.norm2", name).text, out);
    conv(b, named("%s.conv2", name).text, out, out, 3);
    if (in != out) {
        conv(b, named("%s.conv_shortcut", name).text, out, in, 1);
    }
}

static void middle(builder *b, const char *half) {
    static const char *const parts[] = {"to_q", "to_k", "to_v", "to_out.0"};
    resnet(b, named("%s.mid_block.resnets.0", half).text, 512, 512);
    resnet(b, named("%s.mid_block.resnets.1", half).text, 512, 512);
    norm(b, named("%s.mid_block.attentions.0.group_norm", half).text, 512);
    for (size_t i = 0; i < 4; i++) {
        const label l = named("%s.mid_block.attentions.0.%s", half, parts[i]);
        matrix(b, l.text, 512, 512, 0);
        vector(b, l.text, "bias", 512, -7);
    }
}

static void sdxl(builder *b) {
    static const int64_t widths[4] = {128, 256, 512, 512};
    conv(b, "encoder.conv_in", 128, 3, 3);
    conv(b, "decoder.conv_in", 512, 4, 3);
    int64_t down = 128;
    int64_t up = 512;
    for (int level = 0; level < 4; level++) {
        const int64_t wide = widths[level];
        const int64_t narrow = widths[3 - level];
        for (int i = 0; i < 2; i++, down = wide) {
            resnet(b, named("encoder.down_blocks.%d.resnets.%d", level, i).text, down, wide);
        }
        for (int i = 0; i < 3; i++, up = narrow) {
            resnet(b, named("decoder.up_blocks.%d.resnets.%d", level, i).text, up, narrow);
        }
        if (level < 3) {
            conv(b, named("encoder.down_blocks.%d.downsamplers.0.conv", level).text, wide, wide, 3);
            conv(b, named("decoder.up_blocks.%d.upsamplers.0.conv", level).text, narrow, narrow, 3);
        }
    }
    middle(b, "encoder");
    middle(b, "decoder");
    norm(b, "encoder.conv_norm_out", 512);
    norm(b, "decoder.conv_norm_out", 128);
    conv(b, "encoder.conv_out", 8, 512, 3);
    conv(b, "decoder.conv_out", 3, 128, 3);
    conv(b, "quant_conv", 8, 8, 1);
    conv(b, "post_quant_conv", 4, 4, 1);
}

static size_t count(const tensor_def *t) {
    size_t n = 1;
    for (int i = 0; i < t->ndim; i++) {
        n *= (size_t)t->shape[i];
    }
    return n;
}

/* Makes float16 numbers from random bits: random sign and mantissa, fixed exponent. */
static void fill(unsigned char *out, const tensor_def *t, uint64_t *state) {
    const size_t n = count(t);
    const uint32_t exponent = (uint32_t)((t->exponent < -14 ? -14 : t->exponent) + 15) << 10;
    for (size_t i = 0; i < n; i++) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        const uint32_t bits = (uint32_t)(*state >> 40);
        const uint32_t v = t->exponent == ONES ? 0x3c00u : (bits & 0x8000u) | exponent | (bits & 0x3ffu);
        out[2 * i] = (unsigned char)v;
        out[2 * i + 1] = (unsigned char)(v >> 8);
    }
}

static char *header_of(const builder *b, uint64_t *data_bytes) {
    cJSON *header = cJSON_CreateObject();
    double at = 0.0;
    for (size_t i = 0; i < b->n; i++) {
        cJSON *t = cJSON_AddObjectToObject(header, b->list[i].name);
        cJSON_AddStringToObject(t, "dtype", "F16");
        cJSON *shape = cJSON_AddArrayToObject(t, "shape");
        for (int d = 0; d < b->list[i].ndim; d++) {
            cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)b->list[i].shape[d]));
        }
        cJSON *offsets = cJSON_AddArrayToObject(t, "data_offsets");
        cJSON_AddItemToArray(offsets, cJSON_CreateNumber(at));
        at += 2.0 * (double)count(&b->list[i]);
        cJSON_AddItemToArray(offsets, cJSON_CreateNumber(at));
    }
    char *text = cJSON_PrintUnformatted(header);
    cJSON_Delete(header);
    *data_bytes = (uint64_t)at;
    return text;
}

static void build(builder *b, bench_arch arch, int encoder) {
    switch (arch) {
    case BENCH_COMPACT:
        compact(b, 32);
        break;
    case BENCH_COMPACT16:
        compact(b, 16);
        break;
    case BENCH_SPAN:
        span(b);
        break;
    case BENCH_SPANF3:
        spanf3(b);
        break;
    case BENCH_REALPLKSR:
        realplksr(b);
        break;
    case BENCH_OMNISR:
        omnisr(b);
        break;
    case BENCH_SWINIR:
        bench_swinir(b);
        break;
    case BENCH_DRCT:
        bench_drct(b);
        break;
    case BENCH_HAT:
        bench_hat(b);
        break;
    case BENCH_DAT:
        bench_dat(b);
        break;
    case BENCH_SRFORMER:
        bench_srformer(b);
        break;
    case BENCH_RGT:
        bench_rgt(b);
        break;
    case BENCH_ATD:
        bench_atd(b);
        break;
    case BENCH_RRDB:
        rrdb(b);
        break;
    case BENCH_TAE:
        taesd(b, encoder);
        break;
    default:
        sdxl(b);
        break;
    }
}

void *bench_weights(bench_arch arch, int encoder, uint64_t *bytes) {
    builder b = {0};
    build(&b, arch, encoder);
    uint64_t data_bytes = 0;
    char *header = b.failed ? NULL : header_of(&b, &data_bytes);
    const size_t n = header != NULL ? strlen(header) : 0;
    const size_t padded = (n + 7) / 8 * 8;
    unsigned char *file = header != NULL ? malloc(8 + padded + (size_t)data_bytes) : NULL;
    if (file != NULL) {
        for (size_t i = 0; i < 8; i++) {
            file[i] = (unsigned char)((uint64_t)padded >> (8 * i));
        }
        memset(file + 8, ' ', padded);
        memcpy(file + 8, header, n);
        uint64_t state = 0x9e3779b97f4a7c15u;
        unsigned char *at = file + 8 + padded;
        for (size_t i = 0; i < b.n; i++) {
            fill(at, &b.list[i], &state);
            at += 2 * count(&b.list[i]);
        }
        *bytes = 8 + padded + data_bytes;
    }
    cJSON_free(header);
    free(b.list);
    return file;
}
