/* conv_epi_tmpl.h - the epilogue of a convolution: a run of raw sums becomes output pixels (bias, activation,
 * residuals, rounding). For a file that has included a conv_vec_*.h and conv_math_tmpl.h. */

/* A run of pixels of one output row, and channels [c, c + count) of them. */
typedef struct conv_span {
    const float *sums; /* [pixel][pitch] */
    int64_t pitch;
    int64_t n, y, x, pixels;
    int64_t c, count;
} conv_span;

/* Local copies of the arguments for the loops. The compiler must otherwise assume that stores of pixels modify the
 * arguments. */
typedef struct conv_epi {
    conv_vec alpha, beta0, beta1;
    const void *r0, *r1;
    dvk_dtype t0, t1;
    int32_t n_res, act_last, gate;
} conv_epi;

/* One vector, with the bias added. `act` and `plain` (activation only) are constants at each call. */
CONV_INLINE conv_vec conv_epi_value(const conv_epi *e, dvk_act act, int plain, conv_vec t, conv_vec slope,
                                    const int64_t *at) {
    const int64_t lanes = at[2];
    if (plain) {
        return conv_act(act, t, slope);
    }
    if (e->gate) {
        const conv_vec g = cv_sub(conv_sigmoid(t), cv_set1(0.5f));
        return cv_mul(cv_add(t, cv_get(e->r0, e->t0, at[0], lanes)), g);
    }
    t = cv_mul(e->alpha, e->act_last ? t : conv_act(act, t, slope));
    t = e->n_res > 0 ? cv_fma(e->beta0, cv_get(e->r0, e->t0, at[0], lanes), t) : t;
    t = e->n_res > 1 ? cv_fma(e->beta1, cv_get(e->r1, e->t1, at[1], lanes), t) : t;
    return e->act_last ? conv_act(act, t, slope) : t;
}

/* Channels [c, c + lanes) of all pixels: one vector, or two whole vectors if lanes is that large. */
CONV_INLINE void conv_epi_lanes(const dvk_conv2d_args *a, const conv_span *s, dvk_act act, int plain, int64_t c,
                                int64_t lanes) {
    const dvk_epilogue *p = &a->epi;
    const conv_epi e = {
        .alpha = cv_set1(p->alpha),
        .beta0 = cv_set1(p->beta[0]),
        .beta1 = cv_set1(p->beta[1]),
        .r0 = p->res[0].data,
        .r1 = p->res[1].data,
        .t0 = p->res[0].dtype,
        .t1 = p->res[1].dtype,
        .n_res = p->n_res,
        .act_last = p->act_last,
        .gate = p->gate,
    };
    const int two = lanes > CONV_VW;
    const int64_t first = two ? CONV_VW : lanes;
    const conv_vec zero = cv_set1(0.0f);
    const conv_vec bias0 = p->bias ? cv_get(p->bias, DVK_F32, c, first) : zero;
    const conv_vec bias1 = p->bias && two ? cv_get(p->bias, DVK_F32, c + CONV_VW, CONV_VW) : zero;
    const conv_vec slope0 = act == DVK_ACT_PRELU ? cv_get(p->slopes, DVK_F32, c, first) : cv_set1(p->slope);
    const conv_vec slope1 =
        act == DVK_ACT_PRELU && two ? cv_get(p->slopes, DVK_F32, c + CONV_VW, CONV_VW) : cv_set1(p->slope);
    const int64_t pixels = s->pixels, pitch = s->pitch;
    const int64_t step_y = a->y.sw, step0 = p->res[0].sw, step1 = p->res[1].sw;
    const float *in = s->sums + (c - s->c);
    void *const out = a->y.data;
    const dvk_dtype type = a->y.dtype;
    int64_t to = s->n * a->y.sn + s->y * a->y.sh + s->x * step_y + c;
    int64_t at[3] = {s->n * p->res[0].sn + s->y * p->res[0].sh + s->x * step0 + c,
                     s->n * p->res[1].sn + s->y * p->res[1].sh + s->x * step1 + c, first};
    for (int64_t i = 0; i < pixels; i++, in += pitch, to += step_y) {
        const conv_vec v0 = conv_epi_value(&e, act, plain, cv_add(cv_load(in), bias0), slope0, at);
        if (two) {
            const int64_t next[3] = {at[0] + CONV_VW, at[1] + CONV_VW, CONV_VW};
            const conv_vec v1 = conv_epi_value(&e, act, plain, cv_add(cv_load(in + CONV_VW), bias1), slope1, next);
            cv_put2(out, type, to, v0, v1);
        } else {
            cv_put(out, type, to, first, v0);
        }
        at[0] += step0;
        at[1] += step1;
    }
}

CONV_INLINE void conv_epi_act(const dvk_conv2d_args *a, const conv_span *s, dvk_act act) {
    const int plain = a->epi.n_res == 0 && !a->epi.gate && a->epi.alpha == 1.0f;
    int64_t c = 0;
    for (; c + 2 * CONV_VW <= s->count; c += 2 * CONV_VW) {
        plain ? conv_epi_lanes(a, s, act, 1, s->c + c, 2 * CONV_VW)
              : conv_epi_lanes(a, s, act, 0, s->c + c, 2 * CONV_VW);
    }
    for (; c < s->count; c += CONV_VW) {
        const int64_t lanes = conv_min(CONV_VW, s->count - c);
        plain ? conv_epi_lanes(a, s, act, 1, s->c + c, lanes) : conv_epi_lanes(a, s, act, 0, s->c + c, lanes);
    }
}

static inline void conv_epilogue(const dvk_conv2d_args *a, const conv_span *s) {
    switch (a->epi.act) {
    case DVK_ACT_RELU:
        conv_epi_act(a, s, DVK_ACT_RELU);
        break;
    case DVK_ACT_LRELU:
        conv_epi_act(a, s, DVK_ACT_LRELU);
        break;
    case DVK_ACT_PRELU:
        conv_epi_act(a, s, DVK_ACT_PRELU);
        break;
    case DVK_ACT_SILU:
        conv_epi_act(a, s, DVK_ACT_SILU);
        break;
    case DVK_ACT_CLAMP3:
        conv_epi_act(a, s, DVK_ACT_CLAMP3);
        break;
    case DVK_ACT_GELU:
        conv_epi_act(a, s, DVK_ACT_GELU);
        break;
    case DVK_ACT_SIGMOID:
        conv_epi_act(a, s, DVK_ACT_SIGMOID);
        break;
    case DVK_ACT_TANH:
        conv_epi_act(a, s, DVK_ACT_TANH);
        break;
    case DVK_ACT_MISH:
        conv_epi_act(a, s, DVK_ACT_MISH);
        break;
    default:
        conv_epi_act(a, s, DVK_ACT_NONE);
    }
}
