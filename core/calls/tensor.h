/* tensor.h - from the caller's davy_tensor, in any layout and order, to checked pixels: five sizes, five strides in
 * bytes, what the channels and the numbers mean. Nothing behind this file looks at a davy_tensor's layout again. */
#ifndef DV_TENSOR_H
#define DV_TENSOR_H

#include "core/base/common.h"
#include "kernels/op.h"

typedef enum dv_content { DV_PICTURE = 1, DV_LATENT } dv_content;

typedef struct dv_pixels {
    davy_layout layout;
    davy_dtype dtype;
    davy_channels channels;
    davy_range range; /* never AUTO */
    int64_t n, t, h, w, c;
    int64_t sn, st, sh, sw, sc; /* bytes */
    bool on_device;             /* CUDA memory, of the GPU with this index; else the host's */
    int32_t device;
    char *data;           /* element 0; NULL: a shape without memory */
    uint64_t first, last; /* addresses the elements lie in: [first, last) */
} dv_pixels;

typedef enum dv_access { DV_SHAPE_ONLY = 0, DV_READS, DV_WRITES } dv_access;

/* Checks everything about a tensor: enums, sizes, strides, alignment, the range of addresses, and for DV_WRITES that no
 * two elements share memory. With DV_SHAPE_ONLY it may have no memory. `name` goes into messages. */
davy_result dv_pixels_check(const davy_tensor *t, dv_content content, dv_access access, const char *name,
                            dv_pixels *out);

/* ndim and shape of n x t pictures of h x w x c in a layout; DAVY_LAYOUT_HW becomes HWC where c is not 1. */
void dv_pixels_shape(const dv_pixels *p, davy_layout *layout, int32_t *ndim, int64_t shape[6]);

/* What a tensor that the library allocates will be: `want` (the caller's output: dtype, layout, channels, range, 0 each
 * for the default) with n, t, h, w, c of `size` and the layout of the input where none is wanted. Packed strides. */
davy_result dv_pixels_describe(const davy_tensor *want, const dv_pixels *size, davy_layout input_layout,
                               dv_content content, davy_tensor *out, uint64_t *bytes);

bool dv_pixels_overlap(const dv_pixels *a, const dv_pixels *b);

/* Picture `index` (of n * t) as kernels see it: `count` channels of ours, map[k] = the caller's channel; map NULL: k is
 * k. */
dvk_image dv_pixels_image(const dv_pixels *p, int64_t index, int32_t count, const int32_t *map);
char *dv_pixels_at(const dv_pixels *p, int64_t index, int64_t y, int64_t x, int64_t c);

/* One element, as a number as stored (U8: 0..255), and back, rounded to nearest. */
float dv_element_load(const char *at, davy_dtype dtype);
void dv_element_store(char *at, davy_dtype dtype, float v);

/* What is between the caller's numbers and a network that works in `net` (UNIT or SIGNED_UNIT): x = stored * mul + add,
 * or for output stored = clamp(x * mul + add, lo, hi). */
typedef struct dv_mapping {
    float mul, add, lo, hi;
    bool clamp;
} dv_mapping;
dv_mapping dv_mapping_in(const dv_pixels *p, davy_range net);
dv_mapping dv_mapping_out(const dv_pixels *p, davy_range net);

/* Where the colours lie in memory, in the order red, green, blue, alpha; how many of them there are (1 to 4). Grey
 * gives one colour, alpha the index of the alpha channel or -1. */
typedef struct dv_colours {
    int32_t map[4];
    int32_t count; /* colours, alpha not counted: 1 or 3 */
    int32_t alpha;
} dv_colours;
dv_colours dv_colours_of(davy_channels channels);

#endif
