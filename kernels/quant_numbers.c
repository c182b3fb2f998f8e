/* quant_numbers.c - see quant_numbers.h. */
#include "kernels/quant_numbers.h"

enum { FLIP = 128, MINUS = 0x8000 /* of an f16 */ };

lin_kind lin_kind_of(dvk_wtype t) {
    switch (t) {
    case DVK_W_F32:
        return LIN_F32;
    case DVK_W_F16:
        return LIN_F16;
    case DVK_W_BF16:
        return LIN_BF16;
    case DVK_W_Q4_0:
        return LIN_NIBBLES;
    case DVK_W_Q4_1:
        return LIN_NIBBLES_MIN;
    case DVK_W_Q4_K:
        return LIN_NIBBLES_K;
    case DVK_W_Q5_1:
        return LIN_BYTES_MIN;
    case DVK_W_Q5_K:
        return LIN_BYTES_K;
    case DVK_W_Q6_K:
        return LIN_HALVES;
    default: /* Q8_0, Q5_0 */
        return LIN_BYTES;
    }
}

int32_t lin_zero(dvk_wtype t) {
    switch (lin_kind_of(t)) {
    case LIN_BYTES:
        return FLIP;
    case LIN_NIBBLES:
        return 8;
    case LIN_HALVES:
        return 32;
    default:
        return 0;
    }
}

static uint16_t half_at(const unsigned char *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

/* Blocks of 32: nibbles from `at`, a fifth bit from `fifth` (0: none). */
static void from_nibbles(const unsigned char *b, int at, int fifth, lin_numbers *to) {
    for (int i = 0; i < LIN_BLOCK; i++) {
        const int low = i < 16 ? b[at + i] & 15 : b[at + i - 16] >> 4;
        const int high = fifth > 0 ? (b[fifth + i / 8] >> (i % 8) & 1) << 4 : 0;
        to->u[i] = (uint8_t)(low | high);
    }
}

static void from_k_quant(dvk_wtype t, const unsigned char *b, int j, lin_numbers *to) {
    const unsigned char *sc = b + 4;
    const int scale = j < 4 ? sc[j] & 63 : (sc[j + 4] & 15) | (sc[j - 4] >> 6) << 4;
    const int min = j < 4 ? sc[j + 4] & 63 : sc[j + 4] >> 4 | (sc[j] >> 6) << 4;
    const unsigned char *qs = b + (t == DVK_W_Q5_K ? 48 : 16) + j / 2 * 32;
    to->head[0] = j % 2 == 0 ? half_at(b) : (uint16_t)(half_at(b + 2) ^ MINUS);
    to->head[1] = (uint16_t)(scale | min << 8);
    for (int l = 0; l < LIN_BLOCK; l++) {
        const int low = j % 2 == 0 ? qs[l] & 15 : qs[l] >> 4;
        to->u[l] = (uint8_t)(t == DVK_W_Q5_K ? low | (b[16 + l] >> j & 1) << 4 : low);
    }
}

static void from_q6(const unsigned char *b, int j, lin_numbers *to) {
    const int half = j / 4;
    const int part = j % 4;
    to->head[0] = half_at(b + 208);
    to->head[1] = half_at(b + 192 + 2 * j);
    for (int l = 0; l < LIN_BLOCK; l++) {
        const int low = b[64 * half + l + part % 2 * 32];
        const int high = b[128 + 32 * half + l] >> (2 * part) & 3;
        to->u[l] = (uint8_t)((part < 2 ? low & 15 : low >> 4) | high << 4);
    }
}

void lin_read_block(dvk_wtype t, const unsigned char *row, int64_t j, lin_numbers *to) {
    *to = (lin_numbers){.head = {0}};
    if (dvk_block_elements(t) == 256) {
        const unsigned char *b = row + j / 8 * dvk_block_bytes(t);
        if (t == DVK_W_Q6_K) {
            from_q6(b, (int)(j % 8), to);
        } else {
            from_k_quant(t, b, (int)(j % 8), to);
        }
        return;
    }
    const unsigned char *b = row + j * dvk_block_bytes(t);
    to->head[0] = half_at(b);
    switch (t) {
    case DVK_W_Q4_0:
        from_nibbles(b, 2, 0, to);
        break;
    case DVK_W_Q4_1:
        to->head[1] = half_at(b + 2);
        from_nibbles(b, 4, 0, to);
        break;
    case DVK_W_Q5_1:
        to->head[1] = half_at(b + 2);
        from_nibbles(b, 8, 4, to);
        break;
    case DVK_W_Q5_0:
        from_nibbles(b, 6, 2, to);
        for (int i = 0; i < LIN_BLOCK; i++) {
            to->u[i] = (uint8_t)(to->u[i] - 16 + FLIP);
        }
        break;
    default: /* Q8_0 */
        for (int i = 0; i < LIN_BLOCK; i++) {
            to->u[i] = b[2 + i] ^ FLIP;
        }
        break;
    }
}
