/* gpu_pinned.c - host memory that kernels read and write where it lies, across the bus: for what is large and seldom looked
 * at. */
#include "core/cuda/gpu_priv.h"
#include "core/error.h"

davy_result dv_gpu_pin(dv_gpu *g, uint64_t bytes, const char *what, void **out) {
    davy_result r = g->heap != NULL ? dv_heap_claim(g->heap, DV_MEM_WORKSPACE, bytes, what) : DAVY_OK;
    if (r < 0) {
        return r;
    }
    void *p = NULL;
    r = gpu_enter(g, what);
    if (r == DAVY_OK) {
        const cu_result c = g->cu->host_alloc(&p, (size_t)bytes, CU_HOST_PORTABLE);
        gpu_leave(g);
        r = c == CU_OUT_OF_MEMORY
                ? dv_fail_in(DAVY_E_NOMEM_HOST, DAVY_DOMAIN_CUDA, c,
                             "%s: %llu bytes of the host's memory could not be pinned", what, (unsigned long long)bytes)
                : dv_gpu_check(g, c, what);
    }
    if (r < 0) {
        if (g->heap != NULL) {
            dv_heap_unclaim(g->heap, DV_MEM_WORKSPACE, bytes);
        }
        return r;
    }
    *out = p;
    return DAVY_OK;
}

void dv_gpu_unpin(dv_gpu *g, void *p, uint64_t bytes) {
    if (p == NULL) {
        return;
    }
    if (g->process == dv_process_id() && gpu_enter_cu(g) == CU_OK) {
        g->cu->host_free(p);
        gpu_leave(g);
    }
    if (g->heap != NULL) {
        dv_heap_unclaim(g->heap, DV_MEM_WORKSPACE, bytes);
    }
}
