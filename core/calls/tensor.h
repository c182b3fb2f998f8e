/* tensor.h - converts the caller's davy_tensor, of any layout, to checked dv_pixels: five sizes, five strides in bytes,
 * channel order and value range. Later code uses dv_pixels and does not read a davy_tensor's layout. */
#ifndef DV_TENSOR_H
#define DV_TENSOR_H

#include "core/base/pixels.h"

typedef enum dv_content { DV_PICTURE = 1, DV_LATENT } dv_content;

typedef enum dv_access { DV_SHAPE_ONLY = 0, DV_READS, DV_WRITES } dv_access;

/* Checks enums, sizes, strides, alignment and the range of addresses. DV_WRITES: no two elements may share memory.
 * DV_SHAPE_ONLY: the tensor may have no memory. Messages begin with `name`. */
davy_result dv_pixels_check(const davy_tensor *t, dv_content content, dv_access access, const char *name,
                            dv_pixels *out);

/* ndim and shape of n x t pictures of h x w x c in a layout; DAVY_LAYOUT_HW becomes HWC where c is not 1. */
void dv_pixels_shape(const dv_pixels *p, davy_layout *layout, int32_t *ndim, int64_t shape[6]);

typedef struct dv_tensor_request {
    const davy_tensor *output; /* the caller's dtype, layout, channels, range; 0 selects the default of each */
    const dv_pixels *size;     /* n, t, h, w, c */
    davy_layout input_layout;  /* for an output without a layout */
    dv_content content;
} dv_tensor_request;

/* Describes a tensor that the library will allocate, with packed strides. */
davy_result dv_pixels_describe(const dv_tensor_request *request, davy_tensor *out, uint64_t *bytes);

bool dv_pixels_overlap(const dv_pixels *a, const dv_pixels *b);

#endif
