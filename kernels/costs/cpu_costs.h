/* cpu_costs.h - the numbers of the cost functions of CPU kernels. Each instruction set has a table NAME.def in this
 * folder. The file that includes this header gets them as constants for its instruction set, read as CPU_COST(conv2d,
 * products). docs/tuning.md explains how a table is made.
 *
 * COST(kernel, term, kind, value), all values above zero. kernel: an op, with the suffix of its variant's name behind
 * the instruction set, or a cost function that several ops share. Kinds: TIME, in ns on one core; RATE, a number of
 * items per ns; SHAPE, any other number, which `kcheck --fit` does not change. */
#ifndef DVK_CPU_COSTS_H
#define DVK_CPU_COSTS_H

#define CPU_COST(kernel, term)          cost_##kernel##_##term
#define COST(kernel, term, kind, value) static const double CPU_COST(kernel, term) = (value);
#if defined(DVK_ISA_avx2)
#include "kernels/costs/avx2.def"
#elif defined(DVK_ISA_avx512)
#include "kernels/costs/avx512.def"
#elif defined(DVK_ISA_avx512vnni)
#include "kernels/costs/avx512vnni.def"
#elif defined(DVK_ISA_avx512bf16)
#include "kernels/costs/avx512bf16.def"
#elif defined(DVK_ISA_amx)
#include "kernels/costs/amx.def"
#else
#include "kernels/costs/base.def"
#endif
#undef COST

#endif
