/* program_rows.h - two small kernels over rows of f32 that a program has beside those of lm.h. */
#ifndef DV_VLM_PROGRAM_ROWS_H
#define DV_VLM_PROGRAM_ROWS_H

#include "kernels/kernel.h"

extern const dvk_kernel dv_gather_rows; /* dv_gather_args */
extern const dvk_kernel dv_add_rows;    /* dv_add_rows_args */

#endif
