/* fuse_winograd.h - what fuse_winograd.c, which says what frames may be read transformed, and fuse_cuda_bands.c share. */
#ifndef DV_FOLD_WINOGRAD_H
#define DV_FOLD_WINOGRAD_H

#include "core/plan/lower.h"

typedef struct dv_transformable {
    int64_t node;        /* of frames, or the first of a ring's windows */
    double gain;         /* ns; 0: nothing, or it cannot be done */
    uint64_t more;       /* bytes that its frames take when they are transformed */
    uint64_t weights;    /* and the convolution's weights */
    double before;       /* ns that the frames before the slice take, which the slice before has transformed, too */
    int64_t first, last; /* nodes where the frames are alive */
    bool seen, taken;
    int64_t band;          /* rows that are transformed at a time; 0: all */
    uint64_t less, longer; /* bytes that they take less for it, that what they are made of takes longer */
} dv_transformable;

typedef struct dv_transformables {
    dv_lowering l;
    dv_transformable *candidates; /* of nodes at most as many */
    int64_t count;
    uint64_t *live;   /* bytes alive at each node */
    uint64_t weights; /* of what has been taken */
} dv_transformables;

enum { DV_UNREAD = -1, DV_OTHERS = -2 };

/* The convolution that alone reads such frames, but for the past behind them; DV_UNREAD; DV_OTHERS: there is another reader. */
int64_t dv_frames_reader(const dv_graph *g, const dv_node *frames);
/* A view as it would be transformed, in one piece. */
dvk_view dv_view_transformed(dvk_view v);
uint64_t dv_value_bytes(const dv_memory_plan *place, dv_value v);
/* To what is alive at the nodes from `first` to `last`; of what is taken away the complement. */
void dv_add_live(dv_transformables *s, int64_t first, int64_t last, uint64_t bytes);
uint64_t dv_most_live(const dv_transformables *s, int64_t first, int64_t last);

/* fuse_cuda_bands.c: which of those taken are transformed in bands of rows. */
davy_result dv_set_bands(dv_transformables *s);

#endif
