/* registry.c - ops by name, the CPU kernels and the choice among them. Kernels enter the library only through ops.def.
 * There are no constructors and no registration at run time. */
#include <string.h>

#include "kernels/kernel.h"
#include "kernels/ops.h"

static const dvk_op ops[] = {
#define AT(member)               offsetof(dvk_args, member)
#define DVK_OP(op)               {.name = #op},
#define DVK_OP_1(op, a, y)       {#op, 1, {AT(a)}, AT(y)},
#define DVK_OP_2(op, a, b, y)    {#op, 2, {AT(a), AT(b)}, AT(y)},
#define DVK_OP_3(op, a, b, c, y) {#op, 3, {AT(a), AT(b), AT(c)}, AT(y)},
#include "kernels/ops.def"
};
#undef AT

const dvk_op *dvk_op_find(const char *name) {
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (strcmp(ops[i].name, name) == 0) {
            return &ops[i];
        }
    }
    return NULL;
}

#define DVK_OP(op)         extern const dvk_kernel dvk_##op##_ref;
#define DVK_KERNEL(kernel) extern const dvk_kernel kernel;
#if defined(DVK_X86)
#define DVK_KERNEL_X86(kernel) extern const dvk_kernel kernel;
#endif
#include "kernels/ops.def"

const dvk_kernel *const dvk_kernels[] = {
#define DVK_OP(op)         &dvk_##op##_ref,
#define DVK_KERNEL(kernel) &kernel,
#if defined(DVK_X86)
#define DVK_KERNEL_X86(kernel) &kernel,
#endif
#include "kernels/ops.def"
};

const int32_t dvk_kernel_count = (int32_t)(sizeof dvk_kernels / sizeof dvk_kernels[0]);

static double cost_of(const dvk_kernel *k, const void *args) {
    return k->cost != NULL ? k->cost(args) : 1e30;
}

static int allowed(const dvk_kernel *k, const void *args, uint32_t cpu, dvk_dtype compute) {
    return (k->cpu & ~cpu) == 0 && (k->compute == DVK_F32 || k->compute == compute) &&
           (k->supports == NULL || k->supports(args));
}

const dvk_kernel *dvk_choose(const char *op, const void *args, uint32_t cpu, dvk_dtype compute) {
    const dvk_kernel *best = dvk_find(op, "ref");
    if (best == NULL) {
        return NULL;
    }
    for (int32_t i = 0; i < dvk_kernel_count; i++) {
        const dvk_kernel *k = dvk_kernels[i];
        if (strcmp(k->op, op) == 0 && allowed(k, args, cpu, compute) && cost_of(k, args) < cost_of(best, args)) {
            best = k;
        }
    }
    return best;
}

const dvk_kernel *dvk_find(const char *op, const char *variant) {
    for (int32_t i = 0; i < dvk_kernel_count; i++) {
        if (strcmp(dvk_kernels[i]->op, op) == 0 && strcmp(dvk_kernels[i]->variant, variant) == 0) {
            return dvk_kernels[i];
        }
    }
    return NULL;
}
