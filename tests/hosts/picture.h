/* picture.h - pictures and views. A picture is stored as floats. A view is the same picture in another layout, dtype, value
 * range, channel order and row pitch, with its davy_tensor. Tests run the same work on different views and compare the
 * results. */
#ifndef DV_TESTS_PICTURE_H
#define DV_TESTS_PICTURE_H

#include "abi/davy.h"

typedef struct picture { /* floats, n pictures of h x w x c, interleaved; colours in R G B A order, in 0..1 */
    int64_t n, h, w, c;
    float *v;
} picture;

picture picture_new(int64_t n, int64_t h, int64_t w, int64_t c); /* zeros; exits the test when memory is short */
void picture_free(picture *p);
int64_t picture_count(const picture *p);
/* Values k / 256, exact in every dtype but U8 and U16. */
void picture_fill(picture *p, uint32_t seed);
/* Values k / 255, exact in 8-bit pictures. */
void picture_fill_8bit(picture *p, uint32_t seed);
double picture_max_error(const picture *a, const picture *b);     /* largest |a - b|; 1e30 if a value is not finite */
double picture_l2_error(const picture *got, const picture *want); /* ||got - want|| / ||want|| */

typedef struct view_format {
    const char *name;
    davy_dtype dtype;
    davy_layout layout;
    davy_channels channels;
    davy_range range;
    int64_t row_gap; /* bytes between rows (planes of a channel-first layout: between rows as well) */
    int upside_down; /* rows are stored from the last to the first, the stride is negative */
    int unaligned;   /* memory starts at an odd multiple of the element's size */
} view_format;

typedef struct view {
    view_format format;
    int64_t n, h, w, c;
    unsigned char *memory; /* from malloc, with a margin on both sides that must not be written */
    uint64_t bytes;
    davy_tensor tensor;
} view;

/* Memory for such a picture, filled with a pattern, and its tensor. */
view view_new(const view_format *format, int64_t n, int64_t h, int64_t w, int64_t c);
void view_free(view *v);
void view_store(view *v, const picture *p);
picture view_load(const view *v);
/* Number of bytes outside the pixels (gaps between rows, margins) that have changed. */
int64_t view_trampled(const view *v);

/* Reads any tensor in host memory as a picture. */
picture tensor_load(const davy_tensor *t);

#endif
