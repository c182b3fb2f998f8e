/* pth.h - the common part of torch's file forms: it runs a pickle at a place in a file, and turns the resulting object into
 * tensors. */
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
    uint64_t at, end; /* the pickle begins at `at` and ends before `end` */
} dv_pth_range;

/* Runs the pickle in a range. If the file is not mapped, only the start of the range is read, and more as needed. The caller
 * frees *out with dv_pth_text_clear, after an error too. */
davy_result dv_pth_run(dv_source *source, dv_pth_range range, const dv_pk_external *externals, int64_t n_externals,
                       dv_pth_text *out);
void dv_pth_text_clear(dv_pth_text *text);

/* Finds the offset in the file of a storage's record. */
typedef davy_result (*dv_pth_locate_fn)(void *user, const dv_pickle *pk, const dv_pk_storage *storage,
                                        uint64_t *offset);

typedef struct dv_pth_where {
    dv_source *source;
    dv_pth_locate_fn locate;
    void *user;
} dv_pth_where;

/* Adds the tensors of pk's object to t. It selects the wrapper ("params_ema", "state_dict", "model" …), visits only that
 * branch, and joins the keys of nested dicts with '.'. DAVY_E_UNSAFE: the object has no tensors, but has values that only
 * unknown code could build. */
davy_result dv_pth_collect(const dv_pth_where *where, const dv_pickle *pk, dv_tensors *t);

#endif
