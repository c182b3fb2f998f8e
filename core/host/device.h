/* device.h - the devices: their list, the selector text, the environment variables for both, and opening a context's GPUs. */
#ifndef DV_DEVICE_H
#define DV_DEVICE_H

#include "core/cuda/gpu.h"

enum { DV_GPUS_MAX = 16 };

/* Usable without a context. Index 0 is the CPU, then the driver's GPUs in its order; library_dir may be NULL. */
int32_t dv_device_count(const char *library_dir);
davy_result dv_device_info(const char *library_dir, int32_t index, davy_device_info *out);

typedef struct dv_devices_desc {
    const char *selector; /* "auto", "cpu", "cuda…", or several "cuda…" separated by commas */
    const char *library_dir;
    void *cuda_context;
    uint64_t budget_bytes; /* for each GPU; 0: automatic */
    const davy_host *host;
    const dv_log *log;
    dv_heap *heap;
    bool nvidia; /* see dv_gpu_desc */
} dv_devices_desc;

/* Opens the selected GPUs; *n 0: the CPU computes. With "auto" an unusable GPU is only logged. Otherwise it is DAVY_E_DEVICE
 * or the error of opening it, and no GPU stays open. */
davy_result dv_devices_open(const dv_devices_desc *desc, dv_gpu *gpus[DV_GPUS_MAX], int32_t *n);

/* ---- the environment ---- */

/* Variables apply if the host leaves the choice to davy. A wrong value is an error (DAVY_E_OPTION), because people type them.
 * environment false: variables are ignored. */

enum { DV_THREADS_MAX = 1024 };

/* given 0: DAVY_THREADS, else one per available core. */
davy_result dv_env_threads(bool environment, int32_t given, int32_t *out);
/* DVK_CPU_* bits of this processor, limited by DAVY_CPU. */
davy_result dv_env_cpu(bool environment, uint32_t *out);
/* given NULL or "auto": DAVY_DEVICE, else "auto". *out is a selector; dv_free. */
davy_result dv_env_device(bool environment, const char *given, char **out);
/* given (the option's value) NULL: DAVY_NVIDIA_LIBRARIES, else false. */
davy_result dv_env_nvidia(bool environment, const char *given, bool *out);

#endif
