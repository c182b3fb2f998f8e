/* gpu_queue.c - streams, and what a kernel may do with one: launch, clear, describe a tensor. */
#include <string.h>

#include "core/cuda/gpu_priv.h"
#include "core/base/error.h"
#include "kernels/dtype.h"

/* ---- what kernels call ---- */

static size_t slot_of(const char *module, const char *name) {
    const uint64_t mixed = ((uint64_t)(uintptr_t)module * 31 + (uint64_t)(uintptr_t)name) * 0x9e3779b97f4a7c15u;
    return (size_t)(mixed >> 56) & (QUEUE_FUNCTIONS - 1);
}

/* By the names' addresses; the strings are compared too, as a name may have been put together in a local array. */
static cu_result find_function(gpu_queue *q, const dvk_launch *l, gpu_function **out) {
    const size_t slot = slot_of(l->module, l->function);
    gpu_function *f = q->recent[slot].function;
    if (f != NULL && q->recent[slot].module == l->module && q->recent[slot].name == l->function &&
        strcmp(f->name, l->function) == 0 && strcmp(f->module, l->module) == 0) {
        *out = f;
        return CU_OK;
    }
    const cu_result r = gpu_find_function(q->pub.gpu, l->module, l->function, &f);
    if (r == CU_OK) {
        q->recent[slot].module = l->module;
        q->recent[slot].name = l->function;
        q->recent[slot].function = f;
        *out = f;
    }
    return r;
}

static cu_result launch_inside(gpu_queue *q, const dvk_launch *l) {
    dv_gpu *g = q->pub.gpu;
    gpu_function *f = NULL;
    cu_launch_attribute attributes[2];
    cu_result r = find_function(q, l, &f);
    if (r == CU_OK && l->shared_bytes > atomic_load_explicit(&f->dynamic_shared, memory_order_relaxed)) {
        r = gpu_allow_shared(g, f, l->shared_bytes);
    }
    if (r == CU_OK && l->cluster > 8 && !atomic_load(&f->wide_cluster)) { /* more than every device allows */
        r = g->cu->function_set(f->handle, CU_FUNCTION_WIDE_CLUSTER, 1);
        atomic_store(&f->wide_cluster, r == CU_OK);
    }
    if (r != CU_OK) {
        return r;
    }
    cu_launch_config config = {.grid = {l->grid[0], l->grid[1], l->grid[2]},
                               .block = {l->block[0], l->block[1], l->block[2]},
                               .shared_bytes = l->shared_bytes,
                               .stream = q->pub.stream,
                               .attributes = attributes};
    memset(attributes, 0, sizeof attributes);
    if (l->cluster > 1) {
        cu_launch_attribute *a = &attributes[config.n_attributes++];
        a->id = CU_LAUNCH_CLUSTER;
        a->value.cluster[0] = l->cluster;
        a->value.cluster[1] = 1;
        a->value.cluster[2] = 1;
    }
    if ((l->flags & DVK_LAUNCH_OVERLAP) != 0 && g->caps.sm >= 90) {
        cu_launch_attribute *a = &attributes[config.n_attributes++];
        a->id = CU_LAUNCH_SERIALIZATION;
        a->value.serialization = 1;
    }
    return g->cu->launch(&config, f->handle, l->params, NULL);
}

static int queue_launch(dvk_queue *base, const dvk_launch *l) {
    gpu_queue *q = (gpu_queue *)base;
    dv_gpu *g = q->pub.gpu;
    cu_result r = gpu_enter_cu(g);
    if (r == CU_OK) {
        r = gpu_note(g, launch_inside(q, l));
        gpu_leave(g);
    }
    return r;
}

static int queue_clear(dvk_queue *base, void *device, size_t bytes) {
    gpu_queue *q = (gpu_queue *)base;
    dv_gpu *g = q->pub.gpu;
    cu_result r = bytes > 0 ? gpu_enter_cu(g) : CU_OK;
    if (r == CU_OK && bytes > 0) {
        r = gpu_note(g, g->cu->set_8(gpu_address(device), 0, bytes, q->pub.stream));
        gpu_leave(g);
    }
    return r;
}

static int map_type(dvk_dtype t) {
    switch (t) {
    case DVK_U16:
        return 1;
    case DVK_F16:
        return 6;
    case DVK_F32:
        return 7;
    case DVK_BF16:
        return 9;
    default: /* bytes */
        return 0;
    }
}

