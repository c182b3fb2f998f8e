/* tiles_cuda.c - see tiles_priv.h: some rows at a time go up and are converted there. */
#include "core/clip/tiles_priv.h"
#include "core/tiles/picture_run.h"

#include "core/cuda/gpu.h"
#include "core/base/error.h"
#include "kernels/cuda/cuda.h"

static davy_result store_chunk(const dv_work *work, dv_gpu_queue *q, const dvk_image *image, const dvk_view *rows,
                               void *block) {
    dvk_view view = *rows;
    view.data = block;
    const dvk_convert_args args = dv_store_args(work, image, &view);
    const dvk_cuda_caps *caps = dv_gpu_caps(q->gpu);
    const dvk_cuda_kernel *kernel = dvk_cuda_choose("store", &args, caps, DVK_COMPUTES_F32);
    if (kernel == NULL || (kernel->scratch_bytes != NULL && kernel->scratch_bytes(&args, caps) > 0)) {
        return dv_fail(DAVY_E_INTERNAL, "no kernel for op store that needs no scratch");
    }
    const davy_result r = dv_gpu_upload(q, block, rows->data, (uint64_t)(rows->h * rows->sh) * sizeof(float));
    return r == DAVY_OK ? dv_gpu_check(q->gpu, kernel->enqueue(&args, NULL, &q->base), "store") : r;
}

static davy_result store_all(const dv_work *work, dv_gpu_queue *q, const dvk_image *image, const dvk_view *rows,
                             int64_t at_once, void *block) {
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < rows->n; i++) {
        for (int64_t y = 0; r == DAVY_OK && y < rows->h; y += at_once) {
            const int64_t n = dv_min(at_once, rows->h - y);
            const dvk_image to = dv_image_part(image, i, y, 0, n, image->w);
            const dvk_view frame = dv_view_pictures(rows, i, 1);
            dvk_view part = dv_view_part(&frame, y, 0, n, rows->w, rows->c);
            r = store_chunk(work, q, &to, &part, block);
        }
    }
    return r;
}

davy_result dv_clip_tiles_store_cuda(const dv_clip_tiles *t, const dv_work *work, const dvk_image *image,
                                     const dvk_view *rows) {
    dv_gpu *gpu = dv_engine_gpu(t->e, 0);
    const uint64_t row = (uint64_t)rows->sh * sizeof(float);
    const int64_t at_once = dv_min(dv_max((int64_t)(DV_CLIP_ROWS / row), 1), rows->h);
    dv_gpu_queue *q = NULL;
    void *block = NULL;
    davy_result r = dv_gpu_alloc(gpu, DV_MEM_WORKSPACE, row * (uint64_t)at_once, "rows of a clip", &block);
    if (r != DAVY_OK) {
        return r;
    }
    r = dv_gpu_queue_take(gpu, work->stream, &q);
    if (r == DAVY_OK) {
        r = store_all(work, q, image, rows, at_once, block);
        const davy_result waited = dv_gpu_queue_wait(q, NULL, NULL); /* nothing may use the block when it goes */
        r = r == DAVY_OK ? waited : r;
        dv_gpu_queue_give(q);
    }
    dv_gpu_free(gpu, DV_MEM_WORKSPACE, block, row * (uint64_t)at_once);
    return r;
}
