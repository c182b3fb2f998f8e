/* batch_pages.h - the list of free pages. */
#ifndef DV_VLM_BATCH_PAGES_H
#define DV_VLM_BATCH_PAGES_H

#include "core/base/common.h"

typedef struct dv_pages {
    int32_t *free; /* a stack: the last one is taken first */
    int64_t n_free, n;
    int64_t most; /* highest number of pages in use so far */
} dv_pages;

davy_result dv_pages_create(int64_t n, dv_pages *out);
void dv_pages_clear(dv_pages *p);

/* Extends a list from *have to `want` pages. If too few pages are free, it changes nothing and returns false. */
bool dv_pages_take(dv_pages *p, int64_t want, int32_t *list, int64_t *have);
void dv_pages_give_back(dv_pages *p, const int32_t *list, int64_t *have);

#endif
