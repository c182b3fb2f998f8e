/* synth.c - writes safetensors: a list of tensors first, then header and payload in one block. */
#include "tests/hosts/synth.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TENSORS = 192, NAME_BYTES = 112, ENTRY_BYTES = 256 };

typedef struct tensor {
    char name[NAME_BYTES];
    int ndim;
    int shape[5];
    float centre, spread; /* values lie in centre ± spread */
} tensor;

typedef struct list {
    tensor items[MAX_TENSORS];
    int count;
} list;

float synth_uniform(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    uint32_t x = *state;
    x ^= x >> 15;
    x *= 0x2c1b3c6du;
    x ^= x >> 12;
    return (float)(x >> 8) * (1.0f / 16777216.0f);
}

static uint64_t elements(const tensor *t) {
    uint64_t n = 1;
    for (int i = 0; i < t->ndim; i++) {
        n *= (uint64_t)t->shape[i];
    }
    return n;
}

static tensor *add(list *l, const char *module, const char *leaf) {
    tensor *t = &l->items[l->count++];
    snprintf(t->name, sizeof t->name, "%s.%s", module, leaf);
    return t;
}

static void add_vector(list *l, const char *module, const char *leaf, int n, float centre, float spread) {
    tensor *t = add(l, module, leaf);
    t->ndim = 1;
    t->shape[0] = n;
    t->centre = centre;
    t->spread = spread;
}

/* Weights scaled to keep the signal's size: large networks stay finite, and small ones do not fade. */
static void add_window(list *l, const char *module, int out, int in, int side, int with_bias) {
    tensor *w = add(l, module, "weight");
    w->ndim = 4;
    w->shape[0] = out;
    w->shape[1] = in;
    w->shape[2] = w->shape[3] = side;
    w->spread = sqrtf(4.0f / ((float)(side * side) * (float)in));
    if (with_bias) {
        add_vector(l, module, "bias", out, 0.0f, 0.05f);
    }
}

static void add_conv(list *l, const char *module, int out, int in, int with_bias) {
    add_window(l, module, out, in, 3, with_bias);
}

static void add_norm(list *l, const char *module, int n) {
    add_vector(l, module, "weight", n, 1.0f, 0.2f);
    add_vector(l, module, "bias", n, 0.0f, 0.1f);
}

static void add_block(list *l, int index) {
    char module[NAME_BYTES / 2];
    for (int i = 0; i <= 4; i += 2) {
        snprintf(module, sizeof module, "%d.conv.%d", index, i);
        add_conv(l, module, 64, 64, 1);
    }
}

static void add_indexed(list *l, const char *prefix, int index, int out, int in, int with_bias) {
    char module[NAME_BYTES / 2];
    snprintf(module, sizeof module, "%s%d", prefix, index);
    add_conv(l, module, out, in, with_bias);
}

/* "name":{"dtype":"F32","shape":[..],"data_offsets":[a,b]} */
static int write_entry(char *dst, const tensor *t, uint64_t begin, int first) {
    char shape[64] = "";
    for (int i = 0; i < t->ndim; i++) {
        const size_t used = strlen(shape);
        snprintf(shape + used, sizeof shape - used, "%s%d", i > 0 ? "," : "", t->shape[i]);
    }
    return snprintf(dst, ENTRY_BYTES, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
                    first ? "" : ",", t->name, shape, (unsigned long long)begin,
                    (unsigned long long)(begin + 4 * elements(t)));
}

static synth_file write_file(const list *l, uint32_t seed) {
    uint64_t payload = 0;
    for (int i = 0; i < l->count; i++) {
        payload += 4 * elements(&l->items[i]);
    }
    const uint64_t room = 8 + (uint64_t)(l->count + 1) * ENTRY_BYTES + payload;
    unsigned char *file = malloc((size_t)room);
    if (file == NULL) {
        return (synth_file){NULL, 0};
    }
    char *text = (char *)file + 8;
    uint64_t n = 0;
    uint64_t begin = 0;
    text[n++] = '{';
    for (int i = 0; i < l->count; i++) {
        n += (uint64_t)write_entry(text + n, &l->items[i], begin, i == 0);
        begin += 4 * elements(&l->items[i]);
    }
    text[n++] = '}';
    while (n % 8 != 0) {
        text[n++] = ' ';
    }
    for (int i = 0; i < 8; i++) {
        file[i] = (unsigned char)(n >> (8 * i));
    }
    unsigned char *at = file + 8 + n;
    for (int i = 0; i < l->count; i++) {
        const tensor *t = &l->items[i];
        for (uint64_t k = 0; k < elements(t); k++, at += 4) {
            const float v = t->centre + t->spread * (2.0f * synth_uniform(&seed) - 1.0f);
            memcpy(at, &v, 4);
        }
    }
    return (synth_file){file, 8 + n + payload};
}

