/* buffer.c - see buffer.h. */
#include "core/host/buffer.h"

#include <stdatomic.h>

#include "core/host/context.h"
#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/os.h"

struct davy_buffer {
    _Atomic int64_t refs; /* the host's handle and jobs that use it */
    davy_context *context;
    dv_gpu *gpu;        /* NULL: host memory */
    dv_mutex *lock;     /* guards busy; NULL in host memory */
    dv_gpu_event *busy; /* end of the stream-ordered work that uses the buffer; NULL: none */
    void *data;
    uint64_t bytes;
    davy_tensor tensor;
    dv_busy_buffer entry; /* link in the context's list of released, busy buffers */
};

static davy_result take_memory(davy_context *ctx, davy_buffer *b) {
    if (b->gpu != NULL && b->lock == NULL && (b->lock = dv_mutex_create()) == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a buffer");
    }
    return b->gpu != NULL
               ? dv_gpu_alloc(b->gpu, DV_MEM_WORKSPACE, b->bytes, "buffer", &b->data)
               : dv_heap_alloc(dv_context_services(ctx)->heap, DV_MEM_WORKSPACE, b->bytes, "buffer", &b->data);
}

davy_result dv_buffer_create(davy_context *ctx, dv_gpu *gpu, uint64_t bytes, davy_buffer **out) {
    if (bytes == 0 || bytes > (uint64_t)INT64_MAX) {
        return dv_fail(DAVY_E_INVALID, "buffer: bytes is %llu, expected 1 to 2^63 - 1", (unsigned long long)bytes);
    }
    davy_buffer *b = dv_calloc(1, sizeof *b);
    if (b == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a buffer");
    }
    b->gpu = gpu;
    b->bytes = bytes;
    if (gpu != NULL) {
        dv_context_free_idle(ctx, false);
    }
    davy_result r = take_memory(ctx, b);
    if (dv_is_short(r)) {
        static const dv_keep nothing;
        r = gpu != NULL && dv_context_trim(ctx, &nothing, NULL) ? take_memory(ctx, b) : r;
    }
    if (r < 0) {
        dv_mutex_release(b->lock);
        dv_free(b);
        return r;
    }
    atomic_init(&b->refs, 1);
    b->context = dv_context_ref(ctx);
    b->tensor = (davy_tensor){.struct_size = sizeof b->tensor, .dtype = DAVY_DTYPE_U8, .ndim = 1};
    b->tensor.shape[0] = (int64_t)bytes;
    b->tensor.stride_bytes[0] = 1;
    dv_buffer_describe(b, &b->tensor);
    *out = b;
    return DAVY_OK;
}

davy_result dv_buffer_alloc(davy_context *ctx, davy_memory memory, uint64_t bytes, davy_buffer **out) {
    if (memory == 0 || memory == DAVY_MEMORY_HOST) {
        return dv_buffer_create(ctx, NULL, bytes, out);
    }
    if (memory == DAVY_MEMORY_CUDA && dv_context_on_gpu(ctx)) {
        return dv_buffer_create(ctx, dv_context_services(ctx)->gpus[0], bytes, out);
    }
    const bool known = memory > 0 && memory < DAVY_MEMORY_BUFFER;
    return dv_fail(known ? DAVY_E_UNSUPPORTED : DAVY_E_INVALID, "buffer_alloc: memory is %d; a context on %s",
                   (int)memory, dv_context_on_gpu(ctx) ? "a GPU has HOST and CUDA" : "the CPU has only HOST");
}

davy_buffer *dv_buffer_ref(davy_buffer *b) {
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

/* True if no enqueued work uses the memory. A lost device counts as idle. */
static bool is_idle(const davy_buffer *b) {
    bool ready = true;
    return b->busy == NULL || dv_gpu_event_ready(b->busy, &ready) != DAVY_OK || ready;
}

static void end(davy_buffer *b) {
    if (b->gpu != NULL) {
        dv_gpu_event_release(b->busy);
        dv_mutex_release(b->lock);
        dv_gpu_free(b->gpu, DV_MEM_WORKSPACE, b->data, b->bytes);
    } else {
        dv_heap_free(dv_context_services(b->context)->heap, DV_MEM_WORKSPACE, b->data, b->bytes);
    }
    dv_free(b);
}

static bool free_if_idle(davy_buffer *b) {
    const bool idle = is_idle(b);
    if (idle) {
        end(b);
    }
    return idle;
}

void dv_buffer_release(davy_buffer *b) {
    if (b == NULL || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    davy_context *ctx = b->context;
    if (b->gpu == NULL || dv_context_is_child(ctx)) {
        end(b);
    } else {
        b->entry = (dv_busy_buffer){.buffer = b, .free_if_idle = free_if_idle};
        dv_context_add_busy(ctx, &b->entry);
        dv_context_free_idle(ctx, false);
    }
    dv_context_release(ctx);
}

davy_result dv_buffer_busy(davy_buffer *b, void *stream) {
    dv_gpu_queue *q = NULL;
    davy_result r = dv_gpu_queue_take(b->gpu, stream, &q);
    if (r < 0) {
        return r;
    }
    dv_mutex_lock(b->lock);
    /* One event covers all streams: the stream first waits for the event, then records it again. */
    r = b->busy != NULL ? dv_gpu_event_wait(q, b->busy) : dv_gpu_event_create(b->gpu, false, &b->busy);
    r = r < 0 ? r : dv_gpu_event_record(b->busy, q);
    dv_mutex_unlock(b->lock);
    dv_gpu_queue_give(q);
    return r;
}

dv_gpu *dv_buffer_gpu(const davy_buffer *b) {
    return b->gpu;
}

void *dv_buffer_data(const davy_buffer *b) {
    return b->data;
}

uint64_t dv_buffer_bytes(const davy_buffer *b) {
    return b->bytes;
}

davy_context *dv_buffer_context(const davy_buffer *b) {
    return b->context;
}

const davy_tensor *dv_buffer_tensor(const davy_buffer *b) {
    return &b->tensor;
}

void dv_buffer_describe(davy_buffer *b, const davy_tensor *as) {
    davy_tensor t = *as;
    t.struct_size = sizeof t;
    t.memory = b->gpu != NULL ? DAVY_MEMORY_CUDA : DAVY_MEMORY_BUFFER;
    t.device = b->gpu != NULL ? dv_gpu_index(b->gpu) : 0;
    t.data = (uint64_t)(uintptr_t)b->data;
    t.byte_offset = 0;
    t.buffer = b;
    b->tensor = t;
}
