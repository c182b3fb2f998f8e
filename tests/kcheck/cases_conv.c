/* cases_conv.c - problems for conv2d in four groups:
 * - every epilogue and prologue with every dtype on one small shape;
 * - a list of geometries (kernel, stride, upsampling, padding, sizes from 1x1 up);
 * - every pair of the channel counts of real networks;
 * - the blocks of 8-bit integers (kernels/int8.h), again with every epilogue and prologue. */
#include <stdbool.h>
#include <stdio.h>

#include "tests/kcheck/cases.h"

static const dvk_dtype dtypes[3] = {DVK_F32, DVK_BF16, DVK_F16};

static const kc_conv_spec geometries[] = {
    {.cin = 16, .cout = 16, .h = 1, .w = 1, .k = 3},
    {.cin = 3, .cout = 64, .h = 5, .w = 7, .k = 3},
    {.cin = 64, .cout = 64, .h = 13, .w = 37, .k = 3},
    {.cin = 64, .cout = 3, .h = 9, .w = 33, .k = 3},
    {.cin = 16, .cout = 32, .h = 37, .w = 100, .k = 3},
    {.cin = 32, .cout = 48, .h = 100, .w = 37, .k = 1},
    {.cin = 48, .cout = 48, .h = 17, .w = 31, .k = 3},
    {.cin = 192, .cout = 32, .h = 12, .w = 14, .k = 3},
    {.cin = 512, .cout = 256, .h = 3, .w = 5, .k = 3},
    {.cin = 512, .cout = 512, .h = 5, .w = 7, .k = 1},
    {.cin = 4, .cout = 512, .h = 8, .w = 8, .k = 3},
    {.cin = 16, .cout = 512, .h = 6, .w = 6, .k = 3},
    {.cin = 4, .cout = 4, .h = 13, .w = 13, .k = 1},
    {.cin = 128, .cout = 128, .h = 13, .w = 11, .k = 3, .stride = 2, .asymmetric = 1},
    {.cin = 128, .cout = 128, .h = 12, .w = 16, .k = 3, .stride = 2, .asymmetric = 1},
    {.cin = 64, .cout = 64, .h = 15, .w = 18, .k = 3, .stride = 2},
    {.cin = 32, .cout = 16, .h = 9, .w = 9, .k = 1, .stride = 2},
    {.cin = 64, .cout = 64, .h = 9, .w = 13, .k = 3, .upsample = 2},
    {.cin = 64, .cout = 32, .h = 8, .w = 8, .k = 3, .upsample = 2},
    {.cin = 256, .cout = 128, .h = 3, .w = 4, .k = 3, .upsample = 2},
    {.cin = 3, .cout = 5, .h = 2, .w = 3, .k = 3, .upsample = 2},
    {.cin = 16, .cout = 24, .h = 4, .w = 4, .k = 1, .upsample = 2},
    {.cin = 8, .cout = 12, .h = 11, .w = 10, .k = 5},
    {.cin = 8, .cout = 8, .h = 9, .w = 13, .k = 7},
    {.cin = 17, .cout = 33, .h = 14, .w = 15, .k = 3},
    {.cin = 1, .cout = 1, .h = 1, .w = 40, .k = 3},
    {.cin = 1, .cout = 1, .h = 40, .w = 1, .k = 1},
    {.cin = 24, .cout = 40, .h = 2, .w = 65, .k = 3, .stride = 2},
    {.cin = 64, .cout = 48, .h = 33, .w = 4, .k = 3},
    {.cin = 96, .cout = 96, .h = 3, .w = 50, .k = 3},
    {.cin = 16, .cout = 16, .h = 21, .w = 37, .k = 17},
    {.cin = 16, .cout = 16, .h = 5, .w = 3, .k = 13},
    {.cin = 32, .cout = 64, .h = 14, .w = 33, .k = 3, .valid = 1},
    {.cin = 64, .cout = 128, .h = 19, .w = 18, .k = 3, .valid = 1},
    {.cin = 3, .cout = 32, .h = 9, .w = 35, .k = 3, .valid = 1},
    {.cin = 64, .cout = 3, .h = 9, .w = 12, .k = 3, .valid = 1},
    {.cin = 64, .cout = 64, .h = 12, .w = 18, .k = 2, .stride = 2, .valid = 1},
    {.cin = 64, .cout = 12, .h = 7, .w = 9, .k = 2, .valid = 1},
    {.cin = 16, .cout = 16, .h = 15, .w = 22, .k = 3, .stride = 2, .valid = 1},
};

