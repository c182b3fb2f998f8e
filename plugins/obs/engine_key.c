/* engine_key.c - the meaning of an engine key's strings: devices, precisions, files that belong together. */
#include <stdio.h>
#include <string.h>

#include <util/platform.h>

#include "engine_work.h"

davy_dtype engine_precision(const char *name) {
    return strcmp(name, "fp32") == 0   ? DAVY_DTYPE_F32
           : strcmp(name, "fp16") == 0 ? DAVY_DTYPE_F16
           : strcmp(name, "bf16") == 0 ? DAVY_DTYPE_BF16
                                       : DAVY_DTYPE_AUTO;
}

int32_t engine_name_device(const engine_key *key, const davy_api *api, char *out, size_t bytes) {
    int32_t count = 0;
    snprintf(out, bytes, "%s", key->device);
    if (api->device_count(NULL, &count) != DAVY_OK) {
        return -1;
    }
    for (int32_t i = 0; i < count; i++) {
        davy_device_info info = {.struct_size = sizeof info};
        const bool found = api->device_info(NULL, i, &info) == DAVY_OK && info.reason[0] == '\0';
        const bool automatic = strcmp(key->device, "auto") == 0;
        if (found && (automatic || strcmp(key->device, info.selector) == 0)) {
            snprintf(out, bytes, "%s", info.name);
            if (info.kind == DAVY_DEVICE_CUDA) {
                return info.index;
            }
            if (!automatic) {
                return -1;
            }
        }
    }
    return -1;
}

/* Real-ESRGAN's general model NAME-x4v3 has a milder variant, NAME-wdn-x4v3, which denoises less. Levels between the two mix the
 * weights of both files. */
bool engine_sister(const engine_key *key, char *out, size_t bytes) {
    const char *at = strstr(key->model, ENGINE_HAS_SISTER);
    if (key->task != DAVY_TASK_UPSCALE || key->denoise < 0.0f || at == NULL) {
        return false;
    }
    const int n = snprintf(out, bytes, "%.*sgeneral-wdn%s", (int)(at - key->model), key->model, at + strlen("general"));
    return n > 0 && (size_t)n < bytes && os_file_exists(out);
}

/* TAESD has its encoder and its decoder in two files. The user chooses one; the other must be in the same folder. */
bool engine_other_half(const char *path, char *out, size_t bytes) {
    static const char *const names[2] = {"encoder", "decoder"};
    const size_t length = strlen(path);
    for (int i = 0; i < 2 && length < bytes; i++) {
        for (size_t at = length; at-- > 0;) {
            if (strncmp(path + at, names[i], 7) == 0) {
                memcpy(out, path, length + 1);
                memcpy(out + at, names[1 - i], 7);
                return os_file_exists(out);
            }
        }
    }
    return false;
}
