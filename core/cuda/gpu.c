/* gpu.c - lists devices, resolves selectors, and opens, trims and closes a gpu. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/cuda/conv_nvidia.h"
#include "core/cuda/gpu_priv.h"
#include "kernels/costs/cuda_costs.h"

enum { SM_MIN = 75, UUID_DIGITS = 32 };

int32_t dv_gpu_count(const char *library_dir, char *why_none, size_t bytes) {
    int n = 0;
    const dv_driver *cu = NULL;
    char why[256] = "";
    if (dv_driver_get(library_dir, &cu, why, sizeof why) != DAVY_OK) {
        if (why_none != NULL) {
            snprintf(why_none, bytes, "%s", why);
        }
        return 0;
    }
    const cu_result c = cu->device_count(&n);
    if ((c != CU_OK || n <= 0) && why_none != NULL) {
        char name[64];
        snprintf(why_none, bytes, "the NVIDIA driver finds no device%s%s", c != CU_OK ? ": " : "",
                 c != CU_OK ? dv_driver_error_name(cu, c, name, sizeof name) : "");
    }
    return c == CU_OK && n > 0 ? n : 0;
}

static int32_t attribute(const dv_driver *cu, cu_device d, int which) {
    int value = 0;
    return cu->device_attribute(&value, which, d) == CU_OK ? value : 0;
}

static davy_result no_use(char *reason, size_t bytes, const char *text) {
    snprintf(reason, bytes, "%s", text);
    return DAVY_E_DEVICE;
}

static davy_result check_usable(const dv_driver *cu, int32_t index, char *reason, size_t bytes) {
    int n = 0;
    cu_device d = 0;
    if (cu->device_count(&n) != CU_OK || index < 0 || index >= n || cu->device_get(&d, index) != CU_OK) {
        if (n == 0) {
            return no_use(reason, bytes, "the NVIDIA driver finds no device");
        }
        snprintf(reason, bytes, "no such device; the NVIDIA driver has %d, numbered from 0", n);
        return DAVY_E_DEVICE;
    }
    const int32_t major = attribute(cu, d, CU_DEVICE_MAJOR);
    const int32_t minor = attribute(cu, d, CU_DEVICE_MINOR);
    if (10 * major + minor < SM_MIN) {
        snprintf(reason, bytes, "its compute capability is %d.%d, davy needs %d.%d or newer", (int)major, (int)minor,
                 SM_MIN / 10, SM_MIN % 10);
        return DAVY_E_DEVICE;
    }
    if (cu->reason[0] != '\0') {
        return no_use(reason, bytes, cu->reason);
    }
    if (attribute(cu, d, CU_DEVICE_COMPUTE_MODE) == CU_COMPUTE_PROHIBITED) {
        return no_use(reason, bytes, "its compute mode is \"prohibited\"");
    }
    int32_t n_modules = 0;
    dvk_cuda_modules(&n_modules);
    if (n_modules == 0) {
        return no_use(reason, bytes, "this build of davy has no device code");
    }
    reason[0] = '\0';
    return DAVY_OK;
}

/* The driver reports free memory only to a process with a context on the device. Creating one just for this would cost memory. */
static uint64_t free_bytes(const dv_driver *cu, cu_device d) {
    unsigned flags = 0;
    int active = 0;
    size_t free_now = 0;
    size_t total = 0;
    cu_context context = NULL;
    if (cu->reason[0] != '\0' || cu->primary_state(d, &flags, &active) != CU_OK || active == 0 ||
        cu->primary_retain(&context, d) != CU_OK) {
        return 0;
    }
    if (cu->context_push(context) == CU_OK) {
        cu->memory_info(&free_now, &total);
        cu->context_pop(&context);
    }
    cu->primary_release(d);
    return free_now;
}

