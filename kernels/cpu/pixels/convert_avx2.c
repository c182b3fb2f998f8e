/* convert_avx2.c - "load" and "store" on AVX2 and FMA. */
#include "kernels/cpu/simd/simd_int_avx2.h"

#include "kernels/cpu/pixels/convert_tmpl.h"

const dvk_kernel dvk_load_avx2 = {
    .op = "load",
    .variant = "cpu/avx2",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .cost = ct_cost,
    .units = ct_units,
    .scratch_bytes = ct_scratch_bytes,
    .run = ct_load,
};

const dvk_kernel dvk_store_avx2 = {
    .op = "store",
    .variant = "cpu/avx2",
    .cpu = DVK_CPU_AVX2,
    .compute = DVK_F32,
    .cost = ct_cost,
    .units = ct_units,
    .scratch_bytes = ct_scratch_bytes,
    .run = ct_store,
};
