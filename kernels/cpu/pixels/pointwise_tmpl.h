/* pointwise_tmpl.h - "pointwise" on vectors, compiled once for each instruction set by a file that has included a
 * conv_vec_*.h. If pixels are contiguous, several form a "group" whose length is a multiple of the vector. The
 * parameters of channels are repeated in scratch, so that three channels are as fast as sixteen. Every element is read
 * before it is written and never again, so y may alias x or a residual. */
#include "kernels/costs/cpu_costs.h"
#include "kernels/cpu/conv/conv_common.h"
#include "kernels/cpu/conv/conv_math_tmpl.h"

enum { PW_UNIT = 65536 }; /* approximate elements of a unit */

typedef struct pw_plan {
    const dvk_pointwise_args *a;
    int64_t group;                              /* pixels of a group */
    const float *bias, *slopes, *scale, *shift; /* [group][c] */
} pw_plan;

typedef struct pw_at { /* element indices: x, y and the residuals */
    int64_t x, y, res[2];
} pw_at;

static int64_t pw_group(const dvk_pointwise_args *a) {
    const dvk_view *views[4] = {&a->x, &a->y, &a->epi.res[0], &a->epi.res[1]};
    for (int i = 0; i < 2 + a->epi.n_res; i++) {
        if (views[i]->sw != a->y.c) {
            return 1;
        }
    }
    int64_t pixels = CONV_VW;
    while (pixels > 1 && pixels / 2 * a->y.c % CONV_VW == 0) {
        pixels /= 2;
    }
    return pixels;
}

static int64_t pw_rows(const dvk_pointwise_args *a) {
    return conv_min(a->y.h, 1 + PW_UNIT / (a->y.w * a->y.c));
}

static int64_t pw_units(const void *args) {
    const dvk_pointwise_args *a = args;
    return a->y.n * conv_ceil_div(a->y.h, pw_rows(a));
}

static size_t pw_scratch_bytes(const void *args) {
    const dvk_pointwise_args *a = args;
    return (size_t)(4 * pw_group(a) * a->y.c) * sizeof(float);
}

static double pw_cost(const void *args) {
    const dvk_pointwise_args *a = args;
    const int heavy = a->pro.act >= DVK_ACT_SILU || a->epi.act >= DVK_ACT_SILU || a->epi.gate;
    return (double)(a->y.n * a->y.h * a->y.w * a->y.c) *
           (heavy ? CPU_COST(pointwise, element_act) : CPU_COST(pointwise, element));
}

static const float *pw_repeat(const float *from, int64_t c, int64_t group, float *to) {
    if (from == NULL || group == 1) {
        return from;
    }
    for (int64_t i = 0; i < group; i++) {
        memcpy(to + i * c, from, (size_t)c * sizeof(float));
    }
    return to;
}

static pw_plan pw_prepare(const dvk_pointwise_args *a, int64_t n, float *scratch) {
    const int64_t c = a->y.c;
    const int64_t group = pw_group(a);
    pw_plan p = {.a = a, .group = group};
    p.bias = pw_repeat(a->epi.bias, c, group, scratch);
    p.slopes = pw_repeat(a->epi.act == DVK_ACT_PRELU ? a->epi.slopes : NULL, c, group, scratch + group * c);
    if (a->pro.scale != NULL) {
        p.scale = pw_repeat(a->pro.scale + n * c, c, group, scratch + 2 * group * c);
        p.shift = pw_repeat(a->pro.shift + n * c, c, group, scratch + 3 * group * c);
    }
    return p;
}

/* sigmoid(t) - 0.5 = m / (2 m + 4) with m = e^t - 1: no cancellation near zero */
CONV_INLINE conv_vec pw_gate(conv_vec t) {
    conv_vec r = t;
    const conv_vec scale = cv_exp2i(conv_exp_reduce(&r));
    const conv_vec m = cv_fma(scale, conv_expm1_small(r), cv_sub(scale, cv_set1(1.0f)));
    return cv_div(m, cv_fma(cv_set1(2.0f), m, cv_set1(4.0f)));
}

