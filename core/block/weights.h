/* weights.h - queries on a list of tensors that several architectures share, and the composition of names. */
#ifndef DV_BLOCK_WEIGHTS_H
#define DV_BLOCK_WEIGHTS_H

#include "core/graph/graph.h"

enum { DV_NAMES_BYTES = 512 };

bool dv_has(const dv_tensors *t, const char *names);
/* Size of one axis of the first existing name; 0: no such tensor or axis. */
int64_t dv_dim(const dv_tensors *t, const char *names, int32_t axis);
/* 1 + the largest integer i such that a name starts with "<prefix>.i."; 0: none. Empty prefix: bare "i." */
int64_t dv_sequence_length(const dv_tensors *t, const char *prefix);
bool dv_any_contains(const dv_tensors *t, const char *part);

/* For the last convolution in front of a pixel shuffle, with n outputs: tries the channel counts in, 3, 4 and 1
 * until n / channels is a square. False: none fits. */
bool dv_scale_and_channels(int64_t n, int64_t in, int64_t *scale, int64_t *channels);
/* Integer square root; 0 if n is no square. */
int64_t dv_square_root(int64_t n);

/* Every alternative of `names` followed by every alternative of `suffixes`: "a|b" and ".x|.y" give
 * "a.x|a.y|b.x|b.y". If `out` is too small (no architecture's names are that long), it becomes empty. Returns out. */
const char *dv_names_join(char out[DV_NAMES_BYTES], const char *names, const char *suffixes);

#endif
