/* paging.h - addresses of the rows of dvk_paging, for CPU kernels. */
#ifndef DVK_PAGING_H
#define DVK_PAGING_H

#include "kernels/lm.h"

/* Row of the cache that holds `position` of the sequence that row i belongs to. */
static inline int64_t dvk_paged_row(const dvk_paging *p, int64_t i, int64_t position) {
    if (p->table == NULL) {
        return position;
    }
    const int64_t sequence = p->sequence != NULL ? p->sequence[i] : 0;
    return p->table[sequence * p->each + position / p->page] * p->page + position % p->page;
}

static inline int64_t dvk_rope_row(const dvk_rope_args *a, int64_t i) {
    return a->to.position != NULL ? dvk_paged_row(&a->to, i, a->to.position[i]) : i;
}

#endif
