/* precision.c - what an engine computes in, of what was asked for and what its devices have. */
#include "core/tiles/engine_priv.h"

#include "core/cuda/gpu.h"
#include "core/base/error.h"

/* Least capable of the GPUs: all compute alike. */
static int32_t least_sm(const dv_engine *e) {
    int32_t sm = INT32_MAX;
    for (int32_t l = 0; l < e->n_lanes; l++) {
        sm = (int32_t)dv_min(sm, dv_gpu_caps(dv_engine_gpu(e, l))->sm);
    }
    return sm;
}

/* Eight bits: products of convolutions, what is stored is F16 (or, of INT8, BF16), on a CPU F32. */
static davy_result set_8bit(dv_engine *e, dvk_dtype compute) {
    const uint32_t computes = compute == DVK_FP8 ? DVK_COMPUTES_FP8 : DVK_COMPUTES_INT8;
    const int32_t sm = least_sm(e);
    for (int32_t i = 0; i < dvk_cuda_kernel_count; i++) {
        const dvk_cuda_kernel *k = dvk_cuda_kernels[i];
        if (k->computes == computes && k->sm_min <= sm && (k->sm_max == 0 || sm <= k->sm_max)) {
            e->compute = compute;
            return DAVY_OK;
        }
    }
    return compute == DVK_FP8
               ? dv_fail(DAVY_E_UNSUPPORTED, "precision fp8: compute capability %d.%d has no FP8 products; from 8.9 on",
                         sm / 10, sm % 10)
               : dv_fail(DAVY_E_UNSUPPORTED, "precision int8: no kernels for compute capability %d.%d", sm / 10,
                         sm % 10);
}

/* What leaves the range of F16 is stored as BF16. */
static davy_result set_int8(dv_engine *e) {
    if (dv_engine_is_wide(e) && least_sm(e) < 80) {
        return dv_fail(DAVY_E_UNSUPPORTED, "precision int8: %s leaves the range of fp16, and this GPU has no bf16",
                       e->arch->name);
    }
    return set_8bit(e, DVK_INT8);
}

static davy_result set_gpu_compute(dv_engine *e, davy_dtype compute, bool tf32) {
    const bool bf16 = least_sm(e) >= 80;
    switch (compute) {
    case DAVY_DTYPE_AUTO: /* most upscalers keep to small numbers; VAEs overflow F16, and are rescaled where there is no other */
        if (dv_engine_is_wide(e)) {
            e->compute = bf16 ? DVK_BF16 : DVK_F32;
        } else {
            e->compute = e->arch->task == DAVY_TASK_UPSCALE || !bf16 ? DVK_F16 : DVK_BF16;
        }
        return DAVY_OK;
    case DAVY_DTYPE_F32:
        e->compute = tf32 && bf16 ? DVK_TF32 : DVK_F32;
        return DAVY_OK;
    case DAVY_DTYPE_F16:
        e->compute = DVK_F16;
        return DAVY_OK;
    case DAVY_DTYPE_BF16:
        e->compute = DVK_BF16;
        return bf16 ? DAVY_OK : dv_fail(DAVY_E_UNSUPPORTED, "precision bf16: this GPU computes in fp32 or fp16");
    case DAVY_DTYPE_FP8:
        return set_8bit(e, DVK_FP8);
    case DAVY_DTYPE_INT8:
        return set_int8(e);
    default:
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "precision int4: a GPU computes in fp32, fp16, bf16, fp8 or int8; there are no kernels for it");
    }
}

davy_result dv_engine_set_compute(dv_engine *e, davy_dtype compute, bool tf32) {
    if (e->services.n_gpus > 0) {
        return set_gpu_compute(e, compute, tf32);
    }
    if (compute == DAVY_DTYPE_F16 || compute == DAVY_DTYPE_FP8 || compute == DAVY_DTYPE_INT4) {
        return dv_fail(DAVY_E_UNSUPPORTED, "precision %s: a CPU computes in fp32, bf16 or int8",
                       compute == DAVY_DTYPE_F16   ? "fp16"
                       : compute == DAVY_DTYPE_FP8 ? "fp8"
                                                   : "int4");
    }
    e->compute = compute == DAVY_DTYPE_BF16 ? DVK_BF16 : compute == DAVY_DTYPE_INT8 ? DVK_INT8 : DVK_F32;
    return DAVY_OK;
}