davy_result dv_gpu_describe(const char *library_dir, int32_t index, davy_device_info *out) {
    char why[256] = "";
    cu_device d = 0;
    cu_uuid uuid = {{0}};
    size_t total = 0;
    const dv_driver *cu = NULL;
    const davy_result r = dv_driver_get(library_dir, &cu, why, sizeof why);
    if (r < 0) {
        return dv_fail(r, "cuda:%d: %s", (int)index, why);
    }
    if (index < 0 || index >= dv_gpu_count(library_dir, NULL, 0) || cu->device_get(&d, index) != CU_OK) {
        return dv_fail(DAVY_E_NOT_FOUND, "cuda:%d: the NVIDIA driver has no such device", (int)index);
    }
    memset(out, 0, sizeof *out);
    out->kind = DAVY_DEVICE_CUDA;
    out->index = index;
    out->compute_major = attribute(cu, d, CU_DEVICE_MAJOR);
    out->compute_minor = attribute(cu, d, CU_DEVICE_MINOR);
    const int32_t sm = 10 * out->compute_major + out->compute_minor;
    out->features = (uint32_t)((sm >= 75 ? DAVY_FEATURE_FP16 | DAVY_FEATURE_INT8 : 0) |
                               (sm >= 80 ? DAVY_FEATURE_BF16 : 0) | (sm >= 89 ? DAVY_FEATURE_FP8 : 0));
    if (cu->device_uuid(&uuid, d) == CU_OK) {
        memcpy(out->uuid, uuid.bytes, sizeof out->uuid);
    }
    if (cu->device_name(out->name, (int)sizeof out->name, d) != CU_OK) {
        snprintf(out->name, sizeof out->name, "CUDA device %d", (int)index);
    }
    out->name[sizeof out->name - 1] = '\0';
    snprintf(out->selector, sizeof out->selector, "cuda:%d", (int)index);
    out->memory_total_bytes = cu->device_memory(&total, d) == CU_OK ? total : 0;
    out->memory_free_bytes = free_bytes(cu, d);
    out->driver_version = cu->version;
    out->cudnn_version = nv_cudnn_version();
    check_usable(cu, index, out->reason, sizeof out->reason);
    return DAVY_OK;
}

/* ---- selectors ---- */

static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Reads "GPU-12ab…" as hexadecimal digits. Returns their number, or -1 if the text has any other character. */
static int read_uuid(const char *text, unsigned char digits[UUID_DIGITS]) {
    int n = 0;
    if ((text[0] | 32) == 'g' && (text[1] | 32) == 'p' && (text[2] | 32) == 'u' && text[3] == '-') {
        text += 4;
    }
    for (; *text != '\0'; text++) {
        const int d = hex_digit(*text);
        if (*text == '-') {
            continue;
        }
        if (d < 0 || n == UUID_DIGITS) {
            return -1;
        }
        digits[n++] = (unsigned char)d;
    }
    return n > 0 ? n : -1;
}

/* "0000:01:00.0" to domain, bus, device, function. The text may omit the domain and the function. */
static bool read_pci(const char *text, unsigned long out[4]) {
    unsigned long part[3] = {0};
    int n = 0;
    char *end = NULL;
    for (;;) {
        if (hex_digit(*text) < 0 || n == 3) {
            return false;
        }
        part[n++] = strtoul(text, &end, 16);
        text = end;
        if (*text != ':') {
            break;
        }
        text++;
    }
    out[0] = n == 3 ? part[0] : 0;
    out[1] = n == 3 ? part[1] : part[0];
    out[2] = n == 3 ? part[2] : part[1];
    out[3] = 0;
    if (*text == '.') {
        if (hex_digit(text[1]) < 0) {
            return false;
        }
        out[3] = strtoul(text + 1, &end, 16);
        text = end;
    }
    return n >= 2 && *text == '\0';
}

static bool uuid_matches(const dv_driver *cu, cu_device d, const unsigned char *digits, int n) {
    cu_uuid uuid;
    if (cu->device_uuid(&uuid, d) != CU_OK) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        if ((i % 2 == 0 ? uuid.bytes[i / 2] >> 4 : uuid.bytes[i / 2] & 15) != digits[i]) {
            return false;
        }
    }
    return true;
}

static bool pci_matches(const dv_driver *cu, cu_device d, const unsigned long address[4]) {
    char id[32] = "";
    unsigned long have[4];
    if (cu->device_pci(id, (int)sizeof id, d) != CU_OK || !read_pci(id, have)) {
        return false;
    }
    return memcmp(have, address, sizeof have) == 0;
}