/* Blocks of 16 x 16, 8 x 32 and 256 x 1 pixels, whole and partial, by phases and of several pictures; increasing
 * ranges. */
static const kc_conv_spec blocks[] = {
    {.cin = 32, .cout = 32, .h = 16, .w = 16, .k = 3},
    {.cin = 64, .cout = 64, .h = 33, .w = 50, .k = 3, .fill = KC_STEEP},
    {.cin = 192, .cout = 64, .h = 17, .w = 36, .k = 3, .fill = KC_STEEP},
    {.cin = 48, .cout = 80, .h = 47, .w = 8, .k = 3, .n = 2},
    {.cin = 64, .cout = 48, .h = 35, .w = 5, .k = 3},
    {.cin = 32, .cout = 96, .h = 1, .w = 133, .k = 3},
    {.cin = 32, .cout = 48, .h = 2, .w = 300, .k = 3, .fill = KC_NORMAL},
    {.cin = 64, .cout = 64, .h = 31, .w = 35, .k = 3, .stride = 2, .fill = KC_STEEP},
    {.cin = 64, .cout = 32, .h = 36, .w = 15, .k = 3, .stride = 2, .asymmetric = 1},
    {.cin = 32, .cout = 64, .h = 35, .w = 40, .k = 1, .stride = 2},
    {.cin = 64, .cout = 64, .h = 19, .w = 34, .k = 3, .upsample = 2, .fill = KC_STEEP},
    {.cin = 48, .cout = 32, .h = 20, .w = 7, .k = 3, .upsample = 2, .n = 2},
    {.cin = 32, .cout = 48, .h = 1, .w = 1, .k = 3, .upsample = 2},
    {.cin = 64, .cout = 64, .h = 25, .w = 43, .k = 1, .fill = KC_STEEP},
    {.cin = 64, .cout = 96, .h = 9, .w = 31, .k = 1, .n = 2},
    {.cin = 512, .cout = 512, .h = 3, .w = 5, .k = 1},
    {.cin = 180, .cout = 540, .h = 7, .w = 39, .k = 1},
    {.cin = 90, .cout = 33, .h = 17, .w = 18, .k = 3, .fill = KC_STEEP},
    {.cin = 52, .cout = 52, .h = 9, .w = 17, .k = 3, .upsample = 2},
    {.cin = 512, .cout = 512, .h = 6, .w = 17, .k = 3},
    {.cin = 64, .cout = 64, .h = 18, .w = 70, .k = 3, .valid = 1},
    {.cin = 64, .cout = 64, .h = 20, .w = 20, .k = 3, .fill = KC_NAN},
    {.cin = 32, .cout = 32, .h = 40, .w = 35, .k = 3, .fill = KC_LARGE},
    {.cin = 180, .cout = 360, .h = 9, .w = 40, .k = 1, .fill = KC_STEEP},
    {.cin = 60, .cout = 60, .h = 19, .w = 33, .k = 3, .fill = KC_STEEP},
    {.cin = 180, .cout = 180, .h = 6, .w = 18, .k = 3},
    {.cin = 108, .cout = 36, .h = 1, .w = 300, .k = 1, .n = 2, .fill = KC_LARGE},
};

static const int64_t channels[] = {1, 3, 4, 12, 16, 32, 48, 64, 96, 128, 192, 512};

enum {
    N_MODES = EPI_KINDS * PRO_KINDS * 3,
    N_GEOMETRIES = (int)(sizeof geometries / sizeof geometries[0]),
    N_CHANNELS = (int)(sizeof channels / sizeof channels[0]),
    N_BLOCKS = (int)(sizeof blocks / sizeof blocks[0]),
    BLOCK_ROUNDS = 5,
    GEOMETRY_ROUNDS = 6, /* each geometry: with six combinations of the rest */
};

