/* candidates.c - reference of "candidates". */
#include <math.h>
#include <stdlib.h>

#include "kernels/kernel.h"
#include "kernels/lm.h"

static int falling(const void *a, const void *b) {
    const float x = *(const float *)a;
    const float y = *(const float *)b;
    return x > y ? -1 : x < y;
}

static float bound_of(const dvk_candidates_args *a) {
    float tops[DVK_CANDIDATE_PIECES];
    int64_t pieces = 0;
    for (int64_t i = 0; i < a->n; i++) {
        if (i % DVK_CANDIDATE_PIECE == 0) {
            tops[pieces++] = a->x[i];
        }
        tops[pieces - 1] = fmaxf(tops[pieces - 1], a->x[i]);
    }
    qsort(tops, (size_t)pieces, sizeof *tops, falling);
    return tops[(a->least < pieces ? a->least : pieces) - 1];
}

static int64_t units(const void *args) {
    (void)args;
    return 1;
}

static void run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_candidates_args *a = args;
    (void)first;
    (void)last;
    (void)scratch;
    a->to->n = 0;
    for (int64_t i = 0; i < a->n; i++) {
        if (isnan(a->x[i])) {
            a->to->n = -1;
            return;
        }
    }
    a->to->bound = bound_of(a);
    for (int64_t i = 0; i < a->n; i++) {
        if (a->x[i] < a->to->bound) {
            continue;
        }
        if (a->to->n < DVK_CANDIDATES) {
            a->to->id[a->to->n] = (int32_t)i;
            a->to->value[a->to->n] = a->x[i];
        }
        a->to->n++;
    }
}

const dvk_kernel dvk_candidates_ref = {
    .op = "candidates", .variant = "ref", .compute = DVK_F32, .units = units, .run = run};
