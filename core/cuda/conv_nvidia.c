/* conv_nvidia.c - a convolution of davy around one of NVIDIA's libraries. What the library does not do is done by kernels
 * of our own before and after it, through scratch: the prologue, gaps between pixels, the epilogue, statistics. Weights
 * are [output channel][row][column][input channel]. */
#include "core/cuda/conv_nvidia.h"

#include <string.h>

#include "kernels/dtype.h"

/* What goes through scratch, and where that lies in it. */
typedef struct way {
    bool copies, finishes, narrows; /* narrows: the bias, to 16 bits */
    bool bias, relu;                /* the library's */
    dvk_view x, y;                  /* the library's; data NULL where in scratch */
    size_t x_at, y_at, bias_at, workspace_at, bytes;
} way;

static bool is_aligned(const dvk_view *v) {
    return (uintptr_t)v->data % 16 == 0 && v->sw % 8 == 0;
}

static bool is_even(const dvk_view *v) {
    return (v->h == 1 || v->sh == v->w * v->sw) && (v->n == 1 || v->sn == v->h * v->w * v->sw);
}

static bool fits(const dvk_view *v, dvk_dtype dtype, int library) {
    return v->dtype == dtype && is_aligned(v) && is_even(v) && (library == NV_CUBLASLT || v->sw == v->c);
}

static bool has_prologue(const dvk_conv2d_args *a) {
    return a->pro.scale != NULL || a->pro.act != DVK_ACT_NONE;
}

/* Nothing but bias and relu behind the sums. */
static bool is_simple(const dvk_epilogue *e) {
    return e->alpha == 1.0f && e->n_res == 0 && !e->gate && (e->act == DVK_ACT_NONE || e->act == DVK_ACT_RELU);
}

static bool is_bare(const dvk_epilogue *e) {
    return is_simple(e) && e->bias == NULL && e->act == DVK_ACT_NONE;
}

bool nv_conv_fuses(const dvk_conv2d_args *a, int library) {
    return is_simple(&a->epi) && fits(&a->y, a->compute, library);
}

static dvk_view dense(const dvk_view *like, dvk_dtype dtype) {
    dvk_view v = *like;
    v.data = NULL;
    v.dtype = dtype;
    v.sw = v.c;
    v.sh = v.w * v.sw;
    v.sn = v.h * v.sh;
    return v;
}

static size_t room(const dvk_view *v) {
    return (size_t)dv_align_up((uint64_t)(v->n * v->h * v->w * v->c) * 2, 256);
}

static way way_of(const dvk_conv2d_args *a, int library, bool fused) {
    way w = {.x = a->x, .y = a->y};
    size_t at = 0;
    w.copies = has_prologue(a) || !fits(&a->x, a->compute, library);
    w.finishes = !(fused || is_bare(&a->epi)) || !fits(&a->y, a->compute, library);
    w.bias = !w.finishes && a->epi.bias != NULL;
    w.relu = !w.finishes && a->epi.act == DVK_ACT_RELU;
    w.narrows = w.bias && library == NV_CUBLASLT;
    if (w.copies) {
        w.x = dense(&a->x, a->compute);
        w.x_at = at;
        at += room(&w.x);
    }
    if (w.finishes) {
        w.y = dense(&a->y, a->compute);
        w.y_at = at;
        at += room(&w.y);
    }
    w.bias_at = at;
    at += w.narrows ? (size_t)dv_align_up((uint64_t)a->y.c * 2, 256) : 0;
    w.workspace_at = at;
    w.bytes = at + NV_WORKSPACE;
    return w;
}

static int64_t pad_behind(int64_t out, int64_t in, int64_t k, int64_t stride, int64_t before) {
    const int64_t need = (out - 1) * stride + k - in - before;
    return need > 0 ? need : 0;
}

void nv_conv_shape(const dvk_conv2d_args *a, int library, bool fused, nv_shape *out) {
    const way w = way_of(a, library, fused);
    *out = (nv_shape){.dtype = a->compute,
                      .n = a->x.n,
                      .h = a->x.h,
                      .w = a->x.w,
                      .c_in = a->x.c,
                      .x_pixel = w.x.sw,
                      .out_h = a->y.h,
                      .out_w = a->y.w,
                      .c_out = a->y.c,
                      .y_pixel = w.y.sw,
                      .kh = a->kh,
                      .kw = a->kw,
                      .stride = a->stride,
                      .pad_top = a->pad_top,
                      .pad_left = a->pad_left,
                      .pad_bottom = pad_behind(a->y.h, a->x.h, a->kh, a->stride, a->pad_top),
                      .pad_right = pad_behind(a->y.w, a->x.w, a->kw, a->stride, a->pad_left),
                      .bias = w.bias,
                      .relu = w.relu};
}

