/* linear_pack.c - packs the blocks of a file into the layout of linear_layout.h. */
#include <string.h>

#include "kernels/cuda/linear/linear_layout.h"
#include "kernels/dtype.h"

/* numbers NULL: writes only the head of a padding block. */
static void put_block(const dvk_linear_layout *l, const lin_numbers *n, unsigned char *numbers, unsigned char *scales) {
    memcpy(scales, n->head, (size_t)l->halves * 2);
    if (numbers == NULL) {
        return;
    }
    if (!dvk_lin_nibbles(l->kind)) {
        memcpy(numbers, n->u, LIN_BLOCK);
        return;
    }
    for (int i = 0; i < LIN_BLOCK / 2; i++) {
        numbers[i] = (unsigned char)(n->u[i] | n->u[i + 16] << 4);
    }
}

void dvk_linear_layout_put(const dvk_linear_layout *l, dvk_wtype type, int64_t k, const void *row, int64_t number,
                           void *base) {
    unsigned char *to = (unsigned char *)base + number * l->row;
    if (l->halves == 0) {
        const int64_t bytes = dvk_row_bytes(type, k);
        memcpy(to, row, (size_t)bytes);
        memset(to + bytes, 0, (size_t)(l->row - bytes));
        return;
    }
    const int64_t blocks = dvk_lin_blocks(k);
    unsigned char *scales = (unsigned char *)base + l->scales + number * l->scale_row;
    for (int64_t j = 0; j * l->halves * 2 < l->scale_row; j++) {
        lin_numbers n;
        lin_read_block(type, row, j, &n);
        put_block(l, &n, j < blocks ? to + j * (l->row / blocks) : NULL, scales + j * l->halves * 2);
    }
}

static int64_t rows_of(const dvk_linear_args *a) {
    return a->glu ? 2 * a->n : a->n;
}

size_t dvk_linear_packed_bytes(const void *args) {
    const dvk_linear_args *a = args;
    return (size_t)dvk_linear_layout_of(lin_kind_of(a->type), rows_of(a), a->k).bytes;
}

int64_t dvk_linear_pack_units(const void *args) {
    return (rows_of(args) + DVK_LAYOUT_UNIT - 1) / DVK_LAYOUT_UNIT;
}

void dvk_linear_pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_linear_args *a = args;
    const dvk_linear_layout l = dvk_linear_layout_of(lin_kind_of(a->type), rows_of(a), a->k);
    const unsigned char *from = (const unsigned char *)w;
    const int64_t bytes = dvk_row_bytes(a->type, a->k);
    const int64_t end = last * DVK_LAYOUT_UNIT < rows_of(a) ? last * DVK_LAYOUT_UNIT : rows_of(a);
    for (int64_t i = first * DVK_LAYOUT_UNIT; i < end; i++) {
        dvk_linear_layout_put(&l, a->type, a->k, from + i * bytes, i, dst);
    }
}
