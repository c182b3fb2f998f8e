/* mock_nvidia.c - a cuDNN (with MOCK_CUDNN) or a cuBLASLt that computes nothing, for tests. It uses the settings and counts of the
 * process's mock driver. With MOCK_INCOMPLETE one function is missing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/mock_priv.h"

enum { FAILS = 13, BAD = 2000, NONE = 3000, HANDLE = 77 };

static mock_state *state(void) {
    void *driver = dlopen(getenv("DAVY_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
    mock_fn fn = NULL;
    void *symbol = dlsym(driver, "mock");
    memcpy(&fn, &symbol, sizeof fn);
    dlclose(driver);
    return fn();
}

static int open_handle(void **handle) {
    static int it = HANDLE;
    if (state()->nvidia_refuses == 1) {
        return FAILS;
    }
    state()->nvidia_handles++;
    *handle = &it;
    return 0;
}

static int close_handle(void *handle) {
    state()->nvidia_handles--;
    return *(int *)handle == HANDLE ? 0 : BAD;
}

static size_t version(size_t right) {
    const int other = state()->nvidia_version;
    return other != 0 ? (size_t)other * 10000 : right;
}

static int compute(bool biased) {
    mock_state *m = state();
    if (m->nvidia_refuses == 4) {
        return FAILS;
    }
    m->nvidia_runs++;
    m->device_ms += m->nvidia_ms;
    m->nvidia_biased = biased;
    return 0;
}

typedef struct part {
    int kind, extras; /* extras: bias, relu */
    int64_t index;    /* of a suggestion */
    bool finished, pointers;
} part;

static int make(void **out, int kind) {
    part *p = calloc(1, sizeof *p);
    p->kind = kind;
    *out = p;
    state()->nvidia_parts++;
    return 0;
}

static int drop(void *p) {
    free(p);
    state()->nvidia_parts--;
    return 0;
}

static bool has_kernel(const part *p) {
    const int refuses = state()->nvidia_refuses;
    return refuses != 2 && !(refuses == 3 && p->extras > 0);
}

#if defined(MOCK_CUDNN)

enum { ENGINE_CONFIG = 3, HEURISTICS = 4, PLAN = 5, PACK = 16 };
enum { RESULTS = 202, ENGINE_OF = 300, OPS = 801, NOTES = 1303, POINTERS = 1001, GRAPH_OF = 201, CONFIG_OF = 401 };
enum { WORKSPACE = 402, NONDETERMINISTIC = 4, TENSOR_CORE = 0 };

MOCK_EXPORT size_t cudnnGetVersion(void) {
    return version(91900);
}

MOCK_EXPORT int cudnnCreate(void **handle) {
    return open_handle(handle);
}

MOCK_EXPORT int cudnnDestroy(void *handle) {
    return close_handle(handle);
}

#if !defined(MOCK_INCOMPLETE)
MOCK_EXPORT int cudnnSetStream(void *handle, void *stream) {
    (void)stream;
    return *(int *)handle == HANDLE ? 0 : BAD;
}
#endif

MOCK_EXPORT int cudnnBackendCreateDescriptor(int kind, void **out) {
    return make(out, kind);
}

MOCK_EXPORT int cudnnBackendDestroyDescriptor(void *p) {
    return drop(p);
}

MOCK_EXPORT int cudnnBackendFinalize(void *desc) {
    part *p = desc;
    if (p->finished || (p->kind == HEURISTICS && !has_kernel(p))) {
        return p->finished ? BAD : NONE;
    }
    p->finished = true;
    return 0;
}

MOCK_EXPORT int cudnnBackendSetAttribute(void *desc, int which, int type, int64_t count, const void *values) {
    part *p = desc;
    (void)type;
    if (p->finished || count < 1) {
        return BAD;
    }
    if (which == OPS) {
        p->extras = (int)count - 1;
    } else if (which == GRAPH_OF || which == CONFIG_OF) {
        const part *other = *(void *const *)values;
        p->extras = other->extras;
        p->index = other->index;
    } else if (which == POINTERS) {
        p->extras = (int)count - 3;
        p->pointers = true;
        for (int64_t i = 0; i < count; i++) {
            p->pointers = p->pointers && ((void *const *)values)[i] != NULL;
        }
    }
    return 0;
}

