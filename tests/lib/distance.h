/* distance.h - the measure by which results of floats are compared with what they should be. */
#ifndef DV_TESTS_DISTANCE_H
#define DV_TESTS_DISTANCE_H

#include <stdint.h>

/* ||a - b|| / ||b|| over n numbers. */
double relative_distance(const float *a, const float *b, int64_t n);

#endif
