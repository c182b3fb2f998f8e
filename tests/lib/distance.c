/* distance.c - see distance.h. */
#include "tests/lib/distance.h"

#include <math.h>

double relative_distance(const float *a, const float *b, int64_t n) {
    double square = 0.0;
    double norm = 1e-30;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)a[i] - (double)b[i];
        square += d * d;
        norm += (double)b[i] * (double)b[i];
    }
    return sqrt(square / norm);
}
