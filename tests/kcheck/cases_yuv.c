/* cases_yuv.c - problems for load_yuv and store_yuv: every matrix, range and depth, even and odd sizes. Codes must be
 * exact; loaded values may differ in the last place. */
#include <stdio.h>

#include "tests/kcheck/cases.h"

static const int64_t sizes[][2] = {{1, 1}, {1, 2}, {2, 1}, {2, 2}, {3, 5}, {7, 16}, {16, 37}, {9, 130}, {20, 64}};

enum { N_SIZES = (int)(sizeof sizes / sizeof sizes[0]), N_DEPTHS = 4 };

/* A plane of rows of `count` samples, with gaps between rows. */
static dvk_image plane(kc_problem *p, const dvk_yuv_args *a, int64_t h, int64_t count, int64_t more) {
    const dvk_dtype t = a->bits == 8 ? DVK_U8 : DVK_U16;
    const int64_t size = (int64_t)dvk_dtype_size(t);
    dvk_image im = {.dtype = t, .channels = 1, .n = 1, .h = h, .w = count, .identity_map = 1};
    im.sc = im.sw = size;
    im.sh = (count + more) * size;
    im.sn = h * im.sh;
    const int64_t bytes = (h - 1) * im.sh + count * size;
    unsigned char *data = NULL;
    kc_alloc(p, (size_t)bytes, &data);
    for (int64_t i = 0; i < bytes && !p->unfilled; i++) {
        data[i] = (unsigned char)kc_next(&p->rng);
    }
    im.data = data;
    return im;
}

static void make(kc_problem *p, const kc_shape *s, int variety, dvk_dtype t, int slab, int store) {
    static const int32_t depths[N_DEPTHS] = {8, 10, 16, 12};
    dvk_yuv_args *a = &p->args.yuv;
    *a = (dvk_yuv_args){.bits = depths[variety % N_DEPTHS],
                        .matrix = (dvk_yuv_matrix)(variety % 3),
                        .full_range = variety / 2 % 2,
                        .mul = store ? 0.9f : 2.0f,
                        .add = store ? 0.3f : -1.0f};
    const dvk_image luma = plane(p, a, s->h, s->w, slab * 6);
    const dvk_image chroma = plane(p, a, (s->h + 1) / 2, (s->w + 1) / 2 * 2, slab * 3);
    a->luma = luma.data;
    a->luma_stride = luma.sh;
    a->chroma = chroma.data;
    a->chroma_stride = chroma.sh;
    kc_view(p, &a->view, t, *s, slab);
    kc_fill_view(p, &a->view, variety % 5 == 4 ? KC_NAN : KC_UNIFORM);
    if (store) {
        kc_output_image(p, &luma);
        kc_output_image(p, &chroma);
    } else {
        kc_output_view(p, &a->view);
    }
    p->error_class = KC_EXACT;
    p->bytes = (double)(s->h * s->w) * ((double)luma.sw * 1.5 + 3.0 * (double)dvk_dtype_size(t));
    snprintf(p->text, sizeof p->text, "%lldx%lld %d bits matrix %d full %d view %s slab %d", (long long)s->h,
             (long long)s->w, (int)a->bits, (int)a->matrix, (int)a->full_range, kc_dtype_name(t), slab);
}

static int count(void) {
    return N_SIZES * N_DEPTHS * 3 * 2;
}

static void build(kc_problem *p, int i, int store) {
    static const dvk_dtype dtypes[3] = {DVK_F32, DVK_BF16, DVK_F16};
    const int64_t *size = sizes[i % N_SIZES];
    make(p, &(kc_shape){1, size[0], size[1], 3}, i / N_SIZES + i, dtypes[i / N_SIZES % 3], i % 2, store);
}

static void load_build(kc_problem *p, int i) {
    build(p, i, 0);
}

static void store_build(kc_problem *p, int i) {
    build(p, i, 1);
}

static int bench_count(void) {
    return 2;
}

static void load_bench(kc_problem *p, int i) {
    make(p, &(kc_shape){1, 2160, 3840, 3}, i, DVK_BF16, 0, 0);
}

static void store_bench(kc_problem *p, int i) {
    make(p, &(kc_shape){1, 2160, 3840, 3}, i, DVK_BF16, 0, 1);
}

const kc_suite kc_suite_load_yuv = {"load_yuv", count, load_build, bench_count, load_bench, 0, 20};
const kc_suite kc_suite_store_yuv = {"store_yuv", count, store_build, bench_count, store_bench, 0, 21};
