/* cuda_apart.c - runs a problem with a separate allocation for each buffer, for compute-sanitizer. It then detects
 * reads past the end of a buffer and reads of uninitialised scratch. */
#include <string.h>

#include "core/base/error.h"
#include "tests/kcheck/kcheck_cuda.h"

typedef struct piece {
    void *memory;
    uint64_t bytes;
} piece;

enum { MAX_PIECES = KC_MAX_BUFFERS + 3 };

/* Device memory for `bytes` with the same misalignment as `like`. place: its offset from the arena, as in a layout. */
static davy_result take(kc_device *d, piece *of, uintptr_t like, uint64_t bytes, uint64_t *place) {
    const uint64_t shift = like % 256;
    of->bytes = shift + bytes;
    const davy_result r = dv_gpu_alloc(d->gpu, DV_MEM_WORKSPACE, of->bytes, "a buffer", &of->memory);
    /* wraps if the arena is at a higher address */
    *place = (uint64_t)((uintptr_t)of->memory + shift - (uintptr_t)d->arena);
    return r;
}

static davy_result take_all(kc_device *d, const kc_problem *p, kc_layout *l, const unsigned char *packed,
                            piece *pieces) {
    davy_result r = DAVY_OK;
    for (int i = 0; r == DAVY_OK && i < p->n_buffers; i++) {
        const kc_buffer *b = &p->buffers[i];
        if (b->host_only) {
            continue;
        }
        r = take(d, &pieces[i], (uintptr_t)b->data, b->data_bytes, &l->buffers[i]);
        if (r == DAVY_OK) {
            r = dv_gpu_upload(d->queue, d->arena + l->buffers[i], b->data, b->data_bytes);
        }
        l->buffers[i] -= (uint64_t)(b->data - b->start);
    }
    if (r == DAVY_OK && l->packed_bytes > 0) {
        r = take(d, &pieces[KC_MAX_BUFFERS], 0, l->packed_bytes, &l->packed);
        r = r == DAVY_OK ? dv_gpu_upload(d->queue, d->arena + l->packed, packed, l->packed_bytes) : r;
    }
    if (r == DAVY_OK && l->scratch_bytes > 0) {
        r = take(d, &pieces[KC_MAX_BUFFERS + 1], 0, l->scratch_bytes, &l->scratch);
    }
    if (r == DAVY_OK && l->stats_bytes > 0) {
        r = take(d, &pieces[KC_MAX_BUFFERS + 2], 0, l->stats_bytes, &l->stats);
    }
    return r;
}

davy_result kc_run_apart(kc_device *d, const kc_entry *e, kc_problem *p, kc_layout *l, const unsigned char *packed) {
    piece pieces[MAX_PIECES] = {{0}};
    davy_result r = take_all(d, p, l, packed, pieces);
    if (r == DAVY_OK) {
        const dvk_args args = kc_args_at(p, l, d->arena);
        void *scratch = l->scratch_bytes > 0 ? d->arena + l->scratch : NULL;
        r = dv_gpu_check(d->gpu, e->kernel->enqueue(&args, scratch, &d->queue->base), e->variant);
    }
    r = r == DAVY_OK ? dv_gpu_queue_wait(d->queue, NULL, NULL) : r;
    for (int i = 0; r == DAVY_OK && i < p->n_buffers; i++) {
        kc_buffer *b = &p->buffers[i];
        if (!b->host_only) {
            r = dv_gpu_download(d->queue, b->data, d->arena + l->buffers[i] + (b->data - b->start), b->data_bytes);
        }
    }
    for (int i = 0; i < MAX_PIECES; i++) {
        if (pieces[i].memory != NULL) {
            dv_gpu_free(d->gpu, DV_MEM_WORKSPACE, pieces[i].memory, pieces[i].bytes);
        }
    }
    return r;
}