static void add_residual(kc_problem *p, dvk_epilogue *e, const dvk_view *y, dvk_dtype dtype, float beta) {
    dvk_view *r = &e->res[e->n_res];
    e->beta[e->n_res++] = beta;
    kc_view(p, r, dtype, (kc_shape){y->n, y->h, y->w, y->c}, (int)(kc_next(&p->rng) % 2));
    kc_fill_view(p, r, KC_UNIFORM);
}

static void add_own_memory(kc_problem *p, dvk_epilogue *e, const dvk_view *y, float beta) {
    e->res[e->n_res] = *y;
    e->beta[e->n_res++] = beta;
    kc_fill_view(p, y, KC_UNIFORM);
}

static void build_epilogue(kc_problem *p, dvk_epilogue *e, const dvk_view *y, int kind) {
    static const dvk_act acts[EPI_KINDS] = {
        [EPI_RELU] = DVK_ACT_RELU,       [EPI_LRELU] = DVK_ACT_LRELU,      [EPI_PRELU] = DVK_ACT_PRELU,
        [EPI_SILU] = DVK_ACT_SILU,       [EPI_CLAMP3] = DVK_ACT_CLAMP3,    [EPI_TWO_RES_IN_PLACE] = DVK_ACT_PRELU,
        [EPI_ACT_LAST] = DVK_ACT_SILU,   [EPI_PRELU_LAST] = DVK_ACT_PRELU, [EPI_GELU] = DVK_ACT_GELU,
        [EPI_SIGMOID] = DVK_ACT_SIGMOID, [EPI_TANH] = DVK_ACT_TANH,        [EPI_MISH] = DVK_ACT_MISH,
    };
    if (kind == EPI_OWN_GATE) {
        *e = (dvk_epilogue){.alpha = 0.75f, .act = y->w % 2 ? DVK_ACT_SIGMOID : DVK_ACT_TANH, .gate = 3};
        e->bias = kc_floats(p, y->c, -1.0f, 1.0f);
        e->gate_w = kc_floats(p, y->c * y->c, -0.2f, 0.2f);
        e->gate_bias = y->h % 2 ? kc_floats(p, y->c, -1.0f, 1.0f) : NULL;
        add_residual(p, e, y, y->dtype, 1.25f);
        return;
    }
    if (kind >= EPI_KINDS) {
        *e = (dvk_epilogue){.alpha = 1.0f, .act = kind == EPI_TIMES ? DVK_ACT_SIGMOID : DVK_ACT_TANH, .gate = 2};
        e->bias = kc_floats(p, y->c, -1.0f, 1.0f);
        for (int i = 0; i < 1 + (kind == EPI_TIMES_TWO); i++) {
            add_residual(p, e, y, y->dtype, i == 0 ? 1.0f : 0.5f);
        }
        return;
    }
    *e = (dvk_epilogue){.alpha = 1.0f, .slope = 0.2f, .act = acts[kind]};
    if (kind != EPI_PLAIN) {
        e->bias = kc_floats(p, y->c, -1.0f, 1.0f);
    }
    if (e->act == DVK_ACT_PRELU) {
        e->slopes = kc_floats(p, y->c, -0.5f, 0.5f);
    }
    if (kind == EPI_RES || kind == EPI_TWO_RES || kind == EPI_ACT_LAST || kind == EPI_PRELU_LAST || kind == EPI_GATE) {
        add_residual(p, e, y, y->dtype, kind == EPI_GATE ? 1.0f : 0.75f);
    }
    if (kind == EPI_TWO_RES) {
        add_residual(p, e, y, dtypes[kc_below(&p->rng, 3)], -1.5f);
    }
    if (kind == EPI_RES_IN_PLACE || kind == EPI_TWO_RES_IN_PLACE) {
        add_own_memory(p, e, y, 1.0f);
    }
    if (kind == EPI_TWO_RES_IN_PLACE) {
        add_residual(p, e, y, y->dtype, 0.5f);
    }
    e->alpha = kind == EPI_RES || kind == EPI_TWO_RES ? 0.2f : 1.0f;
    e->act_last = kind == EPI_ACT_LAST || kind == EPI_PRELU_LAST;
    e->gate = kind == EPI_GATE;
}

