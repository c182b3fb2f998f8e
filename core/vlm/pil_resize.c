/* pil_resize.c - Pillow's resampler: computes the weights of both axes, then the output in tiles. A tile resamples its source
 * rows horizontally into scratch, then vertically. Tiles limit memory and are the units of work of the pool. Source rows shared
 * by two tiles are computed twice, with the same result. */
#include "core/vlm/pil_resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/vlm/pil_rows.h"
#include "kernels/kernel.h"

enum {
    TILE_WIDTH = 256,    /* pixels */
    TILE_ROWS_IN = 1024, /* approximate; 768 KiB of scratch */
    TILE_ROWS_OUT = 128
};

#define PI 3.14159265358979323846

/* ---- filters: the same operations in the same order as in Pillow ---- */

static double box_filter(double x) {
    return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
}

static double bilinear_filter(double x) {
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double hamming_filter(double x) {
    x = fabs(x);
    if (x == 0.0) {
        return 1.0;
    }
    if (x >= 1.0) {
        return 0.0;
    }
    x = x * PI;
    return sin(x) / x * ((double)0.54f + (double)0.46f * cos(x)); /* Pillow's constants are floats */
}

static double bicubic_filter(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0) {
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    }
    return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}

static double sinc(double x) {
    if (x == 0.0) {
        return 1.0;
    }
    x = x * PI;
    return sin(x) / x;
}

static double lanczos_filter(double x) {
    return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
}

static const struct {
    double (*at)(double x);
    double support;
} filters[] = {
    [DV_PIL_LANCZOS] = {lanczos_filter, 3.0}, [DV_PIL_BILINEAR] = {bilinear_filter, 1.0},
    [DV_PIL_BICUBIC] = {bicubic_filter, 2.0}, [DV_PIL_BOX] = {box_filter, 0.5},
    [DV_PIL_HAMMING] = {hamming_filter, 1.0},
};

/* ---- weights ---- */

static void axis_free(dv_pil_axis *a) {
    dv_free(a->first);
    dv_free(a->count);
    dv_free(a->weight);
    dv_free(a->split);
}

/* Computes the weights of output i around source position `centre`: normalised, then as fixed point. */
static void fill_output(dv_pil_axis *a, int64_t i, double centre, double filterscale, dv_pil_filter filter,
                        double *sum_to_one) {
    const double support = filters[filter].support * filterscale;
    const double ss = 1.0 / filterscale;
    const int64_t lo = dv_max((int64_t)(centre - support + 0.5), 0);
    const int64_t hi = dv_min((int64_t)(centre + support + 0.5), a->in);
    double sum = 0.0;
    for (int64_t t = lo; t < hi; t++) {
        const double w = filters[filter].at(((double)t - centre + 0.5) * ss);
        sum_to_one[t - lo] = w;
        sum += w;
    }
    a->first[i] = (int32_t)lo;
    a->count[i] = (int32_t)(hi - lo);
    for (int64_t t = 0; t < hi - lo; t++) {
        const double w = (sum != 0.0 ? sum_to_one[t] / sum : sum_to_one[t]) * (double)(1 << DV_PIL_BITS);
        a->weight[i * a->taps + t] = (int32_t)(w < 0 ? w - 0.5 : w + 0.5);
    }
}

static void split_weights(dv_pil_axis *a) {
    for (int64_t i = 0; i < a->out * a->taps; i++) {
        int16_t *group = a->split + i / 4 * 8;
        group[i % 4] = (int16_t)(a->weight[i] & 0x7fff);
        group[i % 4 + 4] = (int16_t)(a->weight[i] >> 15);
    }
}

/* from, to: the part of the source that the output covers. */
static davy_result axis_make(dv_pil_axis *a, float from, float to, dv_pil_filter filter, bool split) {
    const double scale = (double)(to - from) / (double)a->out;
    const double filterscale = scale < 1.0 ? 1.0 : scale;
    a->taps = ((int64_t)ceil(filters[filter].support * filterscale) * 2 + 1 + 3) / 4 * 4;
    a->first = dv_calloc((uint64_t)a->out, sizeof *a->first);
    a->count = dv_calloc((uint64_t)a->out, sizeof *a->count);
    a->weight = dv_calloc((uint64_t)(a->out * a->taps), sizeof *a->weight);
    a->split = split ? dv_calloc((uint64_t)(a->out * a->taps) * 2, sizeof *a->split) : NULL;
    double *work = dv_calloc((uint64_t)a->taps, sizeof *work);
    davy_result r = DAVY_OK;
    if (a->first == NULL || a->count == NULL || a->weight == NULL || (split && a->split == NULL) || work == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "resizing a picture: out of memory for the weights");
    } else {
        for (int64_t i = 0; i < a->out; i++) {
            fill_output(a, i, (double)from + ((double)i + 0.5) * scale, filterscale, filter, work);
        }
        if (split) {
            split_weights(a);
        }
    }
    dv_free(work);
    return r;
}

