/* quant.c - decodes the blocks of quantised weights and quantises weights at load. */
#include "kernels/quant.h"

#include <math.h>
#include <string.h>

#include "kernels/dtype.h"

enum { SUPER = 256 }; /* elements of a K-quant's block */

static const struct {
    dvk_wtype type;
    int32_t elements, bytes;
} blocks[] = {
    {DVK_W_F32, 1, 4},        {DVK_W_F16, 1, 2},        {DVK_W_BF16, 1, 2},       {DVK_W_Q8_0, 32, 34},
    {DVK_W_Q4_0, 32, 18},     {DVK_W_Q4_1, 32, 20},     {DVK_W_Q5_0, 32, 22},     {DVK_W_Q5_1, 32, 24},
    {DVK_W_Q4_K, SUPER, 144}, {DVK_W_Q5_K, SUPER, 176}, {DVK_W_Q6_K, SUPER, 210},
};

enum { N_BLOCKS = (int)(sizeof blocks / sizeof blocks[0]) };

int32_t dvk_block_elements(dvk_wtype t) {
    for (int i = 0; i < N_BLOCKS; i++) {
        if (blocks[i].type == t) {
            return blocks[i].elements;
        }
    }
    return 0;
}

int32_t dvk_block_bytes(dvk_wtype t) {
    for (int i = 0; i < N_BLOCKS; i++) {
        if (blocks[i].type == t) {
            return blocks[i].bytes;
        }
    }
    return 0;
}

int64_t dvk_row_bytes(dvk_wtype t, int64_t k) {
    const int64_t elements = dvk_block_elements(t);
    return elements == 0 ? 0 : (k + elements - 1) / elements * dvk_block_bytes(t);
}

