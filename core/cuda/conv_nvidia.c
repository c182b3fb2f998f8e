/* conv_nvidia.c - a davy convolution built around a library call. davy's own kernels do the rest before and after it, through
 * scratch memory: the prologue, removing gaps between pixels, the epilogue, statistics. Weights are
 * [output channel][row][column][input channel]. A gpu loads a library when a plan is first measured with it, and keeps the
 * convolutions that were planned. */
#include "core/cuda/conv_nvidia.h"

#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/cuda/gpu_priv.h"
#include "core/cuda/nvidia.h"
#include "kernels/dtype.h"

/* ---- dividing a convolution between the library and davy's kernels ---- */

/* How one convolution is divided, and the offsets of its tensors in scratch. */
typedef struct way {
    bool copies, finishes, narrows; /* x, y, or the bias (converted to 16 bits) goes through scratch */
    bool bias, relu;                /* done by the library */
    dvk_view x, y;                  /* as the library sees them; data NULL: in scratch */
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

/* The epilogue has at most bias and relu. */
static bool is_simple(const dvk_epilogue *e) {
    return e->alpha == 1.0f && e->n_res == 0 && !e->gate && (e->act == DVK_ACT_NONE || e->act == DVK_ACT_RELU);
}

static bool is_bare(const dvk_epilogue *e) {
    return is_simple(e) && e->bias == NULL && e->act == DVK_ACT_NONE;
}

static bool can_fuse(const dvk_conv2d_args *a, int library) {
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

static void shape_of(const dvk_conv2d_args *a, int library, bool fused, nv_shape *out) {
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

/* ---- the libraries of one gpu ---- */

struct gpu_nvidia {
    char *library_dir;
    dv_mutex *lock; /* guards all members; a library handle serves one thread at a time */
    bool tried[NV_LIBRARIES], ready[NV_LIBRARIES];
    nv_cublaslt lt;
    nv_cudnn dnn;
    nv_conv *convs[NV_LIBRARIES];
};

typedef struct symbol {
    const char *name;
    size_t offset;
} symbol;

#define SYMBOL_LT(member, name, result, args)  {name, offsetof(nv_cublaslt, member)},
#define SYMBOL_DNN(member, name, result, args) {name, offsetof(nv_cudnn, member)},
static const symbol lt_symbols[] = {NV_CUBLASLT_FUNCTIONS(SYMBOL_LT)};
static const symbol dnn_symbols[] = {NV_CUDNN_FUNCTIONS(SYMBOL_DNN)};

typedef struct library_files {
    const char *called;
    const char *files[2];
    const symbol *symbols;
    size_t n_symbols;
    size_t oldest, newest; /* major versions */
} library_files;

static const library_files libraries[NV_LIBRARIES] = {
    [NV_CUBLASLT] = {"cuBLASLt",
#if defined(_WIN32)
                     {"cublasLt64_13.dll", "cublasLt64_12.dll"},
#else
                     {"libcublasLt.so.13", "libcublasLt.so.12"},
#endif
                     lt_symbols,
                     DV_ARRAY_LEN(lt_symbols),
                     12,
                     13},
    [NV_CUDNN] = {"cuDNN",
#if defined(_WIN32)
                  {"cudnn64_9.dll", NULL},
#else
                  {"libcudnn.so.9", NULL},
#endif
                  dnn_symbols,
                  DV_ARRAY_LEN(dnn_symbols),
                  9,
                  9},
};

static _Atomic int32_t cudnn_version;

int32_t nv_cudnn_version(void) {
    return atomic_load(&cudnn_version);
}

/* ---- opening and closing ---- */

davy_result gpu_nvidia_open(dv_gpu *g, const char *library_dir) {
    gpu_nvidia *nv = dv_calloc(1, sizeof *nv);
    g->nvidia = nv;
    if (nv != NULL) {
        nv->lock = dv_mutex_create();
        nv->library_dir = library_dir != NULL ? dv_strdup(library_dir) : NULL;
    }
    const bool ok = nv != NULL && nv->lock != NULL && (library_dir == NULL || nv->library_dir != NULL);
    return ok ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a device");
}

bool dv_gpu_uses_nvidia(const dv_gpu *g) {
    return g->nvidia != NULL;
}

static void free_convs(gpu_nvidia *nv, int which, bool alive) {
    while (nv->convs[which] != NULL) {
        nv_conv *c = nv->convs[which];
        nv->convs[which] = c->next;
        if (alive && which == NV_CUDNN) {
            nv_cudnn_free(&nv->dnn, &c->plan);
        } else if (alive) {
            nv_cublaslt_free(&nv->lt, &c->plan);
        }
        dv_free(c);
    }
}

void gpu_nvidia_close(dv_gpu *g, bool alive) {
    gpu_nvidia *nv = g->nvidia;
    if (nv == NULL) {
        return;
    }
    for (int which = 0; which < NV_LIBRARIES; which++) {
        free_convs(nv, which, alive);
    }
    if (alive && nv->ready[NV_CUBLASLT]) {
        nv->lt.destroy(nv->lt.handle);
    }
    if (alive && nv->ready[NV_CUDNN]) {
        nv->dnn.set_stream(nv->dnn.handle, NULL); /* the stream it used last is destroyed */
        nv->dnn.destroy(nv->dnn.handle);
    }
    if (g->process == dv_process_id()) {
        dv_mutex_release(nv->lock);
    }
    dv_free(nv->library_dir);
    dv_free(nv);
    g->nvidia = NULL;
}

/* ---- loading ---- */

static void *open_file(const gpu_nvidia *nv, const char *file) {
    char *beside = nv->library_dir != NULL ? dv_path_join(nv->library_dir, file) : NULL;
    void *found = NULL;
    if (beside != NULL && dv_path_stat(beside) == DV_PATH_FILE) {
        found = dv_library_open(beside, NULL, 0);
    }
    dv_free(beside);
    return found != NULL ? found : dv_library_open(file, NULL, 0);
}

/* Fills the function pointers. Returns the name of a missing function, or NULL. */
static const char *resolve(const library_files *l, void *opened, void *into) {
    for (size_t i = 0; i < l->n_symbols; i++) {
        void *found = dv_library_symbol(opened, l->symbols[i].name);
        if (found == NULL) {
            return l->symbols[i].name;
        }
        memcpy((char *)into + l->symbols[i].offset, &found, sizeof found);
    }
    return NULL;
}

static bool start(dv_gpu *g, int which, const char *file) {
    gpu_nvidia *nv = g->nvidia;
    const library_files *l = &libraries[which];
    void *opened = open_file(nv, file); /* never closed: such libraries have threads of their own */
    if (opened == NULL) {
        return false;
    }
    const char *missing = resolve(l, opened, which == NV_CUDNN ? (void *)&nv->dnn : (void *)&nv->lt);
    if (missing != NULL) {
        dv_logf(&g->log, DAVY_LOG_INFO, "cuda:%d: %s has no %s; it is not used", (int)g->index, file, missing);
        return false;
    }
    const size_t version = which == NV_CUDNN ? nv->dnn.get_version() : nv->lt.get_version();
    if (version / 10000 < l->oldest || version / 10000 > l->newest) {
        dv_logf(&g->log, DAVY_LOG_INFO, "cuda:%d: %s has version %u; it is not used", (int)g->index, file,
                (unsigned)version);
        return false;
    }
    const nv_status s = which == NV_CUDNN ? nv->dnn.create(&nv->dnn.handle) : nv->lt.create(&nv->lt.handle);
    dv_logf(&g->log, DAVY_LOG_INFO,
            s == 0 ? "cuda:%d: %s %u may compute convolutions" : "cuda:%d: %s %u does not start", (int)g->index,
            l->called, (unsigned)version);
    if (s == 0 && which == NV_CUDNN) {
        atomic_store(&cudnn_version, (int32_t)version);
    }
    return s == 0;
}

/* Under the lock and inside the context. */
static bool is_ready(dv_gpu *g, int which) {
    gpu_nvidia *nv = g->nvidia;
    if (!nv->tried[which]) {
        const library_files *l = &libraries[which];
        nv->tried[which] = true;
        for (size_t i = 0; i < DV_ARRAY_LEN(l->files) && l->files[i] != NULL && !nv->ready[which]; i++) {
            nv->ready[which] = start(g, which, l->files[i]);
        }
        if (!nv->ready[which]) {
            dv_logf(&g->log, DAVY_LOG_INFO, "cuda:%d: no %s; convolutions use davy's own kernels", (int)g->index,
                    l->called);
        }
    }
    return nv->ready[which];
}

/* ---- convolutions ---- */

typedef struct key {
    int64_t at[DV_ARRAY_LEN(((nv_conv *)NULL)->key)];
    size_t n;
} key;

static void add(key *k, int64_t v) {
    k->at[k->n++] = v;
}

static void add_view(key *k, const dvk_view *v) {
    const int64_t parts[] = {v->dtype, v->n, v->h, v->w, v->c, v->sn, v->sh, v->sw, (int64_t)((uintptr_t)v->data % 16)};
    for (size_t i = 0; i < DV_ARRAY_LEN(parts); i++) {
        add(k, parts[i]);
    }
}

/* All arguments that decide the plan and its time: at most 4 views of 9 values each, and 19 more. */
static key key_of(const dvk_conv2d_args *a) {
    const dvk_epilogue *e = &a->epi;
    const int64_t parts[] = {a->kh,
                             a->kw,
                             a->stride,
                             a->pad_top,
                             a->pad_left,
                             a->upsample,
                             (int64_t)a->compute,
                             a->pro.scale != NULL,
                             (int64_t)a->pro.act,
                             e->bias != NULL,
                             e->slopes != NULL,
                             e->n_res,
                             e->alpha == 1.0f,
                             (int64_t)e->act,
                             e->act_last,
                             e->gate,
                             e->stats != NULL,
                             e->stats != NULL ? e->stats_groups : 0,
                             e->shuffle};
    key k = {.n = 0};
    add_view(&k, &a->x);
    add_view(&k, &a->y);
    for (int32_t i = 0; i < e->n_res; i++) {
        add_view(&k, &e->res[i]);
    }
    for (size_t i = 0; i < DV_ARRAY_LEN(parts); i++) {
        add(&k, parts[i]);
    }
    return k;
}

static bool plan(gpu_nvidia *nv, int which, const dvk_conv2d_args *a, bool fused, nv_conv *c) {
    nv_shape shape;
    shape_of(a, which, fused, &shape);
    c->fused = fused;
    return which == NV_CUDNN ? nv_cudnn_plan(&nv->dnn, &shape, &c->plan) : nv_cublaslt_plan(&nv->lt, &shape, &c->plan);
}

/* Under the lock and inside the context. */
static nv_conv *add_conv(dv_gpu *g, int which, const dvk_conv2d_args *a, const key *k) {
    gpu_nvidia *nv = g->nvidia;
    nv_conv *c = dv_calloc(1, sizeof *c);
    if (c == NULL) {
        return NULL;
    }
    memcpy(c->key, k->at, sizeof c->key);
    c->offered = can_fuse(a, which) && plan(nv, which, a, true, c);
    c->offered = c->offered || plan(nv, which, a, false, c);
    c->next = nv->convs[which];
    nv->convs[which] = c;
    return c;
}

nv_conv *nv_conv_find(dv_gpu *g, int which, const dvk_conv2d_args *a, bool make) {
    gpu_nvidia *nv = g->nvidia;
    if (nv == NULL) {
        return NULL;
    }
    const key k = key_of(a);
    dv_mutex_lock(nv->lock);
    nv_conv *c = nv->convs[which];
    while (c != NULL && memcmp(c->key, k.at, sizeof c->key) != 0) {
        c = c->next;
    }
    if (c == NULL && make && gpu_enter_cu(g) == CU_OK) {
        c = is_ready(g, which) ? add_conv(g, which, a, &k) : NULL;
        gpu_leave(g);
    }
    dv_mutex_unlock(nv->lock);
    return c != NULL && c->offered ? c : NULL;
}

static int run_conv(dv_gpu_queue *q, int which, const nv_conv *c, const nv_pointers *p) {
    dv_gpu *g = q->gpu;
    gpu_nvidia *nv = g->nvidia;
    const cu_result r = gpu_enter_cu(g);
    if (r != CU_OK) {
        return r;
    }
    dv_mutex_lock(nv->lock);
    const nv_status s = which == NV_CUDNN ? nv_cudnn_run(&nv->dnn, &c->plan, p, q->stream)
                                          : nv_cublaslt_run(&nv->lt, &c->plan, p, q->stream);
    dv_mutex_unlock(nv->lock);
    gpu_leave(g);
    if (s != 0) {
        dv_logf(&g->log, DAVY_LOG_ERROR, "cuda:%d: %s failed with status %d", (int)g->index, libraries[which].called,
                s);
    }
    return s == 0 ? CU_OK : CU_NOT_SUPPORTED;
}

/* ---- which convolutions are supported ---- */

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

/* The larger scratch of the fused and the separate epilogue: only the library's plan decides which one is used. */
static size_t scratch_bytes(const dvk_conv2d_args *a, int library) {
    const size_t apart = way_of(a, library, false).bytes;
    const size_t fused = can_fuse(a, library) ? way_of(a, library, true).bytes : 0;
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
    r = r == CU_OK ? run_conv(q, library, c, &p) : r;
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

static const dvk_cuda_kernel conv_cublaslt = {.op = "conv2d",
                                              .variant = "cuda/cublaslt",
                                              .sm_min = 75,
                                              .computes = DVK_COMPUTES_F16 | DVK_COMPUTES_BF16,
                                              .supports = supports_product,
                                              .scratch_bytes = scratch_product,
                                              .enqueue = enqueue_product,
                                              .packed_bytes = packed_bytes,
                                              .pack_units = pack_units,
                                              .pack = pack};

static const dvk_cuda_kernel conv_cudnn = {.op = "conv2d",
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
    const dvk_cuda_kernel *k = is_product(a) ? &conv_cublaslt : &conv_cudnn;
    *library = is_product(a) ? NV_CUBLASLT : NV_CUDNN;
    return k->supports(a, caps) ? k : NULL;
}
