/* batch_pages.h - the numbers of the pages that nobody has. */
#ifndef DV_VLM_BATCH_PAGES_H
#define DV_VLM_BATCH_PAGES_H

#include "core/base/common.h"

typedef struct dv_pages {
    int32_t *free; /* the last one goes first */
    int64_t n_free, n;
    int64_t most; /* that were in use at once */
} dv_pages;

davy_result dv_pages_create(int64_t n, dv_pages *out);
void dv_pages_clear(dv_pages *p);

/* Makes the *have pages of a list as many as `want`, or, where there are too few, leaves it and answers false. */
bool dv_pages_take(dv_pages *p, int64_t want, int32_t *list, int64_t *have);
void dv_pages_give_back(dv_pages *p, const int32_t *list, int64_t *have);

#endif
