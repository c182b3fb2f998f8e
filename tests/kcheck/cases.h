/* cases.h - descriptions of an op's problems, shared by the lists of cases for CPU and GPU. */
#ifndef KCHECK_CASES_H
#define KCHECK_CASES_H

#include "kernels/dtype.h"
#include "tests/kcheck/kcheck.h"

typedef struct kc_conv_spec {
    int64_t n, cin, cout, h, w; /* h, w of the stored input; cout before a shuffle; n 0: one or two pictures */
    int32_t k, stride, upsample, asymmetric, shuffle, valid;
    int64_t stats_groups;
    dvk_dtype xt, yt;
    int epilogue; /* below */
    int own;      /* the first residual is the first channels of x */
    int behind;   /* 1: a residual has the size of the shuffled result; 2: it is also scaled by channel */
    int sums;     /* CUDA: sums of every channel of the result */
    int backwards;
    int prologue;
    int slab;
    kc_fill fill;
} kc_conv_spec;

enum { /* kinds of epilogue */
       EPI_PLAIN,
       EPI_BIAS,
       EPI_RELU,
       EPI_LRELU,
       EPI_PRELU,
       EPI_SILU,
       EPI_CLAMP3,
       EPI_RES,
       EPI_TWO_RES,
       EPI_RES_IN_PLACE,
       EPI_TWO_RES_IN_PLACE,
       EPI_ACT_LAST,
       EPI_PRELU_LAST,
       EPI_GATE,
       EPI_GELU,
       EPI_SIGMOID,
       EPI_TANH,
       EPI_MISH,
       EPI_KINDS,
       EPI_TIMES = EPI_KINDS, /* gate 2, for CUDA only */
       EPI_TIMES_TWO,
       EPI_OWN_GATE /* gate 3 */
};

enum { PRO_NONE, PRO_NORM, PRO_NORM_SILU, PRO_SILU, PRO_RELU, PRO_CLAMP3, PRO_KINDS };

enum { ENDS_PLAIN, ENDS_BIAS, ENDS_RES, ENDS_TWO_RES, ENDS_IN_PLACE, ENDS_LAST, ENDS_GATE, ENDS }; /* of pointwise */

typedef struct kc_pointwise_spec {
    kc_shape shape;
    dvk_act front, act;
    int ends;
    int norm; /* a prologue with scale and shift */
} kc_pointwise_spec;

typedef struct kc_norm_spec {
    kc_shape shape;
    int64_t groups;
    int64_t chunks; /* as in dvk_group_norm_stats_args */
} kc_norm_spec;

typedef struct kc_attention_spec {
    kc_shape shape; /* of q; c of one head times heads */
    int64_t kh, kw, heads, v_dim;
} kc_attention_spec;

static inline double kc_view_bytes(const dvk_view *v) {
    return (double)(v->n * v->h * v->w * v->c) * (double)dvk_dtype_size(v->dtype);
}
/* The unit of errors if large sums end in an activation that bounds them; otherwise 0. */
double kc_bounded_unit(const dvk_epilogue *e, kc_fill fill);
void kc_build_conv(kc_problem *p, const kc_conv_spec *s);
void kc_build_pointwise(kc_problem *p, const kc_pointwise_spec *of, dvk_dtype t);
void kc_build_stats(kc_problem *p, const kc_norm_spec *of, dvk_dtype t, kc_fill fill, int slab);
void kc_build_finish(kc_problem *p, const kc_norm_spec *of);
/* types: of q, k, v and y; slabs: bits, of k and of the others */
void kc_build_attention(kc_problem *p, const kc_attention_spec *of, const dvk_dtype types[4], kc_fill fill, int slabs);

#endif
