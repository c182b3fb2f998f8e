/* kernel.h - a kernel (one implementation of one op on the CPU) and the list of all kernels.
 *
 * A kernel splits its work into `units` that may run in any order on any thread. The split never depends on the number
 * of threads. The runner checks for cancellation between units: aim at 1 to 10 ms, never above 50 ms. It calls
 * run(args, first, last, scratch). Each thread has scratch_bytes(args) of private, 64-byte aligned, uninitialised
 * memory. */
#ifndef DVK_KERNEL_H
#define DVK_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/op.h"

enum {                         /* instruction sets; a set includes those before it */
       DVK_CPU_AVX2 = 1,       /* AVX2, FMA, F16C */
       DVK_CPU_AVX512 = 2,     /* F, BW, DQ, VL */
       DVK_CPU_AVX512BF16 = 4, /* + AVX512_BF16 */
       DVK_CPU_AMX = 8,        /* + AMX_TILE, AMX_BF16, enabled by the system */
       DVK_CPU_VNNI = 16       /* AVX512 and AVX512_VNNI: outside the chain above */
};

/* Instruction sets of this processor and system. The first call requests AMX from the system. */
uint32_t dvk_cpu_detect(void);

typedef struct dvk_kernel {
    const char *op;                    /* "conv2d" */
    const char *variant;               /* "ref", "cpu/avx512", "cpu/avx512/winograd4" */
    uint32_t cpu;                      /* required DVK_CPU_* bits, 0: portable */
    dvk_dtype compute;                 /* precision of the multiplications: DVK_F32, DVK_BF16 with f32 sums, or
                                         * DVK_INT8 with exact ones (kernels/int8.h) */
    int (*supports)(const void *args); /* NULL: all args of the op */
    double (*cost)(const void *args);  /* estimated ns on one core; the planner takes the lowest. NULL: 1e30 */
    int64_t (*units)(const void *args);
    size_t (*scratch_bytes)(const void *args); /* NULL: none */
    void (*run)(const void *args, int64_t first, int64_t last, void *scratch);
    /* Ops with weights: layout of w. The source is f32, OIHW. Units of packing are output-channel blocks. */
    size_t (*packed_bytes)(const void *args);
    int64_t (*pack_units)(const void *args);
    void (*pack)(const void *args, const float *w, void *dst, int64_t first, int64_t last);
} dvk_kernel;

/* Every CPU kernel in this build, in the order of ops.def. */
extern const dvk_kernel *const dvk_kernels[];
extern const int32_t dvk_kernel_count;

/* The cheapest kernel for these args among those that `cpu` allows and that compute in `compute` (DVK_BF16 also accepts f32
 * kernels). Falls back to the reference; NULL only for an unknown op. */
const dvk_kernel *dvk_choose(const char *op, const void *args, uint32_t cpu, dvk_dtype compute);

/* Finds a kernel by name, for tests; NULL: not in this build. */
const dvk_kernel *dvk_find(const char *op, const char *variant);

#endif