/* y is the shuffled result; a residual has y's channels, and the size of y or of the picture before the shuffle. */
static void build_shuffle(kc_problem *p, dvk_epilogue *e, const kc_shape *out, const kc_conv_spec *s) {
    const dvk_view before = {.dtype = s->yt, .c = out->c};
    build_epilogue(p, e, &before, s->epilogue != EPI_RES ? s->epilogue : s->behind ? EPI_LRELU : EPI_BIAS);
    e->shuffle = s->shuffle;
    if (s->epilogue == EPI_RES) {
        const int64_t r = s->behind ? s->shuffle : 1;
        const kc_shape picture = {out->n, out->h * r, out->w * r, out->c / (s->shuffle * s->shuffle)};
        kc_view(p, &e->res[0], s->yt, picture, s->slab);
        kc_fill_view(p, &e->res[0], KC_UNIFORM);
        e->beta[0] = 1.0f;
        e->n_res = 1;
        e->res_scale = s->behind == 2 ? kc_floats(p, picture.c, 0.0f, 1.0f) : NULL;
    }
}

static void build_prologue(kc_problem *p, dvk_prologue *pro, const dvk_view *x, int kind) {
    static const dvk_act acts[PRO_KINDS] = {[PRO_NORM_SILU] = DVK_ACT_SILU,
                                            [PRO_SILU] = DVK_ACT_SILU,
                                            [PRO_RELU] = DVK_ACT_RELU,
                                            [PRO_CLAMP3] = DVK_ACT_CLAMP3};
    *pro = (dvk_prologue){.act = acts[kind]};
    if (kind == PRO_NORM || kind == PRO_NORM_SILU) {
        pro->scale = kc_floats(p, x->n * x->c, 0.5f, 1.5f);
        pro->shift = kc_floats(p, x->n * x->c, -0.5f, 0.5f);
    }
}

static void tell_conv(kc_problem *p, const kc_conv_spec *s, const kc_shape *in, int stride, int up, int shuffle) {
    char more[48] = "";
    if (shuffle > 1 || s->stats_groups > 0) {
        snprintf(more, sizeof more, " shuffle %d stats %d", shuffle, (int)s->stats_groups);
    }
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lld %lld->%lld k%d s%d u%d%s %s->%s epi %d pro %d slab %d fill %d%s",
             (long long)in->n, (long long)in->h, (long long)in->w, (long long)s->cin, (long long)s->cout, (int)s->k,
             stride, up,
             s->asymmetric ? " asym"
             : s->valid    ? " valid"
                           : "",
             kc_dtype_name(s->xt), kc_dtype_name(s->yt), s->epilogue, s->prologue, s->slab, (int)s->fill,
             s->own    ? " own"
             : s->sums ? " sums"
                       : more);
}

