/* conv_mk_tmpl.h - the f32 micro-kernel: up to CONV_MR pixels times CONV_NZ vectors of output channels, with all
 * accumulators in registers. Each step broadcasts one input value per pixel and multiplies it with the weights of the
 * panel. Direct convolution loops over the taps; Winograd uses it as a matrix product (one tap). For a file that has
 * included a conv_vec_*.h.
 *
 * The accumulators are named variables, not an array: some compilers keep arrays in memory. */

typedef struct conv_mk {
    const float *w;          /* the panel: [rows][taps][len][nz * CONV_VW] */
    int64_t pixel, row, tap; /* pitches of the input in floats: output pixel, tap row, tap of a row */
    int64_t rows, taps, len;
    int64_t pitch; /* of the sums */
} conv_mk;

#ifndef CONV_MK_FMA /* conv_pairs.h defines another one */
#define CONV_MK_FMA(b, w, s) cv_fma(b, w, s)
#endif
#if defined(__AVX512F__)
#define CONV_MK_EACH(X)                                                                                                \
    X(0, 0, 0)                                                                                                         \
    X(1, 0, 1)                                                                                                         \
    X(2, 0, 2)                                                                                                         \
    X(3, 3, 0)                                                                                                         \
    X(4, 3, 1) X(5, 3, 2) X(6, 6, 0) X(7, 6, 1) X(8, 6, 2) X(9, 9, 0) X(10, 9, 1) X(11, 9, 2) X(12, 12, 0) X(13, 12, 1)
#define CONV_MK_BASES(X) X(0) X(3) X(6) X(9) X(12)
#else
#define CONV_MK_EACH(X)  X(0, 0, 0) X(1, 0, 1) X(2, 0, 2) X(3, 3, 0) X(4, 3, 1) X(5, 3, 2)
#define CONV_MK_BASES(X) X(0) X(3)
#endif
#define CONV_MK_ZERO(i, base, off) conv_vec s##i = zero, t##i = zero;
#define CONV_MK_BASE(i)            const float *q##i = a + k->row * y + k->tap * x + (i)*k->pixel;
#define CONV_MK_STEP(i, base, off)                                                                                     \
    if (np > (i)) {                                                                                                    \
        const conv_vec b = cv_set1(q##base[p * (off) + o]);                                                            \
        s##i = CONV_MK_FMA(b, w0, s##i);                                                                               \
        if (nz > 1) {                                                                                                  \
            t##i = CONV_MK_FMA(b, w1, t##i);                                                                           \
        }                                                                                                              \
    }
#define CONV_MK_NEXT(i) q##i += n;
#define CONV_MK_OUT(i, base, off)                                                                                      \
    if (np > (i)) {                                                                                                    \
        cv_store(out + (i)*k->pitch, s##i);                                                                            \
        if (nz > 1) {                                                                                                  \
            cv_store(out + (i)*k->pitch + CONV_VW, t##i);                                                              \
        }                                                                                                              \
    }
#define CONV_MK_K(offset)                                                                                              \
    {                                                                                                                  \
        const int64_t o = (offset);                                                                                    \
        const conv_vec w0 = cv_load(w + o * nz * CONV_VW);                                                             \
        const conv_vec w1 = nz > 1 ? cv_load(w + o * nz * CONV_VW + CONV_VW) : w0;                                     \
        CONV_MK_EACH(CONV_MK_STEP)                                                                                     \
    }

/* np and nz are constants at each call. */
CONV_INLINE void conv_mk_body(const conv_mk *k, const float *a, float *out, int np, int nz) {
    const conv_vec zero = cv_set1(0.0f);
    const float *w = k->w;
    const int64_t p = k->pixel;
    CONV_MK_EACH(CONV_MK_ZERO)
    for (int64_t y = 0; y < k->rows; y++) {
        for (int64_t x = 0; x < k->taps; x++) {
            CONV_MK_BASES(CONV_MK_BASE)
            int64_t n = 4;
            int64_t left = k->len;
            for (; left >= 4; left -= 4) {
                CONV_MK_K(0)
                CONV_MK_K(1)
                CONV_MK_K(2)
                CONV_MK_K(3)
                CONV_MK_BASES(CONV_MK_NEXT)
                w += 4 * nz * CONV_VW;
            }
            for (n = 1; left > 0; left--) {
                CONV_MK_K(0)
                CONV_MK_BASES(CONV_MK_NEXT)
                w += nz * CONV_VW;
            }
        }
    }
    CONV_MK_EACH(CONV_MK_OUT)
}

#define CONV_MK_CASE(i, base, off)                                                                                     \
    case (i) + 1:                                                                                                      \
        nz > 1 ? conv_mk_body(k, a, out, (i) + 1, 2) : conv_mk_body(k, a, out, (i) + 1, 1);                            \
        break;

static inline void conv_mk_run(const conv_mk *k, const float *a, float *out, int64_t np, int64_t nz) {
    switch (np) {
        CONV_MK_EACH(CONV_MK_CASE)
    default:
        break;
    }
}

/* Multiplies `pixels` pixels in even steps of at most CONV_MR. */
static inline void conv_mk_line(const conv_mk *k, const float *a, float *out, int64_t pixels, int64_t nz) {
    const int64_t steps = conv_ceil_div(pixels, CONV_MR);
    for (int64_t i = 0; i < steps; i++) {
        const int64_t from = pixels * i / steps;
        conv_mk_run(k, a + from * k->pixel, out + from * k->pitch, pixels * (i + 1) / steps - from, nz);
    }
}
