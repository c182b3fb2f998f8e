/* pth.h - what the physical forms of torch's files share: running a pickle somewhere in a file, and turning the object
 * it builds into tensors. */
#ifndef DV_FILE_PTH_H
#define DV_FILE_PTH_H

#include "core/file/pickle.h"

enum { DV_PTH_MAX_PICKLE = 64 << 20 };

/* A pickle and the bytes its texts point into. */
typedef struct dv_pth_text {
    dv_pickle pk;
    void *owned;
} dv_pth_text;

typedef struct dv_pth_range {
    uint64_t at, end; /* the pickle begins at `at` and is over before `end` */
} dv_pth_range;

/* Reads no more of the file than the pickle needs (give or take a few KiB) where reading costs. out is filled in any
 * case; dv_pth_text_clear it. */
davy_result dv_pth_run(dv_source *source, dv_pth_range range, const dv_pk_external *externals, int64_t n_externals,
                       dv_pth_text *out);
void dv_pth_text_clear(dv_pth_text *text);

/* Where in the file a storage's record begins. */
typedef davy_result (*dv_pth_locate_fn)(void *user, const dv_pickle *pk, const dv_pk_storage *storage,
                                        uint64_t *offset);

typedef struct dv_pth_where {
    dv_source *source;
    dv_pth_locate_fn locate;
    void *user;
} dv_pth_where;

/* Adds the tensors of pk's object to t: picks the wrapper ("params_ema", "state_dict", "model" …), joins the keys of
 * nested dicts with '.', visits no other branch. DAVY_E_UNSAFE when nothing is left but what unknown code would have to
 * build. */
davy_result dv_pth_collect(const dv_pth_where *where, const dv_pickle *pk, dv_tensors *t);

#endif
