/* device.h - what davy can compute on: the list that every host may ask for, the text that selects from it, what the
 * environment says about both, and the opening of a context's GPUs. */
#ifndef DV_DEVICE_H
#define DV_DEVICE_H

#include "core/cuda/gpu.h"

enum { DV_GPUS_MAX = 16 };

/* Usable without a context. Index 0 is the CPU, then the driver's GPUs in its order; library_dir may be NULL. */
int32_t dv_device_count(const char *library_dir);
davy_result dv_device_info(const char *library_dir, int32_t index, davy_device_info *out);

typedef struct dv_devices_desc {
    const char *selector; /* "auto", "cpu", "cuda…" or a list of the latter with commas */
    const char *library_dir;
    void *cuda_context;
    uint64_t budget_bytes; /* of each GPU; 0: automatic */
    const davy_host *host;
    const dv_log *log;
    dv_heap *heap;
    bool nvidia; /* see dv_gpu_desc */
} dv_devices_desc;

/* Opens what the selector means; *n 0: the CPU computes. With "auto" a GPU that cannot be used is only logged, else it is
 * DAVY_E_DEVICE (or what opening it said). On an error nothing stays open. */
davy_result dv_devices_open(const dv_devices_desc *desc, dv_gpu *gpus[DV_GPUS_MAX], int32_t *n);

/* ---- the environment ---- */

/* What variables say where the host leaves the choice to davy. They are for people, so a mistake in one is reported
 * (DAVY_E_OPTION) and not passed over. environment false: they are not read. */

enum { DV_THREADS_MAX = 1024 };

/* given 0: DAVY_THREADS, else one per available core. */
davy_result dv_env_threads(bool environment, int32_t given, int32_t *out);
/* DVK_CPU_* bits this processor has, no more than DAVY_CPU allows. */
davy_result dv_env_cpu(bool environment, uint32_t *out);
/* given NULL or "auto": DAVY_DEVICE, else "auto". *out is a selector; dv_free. */
davy_result dv_env_device(bool environment, const char *given, char **out);
/* given (the option's value) NULL: DAVY_NVIDIA_LIBRARIES, else false. */
davy_result dv_env_nvidia(bool environment, const char *given, bool *out);

#endif
