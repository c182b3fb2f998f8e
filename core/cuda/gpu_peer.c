/* gpu_peer.c - copies straight from one GPU to another. Access is given to our own pool alone: cuCtxEnablePeerAccess would
 * change how the host's memory in the same context is mapped. */
#include "core/cuda/gpu_priv.h"

/* Whether copies of `g` may read the pool of `from` from now on. Without it they go through host memory, a tenth as fast. */
static bool open_way(dv_gpu *g, const dv_gpu *from) {
    const dv_driver *cu = g->cu;
    int can = 0;
    if (cu->peer_can == NULL || cu->pool_access == NULL || from->pool == NULL ||
        cu->peer_can(&can, g->device, from->device) != CU_OK || can == 0) {
        return false;
    }
    const cu_access access = {.location_type = 1, .location_id = g->device, .flags = CU_ACCESS_READ_WRITE};
    return cu->pool_access(from->pool, &access, 1) == CU_OK;
}

void dv_gpu_reach(dv_gpu *g, dv_gpu *from) {
    const uint64_t bit = from->index < 64 ? (uint64_t)1 << from->index : 0;
    if (g == from || (atomic_load(&g->reached) & bit) != 0 || gpu_enter_cu(g) != CU_OK) {
        return;
    }
    const bool direct = open_way(g, from);
    gpu_leave(g);
    atomic_fetch_or(&g->reached, bit);
    dv_logf(&g->log, DAVY_LOG_DEBUG, "copies from cuda:%d to cuda:%d %s", (int)from->index, (int)g->index,
            direct ? "go straight" : "go through host memory");
}