/* ---- what can be computed ---- */

static bool is_product(const dvk_conv2d_args *a) {
    return a->kh == 1 && a->kw == 1 && a->stride == 1 && a->pad_top == 0 && a->pad_left == 0 && a->x.h == a->y.h &&
           a->x.w == a->y.w;
}

static bool makes(int64_t out, int64_t in, int64_t k, int64_t stride, int64_t before) {
    const int64_t all = in + before + pad_behind(out, in, k, stride, before);
    return all >= k && (all - k) / stride + 1 == out;
}

static dvk_pointwise_args prologue_of(const dvk_conv2d_args *a, const way *w, void *scratch) {
    dvk_pointwise_args p = {.x = a->x, .y = w->x, .pro = a->pro, .epi = {.alpha = 1.0f}};
    p.y.data = (char *)scratch + w->x_at;
    return p;
}

static dvk_pointwise_args epilogue_of(const dvk_conv2d_args *a, const way *w, void *scratch) {
    dvk_pointwise_args p = {.x = w->y, .y = a->y, .epi = a->epi};
    p.x.data = (char *)scratch + w->y_at;
    p.epi.stats = NULL;
    return p;
}

static dvk_pointwise_args narrowing_of(const dvk_conv2d_args *a, const way *w, void *scratch) {
    const int64_t c = a->y.c;
    dvk_pointwise_args p = {.x = {.dtype = DVK_F32, .n = 1, .h = 1, .w = 1, .c = c, .sn = c, .sh = c, .sw = c},
                            .epi = {.alpha = 1.0f}};
    p.y = p.x;
    p.x.data = (void *)(uintptr_t)a->epi.bias;
    p.y.dtype = a->compute;
    p.y.data = (char *)scratch + w->bias_at;
    return p;
}

static dvk_group_norm_stats_args stats_of(const dvk_conv2d_args *a, int64_t chunks) {
    return (dvk_group_norm_stats_args){
        .x = a->y, .partial = a->epi.stats, .groups = a->epi.stats_groups, .chunks = chunks};
}

static bool offers(const char *op, const void *args, const dvk_cuda_caps *caps) {
    const dvk_cuda_kernel *k = dvk_cuda_find(op, "cuda");
    return k != NULL && k->scratch_bytes == NULL && (k->supports == NULL || k->supports(args, caps));
}

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    if ((a->compute != DVK_F16 && (a->compute != DVK_BF16 || caps->sm < 80)) || a->upsample > 1 || a->epi.shuffle > 1 ||
        a->x.c % 8 != 0 || a->y.c % 8 != 0 || a->x.n != a->y.n || a->x.n * a->x.h * a->x.w > INT32_MAX ||
        !makes(a->y.h, a->x.h, a->kh, a->stride, a->pad_top) || !makes(a->y.w, a->x.w, a->kw, a->stride, a->pad_left)) {
        return 0;
    }
    const way w = way_of(a, is_product(a) ? NV_CUBLASLT : NV_CUDNN, false);
    const dvk_pointwise_args before = prologue_of(a, &w, NULL);
    const dvk_pointwise_args behind = epilogue_of(a, &w, NULL);
    const dvk_group_norm_stats_args stats = stats_of(a, 1);
    return offers("pointwise", &before, caps) && offers("pointwise", &behind, caps) &&
           (a->epi.stats == NULL || offers("group_norm_stats", &stats, caps));
}

static int supports_product(const void *args, const dvk_cuda_caps *caps) {
    return is_product(args) && supports(args, caps);
}

static int supports_spatial(const void *args, const dvk_cuda_caps *caps) {
    return !is_product(args) && supports(args, caps);
}

/* Of the way that takes more: which one it will be is not known before the library has been asked. */
static size_t scratch_bytes(const dvk_conv2d_args *a, int library) {
    const size_t apart = way_of(a, library, false).bytes;
    const size_t fused = nv_conv_fuses(a, library) ? way_of(a, library, true).bytes : 0;
    return fused > apart ? fused : apart;
}

