/* buffer.h - davy_buffer: memory of a context, the host's or a GPU's, counted under its budget, with a tensor that
 * describes it. */
#ifndef DV_DAVY_BUFFER_H
#define DV_DAVY_BUFFER_H

#include "core/cuda/gpu.h"

/* gpu: one of the context's; NULL: host memory. */
davy_result dv_buffer_create(davy_context *ctx, dv_gpu *gpu, uint64_t bytes, davy_buffer **out);
/* By kind of memory; on a GPU's context CUDA is that of its first GPU. */
davy_result dv_buffer_alloc(davy_context *ctx, davy_memory memory, uint64_t bytes, davy_buffer **out);
davy_buffer *dv_buffer_ref(davy_buffer *b);
void dv_buffer_release(davy_buffer *b);

dv_gpu *dv_buffer_gpu(const davy_buffer *b); /* NULL: host memory */
/* What is enqueued on the host's stream so far uses the buffer: when it is released its memory stays until that is done,
 * and goes with a later call. */
davy_result dv_buffer_busy(davy_buffer *b, void *stream);

void *dv_buffer_data(const davy_buffer *b);
uint64_t dv_buffer_bytes(const davy_buffer *b);
davy_context *dv_buffer_context(const davy_buffer *b);
/* What buffer_tensor answers: U8 [bytes] at first. memory BUFFER, or CUDA with its device, and the address in data. */
const davy_tensor *dv_buffer_tensor(const davy_buffer *b);
/* dtype, layout, channels, range, ndim, shape, strides of the tensor it was filled as. */
void dv_buffer_describe(davy_buffer *b, const davy_tensor *as);

#endif
