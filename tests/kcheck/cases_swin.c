/* cases_swin.c - problems for norm_mlp and norm_window. */
#include <stdio.h>

#include "kernels/cuda/window/swin_pack.h"
#include "tests/kcheck/cases.h"

static const dvk_dtype dtypes[3] = {DVK_F32, DVK_BF16, DVK_F16};

/* Random weights; for 16-bit pictures also packed for the CUDA kernel. */
static void linear(kc_problem *p, dvk_swin_linear *l, dvk_swin_matrix m, int64_t in, int64_t out, dvk_dtype t,
                   int bias) {
    const dvk_cuda_kernel *k = &dvk_swin_packers[m];
    const dvk_conv2d_args a = {.x = {.c = in}, .y = {.c = out}, .compute = t};
    const float spread = in > 64 ? 0.12f : 0.3f;
    l->w = kc_floats(p, in * out, -spread, spread);
    p->buffers[p->n_buffers - 1].host_only = 1;
    l->bias = bias ? kc_floats(p, out, -0.5f, 0.5f) : NULL;
    if (t != DVK_F32) {
        unsigned char *data = NULL;
        kc_alloc(p, k->packed_bytes(&a), &data);
        k->pack(&a, l->w, data, 0, k->pack_units(&a));
        l->packed = data;
    }
}

static void norm(kc_problem *p, dvk_swin_norm *n, int64_t c, int vectors) {
    n->eps = 1e-5f;
    n->gamma = vectors ? kc_floats(p, c, 0.5f, 1.5f) : NULL;
    n->beta = vectors ? kc_floats(p, c, -0.5f, 0.5f) : NULL;
}

static void pictures(kc_problem *p, dvk_view *x, dvk_view *y, dvk_view *res, const kc_shape *s, dvk_dtype t, int slab) {
    kc_view(p, x, t, *s, slab);
    x->sh = x->w * x->sw; /* within the allocated memory */
    x->sn = x->h * x->sh;
    kc_fill_view(p, x, KC_NORMAL);
    kc_output_picture(p, y, t, *s, 0);
    if (res != NULL) {
        kc_view(p, res, t, *s, 0);
        kc_fill_view(p, res, KC_UNIFORM);
    }
    p->error_class = KC_SOFTMAX; /* intermediate roundings */
    p->bytes = kc_view_bytes(x) + kc_view_bytes(y) + (res != NULL ? kc_view_bytes(res) : 0.0);
}

/* --- norm_mlp --- */

typedef struct mlp_spec {
    kc_shape shape;
    int64_t hidden;
    int vectors, res, slab;
} mlp_spec;

static void mlp_make(kc_problem *p, const mlp_spec *s, dvk_dtype t) {
    dvk_norm_mlp_args *a = &p->args.norm_mlp;
    const int64_t c = s->shape.c;
    *a = (dvk_norm_mlp_args){.hidden = s->hidden};
    pictures(p, &a->x, &a->y, s->res ? &a->res : NULL, &s->shape, t, s->slab);
    norm(p, &a->norm, c, s->vectors);
    linear(p, &a->in, DVK_SWIN_MATRIX_MLP_IN, c, s->hidden, t, s->vectors);
    linear(p, &a->out, DVK_SWIN_MATRIX_MLP_OUT, s->hidden, c, t, s->vectors);
    p->flops = 4.0 * (double)(s->shape.n * s->shape.h * s->shape.w) * (double)(c * s->hidden);
    snprintf(p->text, sizeof p->text, "%lldx%lldx%lldx%lld hidden %lld vectors %d res %d slab %d %s",
             (long long)s->shape.n, (long long)s->shape.h, (long long)s->shape.w, (long long)c, (long long)s->hidden,
             s->vectors, s->res, s->slab, kc_dtype_name(t));
}

static const mlp_spec mlps[] = {
    {{1, 1, 1, 180}, 360, 0, 0, 0},  {{1, 9, 31, 180}, 360, 1, 1, 0}, {{2, 8, 16, 192}, 384, 1, 1, 0},
    {{1, 7, 40, 180}, 180, 1, 0, 1}, {{3, 5, 13, 144}, 100, 0, 1, 0}, {{1, 3, 5, 24}, 48, 1, 1, 0},
    {{1, 9, 33, 212}, 424, 1, 1, 0}, {{1, 16, 9, 256}, 256, 0, 0, 0}, {{2, 7, 11, 244}, 300, 1, 1, 1},
    {{1, 15, 19, 64}, 128, 1, 1, 0}, {{2, 5, 23, 60}, 120, 1, 1, 1},
};

static int mlp_count(void) {
    return 3 * (int)(sizeof mlps / sizeof mlps[0]);
}

static void mlp_build(kc_problem *p, int i) {
    mlp_make(p, &mlps[i / 3], dtypes[i % 3]);
}

