/* batch_pages.c - see batch_pages.h. */
#include "core/vlm/batch_pages.h"

#include "core/base/error.h"
#include "core/base/mem.h"

davy_result dv_pages_create(int64_t n, dv_pages *out) {
    *out = (dv_pages){.free = dv_calloc((uint64_t)n, sizeof(int32_t)), .n_free = n, .n = n};
    if (out->free == NULL) {
        *out = (dv_pages){.n = 0};
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    for (int64_t i = 0; i < n; i++) {
        out->free[i] = (int32_t)(n - 1 - i);
    }
    return DAVY_OK;
}

void dv_pages_clear(dv_pages *p) {
    dv_free(p->free);
    *p = (dv_pages){.n = 0};
}

bool dv_pages_take(dv_pages *p, int64_t want, int32_t *list, int64_t *have) {
    if (want - *have > p->n_free) {
        return false;
    }
    while (*have < want) {
        list[(*have)++] = p->free[--p->n_free];
    }
    p->most = dv_max(p->most, p->n - p->n_free);
    return true;
}

void dv_pages_give_back(dv_pages *p, const int32_t *list, int64_t *have) {
    while (*have > 0) {
        p->free[p->n_free++] = list[--*have];
    }
}
