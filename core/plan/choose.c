/* choose.c - chooses the kernel of a step, and estimates its time and scratch. */
#include <string.h>

#include "core/base/error.h"
#include "core/plan/choose.h"
#include "kernels/dtype.h"

static bool is_conv(const char *op) {
    return strcmp(op, "conv2d") == 0;
}

/* Winograd reads transformed frames, which are always f16. */
static bool is_winograd(const char *op) {
    return strcmp(op, "conv2d_winograd") == 0 || strcmp(op, "conv2d_winograd_band") == 0;
}

/* A 1x1 convolution of f32 pictures (luma, a latent's quantisation) stays f32: it costs almost nothing, and 16 bits
 * would cause banding. On a CPU with INT8 all pictures are f32. There kernels require 32 channels, and a test picture
 * decides which layers use INT8. */
static dvk_dtype compute_of(const dv_plan_options *options, const char *op, const dvk_args *args) {
    const dvk_conv2d_args *a = &args->conv;
    const bool mix = is_conv(op) && a->kh == 1 && a->x.dtype == DVK_F32 && a->y.dtype == DVK_F32;
    const bool integers = options->caps == NULL && options->compute == DVK_INT8;
    return mix && !integers ? DVK_F32 : options->compute;
}

/* ---- CPU ---- */

/* A lean kernel's packed weights take at most twice the bytes of f32 weights. That holds for direct kernels, not for
 * Winograd. */
static bool is_lean(const dvk_kernel *k, const dvk_conv2d_args *a) {
    return k->packed_bytes == NULL ||
           k->packed_bytes(a) <= 2 * sizeof(float) * (size_t)(a->x.c * a->y.c * a->kh * a->kw) + 4096;
}

static double cost_of(const dvk_kernel *k, const void *args) {
    return k->cost != NULL ? k->cost(args) : 1e30;
}

static const dvk_kernel *choose_lean(const dv_plan_options *options, const char *op, const dvk_args *args) {
    const dvk_kernel *best = dvk_find(op, "ref");
    const dvk_dtype compute = compute_of(options, op, args);
    for (int32_t i = 0; i < dvk_kernel_count; i++) {
        const dvk_kernel *k = dvk_kernels[i];
        if (strcmp(k->op, op) == 0 && (k->cpu & ~options->cpu) == 0 &&
            (k->compute == DVK_F32 || k->compute == compute) && (k->supports == NULL || k->supports(args)) &&
            is_lean(k, &args->conv) && cost_of(k, args) < cost_of(best, args)) {
            best = k;
        }
    }
    return best;
}

/* The cheapest kernel with 8-bit integer products; NULL: none supports these arguments. */
static const dvk_kernel *choose_int8(const dv_plan_options *options, const char *op, const dvk_args *args) {
    const dvk_kernel *best = NULL;
    for (int32_t i = 0; i < dvk_kernel_count; i++) {
        const dvk_kernel *k = dvk_kernels[i];
        if (strcmp(k->op, op) == 0 && (k->cpu & ~options->cpu) == 0 && k->compute == DVK_INT8 && k->supports(args) &&
            (best == NULL || cost_of(k, args) < cost_of(best, args))) {
            best = k;
        }
    }
    return best;
}

static const dvk_kernel *choose_cpu(const dv_plan_options *options, const char *op, const dvk_args *args) {
    const dvk_dtype compute = compute_of(options, op, args);
    const dvk_kernel *k = compute == DVK_INT8 && options->int8_always ? choose_int8(options, op, args) : NULL;
    return k != NULL                      ? k
           : options->lean && is_conv(op) ? choose_lean(options, op, args)
                                          : dvk_choose(op, args, options->cpu, compute);
}

/* ---- CUDA ---- */

static uint32_t computes_bit(dvk_dtype compute) {
    return compute == DVK_F16    ? DVK_COMPUTES_F16
           : compute == DVK_BF16 ? DVK_COMPUTES_BF16
           : compute == DVK_TF32 ? DVK_COMPUTES_TF32
           : compute == DVK_FP8  ? DVK_COMPUTES_FP8
           : compute == DVK_INT8 ? DVK_COMPUTES_INT8
                                 : DVK_COMPUTES_F32;
}

/* TF32 and 8 bits are optional. If no kernel has them, or another kernel is faster, the step computes in the stored
 * type. */