synth_file synth_compact(int feats, int layers, int scale, uint32_t seed) {
    list *l = calloc(1, sizeof *l);
    if (l == NULL || layers > 50) {
        free(l);
        return (synth_file){NULL, 0};
    }
    for (int i = 0; i <= layers; i++) {
        add_indexed(l, "body.", 2 * i, feats, i == 0 ? 3 : feats, 1);
        char module[NAME_BYTES / 2];
        snprintf(module, sizeof module, "body.%d", 2 * i + 1);
        tensor *slopes = add(l, module, "weight");
        slopes->ndim = 1;
        slopes->shape[0] = feats;
        slopes->centre = 0.2f;
        slopes->spread = 0.1f;
    }
    add_indexed(l, "body.", 2 * layers + 2, 3 * scale * scale, feats, 1);
    /* The last layer adds detail to the enlarged input; full-size it would drown the picture. */
    l->items[l->count - 2].spread *= 0.1f;
    const synth_file f = write_file(l, seed);
    free(l);
    return f;
}

synth_file synth_taesd(int decoder, uint32_t seed) {
    static const int encoder_blocks[] = {1, 3, 4, 5, 7, 8, 9, 11, 12, 13};
    static const int decoder_blocks[] = {3, 4, 5, 8, 9, 10, 13, 14, 15, 18};
    static const int encoder_steps[] = {2, 6, 10};
    static const int decoder_steps[] = {7, 12, 17};
    list *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return (synth_file){NULL, 0};
    }
    add_indexed(l, "", decoder ? 1 : 0, 64, decoder ? 4 : 3, 1);
    for (int i = 0; i < 10; i++) {
        add_block(l, decoder ? decoder_blocks[i] : encoder_blocks[i]);
    }
    for (int i = 0; i < 3; i++) {
        add_indexed(l, "", decoder ? decoder_steps[i] : encoder_steps[i], 64, 64, 0);
    }
    add_indexed(l, "", decoder ? 19 : 14, decoder ? 3 : 4, 64, 1);
    /* Ten residual blocks double the signal each; a smaller spread inside them keeps it near one. */
    for (int i = 0; i < l->count; i++) {
        if (strstr(l->items[i].name, ".conv.4.weight") != NULL) {
            l->items[i].spread *= 0.5f;
        }
    }
    const synth_file f = write_file(l, seed);
    free(l);
    return f;
}

static void add_resnet(list *l, const char *module, int n) {
    static const char *const parts[] = {"norm1", "conv1", "norm2", "conv2"};
    char name[NAME_BYTES / 2];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s.%s", module, parts[i]);
        if (i % 2 == 0) {
            add_norm(l, name, n);
        } else {
            add_conv(l, name, n, n, 1);
        }
    }
}

synth_file synth_kl_encoder(uint32_t seed) {
    enum { WIDTH = 32, MOMENTS = 8 };
    list *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return (synth_file){NULL, 0};
    }
    add_conv(l, "encoder.conv_in", WIDTH, 3, 1);
    add_resnet(l, "encoder.down.0.block.0", WIDTH);
    add_conv(l, "encoder.down.0.downsample.conv", WIDTH, WIDTH, 1);
    add_resnet(l, "encoder.down.1.block.0", WIDTH);
    add_resnet(l, "encoder.mid.block_1", WIDTH);
    add_norm(l, "encoder.mid.attn_1.norm", WIDTH);
    add_window(l, "encoder.mid.attn_1.q", WIDTH, WIDTH, 1, 1);
    add_window(l, "encoder.mid.attn_1.k", WIDTH, WIDTH, 1, 1);
    add_window(l, "encoder.mid.attn_1.v", WIDTH, WIDTH, 1, 1);
    add_window(l, "encoder.mid.attn_1.proj_out", WIDTH, WIDTH, 1, 1);
    add_resnet(l, "encoder.mid.block_2", WIDTH);
    add_norm(l, "encoder.norm_out", WIDTH);
    add_conv(l, "encoder.conv_out", MOMENTS, WIDTH, 1);
    const synth_file f = write_file(l, seed);
    free(l);
    return f;
}

/* ---- video ---- */

/* A 1x1 convolution between frames and channels: no bias. */
static void add_times(list *l, const char *module, int out, int in) {
    char name[NAME_BYTES / 2 + 8];
    snprintf(name, sizeof name, "%s.conv", module);
    add_window(l, name, out, in, 1, 0);
}

/* Three blocks with a frame and the one before it as input, from layer `index` on. */
static void add_memory(list *l, const char *half, int index, int n) {
    char name[NAME_BYTES / 2];
    for (int i = 0; i < 9; i++) {
        snprintf(name, sizeof name, "%s.%d.conv.%d", half, index + i / 3, i % 3 * 2);
        add_conv(l, name, n, i % 3 == 0 ? 2 * n : n, 1);
        l->items[l->count - 2].spread *= i % 3 == 2 ? 0.3f : 1.0f;
    }
}

