/* golden_compare.c - see golden_compare.h. */
#include "golden_compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "golden_check.h"

static double bound_of(davy_dtype precision) {
    return precision == DAVY_DTYPE_FP8    ? INFINITY
           : precision == DAVY_DTYPE_INT8 ? INFINITY
           : precision == DAVY_DTYPE_BF16 ? 2e-2
           : precision == DAVY_DTYPE_F16  ? 5e-3
                                          : 1e-4;
}

void compare_arrays(davy_dtype precision, const char *what, const array *got, const array *expected) {
    if (!CHECKF(got->c == expected->c && got->t == expected->t && got->h == expected->h && got->w == expected->w,
                "%s: [%lld,%lld,%lld,%lld], expected [%lld,%lld,%lld,%lld]", what, (long long)got->c, (long long)got->t,
                (long long)got->h, (long long)got->w, (long long)expected->c, (long long)expected->t,
                (long long)expected->h, (long long)expected->w)) {
        return;
    }
    double largest = 0.0;
    double difference = 0.0;
    double norm = 0.0;
    double low = INFINITY;
    double high = -INFINITY;
    for (int64_t i = 0; i < array_count(got); i++) {
        const double d = (double)got->data[i] - (double)expected->data[i];
        largest = !(fabs(d) <= largest) ? fabs(d) : largest; /* keeps a NaN */
        difference += d * d;
        norm += (double)expected->data[i] * (double)expected->data[i];
        low = fmin(low, (double)expected->data[i]);
        high = fmax(high, (double)expected->data[i]);
    }
    const double relative = sqrt(difference / norm);
    const double bound = bound_of(precision);
    const double psnr = 10.0 * log10((high - low) * (high - low) * (double)array_count(got) / difference);
    const uint64_t hash = values_hash(got->data, (uint64_t)array_count(got) * sizeof *got->data);
    printf("%s: largest error %.3g, relative %.3g (bound %.0e), PSNR %.1f dB, hash %016" PRIx64 "\n", what, largest,
           relative, bound, psnr, hash);
    CHECKF(relative <= bound && relative < 1e30, "%s: relative error %.3g exceeds %.0e", what, relative, bound);
    CHECKF(precision != DAVY_DTYPE_INT8 || psnr >= 40.0, "%s: %.1f dB", what, psnr);
}

/* Channels [first, first + count) of an array, as a view of its memory. */
static array channels(const array *a, int64_t first, int64_t count) {
    return (array){.data = a->data + first * a->t * a->h * a->w, .c = count, .t = a->t, .h = a->h, .w = a->w};
}

void compare_moments(davy_dtype precision, const char *how, array *got, const array *mean, const array *logvar) {
    char what[64];
    const array got_mean = channels(got, 0, mean->c);
    const array got_logvar = channels(got, mean->c, mean->c);
    for (int64_t i = 0; i < array_count(&got_logvar); i++) {
        got_logvar.data[i] = fminf(fmaxf(got_logvar.data[i], -30.0f), 20.0f);
    }
    snprintf(what, sizeof what, "mean%s", how);
    compare_arrays(precision, what, &got_mean, mean);
    snprintf(what, sizeof what, "logvar%s", how);
    compare_arrays(precision, what, &got_logvar, logvar);
}