static dvk_dtype plainer(const dv_plan_options *options, dvk_dtype compute) {
    return compute == DVK_TF32 ? DVK_F32 : dv_is_8bit(compute) ? dv_plain_of_int8(options) : compute;
}

static const dvk_cuda_kernel *choose_as(const dv_plan_options *options, const char *op, dvk_args *args,
                                        dvk_dtype compute) {
    if (is_conv(op) || is_winograd(op)) {
        args->conv.compute = is_winograd(op) ? DVK_F16 : compute;
    }
    return dvk_cuda_choose(op, args, options->caps, computes_bit(compute));
}

static double cuda_cost(const dv_plan_options *options, const dvk_cuda_kernel *k, const dvk_args *args) {
    return k->cost != NULL ? k->cost(args, options->caps) : 1e30;
}

static const dvk_cuda_kernel *choose_cuda(const dv_plan_options *options, const char *op, dvk_args *args) {
    const dvk_dtype compute = compute_of(options, op, args);
    const dvk_cuda_kernel *k = choose_as(options, op, args, compute);
    if (plainer(options, compute) == compute || (k != NULL && (!dv_is_8bit(compute) || options->int8_always))) {
        return k;
    }
    dvk_args plain = *args;
    const dvk_cuda_kernel *p = choose_as(options, op, &plain, plainer(options, compute));
    if (k != NULL && (p == NULL || cuda_cost(options, k, args) < cuda_cost(options, p, &plain))) {
        return k;
    }
    *args = plain;
    return p;
}

dv_kernel dv_choose_kernel(const dv_plan_options *options, const char *op, dvk_args *args) {
    dv_kernel k = {0};
    if (options->caps != NULL) {
        k.cuda = choose_cuda(options, op, args);
    } else {
        k.cpu = choose_cpu(options, op, args);
    }
    return k;
}

davy_result dv_choose_failed(const dv_plan_options *options, const char *op, const char *label, const dvk_view *in,
                             const dvk_view *out) {
    if (options->caps == NULL) {
        return dv_fail(DAVY_E_INTERNAL, "no kernel for op %s of %s", op, label);
    }
    return dv_fail(DAVY_E_UNSUPPORTED,
                   "%s: no CUDA kernel for %s from [%lld,%lld,%lld,%lld] %s to [%lld,%lld,%lld,%lld] %s in %s on "
                   "compute capability %d.%d",
                   label, op, (long long)in->n, (long long)in->h, (long long)in->w, (long long)in->c,
                   dv_dtype_name(in->dtype), (long long)out->n, (long long)out->h, (long long)out->w, (long long)out->c,
                   dv_dtype_name(out->dtype), dv_dtype_name(options->compute), (int)(options->caps->sm / 10),
                   (int)(options->caps->sm % 10));
}

/* If a kernel has no estimate of its own: memory at 4 GB/s and arithmetic at 4 GFLOP/s. */
void dv_step_measure(dv_step *s, const dv_plan_options *options, uint64_t *scratch) {
    const dvk_kernel *cpu = s->kernel.cpu;
    const dvk_cuda_kernel *cuda = s->kernel.cuda;
    if (cuda != NULL) {
        const double bytes_ns = (double)s->bytes / options->caps->memory_gbs;
        s->cost = cuda->cost != NULL ? cuda->cost(&s->args, options->caps) : bytes_ns;
        *scratch = cuda->scratch_bytes != NULL ? cuda->scratch_bytes(&s->args, options->caps) : 0;
        *scratch = dv_align_up(*scratch, 256);
        return;
    }
    s->units = cpu->units(&s->args);
    s->cost = cpu->cost != NULL ? cpu->cost(&s->args) : (double)s->bytes / 4.0 + (double)s->flops / 4.0;
    *scratch = cpu->scratch_bytes != NULL ? cpu->scratch_bytes(&s->args) : 0;
    *scratch = dv_align_up(*scratch, 64);
}

const char *dv_dtype_name(dvk_dtype t) {
    return t == DVK_BF16   ? "bf16"
           : t == DVK_F16  ? "f16"
           : t == DVK_TF32 ? "tf32"
           : t == DVK_FP8  ? "fp8"
           : t == DVK_INT8 ? "int8"
                           : "f32";
}
