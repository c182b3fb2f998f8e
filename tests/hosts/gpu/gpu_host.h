/* gpu_host.h - CUDA memory of a host: blocks of a davy buffer, written and read through the driver's legacy stream. */
#ifndef DV_TESTS_GPU_HOST_H
#define DV_TESTS_GPU_HOST_H

#include <dlfcn.h>

#include "tests/hosts/host.h"

typedef struct device_block {
    davy_buffer *buffer;
    uint64_t address;
} device_block;

device_block device_take(const davy_api *api, davy_context *ctx, const void *from, uint64_t bytes);
void device_fetch(const device_block *b, void *to, uint64_t bytes);
void device_give(const davy_api *api, device_block *b);

#endif
