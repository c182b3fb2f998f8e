/* gpu_nvidia.c - NVIDIA's libraries on one gpu: found, opened and given a handle when a plan first asks for one, and the
 * convolutions planned with them. */
#include <stdio.h>
#include <string.h>

#include "core/cuda/gpu_priv.h"
#include "core/cuda/nvidia.h"
#include "core/base/error.h"

struct gpu_nvidia {
    char *library_dir;
    dv_mutex *lock; /* guards all; the libraries' handles are for one thread at a time */
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

typedef struct library {
    const char *called;
    const char *files[2];
    const symbol *symbols;
    size_t n_symbols;
    size_t oldest, newest; /* major versions */
} library;

static const library libraries[NV_LIBRARIES] = {
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
        nv->dnn.set_stream(nv->dnn.handle, NULL); /* the last one is gone */
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

/* Fills the pointers; the name of one that is missing, or NULL. */
static const char *resolve(const library *l, void *opened, void *into) {
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
    const library *l = &libraries[which];
    void *opened = open_file(nv, file); /* stays open: such libraries have threads of their own */
    if (opened == NULL) {
        return false;
    }
    const char *missing = resolve(l, opened, which == NV_CUDNN ? (void *)&nv->dnn : (void *)&nv->lt);
    if (missing != NULL) {
        dv_logf(&g->log, DAVY_LOG_INFO, "cuda:%d: %s has no %s, it is not used", (int)g->index, file, missing);
        return false;
    }
    const size_t version = which == NV_CUDNN ? nv->dnn.get_version() : nv->lt.get_version();
    if (version / 10000 < l->oldest || version / 10000 > l->newest) {
        dv_logf(&g->log, DAVY_LOG_INFO, "cuda:%d: %s is of version %u, it is not used", (int)g->index, file,
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
        const library *l = &libraries[which];
        nv->tried[which] = true;
        for (size_t i = 0; i < DV_ARRAY_LEN(l->files) && l->files[i] != NULL && !nv->ready[which]; i++) {
            nv->ready[which] = start(g, which, l->files[i]);
        }
        if (!nv->ready[which]) {
            dv_logf(&g->log, DAVY_LOG_INFO, "cuda:%d: no %s, convolutions are computed without", (int)g->index,
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

/* All that what is done, and how long it takes, depends on: 4 views of 9, and 19. */
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
    nv_conv_shape(a, which, fused, &shape);
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
    c->offered = nv_conv_fuses(a, which) && plan(nv, which, a, true, c);
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

int nv_conv_run(dv_gpu_queue *q, int which, const nv_conv *c, const nv_pointers *p) {
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