/* Two suggested engines; the first is not deterministic. */
MOCK_EXPORT int cudnnBackendGetAttribute(void *desc, int which, int type, int64_t room, int64_t *count, void *values) {
    const part *p = desc;
    (void)type;
    *count = which == RESULTS ? 2 : 1;
    if (room < *count) {
        return BAD;
    }
    if (which == RESULTS) {
        for (int64_t i = 0; i < 2; i++) {
            ((part *)((void **)values)[i])->index = i;
        }
    } else if (which == ENGINE_OF) {
        ((part *)*(void **)values)->index = p->index;
    } else if (which == NOTES) {
        *(int *)values = p->index == 0 ? NONDETERMINISTIC : TENSOR_CORE;
    } else if (which == WORKSPACE) {
        *(int64_t *)values = p->index == 1 ? 1 << 20 : INT64_MAX;
    }
    return 0;
}

MOCK_EXPORT int cudnnBackendExecute(void *handle, void *plan, void *pack) {
    const part *p = plan;
    const part *k = pack;
    const bool fine = *(int *)handle == HANDLE && p->kind == PLAN && p->finished && k->kind == PACK && k->finished &&
                      k->pointers && p->index == 1;
    return fine ? compute(k->extras > 0) : BAD;
}

#else

enum { EPILOGUE = 7, BIAS = 8 };

typedef struct found {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
} found;

MOCK_EXPORT size_t cublasLtGetVersion(void) {
    return version(130100);
}

MOCK_EXPORT int cublasLtCreate(void **handle) {
    return open_handle(handle);
}

MOCK_EXPORT int cublasLtDestroy(void *handle) {
    return close_handle(handle);
}

MOCK_EXPORT int cublasLtMatmulDescCreate(void **desc, int compute_type, int scale) {
    return compute_type == 68 && scale == 0 ? make(desc, 1) : BAD;
}

MOCK_EXPORT int cublasLtMatmulDescDestroy(void *desc) {
    return drop(desc);
}

MOCK_EXPORT int cublasLtMatmulDescSetAttribute(void *desc, int which, const void *value, size_t bytes) {
    part *p = desc;
    if (which == EPILOGUE) {
        p->extras = bytes == 4 && *(const unsigned *)value != 1 ? *(const int *)value : 0;
    } else if (which == BIAS) {
        p->pointers = bytes == 8 && *(void *const *)value != NULL;
    }
    return 0;
}

MOCK_EXPORT int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns, int64_t ld) {
    return (type == 2 || type == 14) && columns > 0 && ld >= (int64_t)rows ? make(layout, 2) : BAD;
}

MOCK_EXPORT int cublasLtMatrixLayoutDestroy(void *layout) {
    return drop(layout);
}

MOCK_EXPORT int cublasLtMatmulPreferenceCreate(void **wish) {
    return make(wish, 3);
}

#if !defined(MOCK_INCOMPLETE)
MOCK_EXPORT int cublasLtMatmulPreferenceDestroy(void *wish) {
    return drop(wish);
}
#endif

MOCK_EXPORT int cublasLtMatmulPreferenceSetAttribute(void *wish, int which, const void *value, size_t bytes) {
    return wish != NULL && value != NULL && bytes == (which == 1 ? 8 : 4) ? 0 : BAD;
}

MOCK_EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *wish,
                                               int wanted, found *out, int *n) {
    const bool fine = *(int *)handle == HANDLE && a != b && c == d && wish != NULL && wanted == 1;
    *n = 0;
    if (!fine || !has_kernel(desc)) {
        return fine ? NONE : BAD;
    }
    *out = (found){.algorithm = {HANDLE}, .workspace_bytes = 1 << 20};
    *n = 1;
    return 0;
}

MOCK_EXPORT int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a, void *a_layout,
                               const void *b, void *b_layout, const void *beta, const void *c, void *c_layout, void *d,
                               void *d_layout, const uint64_t *algorithm, void *workspace, size_t bytes, void *stream) {
    const part *p = desc;
    const bool fine = *(int *)handle == HANDLE && *(const float *)alpha == 1.0f && *(const float *)beta == 0.0f &&
                      a != NULL && b != NULL && c == d && d != NULL && a_layout != b_layout && c_layout == d_layout &&
                      algorithm[0] == HANDLE && workspace != NULL && bytes >= 1 << 20 && stream != NULL &&
                      (p->extras < 4 || p->pointers);
    return fine ? compute(p->extras >= 4) : BAD;
}

#endif
