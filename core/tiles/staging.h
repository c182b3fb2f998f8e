/* staging.h - copies a caller's picture between host memory and device memory, with as few copies as its layout allows. Bytes are
 * copied unchanged; the device converts them. */
#ifndef DV_STAGING_H
#define DV_STAGING_H

#include "core/cuda/gpu.h"

typedef struct dv_staging {
    enum { DV_STAGING_ROWS = 1, DV_STAGING_PLANES, DV_STAGING_GATHER } kind; /* GATHER: element by element */
    dvk_image host;                                                          /* a rectangle of one picture */
    int64_t low;              /* ROWS: bytes from host.data to the first byte of a pixel */
    int64_t row_bytes, pitch; /* of rows in device memory */
    uint64_t bytes;           /* of device memory */
    bool gaps;                /* rows contain bytes outside the picture: upload them before the picture is stored */
} dv_staging;

void dv_staging_describe(const dvk_image *host, dv_staging *out);
/* The image of the picture in `block`, its device memory. */
dvk_image dv_staging_image(const dv_staging *s, void *block);

/* heap: for the temporary copy of kind GATHER. Both return when the host memory has been read or written. */
davy_result dv_staging_upload(const dv_staging *s, dv_gpu_queue *q, dv_heap *heap, void *block);
davy_result dv_staging_download(const dv_staging *s, dv_gpu_queue *q, dv_heap *heap, const void *block);

#endif
