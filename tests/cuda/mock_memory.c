/* mock_memory.c - memory of the mock: device memory and pinned host memory, in blocks of the process. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/mock_priv.h"

enum { MAX_BLOCKS = 65536 };

typedef struct block {
    cu_address at;
    size_t bytes;
    int type, device;
} block;

static block blocks[MAX_BLOCKS];
static int n_blocks;
static int pool; /* its address is the handle */

MOCK_EXPORT cu_result cuMemGetInfo_v2(size_t *free_now, size_t *total) {
    const cu_result r = mock_enter();
    if (r == CU_OK) {
        *total = (size_t)mock_it.device_bytes;
        *free_now = (size_t)(mock_it.device_bytes - mock_it.reserved_bytes);
        mock_unlock();
    }
    return r;
}

static cu_result add_block(cu_address *out, size_t bytes, int type, size_t align) {
    void *p = NULL;
    if (n_blocks == MAX_BLOCKS || bytes == 0 || posix_memalign(&p, align, bytes) != 0) {
        return bytes == 0 ? CU_INVALID_VALUE : CU_OUT_OF_MEMORY;
    }
    memset(p, 0, bytes); /* no kernel writes here, so every run reads back the same numbers */
    blocks[n_blocks++] = (block){(cu_address)(uintptr_t)p, bytes, type, mock_current_device()};
    *out = (cu_address)(uintptr_t)p;
    return CU_OK;
}

static cu_result remove_block(cu_address p, int type, size_t *bytes) {
    for (int i = 0; i < n_blocks; i++) {
        if (blocks[i].at == p && blocks[i].type == type) {
            *bytes = blocks[i].bytes;
            blocks[i] = blocks[--n_blocks];
            free((void *)(uintptr_t)p);
            return CU_OK;
        }
    }
    return CU_INVALID_VALUE;
}

static cu_result device_alloc(cu_address *out, size_t bytes) {
    cu_result r = mock_enter();
    if (r != CU_OK) {
        return r;
    }
    if (mock_it.fail_alloc_at > 0 && --mock_it.fail_alloc_at == 0) {
        return mock_leave(CU_OUT_OF_MEMORY);
    }
    r = mock_it.used_bytes + bytes > mock_it.device_bytes ? CU_OUT_OF_MEMORY
                                                          : add_block(out, bytes, CU_MEMORY_DEVICE, 512);
    if (r == CU_OK) {
        mock_it.allocs++;
        mock_it.live++;
        mock_it.used_bytes += bytes;
        if (mock_it.reserved_bytes < mock_it.used_bytes) {
            mock_it.reserved_bytes = mock_it.used_bytes;
        }
    }
    return mock_leave(r);
}

static cu_result device_free(cu_address p, bool keep) {
    size_t bytes = 0;
    cu_result r = mock_enter();
    if (r != CU_OK) {
        return r;
    }
    r = remove_block(p, CU_MEMORY_DEVICE, &bytes);
    if (r == CU_OK) {
        mock_it.live--;
        mock_it.used_bytes -= bytes;
        mock_it.reserved_bytes = keep ? mock_it.reserved_bytes : mock_it.used_bytes;
    }
    return mock_leave(r);
}

MOCK_EXPORT cu_result cuMemAlloc_v2(cu_address *out, size_t bytes) {
    return device_alloc(out, bytes);
}

MOCK_EXPORT cu_result cuMemFree_v2(cu_address p) {
    return device_free(p, false);
}

MOCK_EXPORT cu_result cuMemPoolCreate(cu_pool *out, const cu_pool_props *props) {
    *out = (cu_pool)(void *)&pool;
    return props->alloc_type == 1 && props->location_type == 1 ? CU_OK : CU_INVALID_VALUE;
}

MOCK_EXPORT cu_result cuMemPoolDestroy(cu_pool p) {
    (void)p;
    mock_it.reserved_bytes = mock_it.used_bytes;
    return CU_OK;
}

MOCK_EXPORT cu_result cuMemPoolTrimTo(cu_pool p, size_t keep) {
    (void)p;
    (void)keep;
    mock_it.reserved_bytes = mock_it.used_bytes;
    return CU_OK;
}

