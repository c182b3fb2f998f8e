/* buffer.h - davy_buffer: memory of the host or of a GPU, counted in the context's budget, with a tensor that describes it. */
#ifndef DV_DAVY_BUFFER_H
#define DV_DAVY_BUFFER_H

#include "core/cuda/gpu.h"

/* gpu: a GPU of the context; NULL: host memory. */
davy_result dv_buffer_create(davy_context *ctx, dv_gpu *gpu, uint64_t bytes, davy_buffer **out);
/* Selects by kind of memory: CUDA is memory of the context's first GPU. */
davy_result dv_buffer_alloc(davy_context *ctx, davy_memory memory, uint64_t bytes, davy_buffer **out);
davy_buffer *dv_buffer_ref(davy_buffer *b);
void dv_buffer_release(davy_buffer *b);

dv_gpu *dv_buffer_gpu(const davy_buffer *b); /* NULL: host memory */
/* Marks the buffer as used by all work enqueued on `stream` so far. If it is released before that work is done, its memory
 * stays. A later call frees it. */
davy_result dv_buffer_busy(davy_buffer *b, void *stream);

void *dv_buffer_data(const davy_buffer *b);
uint64_t dv_buffer_bytes(const davy_buffer *b);
davy_context *dv_buffer_context(const davy_buffer *b);
/* The tensor of buffer_tensor: U8 [bytes] at first. Its memory is BUFFER, or CUDA with the device; data is the address. */
const davy_tensor *dv_buffer_tensor(const davy_buffer *b);
/* Copies dtype, layout, channels, range, ndim, shape and strides from `as`. */
void dv_buffer_describe(davy_buffer *b, const davy_tensor *as);

#endif
