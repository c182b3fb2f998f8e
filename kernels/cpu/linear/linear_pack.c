/* linear_pack.c - packs the blocks of a file into panels (linear_pack.h) and unpacks rows. */
#include "kernels/cpu/linear/linear_pack.h"

#include <string.h>

#include "kernels/dtype.h"

static int64_t block_count(lin_kind kind, int64_t k) {
    const int64_t blocks = (k + LIN_BLOCK - 1) / LIN_BLOCK;
    return lin_in_pairs(kind) ? (blocks + 1) / 2 * 2 : blocks;
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
        return block_count(lin_kind_of(type), k) * lin_block_bytes(lin_kind_of(type));
    }
}

int64_t dvk_panel_count(int64_t n, int32_t glu) {
    const int64_t rows = glu ? DVK_PANEL / 2 : DVK_PANEL;
    return (n + rows - 1) / rows;
}

static void pack_block(lin_kind kind, const lin_numbers *n, int r, unsigned char *to) {
    const int nibbles = kind >= LIN_NIBBLES;
    for (int i = 0; i < lin_pieces(kind); i++, to += LIN_HALF_ROW) {
        memcpy(to + 2 * r, &n->head[i], 2);
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
        for (int64_t j = 0; j < block_count(kind, k); j++, to += lin_block_bytes(kind)) {
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

/* Decodes the head of row r in block number j. */
static lin_scales unpack_head(lin_kind kind, const unsigned char *b, int64_t j, int r) {
    uint16_t pair[2][2] = {{0}};
    const int64_t first = lin_in_pairs(kind) ? -(j % 2) : 0; /* relative to this block */
    for (int64_t i = 0; i < (lin_in_pairs(kind) ? 2 : 1); i++) {
        for (int piece = 0; piece < lin_pieces(kind); piece++) {
            memcpy(&pair[i][piece], b + (first + i) * lin_block_bytes(kind) + piece * LIN_HALF_ROW + 2 * r, 2);
        }
    }
    return lin_scales_of(kind, (const uint16_t(*)[2])pair, j % 2 != 0);
}

/* Up to 32 values of row r from block number j. */
static void unpack_block(dvk_wtype t, const unsigned char *b, int64_t j, int r, float *to, int64_t count) {
    const lin_kind kind = lin_kind_of(t);
    const int nibbles = kind >= LIN_NIBBLES;
    const lin_scales scales = unpack_head(kind, b, j, r);
    const unsigned char *u = b + lin_pieces(kind) * LIN_HALF_ROW;
    for (int i = 0; i < count; i++) {
        const int at = nibbles ? i % 16 : i;
        const int byte = u[at / 4 * (4 * DVK_PANEL) + r * 4 + at % 4];
        const int number = (!nibbles ? byte : i < 16 ? byte & 15 : byte >> 4) - lin_zero(t);
        to[i] = scales.d[i / 16] * (float)number + scales.min;
    }
}

void dvk_panel_row(dvk_wtype type, int64_t k, const void *panel, int32_t row, float *to) {
    const lin_kind kind = lin_kind_of(type);
    const unsigned char *p = panel;
    for (int64_t i = 0; i < k && kind <= LIN_BF16; i++) {
        uint16_t h;
        if (kind == LIN_F32) {
            memcpy(to + i, p + (i * DVK_PANEL + row) * 4, 4);
        } else if (kind == LIN_F16) {
            memcpy(&h, p + i * LIN_HALF_ROW + 2 * row, 2);
            to[i] = dvk_f16_to_f32(h);
        } else {
            memcpy(&h, p + (i / 2 * DVK_PANEL + row) * 4 + i % 2 * 2, 2);
            to[i] = dvk_bf16_to_f32(h);
        }
    }
    for (int64_t i = 0; i < k && kind > LIN_BF16; i += LIN_BLOCK, p += lin_block_bytes(kind)) {
        unpack_block(type, p, i / LIN_BLOCK, row, to + i, k - i < LIN_BLOCK ? k - i : LIN_BLOCK);
    }
}