static int bench_count(void) {
    return 4;
}

/* SwinIR: 16 pictures of 64 x 64 and one of 512 x 512; and the additional sizes of DRCT */
static void mlp_bench(kc_problem *p, int i) {
    const int64_t side = i % 2 ? 512 : 64;
    const kc_shape shape = {i % 2 ? 1 : 16, side, side, i < 2 ? 180 : 244};
    const mlp_spec s = {shape, i < 2 ? 360 : 488, 1, 1, 0};
    mlp_make(p, &s, DVK_BF16);
}

/* --- norm_window --- */

typedef struct window_spec {
    kc_shape shape;
    int64_t heads, dim;
    int32_t window, shift, grid;
    int vectors, res, slab;
} window_spec;

static void window_make(kc_problem *p, const window_spec *s, dvk_dtype t) {
    dvk_norm_window_args *a = &p->args.norm_window;
    const int64_t c = s->shape.c, width = s->heads * s->dim, side = 2 * s->window - 1;
    *a = (dvk_norm_window_args){.heads = s->heads,
                                .dim = s->dim,
                                .window = s->window,
                                .shift_y = s->shift,
                                .shift_x = s->shift > 0 ? s->shift - 1 : 0,
                                .grid = s->grid,
                                .scale = 0.18f};
    pictures(p, &a->x, &a->y, s->res ? &a->res : NULL, &s->shape, t, s->slab);
    norm(p, &a->norm, c, s->vectors);
    const int small = s->dim < DVK_SWIN_DIM;
    linear(p, &a->in, small ? DVK_SWIN_MATRIX_WINDOW16_IN : DVK_SWIN_MATRIX_WINDOW_IN, c, 3 * width, t, s->vectors);
    linear(p, &a->out, small ? DVK_SWIN_MATRIX_WINDOW16_OUT : DVK_SWIN_MATRIX_WINDOW_OUT, width, c, t, s->vectors);
    a->table = s->vectors ? kc_floats(p, s->heads * side * side, -1.0f, 1.0f) : NULL;
    const double tokens = (double)(s->shape.n * s->shape.h * s->shape.w);
    p->flops = tokens * (double)width * (8.0 * (double)c + 4.0 * s->window * s->window);
    snprintf(p->text, sizeof p->text,
             "%lldx%lldx%lldx%lld heads %lldx%lld window %d shift %d grid %d vectors %d res %d slab %d %s",
             (long long)s->shape.n, (long long)s->shape.h, (long long)s->shape.w, (long long)c, (long long)s->heads,
             (long long)s->dim, (int)s->window, (int)s->shift, (int)s->grid, s->vectors, s->res, s->slab,
             kc_dtype_name(t));
}

static const window_spec windows[] = {
    {{1, 8, 8, 180}, 6, 32, 8, 0, 0, 0, 0, 0},   {{1, 16, 24, 180}, 6, 32, 8, 0, 0, 1, 1, 0},
    {{1, 16, 24, 180}, 6, 32, 8, 4, 0, 1, 1, 0}, {{2, 8, 24, 180}, 6, 32, 8, 3, 0, 0, 1, 1},
    {{1, 24, 8, 192}, 2, 32, 8, 4, 0, 1, 0, 0},  {{2, 16, 16, 136}, 3, 32, 8, 0, 1, 1, 1, 0},
    {{1, 24, 16, 64}, 4, 16, 8, 0, 0, 1, 1, 0},  {{1, 32, 40, 64}, 4, 16, 8, 0, 1, 1, 1, 0},
    {{2, 16, 24, 60}, 6, 16, 8, 4, 0, 1, 1, 1},  {{1, 8, 8, 64}, 2, 32, 8, 0, 0, 0, 0, 0},
    {{1, 8, 12, 24}, 2, 8, 4, 2, 0, 1, 1, 0},
};

static int window_count(void) {
    return 3 * (int)(sizeof windows / sizeof windows[0]);
}

static void window_build(kc_problem *p, int i) {
    window_make(p, &windows[i / 3], dtypes[i % 3]);
}

/* The same pictures of SwinIR, then of OmniSR */
static void window_bench(kc_problem *p, int i) {
    const int64_t side = i % 2 ? 512 : 64;
    const kc_shape shape = {i % 2 ? 1 : 16, side, side, i < 2 ? 180 : 64};
    const window_spec s = {shape, i < 2 ? 6 : 4, i < 2 ? 32 : 16, 8, i < 2 ? 4 : 0, 0, 1, 1, 0};
    window_make(p, &s, DVK_BF16);
}

const kc_suite kc_suite_norm_mlp = {"norm_mlp", mlp_count, mlp_build, bench_count, mlp_bench, 0, 57};
const kc_suite kc_suite_norm_window = {"norm_window", window_count, window_build, bench_count, window_bench, 0, 58};
