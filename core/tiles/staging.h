/* staging.h - a picture of the caller's in host memory and its image in device memory. As few copies as its layout
 * allows, and bytes are moved as they are: the device converts. */
#ifndef DV_STAGING_H
#define DV_STAGING_H

#include "core/cuda/gpu.h"

typedef struct dv_staging {
    enum { DV_STAGING_ROWS = 1, DV_STAGING_PLANES, DV_STAGING_GATHER } kind; /* the last: element by element */
    dvk_image host;                                                          /* a rectangle, one picture */
    int64_t low;              /* ROWS: from host.data to the first byte of a pixel */
    int64_t row_bytes, pitch; /* of rows in device memory */
    uint64_t bytes;           /* of device memory */
    bool gaps;                /* rows hold bytes that are not of the picture: to be there before it is stored */
} dv_staging;

void dv_staging_describe(const dvk_image *host, dv_staging *out);
/* The picture as it lies in `block`. */
dvk_image dv_staging_image(const dv_staging *s, void *block);

/* heap: for what has to be gathered first. Both return when host memory has been read or written. */
davy_result dv_staging_upload(const dv_staging *s, dv_gpu_queue *q, dv_heap *heap, void *block);
davy_result dv_staging_download(const dv_staging *s, dv_gpu_queue *q, dv_heap *heap, const void *block);

#endif