/* ---- tiles ---- */

typedef struct resize_job {
    dv_rgb8 src, dst;
    dv_pil_axis across, down; /* out is 0 if the pass is skipped */
    const dv_pil_rows *rows;
    int64_t tiles_x, tile_rows;
    uint8_t *scratch; /* for all workers */
    uint64_t scratch_each;
} resize_job;

/* *lo, *hi: source rows for output rows [y0, y1). */
static void rows_read(const dv_pil_axis *down, int64_t y0, int64_t y1, int64_t *lo, int64_t *hi) {
    *lo = down->first[y0];
    *hi = *lo;
    for (int64_t y = y0; y < y1; y++) {
        *hi = dv_max(*hi, (int64_t)down->first[y] + down->count[y]);
    }
}

static void run_tile(const resize_job *j, int64_t tile, uint8_t *scratch) {
    const int64_t x0 = tile % j->tiles_x * TILE_WIDTH;
    const int64_t x1 = dv_min(x0 + TILE_WIDTH, j->dst.width);
    const int64_t y0 = tile / j->tiles_x * j->tile_rows;
    const int64_t y1 = dv_min(y0 + j->tile_rows, j->dst.height);
    int64_t lo = y0;
    int64_t hi = y1;
    if (j->down.out != 0) {
        rows_read(&j->down, y0, y1, &lo, &hi);
    }
    const uint8_t *wide = j->src.data + lo * j->src.stride + 3 * x0; /* the output's columns, rows from lo */
    int64_t wide_stride = j->src.stride;
    if (j->across.out != 0) {
        uint8_t *to = j->down.out != 0 ? scratch : j->dst.data + y0 * j->dst.stride + 3 * x0;
        const int64_t to_stride = j->down.out != 0 ? 3 * TILE_WIDTH : j->dst.stride;
        const dv_pil_across a = {.axis = &j->across,
                                 .src = j->src.data + lo * j->src.stride,
                                 .dst = to,
                                 .src_stride = j->src.stride,
                                 .dst_stride = to_stride,
                                 .x0 = x0,
                                 .x1 = x1,
                                 .rows = hi - lo};
        j->rows->across(&a);
        wide = to;
        wide_stride = to_stride;
    }
    for (int64_t y = y0; j->down.out != 0 && y < y1; y++) {
        const dv_pil_down d = {.axis = &j->down,
                               .src = wide + (j->down.first[y] - lo) * wide_stride,
                               .dst = j->dst.data + y * j->dst.stride + 3 * x0,
                               .src_stride = wide_stride,
                               .y = y,
                               .bytes = 3 * (x1 - x0)};
        j->rows->down(&d);
    }
}

static void run_tiles(void *user, int64_t first, int64_t last, int32_t worker) {
    const resize_job *j = user;
    for (int64_t i = first; i < last; i++) {
        run_tile(j, i, j->scratch + (uint64_t)worker * j->scratch_each);
    }
}

static davy_result run_job(resize_job *j, dv_pool *pool) {
    const int64_t scale = dv_max(j->src.height / j->dst.height, 1);
    j->tile_rows = dv_max(dv_min(TILE_ROWS_IN / scale, TILE_ROWS_OUT), 8);
    j->tiles_x = dv_div_up(j->dst.width, TILE_WIDTH);
    const int64_t tiles_y = dv_div_up(j->dst.height, j->tile_rows);
    const int32_t workers = pool != NULL ? dv_pool_threads(pool) : 1;
    if (j->across.out != 0 && j->down.out != 0) {
        int64_t most = 0;
        for (int64_t t = 0; t < tiles_y; t++) {
            int64_t lo = 0;
            int64_t hi = 0;
            rows_read(&j->down, t * j->tile_rows, dv_min((t + 1) * j->tile_rows, j->dst.height), &lo, &hi);
            most = dv_max(most, hi - lo);
        }
        j->scratch_each = dv_align_up((uint64_t)most * 3 * TILE_WIDTH, 64);
        j->scratch = dv_calloc((uint64_t)workers, j->scratch_each);
        if (j->scratch == NULL) {
            return dv_fail(DAVY_E_NOMEM_HOST, "resizing a picture: out of memory");
        }
    }
    const dv_loop loop = {.units = j->tiles_x * tiles_y, .run = run_tiles, .user = j};
    if (pool != NULL) {
        dv_pool_run(pool, &loop);
    } else {
        run_tiles(j, 0, loop.units, 0);
    }
    dv_free(j->scratch);
    return DAVY_OK;
}