static size_t scratch_product(const void *args, const dvk_cuda_caps *caps) {
    (void)caps;
    return scratch_bytes(args, NV_CUBLASLT);
}

static size_t scratch_spatial(const void *args, const dvk_cuda_caps *caps) {
    (void)caps;
    return scratch_bytes(args, NV_CUDNN);
}

/* ---- running ---- */

static int enqueue_op(const char *op, const void *args, dvk_queue *q) {
    return dvk_cuda_find(op, "cuda")->enqueue(args, NULL, q);
}

static int enqueue(const dvk_conv2d_args *a, void *scratch, dvk_queue *base, int library) {
    dv_gpu_queue *q = (dv_gpu_queue *)base;
    const nv_conv *c = nv_conv_find(q->gpu, library, a, false);
    if (c == NULL) {
        return CU_NOT_SUPPORTED;
    }
    const way w = way_of(a, library, c->fused);
    char *at = scratch;
    const nv_pointers p = {.x = w.copies ? at + w.x_at : a->x.data,
                           .w = a->w,
                           .bias = w.narrows ? (const void *)(at + w.bias_at) : a->epi.bias,
                           .y = w.finishes ? at + w.y_at : a->y.data,
                           .workspace = at + w.workspace_at};
    int r = CU_OK;
    if (w.copies) {
        const dvk_pointwise_args before = prologue_of(a, &w, scratch);
        r = enqueue_op("pointwise", &before, base);
    }
    if (r == CU_OK && w.narrows) {
        const dvk_pointwise_args narrow = narrowing_of(a, &w, scratch);
        r = enqueue_op("pointwise", &narrow, base);
    }
    r = r == CU_OK ? nv_conv_run(q, library, c, &p) : r;
    if (r == CU_OK && w.finishes) {
        const dvk_pointwise_args behind = epilogue_of(a, &w, scratch);
        r = enqueue_op("pointwise", &behind, base);
    }
    if (r == CU_OK && a->epi.stats != NULL) {
        const dvk_group_norm_stats_args stats = stats_of(a, c->chunks);
        r = enqueue_op("group_norm_stats", &stats, base);
    }
    return r;
}

static int enqueue_product(const void *args, void *scratch, dvk_queue *q) {
    return enqueue(args, scratch, q, NV_CUBLASLT);
}

static int enqueue_spatial(const void *args, void *scratch, dvk_queue *q) {
    return enqueue(args, scratch, q, NV_CUDNN);
}

/* ---- weights ---- */

static size_t packed_bytes(const void *args) {
    const dvk_conv2d_args *a = args;
    return (size_t)(a->y.c * a->kh * a->kw * a->x.c) * 2;
}

static int64_t pack_units(const void *args) {
    return ((const dvk_conv2d_args *)args)->y.c;
}

static void pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    const dvk_conv2d_args *a = args;
    const int64_t taps = (int64_t)a->kh * a->kw;
    for (int64_t o = first; o < last; o++) {
        for (int64_t tap = 0; tap < taps; tap++) {
            for (int64_t i = 0; i < a->x.c; i++) {
                dvk_store(dst, a->compute, (o * taps + tap) * a->x.c + i, w[(o * a->x.c + i) * taps + tap]);
            }
        }
    }
}

const dvk_cuda_kernel dv_conv_cublaslt = {.op = "conv2d",
                                          .variant = "cuda/cublaslt",
                                          .sm_min = 75,
                                          .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                          .supports = supports_product,
                                          .scratch_bytes = scratch_product,
                                          .enqueue = enqueue_product,
                                          .packed_bytes = packed_bytes,
                                          .pack_units = pack_units,
                                          .pack = pack};

const dvk_cuda_kernel dv_conv_cudnn = {.op = "conv2d",
                                       .variant = "cuda/cudnn",
                                       .sm_min = 75,
                                       .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                       .supports = supports_spatial,
                                       .scratch_bytes = scratch_spatial,
                                       .enqueue = enqueue_spatial,
                                       .packed_bytes = packed_bytes,
                                       .pack_units = pack_units,
                                       .pack = pack};

const dvk_cuda_kernel *dv_conv_nvidia(const dvk_conv2d_args *a, const dvk_cuda_caps *caps, int *library) {
    const dvk_cuda_kernel *k = is_product(a) ? &dv_conv_cublaslt : &dv_conv_cudnn;
    *library = is_product(a) ? NV_CUBLASLT : NV_CUDNN;
    return k->supports(a, caps) ? k : NULL;
}
