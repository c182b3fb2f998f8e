/* cpu_costs.h - the numbers that cost functions of CPU kernels are made of, for the instruction set that a file is compiled
 * for: a table for each in NAME.def of this folder. They are constants of the file that includes this, read as
 * CPU_COST(conv2d, products). docs/tuning.md tells how a table is made.
 *
 * COST(kernel, term, kind, value), all values above zero; kernel: an op, with what its variant's name has behind the
 * instruction set, or a cost function that several ops share. Kinds: TIME, in ns on one core; RATE, a number of something in
 * a ns; SHAPE, anything else, kept as it is. */
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
