/* buffer.h - davy_buffer: host memory of a context, counted under its budget, with a tensor that describes it. */
#ifndef DV_DAVY_BUFFER_H
#define DV_DAVY_BUFFER_H

#include "core/common.h"

davy_result dv_buffer_create(davy_context *ctx, uint64_t bytes, davy_buffer **out);
davy_buffer *dv_buffer_ref(davy_buffer *b);
void dv_buffer_release(davy_buffer *b);

void *dv_buffer_data(const davy_buffer *b);
uint64_t dv_buffer_bytes(const davy_buffer *b);
davy_context *dv_buffer_context(const davy_buffer *b);
/* What buffer_tensor answers: U8 [bytes] at first. memory BUFFER, and the address in data. */
const davy_tensor *dv_buffer_tensor(const davy_buffer *b);
/* dtype, layout, channels, range, ndim, shape, strides of the tensor it was filled as. */
void dv_buffer_describe(davy_buffer *b, const davy_tensor *as);

#endif