static davy_result malformed(const char *selector) {
    return dv_fail(DAVY_E_INVALID,
                   "device \"%s\": not a selector; expected \"cuda\", \"cuda:0\", \"cuda:uuid=GPU-…\" or "
                   "\"cuda:pci=0000:01:00.0\"",
                   selector);
}

/* A selector with uuid or pci; exactly one device must match. */
static davy_result find_match(const dv_driver *cu, int32_t n, const char *selector, int32_t *index) {
    unsigned char digits[UUID_DIGITS];
    unsigned long pci[4];
    const bool by_uuid = strncmp(selector, "cuda:uuid=", 10) == 0;
    const int n_digits = by_uuid ? read_uuid(selector + 10, digits) : 0;
    int32_t found = 0;
    if (by_uuid ? n_digits < 0 : strncmp(selector, "cuda:pci=", 9) != 0 || !read_pci(selector + 9, pci)) {
        return malformed(selector);
    }
    for (int32_t i = 0; i < n; i++) {
        cu_device d = 0;
        if (cu->device_get(&d, i) == CU_OK &&
            (by_uuid ? uuid_matches(cu, d, digits, n_digits) : pci_matches(cu, d, pci))) {
            *index = i;
            found++;
        }
    }
    if (found != 1) {
        return dv_fail(DAVY_E_DEVICE, "%s: %s", selector,
                       found == 0 ? "no device of the NVIDIA driver matches"
                                  : "more than one device matches; give more digits");
    }
    return DAVY_OK;
}

/* For "cuda": the first usable device. If none is usable, device 0, so that the error has its reason. */
static int32_t first_usable(const dv_driver *cu, int32_t n) {
    char reason[256];
    for (int32_t i = 0; i < n; i++) {
        if (check_usable(cu, i, reason, sizeof reason) == DAVY_OK) {
            return i;
        }
    }
    return 0;
}

davy_result dv_gpu_find(const char *library_dir, const char *selector, int32_t *index) {
    char why[256] = "";
    const bool any = strcmp(selector, "cuda") == 0;
    if (!any && strncmp(selector, "cuda:", 5) != 0) {
        return malformed(selector);
    }
    const dv_driver *cu = NULL;
    davy_result r = dv_driver_get(library_dir, &cu, why, sizeof why);
    const int32_t n = r == DAVY_OK ? dv_gpu_count(library_dir, why, sizeof why) : 0;
    if (n == 0) {
        return dv_fail(r < 0 ? r : DAVY_E_DEVICE, "%s: %s", selector, why);
    }
    const char *text = any ? "" : selector + 5;
    const size_t digits = strspn(text, "0123456789");
    if (any) {
        *index = first_usable(cu, n);
    } else if (digits > 0 && digits < 9 && text[digits] == '\0') {
        *index = (int32_t)strtol(text, NULL, 10);
    } else {
        r = find_match(cu, n, selector, index);
        if (r < 0) {
            return r;
        }
    }
    if (check_usable(cu, *index, why, sizeof why) != DAVY_OK) {
        return dv_fail(DAVY_E_DEVICE, "%s: %s", selector, why);
    }
    return DAVY_OK;
}

/* ---- capabilities ---- */

typedef struct speed {
    int32_t sm;
    double tensor_flops, simt_flops; /* per processor and clock */
    double reached;    /* share of the tensor peak that a good kernel reaches, with real clocks and power limits */
    double memory_gbs; /* used if the driver does not report clock and bus width */
} speed;

/* The last row whose sm is not above the device's applies. */
static const speed speeds[] = {{75, 512, 128, 0.8, 350},  {80, 2048, 128, 0.8, 1500}, {86, 512, 256, 0.8, 500},
                               {89, 512, 256, 0.8, 600},  {90, 4096, 256, 0.7, 3300}, {100, 8192, 256, 0.7, 7000},
                               {120, 512, 256, 0.8, 1000}};

