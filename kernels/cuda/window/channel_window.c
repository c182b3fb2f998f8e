/* channel_window.c - host side of "channel_attention" in windows of at most 64 pixels, heads of 16 channels, in one
 * launch. */
#include "kernels/cuda/window/channel_window.h"

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/common/elem_host.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(channel_window, term))

extern const dvk_cuda_kernel dvk_channel_attention_cuda_window;

static int64_t windows_of(const dvk_channel_attention_args *a) {
    return a->q.n * (a->q.h / a->wh) * (a->q.w / a->ww);
}

static int32_t shared_bytes(const dvk_channel_attention_args *a) {
    return 3 * DVK_CHANNEL_WINDOW_TOKENS * ((int32_t)a->q.c + 8) * 2;
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_channel_attention_args *a = args;
    const dvk_view *views[] = {&a->q, &a->k, &a->v, &a->y};
    for (int i = 0; i < 4; i++) {
        if (views[i]->dtype != a->q.dtype || !dvk_elem_of(views[i]).vector) {
            return 0;
        }
    }
    const int type = a->q.dtype == DVK_F16 || (a->q.dtype == DVK_BF16 && caps->sm >= 80);
    const int windows = !a->grid && a->wh > 0 && a->ww > 0 && a->wh * a->ww <= DVK_CHANNEL_WINDOW_TOKENS;
    return type && windows && a->heads <= DVK_CHANNEL_WINDOW_HEADS && a->q.c == a->heads * DVK_CHANNEL_WINDOW_DIM &&
           windows_of(a) < INT32_MAX && shared_bytes(a) <= caps->shared_bytes;
}

static double cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_channel_attention_args *a = args;
    return TERM(launch) + dvk_elem_cost(4.0 * dvk_elem_bytes(&a->q), caps);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_channel_attention_args *a = args;
    (void)scratch;
    dvk_channel_window p = {.q = dvk_elem_of(&a->q),
                            .k = dvk_elem_of(&a->k),
                            .v = dvk_elem_of(&a->v),
                            .y = dvk_elem_of(&a->y),
                            .temperature = a->temperature,
                            .heads = (int32_t)a->heads,
                            .dim = (int32_t)a->dim,
                            .wh = a->wh,
                            .ww = a->ww,
                            .down = (int32_t)(a->q.h / a->wh),
                            .across = (int32_t)(a->q.w / a->ww),
                            .eps = a->eps};
    void *params[] = {&p};
    const dvk_launch l = {.module = "channel_window",
                          .function = a->q.dtype == DVK_BF16 ? "channel_window_bf16" : "channel_window_f16",
                          .grid = {(uint32_t)windows_of(a), 1, 1},
                          .block = {(uint32_t)a->heads * 32, 1, 1},
                          .shared_bytes = (uint32_t)shared_bytes(a),
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = params};
    return q->launch(q, &l);
}

const dvk_cuda_kernel dvk_channel_attention_cuda_window = {.op = "channel_attention",
                                                           .variant = "cuda/window",
                                                           .sm_min = 75,
                                                           .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                                           .supports = supports,
                                                           .cost = cost,
                                                           .enqueue = enqueue};
