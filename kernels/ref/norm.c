/* norm.c - references of "group_norm_stats" and "group_norm_finish": mean and sum of squared differences per chunk of
 * rows and group, then their merge into one scale and shift per channel. Two passes over a chunk are exact and simple. */
#include <math.h>

#include "kernels/kernel.h"
#include "kernels/ref/scalar.h"

typedef struct group_block { /* the rows of one chunk and the channels of one group */
    int64_t n, y0, y1, c0, c1;
} group_block;

typedef struct chunking {
    int64_t rows, count; /* rows of a chunk, chunks of a picture */
    int64_t values;      /* values per partial: {mean, M2}, or with a leading count */
} chunking;

static chunking chunking_of(int64_t h, int64_t chunks) {
    const int64_t rows = chunks > 0 ? (h + chunks - 1) / chunks : DVK_NORM_CHUNK_ROWS;
    return (chunking){.rows = rows, .count = chunks > 0 ? chunks : (h + rows - 1) / rows, .values = chunks > 0 ? 3 : 2};
}

/* Sum over the block of (x - centre)^power, power 1 or 2. */
static double block_sum(const dvk_view *v, const group_block *b, double centre, int power) {
    double sum = 0.0;
    for (int64_t y = b->y0; y < b->y1; y++) {
        for (int64_t x = 0; x < v->w; x++) {
            for (int64_t c = b->c0; c < b->c1; c++) {
                const double d = (double)dvk_load(v->data, v->dtype, dvk_at(v, b->n, y, x) + c) - centre;
                sum += power == 1 ? d : d * d;
            }
        }
    }
    return sum;
}

static int64_t stats_units(const void *args) {
    const dvk_group_norm_stats_args *a = args;
    return a->x.n * chunking_of(a->x.h, a->chunks).count;
}

static void stats_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_group_norm_stats_args *a = args;
    const chunking cut = chunking_of(a->x.h, a->chunks);
    const int64_t width = a->x.c / a->groups;
    (void)scratch;
    for (int64_t unit = first; unit < last; unit++) {
        const int64_t start = unit % cut.count * cut.rows;
        const int64_t y0 = start < a->x.h ? start : a->x.h;
        const int64_t y1 = y0 + cut.rows < a->x.h ? y0 + cut.rows : a->x.h;
        for (int64_t g = 0; g < a->groups; g++) {
            const group_block block = {
                .n = unit / cut.count, .y0 = y0, .y1 = y1, .c0 = g * width, .c1 = (g + 1) * width};
            const double count = (double)((y1 - y0) * a->x.w * width);
            const double mean = count > 0.0 ? block_sum(&a->x, &block, 0.0, 1) / count : 0.0;
            float *out = a->partial + (unit * a->groups + g) * cut.values;
            if (cut.values == 3) {
                *out++ = (float)count;
            }
            out[0] = (float)mean;
            out[1] = (float)block_sum(&a->x, &block, mean, 2);
        }
    }
}

static int64_t finish_units(const void *args) {
    const dvk_group_norm_finish_args *a = args;
    return a->n;
}

static void finish_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_group_norm_finish_args *a = args;
    const chunking cut = chunking_of(a->h, a->chunks);
    const int64_t width = a->c / a->groups;
    (void)scratch;
    for (int64_t n = first; n < last; n++) {
        for (int64_t g = 0; g < a->groups; g++) {
            double count = 0.0;
            double mean = 0.0;
            double m2 = 0.0;
            for (int64_t k = 0; k < cut.count; k++) {
                const float *part = a->partial + ((n * cut.count + k) * a->groups + g) * cut.values;
                const int64_t rows = k + 1 < cut.count ? cut.rows : a->h - k * cut.rows;
                const double more = cut.values == 3 ? (double)*part++ : (double)(rows * a->w * width);
                if (!(more > 0.0)) {
                    continue;
                }
                const double delta = (double)part[0] - mean;
                mean += delta * more / (count + more);
                m2 += (double)part[1] + delta * delta * count * more / (count + more);
                count += more;
            }
            const double inverse = 1.0 / sqrt(m2 / count + (double)a->eps);
            for (int64_t c = g * width; c < (g + 1) * width; c++) {
                const double scale = (double)a->gamma[c] * inverse;
                a->scale[n * a->c + c] = (float)scale;
                a->shift[n * a->c + c] = (float)((double)a->beta[c] - mean * scale);
            }
        }
    }
}

const dvk_kernel dvk_group_norm_stats_ref = {
    .op = "group_norm_stats", .variant = "ref", .compute = DVK_F32, .units = stats_units, .run = stats_run};

const dvk_kernel dvk_group_norm_finish_ref = {
    .op = "group_norm_finish", .variant = "ref", .compute = DVK_F32, .units = finish_units, .run = finish_run};
