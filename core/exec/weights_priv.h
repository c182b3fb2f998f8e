/* weights_priv.h - what weights.c and weights_pack.c share. */
#ifndef DV_STORE_PRIV_H
#define DV_STORE_PRIV_H

#include <stdatomic.h>

#include "core/base/os.h"
#include "core/exec/weights.h"

#define DV_RELEASE_BYTES 65536ull /* smaller tensors are not worth a system call */

typedef struct dv_packed {
    uint64_t hash;
    dv_stage stage;
    char *label;
    dv_weight what; /* param is not used to compare: graphs number them on their own */
    void *data;     /* memory of its own; on a GPU a part of a slab */
    bool ready;     /* under the lock */
} dv_packed;

typedef struct dv_slab { /* device memory of what one plan lacked */
    void *data;
    uint64_t bytes;
} dv_slab;

struct dv_store {
    const dv_services *services;
    dv_gpu *gpu;     /* NULL: the CPU */
    dv_store *model; /* of another GPU, referenced: what it has packed is copied from there; NULL: none */
    const dv_tensors *tensors;
    _Atomic int32_t refs;
    dv_mutex *lock;
    dv_cond *free; /* nobody packs */
    bool packing;
    dv_packed **entries; /* pointers, so that they stay put while the array grows */
    int64_t n_entries, cap_entries;
    dv_slab *slabs;
    int64_t n_slabs, cap_slabs;
    uint64_t bytes;
};

/* Weights of a plan that have no entry yet, and their new entries, whose contents are not there yet. */
typedef struct dv_missing {
    dv_packed **entries;
    const dv_weight **weights;
    int64_t count;
    bool derived;
} dv_missing;

static inline uint64_t dv_weight_room(const dv_store *s, const dv_weight *w) {
    return s->gpu != NULL ? dv_align_up(w->bytes, DV_WEIGHT_ALIGN) : w->bytes;
}

static inline int64_t dv_param_elements(const dv_param_info *p) {
    int64_t n = 1;
    for (int32_t i = 0; i < p->ndim; i++) {
        n *= p->shape[i];
    }
    return n;
}

/* f32 values that a weight is packed from; vectors are read in place. */
static inline uint64_t dv_weight_source(const dv_graph *g, const dv_weight *w) {
    const uint64_t values = (uint64_t)dv_param_elements(&g->params[w->param]);
    return dv_kernel_none(w->kernel) ? 0 : dv_align_up(values * sizeof(float), 64);
}

void dv_packed_mark_ready(dv_store *s, dv_packed **entries, int64_t count);
/* Reads and packs all of m, and marks it ready. By the one thread that packs. */
davy_result dv_store_pack(dv_store *s, const dv_graph *graph, const dv_missing *m, dv_watch *watch);

#endif
