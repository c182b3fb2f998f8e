/* linear_pack.c - weights from a file's blocks into panels (linear_pack.h), and back. */
#include "kernels/cpu/linear_pack.h"

#include <string.h>

#include "kernels/dtype.h"

int64_t lin_block_bytes(lin_kind kind) {
    switch (kind) {
    case LIN_NIBBLES:
        return LIN_HALF_ROW + 16 * DVK_PANEL;
    case LIN_NIBBLES_MIN:
        return 2 * LIN_HALF_ROW + 16 * DVK_PANEL;
    case LIN_BYTES:
        return LIN_HALF_ROW + 32 * DVK_PANEL;
    default:
        return 2 * LIN_HALF_ROW + 32 * DVK_PANEL;
    }
}

static int64_t block_count(int64_t k) {
    return (k + LIN_BLOCK - 1) / LIN_BLOCK;
}

int64_t dvk_panel_bytes(dvk_wtype type, int64_t k) {
    switch (lin_kind_of(type)) {
    case LIN_F32:
        return k * DVK_PANEL * 4;
    case LIN_F16:
        return k * DVK_PANEL * 2;
    case LIN_BF16:
        return (k + 1) / 2 * DVK_PANEL * 4;
    default:
        return block_count(k) * lin_block_bytes(lin_kind_of(type));
    }
}

int64_t dvk_panel_count(int64_t n, int32_t glu) {
    const int64_t rows = glu ? DVK_PANEL / 2 : DVK_PANEL;
    return (n + rows - 1) / rows;
}

static void pack_block(lin_kind kind, const lin_numbers *n, int r, unsigned char *to) {
    const int nibbles = kind == LIN_NIBBLES || kind == LIN_NIBBLES_MIN;
    const uint16_t head[2] = {dvk_f32_to_f16(n->d[0]),
                              kind == LIN_HALVES ? dvk_f32_to_f16(n->d[1]) : dvk_f32_to_f16(n->min)};
    const int heads = kind == LIN_BYTES || kind == LIN_NIBBLES ? 1 : 2;
    for (int i = 0; i < heads; i++, to += LIN_HALF_ROW) {
        memcpy(to + 2 * r, &head[i], 2);
    }
    for (int i = 0; i < (nibbles ? LIN_BLOCK / 2 : LIN_BLOCK); i++) {
        unsigned char *at = to + i / 4 * (4 * DVK_PANEL) + r * 4 + i % 4;
        *at = (unsigned char)(nibbles ? n->u[i] | n->u[i + 16] << 4 : n->u[i]);
    }
}

static void pack_plain(lin_kind kind, int64_t k, const unsigned char *row, int r, unsigned char *to) {
    for (int64_t i = 0; i < k; i++) {
        if (kind == LIN_F32) {
            memcpy(to + (i * DVK_PANEL + r) * 4, row + 4 * i, 4);
        } else if (kind == LIN_F16) {
            memcpy(to + (i * DVK_PANEL + r) * 2, row + 2 * i, 2);
        } else {
            memcpy(to + (i / 2 * DVK_PANEL + r) * 4 + i % 2 * 2, row + 2 * i, 2);
        }
    }
}

void dvk_panel_pack(dvk_wtype type, int64_t k, const void *const rows[DVK_PANEL], void *dst) {
    const lin_kind kind = lin_kind_of(type);
    memset(dst, 0, (size_t)dvk_panel_bytes(type, k));
    for (int r = 0; r < DVK_PANEL; r++) {
        if (rows[r] == NULL) {
            continue;
        }
        if (kind <= LIN_BF16) {
            pack_plain(kind, k, rows[r], r, dst);
            continue;
        }
        unsigned char *to = dst;
        for (int64_t j = 0; j < block_count(k); j++, to += lin_block_bytes(kind)) {
            lin_numbers n;
            lin_read_block(type, rows[r], j, &n);
            pack_block(kind, &n, r, to);
        }
    }
}

void dvk_panel_pack_from(dvk_wtype type, int64_t k, int64_t n, int32_t glu, const void *source, int64_t panel,
                         void *dst) {
    const unsigned char *from = source;
    const int64_t bytes = dvk_row_bytes(type, k);
    const int64_t width = glu ? DVK_PANEL / 2 : DVK_PANEL;
    const void *rows[DVK_PANEL] = {NULL};
    for (int64_t r = 0; r < width && panel * width + r < n; r++) {
        rows[r] = from + (panel * width + r) * bytes;
        if (glu) {
            rows[width + r] = from + (n + panel * width + r) * bytes;
        }
    }
    dvk_panel_pack(type, k, rows, dst);
}

static float packed_half(const unsigned char *p, int r) {
    uint16_t h;
    memcpy(&h, p + 2 * r, 2);
    return dvk_f16_to_f32(h);
}

/* 32 values of row r from a block, `step` floats apart. */
static void unpack_block(dvk_wtype t, const unsigned char *b, int r, float *to, int64_t step, int64_t count) {
    const lin_kind kind = lin_kind_of(t);
    const int nibbles = kind == LIN_NIBBLES || kind == LIN_NIBBLES_MIN;
    const int two = kind != LIN_BYTES && kind != LIN_NIBBLES;
    const float d = packed_half(b, r);
    const float second = two ? packed_half(b + LIN_HALF_ROW, r) : 0.0f;
    const unsigned char *u = b + (two ? 2 : 1) * LIN_HALF_ROW;
    for (int i = 0; i < count; i++) {
        const int at = nibbles ? i % 16 : i;
        const int byte = u[at / 4 * (4 * DVK_PANEL) + r * 4 + at % 4];
        const int number = (!nibbles ? byte : i < 16 ? byte & 15 : byte >> 4) - lin_zero(t);
        const float scale = kind == LIN_HALVES && i >= 16 ? second : d;
        to[i * step] = scale * (float)number + (kind == LIN_HALVES ? 0.0f : second);
    }
}

static void unpack_row(dvk_wtype t, int64_t k, const unsigned char *panel, int r, float *to, int64_t step) {
    const lin_kind kind = lin_kind_of(t);
    for (int64_t i = 0; i < k && kind <= LIN_BF16; i++) {
        if (kind == LIN_F32) {
            memcpy(to + i * step, panel + (i * DVK_PANEL + r) * 4, 4);
        } else if (kind == LIN_F16) {
            to[i * step] = packed_half(panel + i * LIN_HALF_ROW, r);
        } else {
            uint16_t h;
            memcpy(&h, panel + (i / 2 * DVK_PANEL + r) * 4 + i % 2 * 2, 2);
            to[i * step] = dvk_bf16_to_f32(h);
        }
    }
    for (int64_t i = 0; i < k && kind > LIN_BF16; i += LIN_BLOCK, panel += lin_block_bytes(kind)) {
        unpack_block(t, panel, r, to + i * step, step, k - i < LIN_BLOCK ? k - i : LIN_BLOCK);
    }
}

void dvk_panel_row(dvk_wtype type, int64_t k, const void *panel, int32_t row, float *to) {
    unpack_row(type, k, panel, row, to, 1);
}
