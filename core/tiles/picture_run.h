/* picture_run.h - one picture (or several of one size) on its way through a route; what run.c hands to the back
 * ends, cpu.c and cuda.c. */
#ifndef DV_ENGINE_JOB_H
#define DV_ENGINE_JOB_H

#include "core/tiles/engine_priv.h"
#include "kernels/dtype.h"

typedef struct dv_picture_run {
    dv_engine *e;
    const dv_work *work;
    dv_cached_tile_plan *route;
    dv_watch watch;
    struct dv_picture_run *other; /* at work: the next of the engine's, under its lock */
    double group_cost;            /* of the tiles that are computed together, in all passes; on the CPU that is one */
} dv_picture_run;

/* Weights, memory, all tiles. *acquired: whether it got as far as computing; before that an error keeps nothing. */
davy_result dv_picture_run_cpu(dv_picture_run *j, bool *acquired);
davy_result dv_picture_run_cuda(dv_picture_run *j, bool *acquired);

/* Idle arenas of this size, left by concurrent runs, that are kept; one always is. */
#define DV_KEEP_OWN_BYTES (1ull << 30)

/* shared_means.c: a mean over a picture from those of parts of its tiles, which have no pixel in common and leave none out. Added
 * up in the tiles' order in double: the same bits whoever computed them. */
typedef struct dv_mean_sum {
    double *sums; /* [c] */
    float *mean;  /* [c] of a part; at last, the whole's */
    int64_t c, pixels;
} dv_mean_sum;

davy_result dv_mean_begin(dv_mean_sum *s, int64_t c);
void dv_mean_add(dv_mean_sum *s, const float *mean, const dvk_view *part);
const float *dv_mean_end(dv_mean_sum *s);
void dv_mean_free(dv_mean_sum *s);
/* Of a tile's view of a value on that grid, the part that is this tile's alone. */
dvk_view dv_tile_part(const dv_picture_run *j, dv_grid grid, const dvk_view *x, int64_t ty, int64_t tx);

/* shared_norms.c: the same of a norm's statistics. */
typedef struct dv_norm_sum {
    double *sums; /* [groups]{count, mean, M2} */
    float *given; /* [groups]{1, mean, variance}, at last */
    int64_t groups;
} dv_norm_sum;

davy_result dv_norm_begin(dv_norm_sum *s, int64_t groups);
/* partial: "group_norm_stats" of a tile's part, dv_norm_floats at most */
void dv_norm_add(dv_norm_sum *s, const float *partial, const dvk_view *part);
const float *dv_norm_end(dv_norm_sum *s);
void dv_norm_free(dv_norm_sum *s);
int64_t dv_norm_floats(const dv_plan *plan);

static inline uint64_t dv_job_keep(const dv_picture_run *j) {
    const uint64_t own = j->route->layout.workspace;
    return own > DV_KEEP_OWN_BYTES ? own : DV_KEEP_OWN_BYTES;
}

static inline dvk_image dv_image_part(const dvk_image *image, int64_t picture, int64_t y, int64_t x, int64_t h,
                                      int64_t w) {
    dvk_image part = *image;
    part.data = (char *)image->data + picture * image->sn + y * image->sh + x * image->sw;
    part.n = 1;
    part.h = h;
    part.w = w;
    return part;
}

/* Pictures `first` and the `n - 1` behind it of a view. */
static inline dvk_view dv_view_pictures(const dvk_view *v, int64_t first, int64_t n) {
    dvk_view some = *v;
    some.data = (char *)v->data + first * v->sn * (int64_t)dvk_dtype_size(v->dtype);
    some.n = n;
    return some;
}

/* From its first element to where the picture behind its last would begin. */
static inline uint64_t dv_view_span(const dvk_view *v) {
    return (uint64_t)(v->n * v->sn) * dvk_dtype_size(v->dtype);
}

static inline dvk_view dv_view_part(const dvk_view *v, int64_t y, int64_t x, int64_t h, int64_t w, int64_t c) {
    dvk_view part = *v;
    part.data = (char *)v->data + (y * v->sh + x * v->sw) * (int64_t)dvk_dtype_size(v->dtype);
    part.h = h;
    part.w = w;
    part.c = c;
    return part;
}

static inline dvk_convert_args dv_load_args(const dv_work *w, const dvk_image *image, const dvk_view *view) {
    return (dvk_convert_args){.image = *image, .view = *view, .mul = w->in_mul, .add = w->in_add};
}

static inline dvk_convert_args dv_store_args(const dv_work *w, const dvk_image *image, const dvk_view *view) {
    return (dvk_convert_args){.image = *image,
                              .view = *view,
                              .mul = w->out_mul,
                              .add = w->out_add,
                              .lo = w->out_lo,
                              .hi = w->out_hi,
                              .clamp = w->out_clamp};
}

#endif
