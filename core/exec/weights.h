/* weights.h - the store of an engine's weights in the layouts that kernels read. They are packed once, shared by all plans and
 * read-only afterwards. They count as DV_MEM_WEIGHTS, in the heap or on the GPU. Reference-counted: a running plan keeps the store
 * it was bound to. Thread-safe. */
#ifndef DV_EXEC_WEIGHTS_H
#define DV_EXEC_WEIGHTS_H

#include "core/plan/plan.h"
#include "core/graph/network.h"
#include "core/base/services.h"
#include "core/base/watch.h"

typedef struct dv_store dv_store;

/* Bytes that the f32 copies of one packing batch take, roughly; less if memory is short. */
#define DV_STORE_BATCH_BYTES (32ull << 20)

/* The same for a GPU, packed values included: large enough to keep many threads busy. */
#define DV_STORE_GPU_BATCH_BYTES (128ull << 20)

/* gpu: the device of weights and plans; NULL: the CPU. services, gpu and tensors must outlive the store. */
davy_result dv_store_create(const dv_services *services, dv_gpu *gpu, const dv_tensors *tensors, dv_store **out);
/* Call it before the store is used. Weights that `model`, a store of another GPU, has packed in the same form are copied from
 * there. */
void dv_store_set_model(dv_store *s, dv_store *model);
dv_gpu *dv_store_gpu(const dv_store *s);
dv_store *dv_store_ref(dv_store *s);
void dv_store_release(dv_store *s);

/* Bytes that binding this plan would still have to pack. */
uint64_t dv_store_missing(dv_store *s, dv_stage stage, const dv_plan *plan);
/* The least bytes that the f32 copies need while those weights are packed on the CPU. s NULL: nothing is packed. */
uint64_t dv_store_copies(dv_store *s, dv_stage stage, const dv_plan *plan);
/* Bytes that binding several plans would pack, each weight counted once. Each call returns the bytes missing for this plan, without
 * the weights that `seen` holds from plans before. anew: count as if nothing were packed. */
typedef struct dv_weight_set {
    uint64_t *hashes; /* dv_free */
    int64_t count, capacity;
    uint64_t bytes; /* of all of them, packed or not */
} dv_weight_set;
uint64_t dv_store_missing_beside(dv_store *s, dv_stage stage, const dv_plan *plan, bool anew, dv_weight_set *seen);
int32_t dv_store_refs(const dv_store *s);
uint64_t dv_store_bytes(dv_store *s); /* of all entries */

/* Estimated ns of packing, for progress. */
static inline double dv_store_cost(uint64_t bytes) {
    return (double)bytes; /* about 1 GB/s */
}

/* Packs the missing weights on the pool and writes one pointer for each of the plan's weights. */
davy_result dv_store_bind(dv_store *s, dv_stage stage, const dv_plan *plan, dv_watch *watch, const void **pointers);

#endif