void kc_build_conv(kc_problem *p, const kc_conv_spec *s) {
    dvk_conv2d_args *a = &p->args.conv;
    const int32_t up = s->upsample > 0 ? s->upsample : 1;
    const int32_t stride = s->stride > 0 ? s->stride : 1;
    const int64_t r = s->shuffle > 0 ? s->shuffle : 1;
    const int64_t pictures = s->n > 0                                       ? s->n
                             : s->h * s->w < 100 && s->cin * s->cout < 5000 ? 1 + kc_below(&p->rng, 2)
                                                                            : 1;
    /* symmetric: k / 2 on every side; asymmetric, as in the KL VAE: nothing before, one more behind */
    const int64_t padding = s->asymmetric ? 1 : s->valid ? 0 : 2 * (s->k / 2);
    const kc_shape in = {pictures, s->h, s->w, s->cin};
    const bool phased = up == 2 && s->k == 2; /* twice the size, for any window */
    const kc_shape out = {pictures, phased ? 2 * s->h : (s->h * up + padding - s->k) / stride + 1,
                          phased ? 2 * s->w : (s->w * up + padding - s->k) / stride + 1, s->cout};
    *a = (dvk_conv2d_args){.kh = s->k, .kw = s->k, .stride = stride, .upsample = up};
    a->phased = phased;
    a->pad_top = a->pad_left = s->asymmetric || s->valid ? 0 : s->k / 2;
    kc_view(p, &a->x, s->xt, in, s->slab);
    kc_fill_view(p, &a->x, s->fill);
    const int64_t y_c = out.c / (r * r);
    /* padding may be overwritten: in whole pixels of a shuffle (op.h), and behind the last channel (cuda.h) */
    const bool pads = (r > 1 || !s->slab) && p->aligned && s->yt != DVK_F32;
    kc_view(p, &a->y, s->yt, (kc_shape){out.n, out.h * r, out.w * r, pads ? (y_c + 7) / 8 * 8 : y_c}, s->slab);
    p->spoiled = pads ? a->y : (dvk_view){0};
    a->y.c = y_c;
    build_prologue(p, &a->pro, &a->x, s->prologue);
    if (r > 1) {
        build_shuffle(p, &a->epi, &out, s);
    } else {
        build_epilogue(p, &a->epi, &a->y, s->epilogue);
    }
    if (s->own) {
        a->epi.res[0] = a->x;
        a->epi.res[0].c = a->y.c;
    }
    p->stats_groups = s->stats_groups;
    p->sums = s->sums;
    p->args.conv.backwards = s->backwards;
    const float spread = 1.7f / (float)(s->k * (s->cin > 16 ? (s->cin > 128 ? 16 : 8) : 3));
    p->w_source = kc_floats(p, (phased ? 4 : 1) * s->cout * s->cin * s->k * s->k, -spread, spread);
    p->buffers[p->n_buffers - 1].host_only = 1; /* kernels receive it packed */
    p->w_slot = &a->w;
    kc_output_view(p, &a->y);
    p->error_class = KC_SUMS;
    p->only_nan_positions = s->fill == KC_NAN;
    p->no_compare = s->fill == KC_INF;
    const int64_t gate = a->epi.gate == 3 ? out.c : 0;
    p->flops = 2.0 * (double)(out.n * out.h * out.w * out.c) * (double)(s->cin * s->k * s->k + gate);
    tell_conv(p, s, &in, (int)stride, (int)up, (int)r);
}

enum { N_BEFORE_BLOCKS = N_MODES + N_GEOMETRIES * GEOMETRY_ROUNDS + N_CHANNELS * N_CHANNELS };

static int count(void) {
    return N_BEFORE_BLOCKS + N_BLOCKS * BLOCK_ROUNDS + EPI_KINDS * PRO_KINDS;
}

static void mix(kc_conv_spec *s, int i) {
    static const int epilogues[] = {EPI_BIAS, EPI_PRELU, EPI_RES, EPI_PLAIN, EPI_SILU, EPI_RES_IN_PLACE, EPI_LRELU};
    static const int prologues[] = {PRO_NONE, PRO_NONE, PRO_NORM_SILU, PRO_NONE, PRO_NORM};
    s->xt = dtypes[i % 3];
    s->yt = dtypes[i / 3 % 4 == 1 ? (i + 1) % 3 : i % 3];
    s->epilogue = epilogues[i % 7];
    s->prologue = prologues[i % 5];
    s->slab = i / 2 % 2;
}

static kc_conv_spec block_of(int i) {
    kc_conv_spec s = {.cin = 48, .cout = 64, .h = 18, .w = 21, .k = i % 4 == 3 ? 1 : 3, .slab = i % 2};
    if (i < N_BLOCKS * BLOCK_ROUNDS) {
        s = blocks[i / BLOCK_ROUNDS];
        mix(&s, i);
        return s;
    }
    i -= N_BLOCKS * BLOCK_ROUNDS;
    s.epilogue = i % EPI_KINDS;
    s.prologue = i / EPI_KINDS;
    s.xt = s.yt = dtypes[i % 5 % 3];
    return s;
}

