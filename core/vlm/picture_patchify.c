/* picture_patchify.c - 8-bit pictures to normalised patches, in the order the towers read them. */
#include "core/vlm/picture.h"

/* A row of a frame's patch: numbers, or the bytes as they are. */
static void put_numbers(const dv_patchify *p, const uint8_t *from, float *to) {
    const int64_t colour = p->n_frames * p->patch * p->patch;
    for (int64_t x = 0; x < p->patch; x++, from += 3) {
        to[x] = p->table[0][from[0]];
        to[x + colour] = p->table[1][from[1]];
        to[x + 2 * colour] = p->table[2][from[2]];
    }
}

static void put_bytes(const dv_patchify *p, const uint8_t *from, uint8_t *to) {
    const int64_t colour = p->n_frames * p->patch * p->patch;
    for (int64_t x = 0; x < p->patch; x++, from += 3) {
        to[x] = from[0];
        to[x + colour] = from[1];
        to[x + 2 * colour] = from[2];
    }
}

/* Rows of merge blocks are the units. */
static void run_rows(void *user, int64_t first, int64_t last, int32_t worker) {
    const dv_patchify *p = user;
    (void)worker;
    const int64_t side = p->patch;
    const int64_t plane = side * side;
    int64_t at = first * p->merge * p->grid_w * 3 * p->n_frames * plane;
    for (int64_t block = first * (p->grid_w / p->merge); block < last * (p->grid_w / p->merge); block++) {
        const int64_t top = block / (p->grid_w / p->merge) * p->merge;
        const int64_t left = block % (p->grid_w / p->merge) * p->merge;
        for (int64_t in_block = 0; in_block < p->merge * p->merge; in_block++, at += 3 * p->n_frames * plane) {
            const int64_t y0 = (top + in_block / p->merge) * side;
            const int64_t x0 = (left + in_block % p->merge) * side;
            for (int64_t row = 0; row < p->n_frames * side; row++) {
                const dv_rgb8 *frame = &p->frames[row / side];
                const uint8_t *from = frame->data + (y0 + row % side) * frame->stride + 3 * x0;
                if (p->bytes != NULL) {
                    put_bytes(p, from, p->bytes + at + row * side);
                } else {
                    put_numbers(p, from, p->out + at + row * side);
                }
            }
        }
    }
}

void dv_patchify_run(const dv_patchify *p, dv_pool *pool) {
    const int64_t units = p->grid_h / p->merge;
    dv_patchify copy = *p;
    if (pool != NULL) {
        const dv_loop loop = {.units = units, .run = run_rows, .user = &copy};
        dv_pool_run(pool, &loop);
    } else {
        run_rows(&copy, 0, units, 0);
    }
}
