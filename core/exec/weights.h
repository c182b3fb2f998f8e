/* weights.h - the weights of an engine as kernels want them: packed once, shared by all plans, read-only afterwards.
 * Counts as DV_MEM_WEIGHTS, of the heap or of the GPU. Reference-counted: plans at work keep the store they were bound to. Thread-safe. */
#ifndef DV_EXEC_WEIGHTS_H
#define DV_EXEC_WEIGHTS_H

#include "core/plan/plan.h"
#include "core/graph/network.h"
#include "core/base/services.h"
#include "core/base/watch.h"

typedef struct dv_store dv_store;

/* f32 copies that packing makes take about this much at a time, less where memory is short. */
#define DV_STORE_BATCH_BYTES (32ull << 20)

/* Of a GPU's packed values too: large enough to keep many threads busy. */
#define DV_STORE_GPU_BATCH_BYTES (128ull << 20)

/* gpu: where the weights go and the plans run; NULL: the CPU. All three must outlive the store. */
davy_result dv_store_create(const dv_services *services, dv_gpu *gpu, const dv_tensors *tensors, dv_store **out);
/* Before the store is used: what `model`, a store of another GPU, has packed alike is copied from there. */
void dv_store_set_model(dv_store *s, dv_store *model);
dv_gpu *dv_store_gpu(const dv_store *s);
dv_store *dv_store_ref(dv_store *s);
void dv_store_release(dv_store *s);

/* Bytes that binding this plan would still have to pack; and what all that is packed takes. */
uint64_t dv_store_missing(dv_store *s, dv_stage stage, const dv_plan *plan);
/* What the f32 copies take beside them at least, on the CPU; s NULL: nothing is packed. */
uint64_t dv_store_copies(dv_store *s, dv_stage stage, const dv_plan *plan);
/* What binding several plans packs, each weight once: what is missing for this one and no plan before had; anew: were nothing packed. */
typedef struct dv_weight_set {
    uint64_t *hashes; /* dv_free */
    int64_t count, capacity;
    uint64_t bytes; /* of all of them, packed or not */
} dv_weight_set;
uint64_t dv_store_missing_beside(dv_store *s, dv_stage stage, const dv_plan *plan, bool anew, dv_weight_set *seen);
int32_t dv_store_refs(const dv_store *s);
uint64_t dv_store_bytes(dv_store *s);

/* Estimated ns of packing, for progress. */
static inline double dv_store_cost(uint64_t bytes) {
    return (double)bytes; /* about 1 GB/s */
}

/* Packs what is missing, on the pool, and writes one pointer for each of the plan's weights. */
davy_result dv_store_bind(dv_store *s, dv_stage stage, const dv_plan *plan, dv_watch *watch, const void **pointers);

#endif
