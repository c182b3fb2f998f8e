/* context_memory.c - what a context holds and how it gives it back: budgets, trimming, the lists of what lives in it. */
#include <string.h>

#include "core/host/buffer.h"
#include "core/host/context_priv.h"
#include "core/base/mem.h"
#include "core/host/model.h"

uint64_t dv_context_default_budget(void) {
    return dv_memory_total() / 2;
}

static uint64_t used(const davy_context *ctx) {
    dv_heap *heap = ctx->services.heap;
    return dv_heap_used(heap, DV_MEM_WEIGHTS) + dv_heap_used(heap, DV_MEM_WORKSPACE);
}

/* Of all GPUs: given out, and held by their pools beside it. */
static uint64_t device_used(const davy_context *ctx) {
    uint64_t bytes = 0;
    for (int32_t i = 0; i < ctx->services.n_gpus; i++) {
        bytes += dv_gpu_used(ctx->gpus[i], DV_MEM_WEIGHTS) + dv_gpu_used(ctx->gpus[i], DV_MEM_WORKSPACE);
    }
    return bytes;
}

static uint64_t device_cached(const davy_context *ctx) {
    uint64_t bytes = 0;
    for (int32_t i = 0; i < ctx->services.n_gpus; i++) {
        bytes += dv_gpu_cached(ctx->gpus[i]);
    }
    return bytes;
}

void dv_context_memory(davy_context *ctx, davy_memory_info *out) {
    dv_heap *heap = ctx->services.heap;
    memset(out, 0, sizeof *out);
    out->host_weights_bytes = dv_heap_used(heap, DV_MEM_WEIGHTS);
    out->host_workspace_bytes = dv_heap_used(heap, DV_MEM_WORKSPACE);
    out->host_peak_bytes = dv_heap_peak(heap);
    out->host_budget_bytes = dv_heap_budget(heap);
    out->device_cache_bytes = device_cached(ctx);
    for (int32_t i = 0; i < ctx->services.n_gpus; i++) {
        dv_gpu *gpu = ctx->gpus[i];
        out->device_weights_bytes += dv_gpu_used(gpu, DV_MEM_WEIGHTS);
        out->device_workspace_bytes += dv_gpu_used(gpu, DV_MEM_WORKSPACE);
        out->device_peak_bytes += dv_gpu_peak(gpu);
        out->device_budget_bytes += dv_gpu_budget(gpu);
    }
}

void dv_context_add_model(davy_context *ctx, davy_model *model) {
    dv_mutex_lock(ctx->lock);
    *dv_model_link(model) = ctx->models;
    ctx->models = model;
    dv_mutex_unlock(ctx->lock);
}

void dv_context_remove_model(davy_context *ctx, davy_model *model) {
    if (dv_context_is_child(ctx)) {
        return; /* the lock may be held for ever, and nobody walks the list any more */
    }
    dv_mutex_lock(ctx->lock);
    davy_model **at = &ctx->models;
    while (*at != NULL && *at != model) {
        at = dv_model_link(*at);
    }
    if (*at != NULL) {
        *at = *dv_model_link(model);
    }
    dv_mutex_unlock(ctx->lock);
}

void dv_context_add_buffer(davy_context *ctx, davy_buffer *buffer) {
    dv_mutex_lock(ctx->lock);
    *dv_buffer_link(buffer) = ctx->buffers;
    ctx->buffers = buffer;
    dv_mutex_unlock(ctx->lock);
}

davy_buffer *dv_context_take_buffers(davy_context *ctx) {
    dv_mutex_lock(ctx->lock);
    davy_buffer *all = ctx->buffers;
    ctx->buffers = NULL;
    dv_mutex_unlock(ctx->lock);
    return all;
}

/* The nth model that is still alive, with a reference: freeing memory calls the host's callbacks, so the lock must not
 * be held meanwhile. */
static davy_model *take_model(davy_context *ctx, int64_t n) {
    davy_model *found = NULL;
    dv_mutex_lock(ctx->lock);
    for (davy_model *m = ctx->models; m != NULL && found == NULL; m = *dv_model_link(m)) {
        if (n-- == 0) {
            found = dv_model_try_ref(m);
            n += found == NULL;
        }
    }
    dv_mutex_unlock(ctx->lock);
    return found;
}

static bool over(const davy_context *ctx, const dv_keep *keep) {
    return used(ctx) > keep->host_bytes || device_used(ctx) > keep->device_bytes;
}

bool dv_context_trim(davy_context *ctx, const dv_keep *keep, const davy_model *except) {
    const uint64_t before = used(ctx);
    const uint64_t device_before = device_used(ctx) + device_cached(ctx);
    davy_model *m = NULL;
    dv_buffers_reap(ctx, false);
    for (int32_t i = 0; i < ctx->services.n_gpus && over(ctx, keep); i++) {
        dv_gpu_unpin_idle(ctx->gpus[i]);
    }
    for (int64_t i = 0; over(ctx, keep) && (m = take_model(ctx, i)) != NULL; i++) {
        if (dv_model_engine(m) != NULL) {
            dv_engine_trim(dv_model_engine(m), 0);
        }
        dv_model_release(m);
    }
    for (int64_t i = 0; over(ctx, keep) && (m = take_model(ctx, i)) != NULL; i++) {
        if (m != except) {
            dv_model_unload_if_idle(m);
        }
        dv_model_release(m);
    }
    for (int32_t i = 0; i < ctx->services.n_gpus; i++) {
        if (device_used(ctx) + device_cached(ctx) > keep->device_bytes) {
            dv_gpu_trim(ctx->gpus[i]);
        }
    }
    return used(ctx) < before || device_used(ctx) + device_cached(ctx) < device_before;
}

void dv_context_set_budget(davy_context *ctx, uint64_t device_bytes, uint64_t host_bytes) {
    const uint64_t budget = host_bytes != 0 ? host_bytes : dv_context_default_budget();
    dv_keep keep = {.host_bytes = budget != 0 ? budget : UINT64_MAX};
    dv_heap_set_budget(ctx->services.heap, budget);
    for (int32_t i = 0; i < ctx->services.n_gpus; i++) {
        dv_gpu_set_budget(ctx->gpus[i], device_bytes);
        keep.device_bytes += dv_gpu_budget(ctx->gpus[i]);
    }
    dv_context_trim(ctx, &keep, NULL);
    davy_model *m = NULL;
    for (int64_t i = 0; (m = take_model(ctx, i)) != NULL; i++) {
        if (dv_model_engine(m) != NULL) {
            dv_engine_review(dv_model_engine(m));
        }
        dv_model_release(m);
    }
}