static synth_file taehv_of(uint32_t seed, int latents, int colours) {
    enum { WIDTH = 8 };
    list *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return (synth_file){NULL, 0};
    }
    char name[NAME_BYTES / 2];
    add_conv(l, "encoder.0", WIDTH, colours, 1);
    add_conv(l, "encoder.17", latents, WIDTH, 1);
    add_conv(l, "decoder.1", WIDTH, latents, 1);
    add_conv(l, "decoder.20", WIDTH, WIDTH, 0);
    add_conv(l, "decoder.22", colours, WIDTH, 1);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "encoder.%d", 2 + 5 * i);
        add_times(l, name, WIDTH, i < 2 ? 2 * WIDTH : WIDTH);
        snprintf(name, sizeof name, "encoder.%d", 3 + 5 * i);
        add_conv(l, name, WIDTH, WIDTH, 0);
        add_memory(l, "encoder", 4 + 5 * i, WIDTH);
        add_memory(l, "decoder", 3 + 6 * i, WIDTH);
        snprintf(name, sizeof name, "decoder.%d", 7 + 6 * i);
        add_times(l, name, i > 0 ? 2 * WIDTH : WIDTH, WIDTH);
        if (i < 2) {
            snprintf(name, sizeof name, "decoder.%d", 8 + 6 * i);
            add_conv(l, name, WIDTH, WIDTH, 0);
        }
    }
    const synth_file f = write_file(l, seed);
    free(l);
    return f;
}

synth_file synth_taehv(uint32_t seed) {
    return taehv_of(seed, 4, 3);
}

synth_file synth_taeh3(uint32_t seed) {
    return taehv_of(seed, 24, 12);
}

/* kt x side x side */
static void add_conv3d(list *l, const char *module, int out, int in, int kt, int side) {
    add_window(l, module, out, in, side, 1);
    tensor *w = &l->items[l->count - 2];
    w->ndim = 5;
    w->shape[2] = kt;
    w->shape[3] = w->shape[4] = side;
    w->spread /= sqrtf((float)kt);
}

static void add_resnet3d(list *l, const char *module, int n) {
    char name[NAME_BYTES / 2 + 8];
    for (int i = 1; i <= 2; i++) {
        snprintf(name, sizeof name, "%s.norm%d", module, i);
        add_norm(l, name, n);
        snprintf(name, sizeof name, "%s.conv%d", module, i);
        add_conv3d(l, name, n, n, 3, 3);
    }
}

static void add_middle3d(list *l, const char *half, int n) {
    static const char *const parts[] = {"to_q", "to_k", "to_v", "to_out.0"};
    char name[NAME_BYTES / 2];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s.mid_block.resnets.%d", half, i);
        add_resnet3d(l, name, n);
    }
    snprintf(name, sizeof name, "%s.mid_block.attentions.0.group_norm", half);
    add_norm(l, name, n);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s.mid_block.attentions.0.%s", half, parts[i]);
        add_window(l, name, n, n, 1, 1);
        l->items[l->count - 2].ndim = 2;
    }
    snprintf(name, sizeof name, "%s.conv_norm_out", half);
    add_norm(l, name, n);
}

synth_file synth_seedvr2(uint32_t seed) {
    enum { WIDTH = 32, LATENTS = 4, LEVELS = 3 };
    list *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return (synth_file){NULL, 0};
    }
    char name[NAME_BYTES / 2];
    add_conv3d(l, "encoder.conv_in", WIDTH, 3, 3, 3);
    add_conv3d(l, "encoder.conv_out", 2 * LATENTS, WIDTH, 3, 3);
    add_conv3d(l, "decoder.conv_in", WIDTH, LATENTS, 3, 3);
    add_conv3d(l, "decoder.conv_out", 3, WIDTH, 3, 3);
    add_middle3d(l, "encoder", WIDTH);
    add_middle3d(l, "decoder", WIDTH);
    for (int i = 0; i < LEVELS; i++) {
        snprintf(name, sizeof name, "encoder.down_blocks.%d.resnets.0", i);
        add_resnet3d(l, name, WIDTH);
        snprintf(name, sizeof name, "decoder.up_blocks.%d.resnets.0", i);
        add_resnet3d(l, name, WIDTH);
        if (i + 1 < LEVELS) {
            snprintf(name, sizeof name, "encoder.down_blocks.%d.downsamplers.0.conv", i);
            add_conv3d(l, name, WIDTH, WIDTH, 3, 3);
            snprintf(name, sizeof name, "decoder.up_blocks.%d.upsamplers.0.upscale_conv", i);
            add_conv3d(l, name, 8 * WIDTH, WIDTH, 1, 1);
            snprintf(name, sizeof name, "decoder.up_blocks.%d.upsamplers.0.conv", i);
            add_conv3d(l, name, WIDTH, WIDTH, 3, 3);
        }
    }
    const synth_file f = write_file(l, seed);
    free(l);
    return f;
}
