/* buffer.c - see buffer.h. */
#include "core/buffer.h"

#include <stdatomic.h>

#include "core/context.h"
#include "core/error.h"
#include "core/mem.h"

struct davy_buffer {
    _Atomic int64_t refs; /* the host's handle and jobs that use it */
    davy_context *context;
    void *data;
    uint64_t bytes;
    davy_tensor tensor;
};

davy_result dv_buffer_create(davy_context *ctx, uint64_t bytes, davy_buffer **out) {
    if (bytes == 0 || bytes > (uint64_t)INT64_MAX) {
        return dv_fail(DAVY_E_INVALID, "a buffer of %llu bytes", (unsigned long long)bytes);
    }
    davy_buffer *b = dv_calloc(1, sizeof *b);
    if (b == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a buffer");
    }
    const davy_result r = dv_heap_alloc(dv_context_services(ctx)->heap, DV_MEM_WORKSPACE, bytes, "buffer", &b->data);
    if (r < 0) {
        dv_free(b);
        return r;
    }
    atomic_init(&b->refs, 1);
    b->context = dv_context_ref(ctx);
    b->bytes = bytes;
    b->tensor = (davy_tensor){.struct_size = sizeof b->tensor, .dtype = DAVY_DTYPE_U8, .ndim = 1};
    b->tensor.shape[0] = (int64_t)bytes;
    b->tensor.stride_bytes[0] = 1;
    dv_buffer_describe(b, &b->tensor);
    *out = b;
    return DAVY_OK;
}

davy_buffer *dv_buffer_ref(davy_buffer *b) {
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

void dv_buffer_release(davy_buffer *b) {
    if (b == NULL || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    davy_context *ctx = b->context;
    dv_heap_free(dv_context_services(ctx)->heap, DV_MEM_WORKSPACE, b->data, b->bytes);
    dv_free(b);
    dv_context_release(ctx);
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
    t.memory = DAVY_MEMORY_BUFFER;
    t.device = 0;
    t.data = (uint64_t)(uintptr_t)b->data;
    t.byte_offset = 0;
    t.buffer = b;
    b->tensor = t;
}