static void copy_rows(const dv_rgb8 *src, const dv_rgb8 *dst) {
    for (int64_t y = 0; y < dst->height; y++) {
        memcpy(dst->data + y * dst->stride, src->data + y * src->stride, (size_t)(3 * dst->width));
    }
}

static davy_result check(const dv_pil_options *o, const dv_rgb8 *src, const dv_rgb8 *dst, const float box[4]) {
    if (o->filter < DV_PIL_LANCZOS || o->filter > DV_PIL_HAMMING) {
        return dv_fail(DAVY_E_INVALID,
                       "resizing a picture: filter is %d, expected 1 Lanczos, 2 bilinear, 3 bicubic, 4 box or "
                       "5 Hamming",
                       (int)o->filter);
    }
    const int64_t sides[4] = {src->width, src->height, dst->width, dst->height};
    for (int i = 0; i < 4; i++) {
        if (sides[i] < 1 || sides[i] > DV_PIL_MAX_SIDE) {
            return dv_fail(DAVY_E_SHAPE, "resizing a picture from %lldx%lld to %lldx%lld: sides must be 1 to %d",
                           (long long)sides[0], (long long)sides[1], (long long)sides[2], (long long)sides[3],
                           (int)DV_PIL_MAX_SIDE);
        }
    }
    if (!(box[0] >= 0 && box[1] >= 0 && box[2] > box[0] && box[3] > box[1] && box[2] <= (float)src->width &&
          box[3] <= (float)src->height)) {
        return dv_fail(DAVY_E_INVALID, "resizing a picture: the box is empty or reaches outside the picture");
    }
    return DAVY_OK;
}

static davy_result resize_once(const dv_pil_options *o, const dv_rgb8 *src, const dv_rgb8 *dst, const float box[4]) {
    const dv_pil_rows *fast = (o->cpu & DVK_CPU_AVX2) != 0 ? dv_pil_rows_avx2() : NULL;
    resize_job j = {.src = *src, .dst = *dst, .rows = fast != NULL ? fast : &dv_pil_rows_plain};
    const bool across = dst->width != src->width || box[0] != 0 || box[2] != (float)dst->width;
    const bool down = dst->height != src->height || box[1] != 0 || box[3] != (float)dst->height;
    if (!across && !down) {
        copy_rows(src, dst);
        return DAVY_OK;
    }
    davy_result r = DAVY_OK;
    if (across) {
        j.across = (dv_pil_axis){.in = src->width, .out = dst->width};
        r = axis_make(&j.across, box[0], box[2], o->filter, j.rows->split);
    }
    if (r == DAVY_OK && down) {
        j.down = (dv_pil_axis){.in = src->height, .out = dst->height};
        r = axis_make(&j.down, box[1], box[3], o->filter, j.rows->split);
    }
    r = r < 0 ? r : run_job(&j, o->pool);
    axis_free(&j.across);
    axis_free(&j.down);
    return r;
}

/* If a picture is more than 100 times as high as wide, Pillow 12 first resizes it vertically in a separate call. */
static davy_result resize_tall(const dv_pil_options *o, const dv_rgb8 *src, const dv_rgb8 *dst, const float box[4]) {
    const dv_rgb8 flat = {.data = dv_calloc((uint64_t)(3 * src->width), (uint64_t)dst->height),
                          .width = src->width,
                          .height = dst->height,
                          .stride = 3 * src->width};
    if (flat.data == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "resizing a picture: out of memory");
    }
    const float down[4] = {0, box[1], (float)src->width, box[3]};
    const float across[4] = {box[0], 0, box[2], (float)dst->height};
    davy_result r = resize_once(o, src, &flat, down);
    r = r < 0 ? r : resize_once(o, &flat, dst, across);
    dv_free(flat.data);
    return r;
}

davy_result dv_pil_resize(const dv_pil_options *o, const dv_rgb8 *src, const dv_rgb8 *dst) {
    const float whole[4] = {0, 0, (float)src->width, (float)src->height};
    const float *box = o->box != NULL ? o->box : whole;
    const davy_result r = check(o, src, dst, box);
    if (r < 0) {
        return r;
    }
    const bool tall = src->height > src->width * 100 && dst->height < src->height;
    return tall ? resize_tall(o, src, dst, box) : resize_once(o, src, dst, box);
}
