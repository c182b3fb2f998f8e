/* weights_rows.h - a stored tensor as rows that can be copied, converted and packed. */
#ifndef DV_VLM_WEIGHTS_ROWS_H
#define DV_VLM_WEIGHTS_ROWS_H

#include "core/vlm/weights.h"

typedef struct dv_stored_rows {
    const dv_tensor_ref *ref;
    const unsigned char *data;
    dvk_wtype type;
    int64_t n, k, row_bytes;
    void *owned;
} dv_stored_rows;

/* The type of its rows; false: none that is known, or whole numbers. What else is neither f32, 16-bit nor quantised is read
 * as f32. */
bool dv_stored_wtype(const dv_tensor_ref *ref, dvk_wtype *out);
/* n * k elements must be what the tensor has. */
davy_result dv_stored_rows_open(const dv_tensor_ref *ref, int64_t n, int64_t k, dv_stored_rows *out);
void dv_stored_rows_close(dv_stored_rows *rows);
/* A row in another type: in place where it is of that type, else in `scratch`. wide: k floats. */
const void *dv_stored_row(const dv_stored_rows *rows, int64_t row, dvk_wtype type, void *scratch, float *wide);

#endif
