/* device.c - see device.h. */
#include "core/host/device.h"

#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/options.h"
#include "core/base/os.h"
#include "kernels/kernel.h"

/* ---- the list ---- */

int32_t dv_device_count(const char *library_dir) {
    return 1 + dv_gpu_count(library_dir, NULL, 0);
}

static void describe_cpu(davy_device_info *out) {
    memset(out, 0, sizeof *out);
    out->kind = DAVY_DEVICE_CPU;
    out->features = (dvk_cpu_detect() & DVK_CPU_AVX512BF16) != 0 ? DAVY_FEATURE_BF16 : 0;
    dv_cpu_name(out->name, sizeof out->name);
    snprintf(out->selector, sizeof out->selector, "cpu");
    out->memory_total_bytes = dv_memory_total();
    out->memory_free_bytes = dv_memory_available();
    if (out->memory_free_bytes > out->memory_total_bytes) { /* a container's limit is below the machine's free memory */
        out->memory_free_bytes = out->memory_total_bytes;
    }
}

davy_result dv_device_info(const char *library_dir, int32_t index, davy_device_info *out) {
    const int32_t count = dv_device_count(library_dir);
    if (index < 0 || index >= count) {
        return dv_fail(DAVY_E_NOT_FOUND, "device: index is %d, but there are only %d devices", (int)index, (int)count);
    }
    if (index > 0) {
        return dv_gpu_describe(library_dir, index - 1, out);
    }
    describe_cpu(out);
    return DAVY_OK;
}

/* ---- selectors ---- */

/* Returns the next item of a list, with its length in *n; NULL at the end. */
static const char *next_item(const char **at, size_t *n) {
    const char *item = *at;
    if (item == NULL) {
        return NULL;
    }
    *n = strcspn(item, ",");
    *at = item[*n] == ',' ? item + *n + 1 : NULL;
    return item;
}

static bool is_gpu_text(const char *item, size_t n) {
    return n >= 4 && strncmp(item, "cuda", 4) == 0 && (n == 4 || item[4] == ':');
}

/* True if the text has the form of a selector. */
static bool is_selector(const char *text) {
    const char *at = text;
    const char *item = NULL;
    size_t n = 0;
    if (strcmp(text, "auto") == 0 || strcmp(text, "cpu") == 0) {
        return true;
    }
    while ((item = next_item(&at, &n)) != NULL) {
        if (!is_gpu_text(item, n)) {
            return false;
        }
    }
    return true;
}

/* ---- opening ---- */

static davy_result open_index(const dv_devices_desc *d, int32_t index, dv_gpu **out) {
    const dv_gpu_desc desc = {.index = index,
                              .library_dir = d->library_dir,
                              .cuda_context = d->cuda_context,
                              .budget_bytes = d->budget_bytes,
                              .host = d->host,
                              .log = d->log,
                              .heap = d->heap,
                              .nvidia = d->nvidia};
    return dv_gpu_open(&desc, out);
}

/* Opens the first usable GPU, or the GPU of the host's CUDA context if there is one. Logs why it skipped others: as INFO if
 * that is expected, else as WARN. */
static void open_any(const dv_devices_desc *d, dv_gpu *gpus[DV_GPUS_MAX], int32_t *n) {
    char why[256] = "";
    const int32_t count = dv_gpu_count(d->library_dir, why, sizeof why);
    if (count == 0) {
        dv_logf(d->log, DAVY_LOG_INFO, "no GPU: %s", why);
    }
    for (int32_t i = 0; i < count && *n == 0; i++) {
        davy_device_info info = {.struct_size = sizeof info};
        davy_error_info error;
        davy_result r = dv_gpu_describe(d->library_dir, i, &info);
        if (r == DAVY_OK && info.reason[0] != '\0') {
            dv_logf(d->log, DAVY_LOG_WARN, "%s (%s) is not used: %s", info.selector, info.name, info.reason);
            continue;
        }
        r = r < 0 ? r : open_index(d, i, &gpus[0]);
        *n = r == DAVY_OK ? 1 : 0;
        if (r < 0) {
            dv_error_get(&error);
            dv_logf(d->log, d->cuda_context != NULL ? DAVY_LOG_INFO : DAVY_LOG_WARN, "cuda:%d is not used: %s", (int)i,
                    error.message);
        }
    }
}

static davy_result open_item(const dv_devices_desc *d, const char *item, size_t length, dv_gpu *gpus[DV_GPUS_MAX],
                             int32_t *n) {
    char text[128];
    int32_t index = 0;
    if (length >= sizeof text) {
        return dv_fail(DAVY_E_INVALID, "device \"%.*s…\": too long for a selector", 32, item);
    }
    if (*n == DV_GPUS_MAX) {
        return dv_fail(DAVY_E_INVALID, "device: the list has more than %d GPUs", (int)DV_GPUS_MAX);
    }
    snprintf(text, sizeof text, "%.*s", (int)length, item);
    davy_result r = dv_gpu_find(d->library_dir, text, &index);
    for (int32_t i = 0; r == DAVY_OK && i < *n; i++) {
        if (dv_gpu_index(gpus[i]) == index) {
            r = dv_fail(DAVY_E_INVALID, "device \"%s\": is in the list twice", d->selector);
        }
    }
    r = r < 0 ? r : open_index(d, index, &gpus[*n]);
    *n += r == DAVY_OK ? 1 : 0;
    return r;
}