static int queue_tensor_map(dvk_queue *base, const dvk_tensor_map_desc *d, dvk_tensor_map *out) {
    dv_gpu *g = ((gpu_queue *)base)->pub.gpu;
    uint64_t size[5];
    uint64_t stride[4];
    uint32_t box[5];
    uint32_t step[5];
    if (d->rank < 1 || d->rank > 5) {
        return CU_INVALID_VALUE;
    }
    for (int32_t i = 0; i < d->rank; i++) {
        size[i] = (uint64_t)d->size[i];
        box[i] = (uint32_t)d->box[i];
        step[i] = d->step[i] != 0 ? (uint32_t)d->step[i] : 1;
        if (i > 0) {
            stride[i - 1] = (uint64_t)d->stride_bytes[i - 1];
        }
    }
    /* how much of a line and its neighbour comes into the cache at once: of a slice's pixels only what belongs to it */
    const bool slice = d->rank > 1 && d->size[0] * (int64_t)dvk_dtype_size(d->dtype) < d->stride_bytes[0];
    const int promotion = slice ? 2 /* 128 bytes */ : 3 /* 256 */;
    const int swizzle = d->swizzle_bytes == 128 ? 3 : d->swizzle_bytes == 64 ? 2 : d->swizzle_bytes == 32 ? 1 : 0;
    cu_result r = gpu_enter_cu(g);
    if (r == CU_OK) {
        r = g->cu->tensor_map(out->opaque, map_type(d->dtype), (uint32_t)d->rank, (void *)(uintptr_t)d->data, size,
                              stride, box, step, 0, swizzle, promotion, 0 /* zeros outside */);
        gpu_leave(g);
    }
    return r;
}

/* ---- taking and giving back ---- */

static gpu_queue *find_idle(dv_gpu *g, bool own) {
    dv_mutex_lock(g->lock);
    gpu_queue *q = g->queues;
    while (q != NULL && (q->taken || (q->own != NULL) != own)) {
        q = q->next;
    }
    if (q != NULL) {
        q->taken = true;
    }
    dv_mutex_unlock(g->lock);
    return q;
}

static davy_result new_queue(dv_gpu *g, bool own, gpu_queue **out) {
    gpu_queue *q = dv_calloc(1, sizeof *q);
    if (q == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a CUDA stream");
    }
    davy_result r = own ? gpu_enter(g, "a stream") : DAVY_OK;
    if (own && r == DAVY_OK) {
        const cu_result c = g->cu->stream_create(&q->own, CU_STREAM_NON_BLOCKING);
        gpu_leave(g);
        r = dv_gpu_check(g, c, "a stream");
    }
    if (r < 0) {
        dv_free(q);
        return r;
    }
    q->pub.base =
        (dvk_queue){.caps = &g->caps, .launch = queue_launch, .clear = queue_clear, .tensor_map = queue_tensor_map};
    q->pub.gpu = g;
    q->pub.priv = q;
    q->taken = true;
    dv_mutex_lock(g->lock);
    q->next = g->queues;
    g->queues = q;
    dv_mutex_unlock(g->lock);
    *out = q;
    return DAVY_OK;
}

davy_result dv_gpu_queue_take(dv_gpu *g, void *stream, dv_gpu_queue **out) {
    if (g->process != dv_process_id()) { /* the lock may be held for ever */
        return dv_fail(DAVY_E_FORKED, "a stream: cuda:%d was opened before fork()", (int)g->index);
    }
    gpu_queue *q = find_idle(g, stream == NULL);
    const davy_result r = q != NULL ? DAVY_OK : new_queue(g, stream == NULL, &q);
    if (r < 0) {
        return r;
    }
    q->pub.stream = stream != NULL ? stream : (void *)q->own;
    q->pub.foreign = stream != NULL;
    *out = &q->pub;
    return DAVY_OK;
}

void dv_gpu_queue_give(dv_gpu_queue *pub) {
    if (pub != NULL && pub->gpu->process == dv_process_id()) {
        gpu_queue *q = pub->priv;
        dv_mutex_lock(pub->gpu->lock);
        q->taken = false;
        dv_mutex_unlock(pub->gpu->lock);
    }
}

void gpu_queues_close(dv_gpu *g, bool alive) {
    while (g->queues != NULL) {
        gpu_queue *q = g->queues;
        g->queues = q->next;
        if (alive && q->own != NULL) {
            gpu_note(g, g->cu->stream_sync(q->own));
        }
        gpu_stages_free(g, q, alive);
        if (alive && q->own != NULL) {
            g->cu->stream_destroy(q->own);
        }
        dv_free(q);
    }
}
