/* tensor.h - from the caller's davy_tensor, in any layout and order, to checked pixels: five sizes, five strides in
 * bytes, what the channels and the numbers mean. Nothing behind this file looks at a davy_tensor's layout again. */
#ifndef DV_TENSOR_H
#define DV_TENSOR_H

#include "core/base/pixels.h"

typedef enum dv_content { DV_PICTURE = 1, DV_LATENT } dv_content;

typedef enum dv_access { DV_SHAPE_ONLY = 0, DV_READS, DV_WRITES } dv_access;

/* Checks everything about a tensor: enums, sizes, strides, alignment, the range of addresses, and for DV_WRITES that no
 * two elements share memory. With DV_SHAPE_ONLY it may have no memory. `name` goes into messages. */
davy_result dv_pixels_check(const davy_tensor *t, dv_content content, dv_access access, const char *name,
                            dv_pixels *out);

/* ndim and shape of n x t pictures of h x w x c in a layout; DAVY_LAYOUT_HW becomes HWC where c is not 1. */
void dv_pixels_shape(const dv_pixels *p, davy_layout *layout, int32_t *ndim, int64_t shape[6]);

typedef struct dv_tensor_request {
    const davy_tensor *output; /* the caller's: dtype, layout, channels, range, 0 each for the default */
    const dv_pixels *size;    /* n, t, h, w, c */
    davy_layout input_layout; /* for an output without a layout */
    dv_content content;
} dv_tensor_request;

/* What a tensor that the library allocates will be. Packed strides. */
davy_result dv_pixels_describe(const dv_tensor_request *request, davy_tensor *out, uint64_t *bytes);

bool dv_pixels_overlap(const dv_pixels *a, const dv_pixels *b);

#endif
