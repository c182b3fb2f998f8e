/* product.c - see product.h. The product runs as a 1x1 convolution over a line of `rows` pixels. */
#include "core/base/product.h"

#include "core/base/common.h"
#include "core/base/mem.h"
#include "kernels/kernel.h"

enum { ALIGNMENT = 64 };

static dvk_view line(const float *data, int64_t pixels, int64_t channels) {
    const int64_t all = pixels * channels;
    return (dvk_view){.data = (void *)(uintptr_t)data,
                      .dtype = DVK_F32,
                      .n = 1,
                      .h = 1,
                      .w = pixels,
                      .c = channels,
                      .sn = all,
                      .sh = all,
                      .sw = channels};
}

davy_result dv_product_add(const dv_product *p, uint32_t cpu) {
    dvk_conv2d_args a = {.kh = 1, .kw = 1, .stride = 1, .upsample = 1, .epi = {.alpha = 1.0f, .n_res = 1}};
    a.x = line(p->x, p->rows, p->k);
    a.y = line(p->sum, p->rows, p->columns);
    a.epi.res[0] = a.y;
    a.epi.beta[0] = 1.0f;
    const dvk_kernel *kernel = dvk_choose("conv2d", &a, cpu, DVK_F32);
    const uint64_t packed = dv_align_up(kernel->packed_bytes(&a), ALIGNMENT);
    const uint64_t scratch = kernel->scratch_bytes != NULL ? kernel->scratch_bytes(&a) : 0;
    char *memory = dv_calloc(1, packed + scratch + ALIGNMENT);
    if (memory == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a matrix product of weights");
    }
    char *aligned = memory + (ALIGNMENT - (uintptr_t)memory % ALIGNMENT) % ALIGNMENT;
    kernel->pack(&a, p->w, aligned, 0, kernel->pack_units(&a));
    a.w = aligned;
    kernel->run(&a, 0, kernel->units(&a), aligned + packed);
    dv_free(memory);
    return DAVY_OK;
}
