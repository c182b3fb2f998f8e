/* mock_device.c - the properties of the mock driver and its devices. */
#include <stdio.h>
#include <string.h>

#include "tests/cuda/mock_priv.h"

MOCK_EXPORT cu_result cuInit(unsigned flags) {
    mock_lock(); /* fills in the defaults */
    mock_unlock();
    return flags != 0 ? CU_INVALID_VALUE : mock_it.init_result;
}

MOCK_EXPORT cu_result cuDriverGetVersion(int *version) {
    mock_lock();
    mock_unlock();
    *version = mock_it.version;
    return CU_OK;
}

MOCK_EXPORT cu_result cuGetErrorName(cu_result code, const char **name) {
    static const struct {
        cu_result code;
        const char *name;
    } names[] = {{1, "CUDA_ERROR_INVALID_VALUE"},
                 {2, "CUDA_ERROR_OUT_OF_MEMORY"},
                 {100, "CUDA_ERROR_NO_DEVICE"},
                 {500, "CUDA_ERROR_NOT_FOUND"},
                 {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                 {719, "CUDA_ERROR_LAUNCH_FAILED"},
                 {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
                 {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"}};
    *name = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].code == code) {
            *name = names[i].name;
        }
    }
    return *name != NULL ? CU_OK : CU_INVALID_VALUE;
}

MOCK_EXPORT cu_result cuGetErrorString(cu_result code, const char **text) {
    return cuGetErrorName(code, text);
}

MOCK_EXPORT cu_result cuDeviceGetCount(int *count) {
    *count = mock_it.n_devices;
    return CU_OK;
}

MOCK_EXPORT cu_result cuDeviceGet(cu_device *device, int index) {
    *device = index;
    return index >= 0 && index < mock_it.n_devices ? CU_OK : 101;
}

MOCK_EXPORT cu_result cuDeviceGetName(char *name, int bytes, cu_device device) {
    snprintf(name, (size_t)bytes, "%s", mock_it.device[device].name);
    return CU_OK;
}

MOCK_EXPORT cu_result cuDeviceGetUuid_v2(cu_uuid *uuid, cu_device device) {
    memcpy(uuid->bytes, mock_it.device[device].uuid, sizeof uuid->bytes);
    return CU_OK;
}

MOCK_EXPORT cu_result cuDeviceGetPCIBusId(char *id, int bytes, cu_device device) {
    snprintf(id, (size_t)bytes, "%s", mock_it.device[device].pci);
    return CU_OK;
}

MOCK_EXPORT cu_result cuDeviceTotalMem_v2(size_t *bytes, cu_device device) {
    (void)device;
    *bytes = (size_t)mock_it.device_bytes;
    return CU_OK;
}

MOCK_EXPORT cu_result cuDeviceGetAttribute(int *value, int attribute, cu_device device) {
    const mock_device *d = &mock_it.device[device];
    switch (attribute) {
    case CU_DEVICE_CLOCK_KHZ:
        *value = 1980000;
        break;
    case CU_DEVICE_PROCESSORS:
        *value = 132;
        break;
    case CU_DEVICE_COMPUTE_MODE:
        *value = d->compute_mode;
        break;
    case CU_DEVICE_MEMORY_CLOCK_KHZ:
        *value = 3201000;
        break;
    case CU_DEVICE_MEMORY_BUS_BITS:
        *value = 6144;
        break;
    case CU_DEVICE_L2_BYTES:
        *value = 60 << 20;
        break;
    case CU_DEVICE_MAJOR:
        *value = d->major;
        break;
    case CU_DEVICE_MINOR:
        *value = d->minor;
        break;
    case CU_DEVICE_SHARED_OPTIN:
        *value = d->major >= 9 ? 227 << 10 : 99 << 10;
        break;
    case CU_DEVICE_MEMORY_POOLS:
        *value = !mock_it.no_pools;
        break;
    default:
        return CU_INVALID_VALUE;
    }
    return CU_OK;
}
