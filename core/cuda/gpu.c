/* gpu.c - opening and closing one GPU; entering its context; what an error means. */
#include <string.h>

#include "core/cuda/gpu_priv.h"
#include "core/base/error.h"

/* ---- entering ---- */

/* After these the context answers nothing but the same error. */
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

/* ---- what it can do ---- */

typedef struct speed {
    int32_t sm;
    double tensor_flops, simt_flops; /* per processor and clock */
    double reached;    /* share of the products' peak that a good kernel gets, clocks and power included */
    double memory_gbs; /* where the driver does not say */
} speed;

/* The last row whose sm is not above the device's. */
static const speed speeds[] = {{75, 512, 128, 0.8, 350},  {80, 2048, 128, 0.8, 1500}, {86, 512, 256, 0.8, 500},
                               {89, 512, 256, 0.8, 600},  {90, 4096, 256, 0.7, 3300}, {100, 8192, 256, 0.7, 7000},
                               {120, 512, 256, 0.8, 1000}};

static int32_t attribute(const dv_gpu *g, int which) {
    int value = 0;
    return g->cu->device_attribute(&value, which, g->device) == CU_OK ? value : 0;
}

static void read_caps(dv_gpu *g) {
    dvk_cuda_caps *c = &g->caps;
    c->sm = 10 * attribute(g, CU_DEVICE_MAJOR) + attribute(g, CU_DEVICE_MINOR);
    c->processors = attribute(g, CU_DEVICE_PROCESSORS);
    c->shared_bytes = attribute(g, CU_DEVICE_SHARED_OPTIN);
    c->l2_bytes = attribute(g, CU_DEVICE_L2_BYTES);
    const speed *s = &speeds[0];
    for (size_t i = 0; i < DV_ARRAY_LEN(speeds) && speeds[i].sm <= c->sm; i++) {
        s = &speeds[i];
    }
    const double khz = (double)attribute(g, CU_DEVICE_CLOCK_KHZ);
    const double clock = khz > 0 ? khz * 1e-9 : 1.5e-3; /* 10^12 per second */
    const double wide = (double)attribute(g, CU_DEVICE_MEMORY_BUS_BITS) / 8;
    const double nominal = 2e-6 * (double)attribute(g, CU_DEVICE_MEMORY_CLOCK_KHZ) * wide;
    c->memory_gbs = nominal > 10 ? 0.87 * nominal : s->memory_gbs; /* of its peak, copies reach so much */
    c->tensor_tflops = s->reached * s->tensor_flops * (double)c->processors * clock;
    c->simt_tflops = 0.9 * s->simt_flops * (double)c->processors * clock;
}

/* ---- opening ---- */

static davy_result open_context(dv_gpu *g, const dv_gpu_desc *desc) {
    cu_device found = -1;
    if (desc->cuda_context == NULL) {
        const cu_result c = g->cu->primary_retain(&g->context, g->device);
        g->primary = c == CU_OK;
        const davy_result r = dv_gpu_check(g, c, "opening the device");
        return r != DAVY_E_DEVICE_LOST ? r : dv_fail_prefix("only another process can use it again");
    }
    g->context = desc->cuda_context;
    const davy_result r = gpu_enter(g, "the host's CUDA context");
    if (r < 0) {
        return r;
    }
    const cu_result c = g->cu->context_device(&found);
    gpu_leave(g);
    if (c == CU_OK && found != g->device) {
        return dv_fail(DAVY_E_INVALID, "the host's CUDA context is one of cuda:%d, not of cuda:%d", found,
                       (int)g->index);
    }
    return dv_gpu_check(g, c, "the host's CUDA context");
}

static davy_result fill(dv_gpu *g, const dv_gpu_desc *desc) {
    g->lock = dv_mutex_create();
    g->modules = dv_calloc((uint64_t)gpu_module_count() + 1, sizeof *g->modules);
    if (g->lock == NULL || g->modules == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a device");
    }
    davy_result r = dv_gpu_check(g, g->cu->device_get(&g->device, desc->index), "opening the device");
    r = r < 0 ? r : open_context(g, desc);
    if (r < 0) {
        return r;
    }
    read_caps(g);
    return gpu_memory_open(g, desc->budget_bytes);
}

davy_result dv_gpu_open(const dv_gpu_desc *desc, dv_gpu **out) {
    char why[256] = "";
    const dv_driver *cu = NULL;
    davy_result r = dv_driver_get(desc->library_dir, &cu, why, sizeof why);
    r = r < 0 ? r : gpu_usable(cu, desc->index, why, sizeof why);
    if (r < 0) {
        return dv_fail(r, "cuda:%d: %s", (int)desc->index, why);
    }
    dv_gpu *g = dv_calloc(1, sizeof *g);
    if (g == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a device");
    }
    g->cu = cu;
    g->index = desc->index;
    g->process = dv_process_id();
    g->heap = desc->heap;
    if (desc->log != NULL) {
        g->log = *desc->log;
    }
    if (desc->host != NULL) {
        g->host = *desc->host;
        g->from_host = g->host.device_alloc != NULL && g->host.device_free != NULL;
    }
    r = fill(g, desc);
    r = r == DAVY_OK && desc->nvidia ? gpu_nvidia_open(g, desc->library_dir) : r;
    if (r < 0) {
        dv_gpu_release(g);
        return r;
    }
    *out = g;
    return DAVY_OK;
}

void dv_gpu_release(dv_gpu *g) {
    if (g == NULL) {
        return;
    }
    /* In a forked child the driver must not be called, and of a lost device nothing can be had back. */
    const bool mine = g->process == dv_process_id();
    const bool alive = mine && g->context != NULL && gpu_enter_cu(g) == CU_OK;
    gpu_queues_close(g, alive);
    if (g->lock != NULL) {
        dv_gpu_unpin_idle(g);
    }
    gpu_nvidia_close(g, alive);
    gpu_modules_close(g, alive);
    if (alive) {
        gpu_memory_close(g);
        gpu_leave(g);
    }
    if (mine) {
        if (g->primary && atomic_load(&g->lost) == 0) {
            g->cu->primary_release(g->device);
        }
        dv_mutex_release(g->lock);
    }
    dv_free(g->modules);
    dv_free(g->functions);
    dv_free(g);
}

int32_t dv_gpu_index(const dv_gpu *g) {
    return g->index;
}

const dvk_cuda_caps *dv_gpu_caps(const dv_gpu *g) {
    return &g->caps;
}
