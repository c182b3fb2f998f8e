/* registry.c - the CUDA kernels and the choice among them. They enter the library by kernels/ops.def and nowhere else. */
#include <string.h>

#include "kernels/cuda/cuda.h"

#define DVK_KERNEL_CUDA(kernel) extern const dvk_cuda_kernel kernel;
#include "kernels/ops.def"

const dvk_cuda_kernel *const dvk_cuda_kernels[] = {
#define DVK_KERNEL_CUDA(kernel) &kernel,
#include "kernels/ops.def"
};

const int32_t dvk_cuda_kernel_count = (int32_t)(sizeof dvk_cuda_kernels / sizeof dvk_cuda_kernels[0]);

static int allowed(const dvk_cuda_kernel *k, const void *args, const dvk_cuda_caps *caps, uint32_t computes) {
    return k->sm_min <= caps->sm && (k->sm_max == 0 || caps->sm <= k->sm_max) && (k->computes & computes) != 0 &&
           (k->supports == NULL || k->supports(args, caps));
}

const dvk_cuda_kernel *dvk_cuda_choose(const char *op, const void *args, const dvk_cuda_caps *caps, uint32_t computes) {
    const dvk_cuda_kernel *best = NULL;
    double least = 0.0;
    for (int32_t i = 0; i < dvk_cuda_kernel_count; i++) {
        const dvk_cuda_kernel *k = dvk_cuda_kernels[i];
        if (strcmp(k->op, op) != 0 || !allowed(k, args, caps, computes)) {
            continue;
        }
        const double cost = k->cost != NULL ? k->cost(args, caps) : 1e30;
        if (best == NULL || cost < least) {
            best = k;
            least = cost;
        }
    }
    return best;
}

const dvk_cuda_kernel *dvk_cuda_find(const char *op, const char *variant) {
    for (int32_t i = 0; i < dvk_cuda_kernel_count; i++) {
        const dvk_cuda_kernel *k = dvk_cuda_kernels[i];
        if (strcmp(k->op, op) == 0 && strcmp(k->variant, variant) == 0) {
            return k;
        }
    }
    return NULL;
}
