/* lower_operand.h - frames as the steps of a clip read and write them: parts of a value's memory, or of the state, which are
 * copied (lower_operand.c, lower_time.c) or transformed (lower_transformed.c). Internal to those three. */
#ifndef DV_LOWER_OPERAND_H
#define DV_LOWER_OPERAND_H

#include "core/plan/lower.h"

typedef struct dv_operand { /* of a copy: a part of the arena, or of the state */
    dv_bind_kind kind;
    uint64_t at;   /* there */
    dvk_view view; /* of the whole */
    int64_t first; /* its first element */
} dv_operand;

/* All of a value. */
dv_operand dv_operand_of(const dv_lowering *l, dv_value v);
/* `keep` frames of such a shape from `at` of the state on, one behind the other or side by side, as they lie where they are
 * read. */
dv_operand dv_operand_state(const dv_lowering *l, uint64_t at, dv_shape s, int64_t keep, bool side_by_side);
/* What a ring is given by the slice before, or leaves to the next. Of transformed frames that are offloaded this is fetched to a
 * buffer, or written back from one, as if that were the state. */
dv_operand dv_operand_kept(const dv_lowering *l, const dv_frame_ring *ring, bool leaves);
/* `count` frames of a ring from number `first` on, by where they lie in it. */
dv_operand dv_operand_ring(const dv_lowering *l, dv_value v, int64_t first, int64_t count);

/* The picture at t of o, and `count` behind it. */
dv_operand dv_operand_frames(dv_operand o, int64_t t, int64_t count);
dv_operand dv_operand_rows(dv_operand o, int64_t first, int64_t count);
dv_operand dv_operand_channels(dv_operand o, int64_t c, int64_t count);
/* Frames that lie side by side are so many channels of one picture. */
dv_operand dv_operand_joined(dv_operand o, int64_t count);

/* Writes the operand to `out`, a view of the step's arguments, and binds its data. */
void dv_lower_operand(dv_lowering *l, dvk_view *out, const dv_operand *o);
/* A step: to = alpha * from. */
void dv_lower_copy(dv_lowering *l, const dv_operand *from, const dv_operand *to, float alpha);

/* A slice's frames on the way into windows. */
typedef struct dv_windows {
    const dv_time *time;
    bool continues, keeps;
    dv_operand x, y;
    dv_operand state;          /* where anything is kept */
    const dv_frame_ring *ring; /* NULL: in none */
} dv_windows;

/* ---- lower_transformed.c ---- */

typedef struct dv_transform {
    bool applies;    /* the node's prologue first, else nothing */
    int64_t before;  /* slots ahead of it where the first picture is written too */
    dv_operand kept; /* where the last kept.view.n pictures go as they are before the transform */
} dv_transform;

/* A step: to = the transform of `from`. */
void dv_lower_transform(dv_lowering *l, const dv_operand *from, const dv_operand *to, const dv_transform *how);
/* All steps of a slice's windows, or of one window of a ring, whose frames are read transformed. */
void dv_lower_transformed(dv_lowering *l, const dv_windows *w, const dv_transform_rows *band);
void dv_lower_window_transformed(dv_lowering *l, const dv_operand *newest);

#endif