/* Elements [k, k + lanes) of a group that begins at `at`. Most calls pass constant activations. */
CONV_INLINE void pw_vector(const pw_plan *p, const pw_at *at, int64_t k, int64_t lanes, dvk_act front, dvk_act act) {
    const dvk_pointwise_args *a = p->a;
    const dvk_epilogue *e = &a->epi;
    conv_vec t = cv_get(a->x.data, a->x.dtype, at->x + k, lanes);
    if (p->scale != NULL) {
        t = cv_fma(t, cv_get(p->scale, DVK_F32, k, lanes), cv_get(p->shift, DVK_F32, k, lanes));
    }
    t = conv_act(front, t, cv_set1(0.0f));
    if (p->bias != NULL) {
        t = cv_add(t, cv_get(p->bias, DVK_F32, k, lanes));
    }
    if (e->gate) {
        t = cv_mul(cv_add(t, cv_get(e->res[0].data, e->res[0].dtype, at->res[0] + k, lanes)), pw_gate(t));
        cv_put(a->y.data, a->y.dtype, at->y + k, lanes, t);
        return;
    }
    const conv_vec slope = act == DVK_ACT_PRELU ? cv_get(p->slopes, DVK_F32, k, lanes) : cv_set1(e->slope);
    if (!e->act_last) {
        t = conv_act(act, t, slope);
    }
    t = cv_mul(cv_set1(e->alpha), t);
    for (int32_t i = 0; i < e->n_res; i++) {
        t = cv_fma(cv_set1(e->beta[i]), cv_get(e->res[i].data, e->res[i].dtype, at->res[i] + k, lanes), t);
    }
    if (e->act_last) {
        t = conv_act(act, t, slope);
    }
    cv_put(a->y.data, a->y.dtype, at->y + k, lanes, t);
}

CONV_INLINE void pw_elements(const pw_plan *p, const pw_at *at, int64_t count, dvk_act front, dvk_act act) {
    int64_t k = 0;
    for (; k + CONV_VW <= count; k += CONV_VW) {
        pw_vector(p, at, k, CONV_VW, front, act);
    }
    if (k < count) {
        pw_vector(p, at, k, count - k, front, act);
    }
}

static pw_at pw_row_at(const dvk_pointwise_args *a, int64_t n, int64_t y) {
    pw_at at = {.x = n * a->x.sn + y * a->x.sh, .y = n * a->y.sn + y * a->y.sh};
    for (int32_t i = 0; i < a->epi.n_res; i++) {
        at.res[i] = n * a->epi.res[i].sn + y * a->epi.res[i].sh;
    }
    return at;
}

CONV_INLINE void pw_row(const pw_plan *p, int64_t n, int64_t y, dvk_act front, dvk_act act) {
    const dvk_pointwise_args *a = p->a;
    pw_at at = pw_row_at(a, n, y);
    for (int64_t x = 0; x < a->y.w; x += p->group) {
        const int64_t pixels = conv_min(p->group, a->y.w - x);
        pw_elements(p, &at, pixels * a->y.c, front, act);
        at.x += pixels * a->x.sw;
        at.y += pixels * a->y.sw;
        at.res[0] += pixels * a->epi.res[0].sw;
        at.res[1] += pixels * a->epi.res[1].sw;
    }
}

static void pw_row_of_any(const pw_plan *p, int64_t n, int64_t y) {
    pw_row(p, n, y, p->a->pro.act, p->a->epi.act);
}

/* The combinations that networks use have separate loops. */
static void pw_row_dispatch(const pw_plan *p, int64_t n, int64_t y) {
    const dvk_act front = p->a->pro.act;
    const dvk_act act = p->a->epi.act;
    if (front == DVK_ACT_NONE && act == DVK_ACT_NONE) {
        pw_row(p, n, y, DVK_ACT_NONE, DVK_ACT_NONE);
    } else if (front == DVK_ACT_SILU && act == DVK_ACT_NONE) {
        pw_row(p, n, y, DVK_ACT_SILU, DVK_ACT_NONE);
    } else if (front == DVK_ACT_NONE && act == DVK_ACT_RELU) {
        pw_row(p, n, y, DVK_ACT_NONE, DVK_ACT_RELU);
    } else if (front == DVK_ACT_NONE && act == DVK_ACT_PRELU) {
        pw_row(p, n, y, DVK_ACT_NONE, DVK_ACT_PRELU);
    } else if (front == DVK_ACT_NONE && act == DVK_ACT_SILU) {
        pw_row(p, n, y, DVK_ACT_NONE, DVK_ACT_SILU);
    } else {
        pw_row_of_any(p, n, y);
    }
}

static void pw_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_pointwise_args *a = args;
    const int64_t rows = pw_rows(a);
    const int64_t per_picture = conv_ceil_div(a->y.h, rows);
    pw_plan p = {0};
    int64_t prepared = -1;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t n = unit / per_picture;
        if (n != prepared) {
            p = pw_prepare(a, n, scratch);
            prepared = n;
        }
        const int64_t y0 = unit % per_picture * rows;
        for (int64_t y = y0; y < conv_min(y0 + rows, a->y.h); y++) {
            pw_row_dispatch(&p, n, y);
        }
    }
}