davy_result dv_devices_open(const dv_devices_desc *d, dv_gpu *gpus[DV_GPUS_MAX], int32_t *n) {
    const char *at = d->selector;
    const char *item = NULL;
    size_t length = 0;
    davy_result r = DAVY_OK;
    *n = 0;
    if (strcmp(d->selector, "cpu") == 0) {
        return DAVY_OK;
    }
    const bool automatic = strcmp(d->selector, "auto") == 0;
    if (automatic || (d->cuda_context != NULL && strcmp(d->selector, "cuda") == 0)) {
        open_any(d, gpus, n);
        return automatic || *n > 0 ? DAVY_OK
                                   : dv_fail(DAVY_E_DEVICE, "cuda: the host's CUDA context belongs to no usable GPU");
    }
    if (d->cuda_context != NULL && strchr(d->selector, ',') != NULL) {
        return dv_fail(DAVY_E_INVALID, "device \"%s\": cuda_context belongs to one GPU; name only that one",
                       d->selector);
    }
    while (r == DAVY_OK && (item = next_item(&at, &length)) != NULL) {
        r = open_item(d, item, length, gpus, n);
    }
    while (r < 0 && *n > 0) {
        dv_gpu_release(gpus[--*n]);
    }
    return r;
}

/* ---- the environment ---- */

davy_result dv_env_threads(bool environment, int32_t given, int32_t *out) {
    char *text = environment && given == 0 ? dv_env("DAVY_THREADS") : NULL;
    int64_t n = given != 0 ? given : dv_min(dv_cpu_count(), DV_THREADS_MAX);
    davy_result r = DAVY_OK;
    if (text != NULL && !dv_parse_int(text, 1, DV_THREADS_MAX, &n)) {
        r = dv_fail(DAVY_E_OPTION, "environment: DAVY_THREADS is \"%s\", expected 1 to %d", text, (int)DV_THREADS_MAX);
    }
    dv_free(text);
    *out = (int32_t)n;
    return r;
}

davy_result dv_env_cpu(bool environment, uint32_t *out) {
    static const struct {
        const char *name;
        uint32_t bits;
    } sets[] = {{"baseline", 0},
                {"avx2", DVK_CPU_AVX2},
                {"avx512", DVK_CPU_AVX2 | DVK_CPU_AVX512},
                {"avx512bf16", DVK_CPU_AVX2 | DVK_CPU_AVX512 | DVK_CPU_VNNI | DVK_CPU_AVX512BF16},
                {"amx", DVK_CPU_AVX2 | DVK_CPU_AVX512 | DVK_CPU_VNNI | DVK_CPU_AVX512BF16 | DVK_CPU_AMX}};
    char *text = environment ? dv_env("DAVY_CPU") : NULL;
    davy_result r = DAVY_OK;
    *out = dvk_cpu_detect();
    if (text != NULL) {
        size_t i = 0;
        while (i < DV_ARRAY_LEN(sets) && strcmp(text, sets[i].name) != 0) {
            i++;
        }
        if (i == DV_ARRAY_LEN(sets)) {
            r = dv_fail(DAVY_E_OPTION,
                        "environment: DAVY_CPU is \"%s\", expected baseline, avx2, avx512, avx512bf16 or amx", text);
        } else {
            *out &= sets[i].bits;
        }
    }
    dv_free(text);
    return r;
}

davy_result dv_env_device(bool environment, const char *given, char **out) {
    const bool open = given == NULL || strcmp(given, "auto") == 0;
    char *text = environment && open ? dv_env("DAVY_DEVICE") : NULL;
    davy_result r = DAVY_OK;
    if (text != NULL && !is_selector(text)) {
        r = dv_fail(DAVY_E_OPTION, "environment: DAVY_DEVICE is \"%s\", expected auto, cpu or cuda:…", text);
    } else if (!open && !is_selector(given)) {
        r = dv_fail(DAVY_E_INVALID, "device \"%s\": expected \"auto\", \"cpu\" or \"cuda:…\"", given);
    }
    if (r == DAVY_OK && text == NULL && (text = dv_strdup(open ? "auto" : given)) == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a context");
    }
    if (r < 0) {
        dv_free(text);
        return r;
    }
    *out = text;
    return DAVY_OK;
}

davy_result dv_env_nvidia(bool environment, const char *given, bool *out) {
    char *text = environment && given == NULL ? dv_env("DAVY_NVIDIA_LIBRARIES") : NULL;
    const char *value = given != NULL ? given : text != NULL ? text : "0";
    davy_result r = DAVY_OK;
    *out = strcmp(value, "1") == 0;
    if (!*out && strcmp(value, "0") != 0) {
        r = dv_fail(DAVY_E_OPTION, "%s is \"%s\", expected 0 or 1",
                    given != NULL ? "context: option nvidia_libraries" : "environment: DAVY_NVIDIA_LIBRARIES", value);
    }
    dv_free(text);
    return r;
}
