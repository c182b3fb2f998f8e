/* device.h - what davy can compute on: the list that every host may ask for, the text that selects from it, and the GPUs
 * of a context opened. */
#ifndef DV_DEVICE_H
#define DV_DEVICE_H

#include "core/cuda/gpu.h"

enum { DV_GPUS_MAX = 16 };

/* Usable without a context. Index 0 is the CPU, then the driver's GPUs in its order; library_dir may be NULL. */
int32_t dv_device_count(const char *library_dir);
davy_result dv_device_info(const char *library_dir, int32_t index, davy_device_info *out);

/* Whether the text may select something: "auto", "cpu", "cuda…" or a list of the latter with commas. */
bool dv_device_text(const char *text);

typedef struct dv_devices_desc {
    const char *selector; /* one that dv_device_text accepts */
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

#endif