MOCK_EXPORT cu_result cuMemPoolSetAttribute(cu_pool p, int attribute, void *value) {
    (void)p;
    (void)value;
    return attribute == CU_POOL_RELEASE_THRESHOLD ? CU_OK : CU_INVALID_VALUE;
}

MOCK_EXPORT cu_result cuMemPoolGetAttribute(cu_pool p, int attribute, void *value) {
    (void)p;
    *(uint64_t *)value = attribute == CU_POOL_RESERVED ? mock_it.reserved_bytes : mock_it.used_bytes;
    return CU_OK;
}

MOCK_EXPORT cu_result cuMemPoolSetAccess(cu_pool p, const cu_access *list, size_t count) {
    const int good = p != NULL && count == 1 && list->location_type == 1 && list->flags == CU_ACCESS_READ_WRITE;
    mock_it.peer_pools += good;
    return good ? CU_OK : CU_INVALID_VALUE;
}

MOCK_EXPORT cu_result cuDeviceCanAccessPeer(int *can, cu_device device, cu_device peer) {
    *can = device != peer && !mock_it.no_peers;
    return CU_OK;
}

MOCK_EXPORT cu_result cuMemAllocFromPoolAsync(cu_address *out, size_t bytes, cu_pool p, cu_stream stream) {
    return p == NULL || stream == NULL ? CU_INVALID_VALUE : device_alloc(out, bytes);
}

MOCK_EXPORT cu_result cuMemFreeAsync(cu_address p, cu_stream stream) {
    return stream == NULL ? CU_INVALID_VALUE : device_free(p, true);
}

MOCK_EXPORT cu_result cuMemHostAlloc(void **p, size_t bytes, unsigned flags) {
    cu_address at = 0;
    cu_result r = mock_enter();
    (void)flags;
    if (r != CU_OK) {
        return r;
    }
    r = add_block(&at, bytes, CU_MEMORY_HOST, 4096);
    mock_it.pinned += r == CU_OK;
    *p = (void *)(uintptr_t)at;
    return mock_leave(r);
}

MOCK_EXPORT cu_result cuMemFreeHost(void *p) {
    size_t bytes = 0;
    cu_result r = mock_enter();
    if (r != CU_OK) {
        return r;
    }
    r = remove_block((cu_address)(uintptr_t)p, CU_MEMORY_HOST, &bytes);
    mock_it.pinned -= r == CU_OK;
    return mock_leave(r);
}

MOCK_EXPORT cu_result cuMemHostRegister_v2(void *p, size_t bytes, unsigned flags) {
    cu_result r = mock_enter();
    (void)flags;
    if (r != CU_OK) {
        return r;
    }
    r = mock_it.fail_register != 0 ? mock_it.fail_register : n_blocks == MAX_BLOCKS ? CU_OUT_OF_MEMORY : CU_OK;
    if (r == CU_OK) {
        blocks[n_blocks++] = (block){(cu_address)(uintptr_t)p, bytes, CU_MEMORY_HOST, mock_current_device()};
        mock_it.registered++;
    }
    return mock_leave(r);
}

MOCK_EXPORT cu_result cuMemHostUnregister(void *p) {
    cu_result r = mock_enter();
    if (r != CU_OK) {
        return r;
    }
    r = CU_INVALID_VALUE;
    for (int i = 0; i < n_blocks && r != CU_OK; i++) {
        if (blocks[i].at == (cu_address)(uintptr_t)p && blocks[i].type == CU_MEMORY_HOST) {
            blocks[i] = blocks[--n_blocks];
            mock_it.registered--;
            r = CU_OK;
        }
    }
    return mock_leave(r);
}

MOCK_EXPORT cu_result cuPointerGetAttribute(void *value, int attribute, cu_address p) {
    cu_result r = mock_enter();
    if (r != CU_OK) {
        return r;
    }
    r = CU_INVALID_VALUE;
    for (int i = 0; i < n_blocks && r != CU_OK; i++) {
        if (p >= blocks[i].at && p - blocks[i].at < blocks[i].bytes) {
            *(int *)value = attribute == CU_POINTER_MEMORY_TYPE ? blocks[i].type
                            : attribute == CU_POINTER_DEVICE    ? blocks[i].device
                                                                : 0;
            r = CU_OK;
        }
    }
    return mock_leave(r);
}