static float half_at(const unsigned char *p) {
    return dvk_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static uint32_t word_at(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int signed_byte(unsigned char b) {
    return b < 128 ? b : b - 256;
}

/* Nibble i of 16 bytes: the low halves are elements 0 to 15, the high ones 16 to 31. */
static int nibble(const unsigned char *qs, int i) {
    return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
}

static int fifth_bit(const unsigned char *qh, int i) {
    return (int)(word_at(qh) >> i & 1) << 4;
}

static void small_block(dvk_wtype t, const unsigned char *b, float *y) {
    const float d = half_at(b);
    for (int i = 0; i < 32; i++) {
        switch (t) {
        case DVK_W_Q8_0:
            y[i] = d * (float)signed_byte(b[2 + i]);
            break;
        case DVK_W_Q4_0:
            y[i] = d * (float)(nibble(b + 2, i) - 8);
            break;
        case DVK_W_Q4_1:
            y[i] = d * (float)nibble(b + 4, i) + half_at(b + 2);
            break;
        case DVK_W_Q5_0:
            y[i] = d * (float)((nibble(b + 6, i) | fifth_bit(b + 2, i)) - 16);
            break;
        default: /* Q5_1 */
            y[i] = d * (float)(nibble(b + 8, i) | fifth_bit(b + 4, i)) + half_at(b + 2);
            break;
        }
    }
}

/* Scale and minimum of sub-block j: 6 bits each, twelve bytes for eight of both. */
static void scale_min(const unsigned char *sc, int j, int *scale, int *min) {
    if (j < 4) {
        *scale = sc[j] & 63;
        *min = sc[j + 4] & 63;
    } else {
        *scale = (sc[j + 4] & 15) | (sc[j - 4] >> 6) << 4;
        *min = sc[j + 4] >> 4 | (sc[j] >> 6) << 4;
    }
}

/* Q4_K: d, dmin, scales[12], qs[128]. Q5_K has qh[32] before qs; its bit j is the fifth bit of sub-block j. */
static void min_super_block(const unsigned char *b, const unsigned char *qh, const unsigned char *qs, float *y) {
    const float d = half_at(b);
    const float dmin = half_at(b + 2);
    for (int j = 0; j < 8; j++) {
        int scale = 0;
        int min = 0;
        scale_min(b + 4, j, &scale, &min);
        for (int l = 0; l < 32; l++) {
            const unsigned char pair = qs[j / 2 * 32 + l];
            const int low = j % 2 == 0 ? pair & 15 : pair >> 4;
            const int high = qh != NULL ? (qh[l] >> j & 1) << 4 : 0;
            y[32 * j + l] = d * (float)scale * (float)(low + high) - dmin * (float)min;
        }
    }
}

/* Q6_K: ql[128], qh[64], scales[16], d. */
static void q6_super_block(const unsigned char *b, float *y) {
    const float d = half_at(b + 208);
    for (int i = 0; i < SUPER; i++) {
        const int half = i / 128;
        const int part = i % 128 / 32;
        const int l = i % 32;
        const unsigned char low = b[64 * half + l + part % 2 * 32];
        const unsigned char high = b[128 + 32 * half + l];
        const int a = (part < 2 ? low & 15 : low >> 4) | (high >> (2 * part) & 3) << 4;
        y[i] = d * (float)signed_byte(b[192 + i / 16]) * (float)(a - 32);
    }
}

static void one_block(dvk_wtype t, const unsigned char *b, float *y) {
    switch (t) {
    case DVK_W_Q4_K:
        min_super_block(b, NULL, b + 16, y);
        break;
    case DVK_W_Q5_K:
        min_super_block(b, b + 16, b + 48, y);
        break;
    case DVK_W_Q6_K:
        q6_super_block(b, y);
        break;
    default:
        small_block(t, b, y);
        break;
    }
}

/* Types without blocks. */
static void numbers(dvk_wtype t, const unsigned char *b, float *to, int64_t count) {
    if (t == DVK_W_F32) {
        memcpy(to, b, (size_t)count * sizeof *to);
    } else if (t == DVK_W_F16) {
        for (int64_t i = 0; i < count; i++) {
            to[i] = half_at(b + 2 * i);
        }
    } else {
        for (int64_t i = 0; i < count; i++) {
            to[i] = dvk_bf16_to_f32((uint16_t)(b[2 * i] | b[2 * i + 1] << 8));
        }
    }
}

void dvk_dequant(dvk_wtype t, const void *row, float *to, int64_t count) {
    const int64_t elements = dvk_block_elements(t);
    const unsigned char *b = row;
    if (elements == 1) {
        numbers(t, b, to, count);
        return;
    }
    int64_t i = 0;
    for (; i + elements <= count; i += elements, b += dvk_block_bytes(t)) {
        one_block(t, b, to + i);
    }
    if (i < count) {
        float y[SUPER];
        one_block(t, b, y);
        memcpy(to + i, y, (size_t)(count - i) * sizeof *y);
    }
}

static void put_half(unsigned char *b, float v) {
    const uint16_t h = dvk_f32_to_f16(v);
    b[0] = (unsigned char)(h & 255);
    b[1] = (unsigned char)(h >> 8);
}

static float largest(const float *x, int64_t n) { /* the value of largest magnitude, its sign kept */
    float top = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        top = fabsf(x[i]) > fabsf(top) ? x[i] : top;
    }
    return top;
}

void dvk_quant_q8_0(const float *x, void *row, int64_t count) {
    unsigned char *b = row;
    for (int64_t at = 0; at < count; at += 32, b += 34) {
        const int64_t n = count - at < 32 ? count - at : 32;
        const float d = fabsf(largest(x + at, n)) / 127.0f;
        put_half(b, d);
        for (int64_t i = 0; i < 32; i++) {
            const float q = i < n && d > 0.0f ? nearbyintf(x[at + i] / d) : 0.0f;
            b[2 + i] = (unsigned char)(int)q;
        }
    }
}

void dvk_quant_q4_0(const float *x, void *row, int64_t count) {
    unsigned char *b = row;
    for (int64_t at = 0; at < count; at += 32, b += 18) {
        const int64_t n = count - at < 32 ? count - at : 32;
        const float d = largest(x + at, n) / -8.0f;
        const float inverse = d < 0.0f || d > 0.0f ? 1.0f / d : 0.0f;
        put_half(b, d);
        memset(b + 2, 0, 16);
        for (int i = 0; i < 32; i++) {
            const float v = i < n ? x[at + i] * inverse : 0.0f;
            const float u = floorf(v + 8.5f);
            const int q = u < 0.0f ? 0 : u > 15.0f ? 15 : (int)u;
            b[2 + i % 16] = (unsigned char)(b[2 + i % 16] | q << (i < 16 ? 0 : 4));
        }
    }
}
