/* pixels.h - a caller's pixels after their check: five sizes, five strides in bytes, the meaning of channels and numbers.
 * Its functions give the kernels' arguments: pictures of a batch, the order of the colours, single elements.
 * core/calls/tensor.h makes a dv_pixels. */
#ifndef DV_PIXELS_H
#define DV_PIXELS_H

#include "core/base/common.h"
#include "kernels/op.h"

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

/* Picture `index` (of n * t) as a kernel's argument with `count` channels. map[k] is the caller's channel for the
 * kernel's channel k; map NULL: the same order. */
dvk_image dv_pixels_image(const dv_pixels *p, int64_t index, int32_t count, const int32_t *map);
char *dv_pixels_at(const dv_pixels *p, int64_t index, int64_t y, int64_t x, int64_t c);

/* One element, as a number as stored (U8: 0..255), and back, rounded to nearest. */
float dv_element_load(const char *at, davy_dtype dtype);
void dv_element_store(char *at, davy_dtype dtype, float v);

/* Conversion between the caller's numbers and a network's range `net` (UNIT or SIGNED_UNIT). Input:
 * x = stored * mul + add. Output: stored = clamp(x * mul + add, lo, hi). */
typedef struct dv_mapping {
    float mul, add, lo, hi;
    bool clamp;
} dv_mapping;
dv_mapping dv_mapping_in(const dv_pixels *p, davy_range net);
dv_mapping dv_mapping_out(const dv_pixels *p, davy_range net);

/* Positions of the channels in memory. map: of red, green, blue, alpha; grey has one colour. alpha: the index of the alpha
 * channel, or -1. */
typedef struct dv_colours {
    int32_t map[4];
    int32_t count; /* colours, alpha not counted: 1 or 3 */
    int32_t alpha;
} dv_colours;
dv_colours dv_colours_of(davy_channels channels);

#endif
