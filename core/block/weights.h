/* weights.h - questions that several architectures ask about a list of tensors, and how they put names together. */
#ifndef DV_BLOCK_WEIGHTS_H
#define DV_BLOCK_WEIGHTS_H

#include "core/graph/graph.h"

enum { DV_NAMES_BYTES = 512 };

bool dv_has(const dv_tensors *t, const char *names);
/* Size of one axis of the first of the names that exists; 0: no such tensor or axis. */
int64_t dv_dim(const dv_tensors *t, const char *names, int32_t axis);
/* 1 + the largest integer i such that a name starts with "<prefix>.i."; 0: none. Empty prefix: bare "i." */
int64_t dv_sequence_length(const dv_tensors *t, const char *prefix);
bool dv_any_contains(const dv_tensors *t, const char *part);

/* The last convolution in front of a pixel shuffle has n outputs: which channel count among in, 3, 4, 1 leaves a
 * square? false: none. */
bool dv_scale_and_channels(int64_t n, int64_t in, int64_t *scale, int64_t *channels);
/* Whole square root, or 0 if n is not a square. */
int64_t dv_square_root(int64_t n);

/* Every alternative of `names` followed by every alternative of `suffixes`: "a|b" and ".x|.y" give "a.x|a.y|b.x|b.y".
 * Too long for `out` (which no name of an architecture is): empty. Returns out. */
const char *dv_names_join(char out[DV_NAMES_BYTES], const char *names, const char *suffixes);

#endif
