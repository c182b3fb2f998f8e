/* gpu_context.c - the CUDA context of a gpu: entering it, classifying errors, and loading device code. A module is loaded when
 * its first kernel is launched. */
#include <string.h>

#include "core/base/error.h"
#include "core/cuda/gpu_priv.h"

/* ---- entering ---- */

/* After these errors every later call in the context returns the same error. */
static bool is_sticky(cu_result r) {
    static const short codes[] = {
        4,   /* the driver is shutting down */
        46,  /* device unavailable */
        201, /* invalid context: the host has destroyed its own */
        214, /* uncorrectable ECC error */
        220, /* uncorrectable NVLINK error */
        226, /* contained */
        700, /* illegal address */
        702, /* launch timeout */
        709, /* context destroyed */
        710, /* assert */
        714, /* hardware stack error */
        715, /* illegal instruction */
        716, /* misaligned address */
        717, /* invalid address space */
        718, /* invalid program counter */
        719, /* launch failed */
        721, /* tensor memory leak */
        810, /* MPS client terminated */
        911, /* external device */
        999  /* unknown */
    };
    for (size_t i = 0; i < DV_ARRAY_LEN(codes); i++) {
        if (r == codes[i]) {
            return true;
        }
    }
    return false;
}

cu_result gpu_note(dv_gpu *g, cu_result r) {
    int alive = 0;
    if (r != CU_OK && is_sticky(r) && atomic_compare_exchange_strong(&g->lost, &alive, r)) {
        char name[64];
        dv_logf(&g->log, DAVY_LOG_ERROR, "cuda:%d is lost: %s", (int)g->index,
                dv_driver_error_name(g->cu, r, name, sizeof name));
    }
    return r;
}

cu_result gpu_enter_cu(dv_gpu *g) {
    const int lost = atomic_load_explicit(&g->lost, memory_order_relaxed);
    return lost != 0 ? lost : gpu_note(g, g->cu->context_push(g->context));
}

davy_result gpu_enter(dv_gpu *g, const char *what) {
    if (g->process != dv_process_id()) {
        return dv_fail(DAVY_E_FORKED, "%s: cuda:%d was opened before fork()", what, (int)g->index);
    }
    return dv_gpu_check(g, gpu_enter_cu(g), what);
}

void gpu_leave(dv_gpu *g) {
    cu_context popped = NULL;
    g->cu->context_pop(&popped);
}

davy_result dv_gpu_check(dv_gpu *g, int code, const char *what) {
    if (code == CU_OK) {
        return DAVY_OK;
    }
    char name[64];
    gpu_note(g, code);
    dv_driver_error_name(g->cu, code, name, sizeof name);
    if (atomic_load(&g->lost) != 0) {
        return dv_fail_in(DAVY_E_DEVICE_LOST, DAVY_DOMAIN_CUDA, code, "%s: cuda:%d is lost (%s)", what, (int)g->index,
                          name);
    }
    if (code == CU_OUT_OF_MEMORY) {
        return dv_fail_in(DAVY_E_NOMEM_DEVICE, DAVY_DOMAIN_CUDA, code, "%s: cuda:%d has no memory left (%s)", what,
                          (int)g->index, name);
    }
    return dv_fail_in(DAVY_E_DEVICE, DAVY_DOMAIN_CUDA, code, "%s: cuda:%d: %s", what, (int)g->index, name);
}

int gpu_capture_aside(dv_gpu *g) {
    int mode = CU_CAPTURE_RELAXED;
    g->cu->capture_mode(&mode);
    return mode;
}

void gpu_capture_back(dv_gpu *g, int mode) {
    g->cu->capture_mode(&mode);
}

/* ---- device code ---- */

static cu_result complain(dv_gpu *g, cu_result r, const char *module, const char *name) {
    char text[64];
    dv_logf(&g->log, DAVY_LOG_ERROR, "cuda:%d: device code %s%s%s: %s", (int)g->index, module,
            name[0] != '\0' ? ", " : "", name, dv_driver_error_name(g->cu, r, text, sizeof text));
    return r;
}

static cu_result load_module(dv_gpu *g, const char *name, cu_module *out) {
    int32_t n = 0;
    const dvk_cuda_module *modules = dvk_cuda_modules(&n);
    int32_t i = 0;
    while (i < n && strcmp(modules[i].name, name) != 0) {
        i++;
    }
    if (i == n) {
        return CU_NOT_FOUND;
    }
    if (g->modules[i] == NULL) {
        const int mode = gpu_capture_aside(g);
        const cu_result r = g->cu->module_load(&g->modules[i], modules[i].image);
        gpu_capture_back(g, mode);
        if (r != CU_OK) {
            g->modules[i] = NULL;
            return r;
        }
        dv_logf(&g->log, DAVY_LOG_DEBUG, "cuda:%d: device code %s loaded", (int)g->index, name);
    }
    *out = g->modules[i];
    return CU_OK;
}

static cu_result add_function(dv_gpu *g, const char *module, const char *name, gpu_function **out) {
    cu_module loaded = NULL;
    cu_function handle = NULL;
    cu_result r = load_module(g, module, &loaded);
    if (r != CU_OK) {
        return complain(g, r, module, "");
    }
    r = g->cu->module_function(&handle, loaded, name);
    if (r != CU_OK) {
        return complain(g, r, module, name);
    }
    gpu_function **grown = dv_grow(g->functions, g->n_functions + 1, &g->functions_room, sizeof *grown);
    g->functions = grown != NULL ? grown : g->functions;
    gpu_function *f = grown != NULL ? dv_calloc(1, sizeof *f) : NULL;
    if (f == NULL || (f->module = dv_strdup(module)) == NULL || (f->name = dv_strdup(name)) == NULL) {
        if (f != NULL) {
            dv_free(f->module);
        }
        dv_free(f);
        return CU_OUT_OF_MEMORY;
    }
    f->handle = handle;
    atomic_init(&f->dynamic_shared, 48 << 10);
    g->functions[g->n_functions++] = f;
    *out = f;
    return CU_OK;
}

cu_result gpu_find_function(dv_gpu *g, const char *module, const char *name, gpu_function **out) {
    cu_result r = CU_OK;
    int64_t i = 0;
    dv_mutex_lock(g->lock);
    while (i < g->n_functions &&
           (strcmp(g->functions[i]->name, name) != 0 || strcmp(g->functions[i]->module, module) != 0)) {
        i++;
    }
    if (i < g->n_functions) {
        *out = g->functions[i];
    } else {
        r = add_function(g, module, name, out);
    }
    dv_mutex_unlock(g->lock);
    return r;
}

void gpu_modules_close(dv_gpu *g, bool alive) {
    for (int32_t i = 0; alive && g->modules != NULL && i < g->n_modules; i++) {
        if (g->modules[i] != NULL) {
            g->cu->module_unload(g->modules[i]);
        }
    }
    for (int64_t i = 0; i < g->n_functions; i++) {
        dv_free(g->functions[i]->module);
        dv_free(g->functions[i]->name);
        dv_free(g->functions[i]);
    }
}