static void build(kc_problem *p, int i) {
    kc_conv_spec s = {0};
    if (i >= N_BEFORE_BLOCKS) {
        s = block_of(i - N_BEFORE_BLOCKS);
    } else if (i < N_MODES) {
        s = (kc_conv_spec){.cin = 20, .cout = 35, .h = 6, .w = 9, .k = i % 4 == 3 ? 1 : 3, .slab = i % 2};
        s.epilogue = i % EPI_KINDS;
        s.prologue = i / EPI_KINDS % PRO_KINDS;
        s.xt = s.yt = dtypes[i / EPI_KINDS / PRO_KINDS];
    } else if (i < N_MODES + N_GEOMETRIES * GEOMETRY_ROUNDS) {
        const int j = i - N_MODES;
        s = geometries[j / GEOMETRY_ROUNDS];
        mix(&s, j);
        s.fill = (kc_fill)(j % GEOMETRY_ROUNDS % KC_FILLS);
    } else {
        const int j = i - N_MODES - N_GEOMETRIES * GEOMETRY_ROUNDS;
        s = (kc_conv_spec){.cin = channels[j % N_CHANNELS], .cout = channels[j / N_CHANNELS], .k = j % 3 == 2 ? 1 : 3};
        s.h = s.cin * s.cout > 20000 ? 2 : 5;
        s.w = s.cin * s.cout > 20000 ? 5 : 9;
        mix(&s, j);
    }
    kc_build_conv(p, &s);
}

/* Layers of the networks whose speed counts, in both storage types. */
static const kc_conv_spec benches[] = {
    {.cin = 64, .cout = 64, .h = 180, .w = 320, .k = 3, .epilogue = EPI_PRELU},               /* Compact */
    {.cin = 64, .cout = 48, .h = 180, .w = 320, .k = 3, .epilogue = EPI_BIAS},                /* its last layer */
    {.cin = 3, .cout = 64, .h = 180, .w = 320, .k = 3, .epilogue = EPI_PRELU},                /* its first */
    {.cin = 48, .cout = 48, .h = 180, .w = 320, .k = 3, .epilogue = EPI_GATE},                /* SPAN */
    {.cin = 128, .cout = 32, .h = 128, .w = 128, .k = 3, .epilogue = EPI_LRELU},              /* RRDB */
    {.cin = 192, .cout = 64, .h = 128, .w = 128, .k = 3, .epilogue = EPI_RES},                /* RRDB */
    {.cin = 64, .cout = 64, .h = 128, .w = 128, .k = 3, .upsample = 2, .epilogue = EPI_RELU}, /* TAESD */
    {.cin = 512, .cout = 512, .h = 32, .w = 32, .k = 3, .prologue = PRO_NORM_SILU, .epilogue = EPI_RES}, /* KL VAE */
    {.cin = 256, .cout = 256, .h = 64, .w = 64, .k = 3, .prologue = PRO_NORM_SILU, .epilogue = EPI_RES},
    {.cin = 128, .cout = 128, .h = 128, .w = 128, .k = 3, .prologue = PRO_NORM_SILU, .epilogue = EPI_RES},
    {.cin = 128, .cout = 128, .h = 128, .w = 128, .k = 3, .stride = 2, .asymmetric = 1, .epilogue = EPI_BIAS},
    {.cin = 128, .cout = 3, .h = 256, .w = 256, .k = 3, .prologue = PRO_NORM_SILU, .epilogue = EPI_BIAS},
    {.cin = 512, .cout = 512, .h = 64, .w = 64, .k = 1, .epilogue = EPI_BIAS},
    {.cin = 256, .cout = 128, .h = 128, .w = 128, .k = 1, .epilogue = EPI_BIAS},
};

static int bench_count(void) {
    return 2 * (int)(sizeof benches / sizeof benches[0]);
}

static void bench_build(kc_problem *p, int i) {
    kc_conv_spec s = benches[i / 2];
    s.xt = s.yt = i % 2 ? DVK_BF16 : DVK_F32;
    kc_build_conv(p, &s);
}

const kc_suite kc_suite_conv2d = {"conv2d", count, build, bench_count, bench_build, 0, 0};
