/* mock_driver.c - contexts and device code of the mock. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/mock_priv.h"

enum { MAX_DEPTH = 64 };

struct CUctx_st {
    int device;
};

mock_state mock_it;
static pthread_mutex_t lock;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct CUctx_st primary[MOCK_DEVICES] = {{0}, {1}, {2}, {3}};
static struct CUctx_st hosts_own[MOCK_DEVICES] = {{0}, {1}, {2}, {3}};
static _Thread_local cu_context stack[MAX_DEPTH];
static _Thread_local int depth;
static struct CUfunc_st *functions;

static void defaults(void) {
    static const mock_device devices[2] = {{"Mock GPU A",
                                            {0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 8},
                                            "0000:01:00.0",
                                            9,
                                            0,
                                            0},
                                           {"Mock GPU B",
                                            {0x12, 0x34, 0xff, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 1, 2, 3, 4, 5, 6, 7, 9},
                                            "0001:C1:00.0",
                                            8,
                                            6,
                                            0}};
    memset(&mock_it, 0, sizeof mock_it);
    mock_it.version = 13000;
    mock_it.n_devices = 2;
    memcpy(mock_it.device, devices, sizeof devices);
    mock_it.device_bytes = (uint64_t)4 << 30;
}

static void prepare(void) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &attr);
    pthread_mutexattr_destroy(&attr);
    defaults();
}

MOCK_EXPORT mock_state *mock(void) {
    pthread_once(&once, prepare);
    return &mock_it;
}

MOCK_EXPORT void mock_reset(void) {
    mock();
    mock_lock();
    defaults();
    mock_unlock();
}

/* A context as a host program creates it, beside the primary one. */
MOCK_EXPORT void *mock_host_context(int device) {
    return &hosts_own[device];
}

MOCK_EXPORT int mock_depth(void) {
    return depth;
}

int mock_current_device(void) {
    return stack[depth - 1]->device;
}

void mock_lock(void) {
    pthread_once(&once, prepare);
    pthread_mutex_lock(&lock);
}

void mock_unlock(void) {
    pthread_mutex_unlock(&lock);
}

cu_result mock_enter(void) {
    mock_lock();
    if (mock_it.sticky != 0) {
        return mock_leave(mock_it.sticky);
    }
    if (depth == 0) {
        mock_it.bad_context++;
        return mock_leave(201);
    }
    return CU_OK;
}

cu_result mock_leave(cu_result r) {
    mock_unlock();
    return r;
}

/* ---- contexts ---- */

MOCK_EXPORT cu_result cuDevicePrimaryCtxGetState(cu_device device, unsigned *flags, int *active) {
    (void)device;
    *flags = 0;
    *active = mock_it.retained > 0;
    return CU_OK;
}

MOCK_EXPORT cu_result cuDevicePrimaryCtxRetain(cu_context *context, cu_device device) {
    mock_lock();
    if (mock_it.sticky != 0) {
        return mock_leave(mock_it.sticky);
    }
    mock_it.retained++;
    *context = &primary[device];
    return mock_leave(CU_OK);
}

MOCK_EXPORT cu_result cuDevicePrimaryCtxRelease_v2(cu_device device) {
    (void)device;
    mock_lock();
    mock_it.retained--;
    return mock_leave(CU_OK);
}

MOCK_EXPORT cu_result cuCtxPushCurrent_v2(cu_context context) {
    if (context == NULL || depth == MAX_DEPTH) {
        return 201;
    }
    mock_lock();
    mock_it.pushes++;
    stack[depth++] = context;
    return mock_leave(CU_OK);
}

MOCK_EXPORT cu_result cuCtxPopCurrent_v2(cu_context *context) {
    mock_lock();
    if (depth == 0) {
        mock_it.bad_context++;
        return mock_leave(201);
    }
    mock_it.pops++;
    *context = stack[--depth];
    return mock_leave(CU_OK);
}

MOCK_EXPORT cu_result cuCtxGetDevice(cu_device *device) {
    cu_result r = mock_enter();
    if (r == CU_OK) {
        *device = mock_current_device();
        mock_unlock();
    }
    return r;
}

/* ---- device code ---- */

MOCK_EXPORT cu_result cuModuleLoadData(cu_module *module, const void *image) {
    cu_result r = mock_enter();
    if (r != CU_OK) {
        return r;
    }
    if (mock_it.fail_module != 0) {
        return mock_leave(mock_it.fail_module);
    }
    *module = calloc(1, sizeof **module);
    snprintf((*module)->name, sizeof(*module)->name, "%s", (const char *)image);
    mock_it.loads++;
    mock_it.modules++;
    return mock_leave(CU_OK);
}

MOCK_EXPORT cu_result cuModuleUnload(cu_module module) {
    const cu_result r = mock_enter();
    if (r == CU_OK) {
        struct CUfunc_st **at = &functions;
        while (*at != NULL) {
            struct CUfunc_st *f = *at;
            if (f->module == module) {
                *at = f->next;
                free(f);
            } else {
                at = &f->next;
            }
        }
        free(module);
        mock_it.modules--;
        mock_unlock();
    }
    return r;
}

MOCK_EXPORT cu_result cuModuleGetFunction(cu_function *function, cu_module module, const char *name) {
    const cu_result r = mock_enter();
    if (r != CU_OK) {
        return r;
    }
    mock_it.function_lookups++;
    if (strncmp(name, "no_", 3) == 0) {
        return mock_leave(CU_NOT_FOUND);
    }
    struct CUfunc_st *f = calloc(1, sizeof *f);
    f->module = module;
    f->next = functions;
    functions = f;
    snprintf(f->name, sizeof f->name, "%s", name);
    *function = f;
    return mock_leave(CU_OK);
}
