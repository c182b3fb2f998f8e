/* convert_avx512.c - "load" and "store" on AVX-512. */
#include "kernels/cpu/simd/simd_int_avx512.h"

#include "kernels/cpu/pixels/convert_tmpl.h"

const dvk_kernel dvk_load_avx512 = {
    .op = "load",
    .variant = "cpu/avx512",
    .cpu = DVK_CPU_AVX512,
    .compute = DVK_F32,
    .cost = ct_cost,
    .units = ct_units,
    .scratch_bytes = ct_scratch_bytes,
    .run = ct_load,
};

const dvk_kernel dvk_store_avx512 = {
    .op = "store",
    .variant = "cpu/avx512",
    .cpu = DVK_CPU_AVX512,
    .compute = DVK_F32,
    .cost = ct_cost,
    .units = ct_units,
    .scratch_bytes = ct_scratch_bytes,
    .run = ct_store,
};
