/* bench_weights.c - weights for networks too large to ship: what matters for speed is their shapes, not their values.
 * The magnitudes keep activations in a sane range, because infinities and denormal numbers would change the speed. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/bench.h"
#include "plugins/cli/say.h"

enum { ONES = 0x7fff }; /* as an exponent: fill with 1 */

typedef struct tensor_def {
    char name[96];
    int ndim;
    int64_t shape[4];
    int exponent; /* values are +-[1, 2) * 2^exponent */
} tensor_def;

typedef struct builder {
    tensor_def *list;
    size_t n;
    size_t room;
    int failed;
} builder;

static tensor_def *add(builder *b) {
    if (b->n == b->room) {
        const size_t room = b->room > 0 ? 2 * b->room : 64;
        tensor_def *more = realloc(b->list, room * sizeof *more);
        if (more == NULL) {
            b->failed = 1;
            return NULL;
        }
        b->list = more;
        b->room = room;
    }
    memset(&b->list[b->n], 0, sizeof b->list[b->n]);
    return &b->list[b->n++];
}

static void vector(builder *b, const char *name, const char *suffix, int64_t n, int exponent) {
    tensor_def *t = add(b);
    if (t != NULL) {
        snprintf(t->name, sizeof t->name, "%s.%s", name, suffix);
        t->ndim = 1;
        t->shape[0] = n;
        t->exponent = exponent;
    }
}

/* side 0: a plain matrix */
static void matrix(builder *b, const char *name, int64_t out, int64_t in, int64_t side) {
    tensor_def *t = add(b);
    if (t != NULL) {
        snprintf(t->name, sizeof t->name, "%s.weight", name);
        const tensor_def shape = {.ndim = side > 0 ? 4 : 2, .shape = {out, in, side, side}};
        const double fan_in = (double)(in * (side > 0 ? side * side : 1));
        t->ndim = shape.ndim;
        memcpy(t->shape, shape.shape, sizeof t->shape);
        /* the spread that keeps a signal's size through a rectified layer */
        t->exponent = (int)floor(log2(sqrt(2.0 / fan_in) / 1.5));
    }
}

static void conv(builder *b, const char *name, int64_t out, int64_t in, int64_t side) {
    matrix(b, name, out, in, side);
    vector(b, name, "bias", out, -7);
}

static void norm(builder *b, const char *name, int64_t n) {
    vector(b, name, "weight", n, ONES);
    vector(b, name, "bias", n, -7);
}

/* The last written name; one buffer is enough as every name is copied at once. */
typedef struct label {
    char text[80];
} label;

static label named(const char *format, ...) CLI_PRINTF(1, 2);

static label named(const char *format, ...) {
    label l;
    va_list ap;
    va_start(ap, format);
    vsnprintf(l.text, sizeof l.text, format, ap);
    va_end(ap);
    return l;
}

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

static void taesd_block(builder *b, int index) {
    for (int i = 0; i <= 4; i += 2) {
        conv(b, named("%d.conv.%d", index, i).text, 64, 64, 3);
    }
}

static void taesd(builder *b, int encoder) {
    /* the blocks' and the bias-free convolutions' places in the sequence */
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

/* float16 numbers straight from random bits: sign and mantissa random, exponent fixed. */
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

void *bench_weights(bench_arch arch, int encoder, uint64_t *bytes) {
    builder b = {0};
    switch (arch) {
    case BENCH_COMPACT:
        compact(&b, 32);
        break;
    case BENCH_COMPACT16:
        compact(&b, 16);
        break;
    case BENCH_SPAN:
        span(&b);
        break;
    case BENCH_RRDB:
        rrdb(&b);
        break;
    case BENCH_TAE:
        taesd(&b, encoder);
        break;
    default:
        sdxl(&b);
        break;
    }
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
