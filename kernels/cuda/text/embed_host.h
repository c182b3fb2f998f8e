/* embed_host.h - shared code of the host sides of "embed" and "next_token". */
#ifndef DVK_CUDA_EMBED_HOST_H
#define DVK_CUDA_EMBED_HOST_H

#include "kernels/cuda/common/elem_host.h"
#include "kernels/cuda/text/embed.h"
#include "kernels/cuda/linear/linear_layout.h"

static inline int dvk_embed_fits(const dvk_embed_args *a) {
    return a->m < INT32_MAX && a->k < INT32_MAX / 2 && a->y.form != DVK_ROWS_Q8;
}

static inline dvk_embed_params dvk_embed_of(const dvk_embed_args *a) {
    const dvk_linear_layout l = dvk_linear_layout_of(lin_kind_of(a->type), a->n, a->k);
    const int64_t size = a->y.form == DVK_ROWS_F32 ? 4 : 2;
    return (dvk_embed_params){
        .y = {.data = a->y.data,
              .sh = a->y.row,
              .dtype = (int32_t)a->y.form,
              .vector = (uintptr_t)a->y.data % 16 == 0 && (a->m == 1 || a->y.row * size % 16 == 0)},
        .ids = a->ids,
        .w = a->w,
        .scales = (const unsigned char *)a->w + l.scales,
        .w_row = l.row,
        .scale_row = l.scale_row,
        .m = (int32_t)a->m,
        .k = (int32_t)a->k,
        .items = dvk_elem_chunks(a->k),
        .kind = (int32_t)l.kind,
        .zero = lin_zero(a->type)};
}

#endif