static void read_caps(dv_gpu *g) {
    dvk_cuda_caps *c = &g->caps;
    c->sm = 10 * attribute(g->cu, g->device, CU_DEVICE_MAJOR) + attribute(g->cu, g->device, CU_DEVICE_MINOR);
    c->processors = attribute(g->cu, g->device, CU_DEVICE_PROCESSORS);
    c->shared_bytes = attribute(g->cu, g->device, CU_DEVICE_SHARED_OPTIN);
    c->l2_bytes = attribute(g->cu, g->device, CU_DEVICE_L2_BYTES);
    const speed *s = &speeds[0];
    for (size_t i = 0; i < DV_ARRAY_LEN(speeds) && speeds[i].sm <= c->sm; i++) {
        s = &speeds[i];
    }
    const double khz = (double)attribute(g->cu, g->device, CU_DEVICE_CLOCK_KHZ);
    const double clock = khz > 0 ? khz * 1e-9 : 1.5e-3; /* 10^12 per second */
    const double wide = (double)attribute(g->cu, g->device, CU_DEVICE_MEMORY_BUS_BITS) / 8;
    const double nominal = 2e-6 * (double)attribute(g->cu, g->device, CU_DEVICE_MEMORY_CLOCK_KHZ) * wide;
    c->memory_gbs = nominal > 10 ? 0.87 * nominal : s->memory_gbs; /* copies reach 87 % of the peak */
    c->tensor_tflops = s->reached * s->tensor_flops * (double)c->processors * clock;
    c->simt_tflops = 0.9 * s->simt_flops * (double)c->processors * clock;
    char name[128] = "";
    c->costs = dvk_cost_table_of(c->sm, g->cu->device_name(name, (int)sizeof name, g->device) == CU_OK ? name : NULL);
}

/* ---- opening ---- */

static davy_result open_context(dv_gpu *g, const dv_gpu_desc *desc) {
    cu_device found = -1;
    if (desc->cuda_context == NULL) {
        const cu_result c = g->cu->primary_retain(&g->context, g->device);
        g->primary = c == CU_OK;
        const davy_result r = dv_gpu_check(g, c, "opening the device");
        return r != DAVY_E_DEVICE_LOST ? r : dv_fail_prefix("only another process can use the device again");
    }
    g->context = desc->cuda_context;
    const davy_result r = gpu_enter(g, "the host's CUDA context");
    if (r < 0) {
        return r;
    }
    const cu_result c = g->cu->context_device(&found);
    gpu_leave(g);
    if (c == CU_OK && found != g->device) {
        return dv_fail(DAVY_E_INVALID, "the host's CUDA context belongs to cuda:%d, not to cuda:%d", found,
                       (int)g->index);
    }
    return dv_gpu_check(g, c, "the host's CUDA context");
}

static davy_result fill(dv_gpu *g, const dv_gpu_desc *desc) {
    g->lock = dv_mutex_create();
    dvk_cuda_modules(&g->n_modules);
    g->modules = dv_calloc((uint64_t)g->n_modules + 1, sizeof *g->modules);
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
    r = r < 0 ? r : check_usable(cu, desc->index, why, sizeof why);
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

void dv_gpu_trim(dv_gpu *g) {
    dv_gpu_unpin_idle(g);
    if (g->process != dv_process_id() || gpu_enter_cu(g) != CU_OK) {
        return;
    }
    const int mode = gpu_capture_aside(g);
    if (g->pool != NULL && gpu_note(g, g->cu->stream_sync(g->memory_stream)) == CU_OK) { /* frees are done */
        gpu_note(g, g->cu->pool_trim(g->pool, 0));
    }
    dv_mutex_lock(g->lock);
    for (gpu_queue *q = g->queues; q != NULL; q = q->next) {
        if (!q->taken) {
            gpu_stages_free(g, q, true);
        }
    }
    dv_mutex_unlock(g->lock);
    gpu_capture_back(g, mode);
    gpu_leave(g);
}

void dv_gpu_release(dv_gpu *g) {
    if (g == NULL) {
        return;
    }
    /* A forked child must not call the driver, and a lost device cannot return anything. */
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
