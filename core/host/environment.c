/* environment.c - see environment.h. */
#include "core/host/environment.h"

#include <string.h>

#include "core/host/device.h"
#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/options.h"
#include "core/base/os.h"
#include "kernels/kernel.h"

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
    if (text != NULL && !dv_device_text(text)) {
        r = dv_fail(DAVY_E_OPTION, "environment: DAVY_DEVICE is \"%s\", expected auto, cpu or cuda:…", text);
    } else if (!open && !dv_device_text(given)) {
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
