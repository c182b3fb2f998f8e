/* mock_driver.h - a CUDA driver without a device, for tests. Device memory is host memory. Copies and clears are done; kernels are only
 * counted. The exception is a kernel named "host_call": its parameters are a host function and its argument, and the mock calls the
 * function. A test loads the library itself; DAVY_CUDA_DRIVER points to it, too. mock() returns this struct, in which the test changes
 * settings and reads counts. */
#ifndef MOCK_DRIVER_H
#define MOCK_DRIVER_H

#include <stdint.h>

typedef struct mock_launch {
    char module[32], function[64]; /* module: the first bytes of its image */
    unsigned grid[3], block[3], cluster, shared_bytes, overlap;
} mock_launch;

enum { MOCK_DEVICES = 4, MOCK_LAUNCHES = 256 };

typedef struct mock_device {
    char name[64];
    unsigned char uuid[16];
    char pci[16];
    int major, minor, compute_mode;
} mock_device;

typedef struct mock_state {
    /* settings */
    int version, init_result, n_devices;
    mock_device device[MOCK_DEVICES];
    uint64_t device_bytes;
    int no_pools;
    int64_t fail_alloc_at;  /* 1: the next allocation of device memory has CUDA_ERROR_OUT_OF_MEMORY; 0: none */
    int64_t fail_launch_at; /* 1: the next kernel ends with fail_launch_with */
    int fail_launch_with;   /* 700 and above: sticky, every later call returns the same */
    int fail_capture;       /* the result of the next end of a capture */
    int fail_module;        /* the result of loading a module */
    int fail_register;      /* the result of registering host memory */
    int lazy;               /* work is done only when the program waits for it */
    int no_peers;           /* no device can access another */
    int64_t not_ready;      /* the first so many queries of a stream or event return "not ready" */
    /* for NVIDIA's libraries (mock_nvidia.c) */
    int nvidia_version; /* major; 0: the supported one */
    int nvidia_refuses; /* 1: no handle, 2: no kernel, 3: no kernel with bias or relu, 4: kernels do not run */
    double nvidia_ms;   /* time of a library kernel; davy's kernels take 1 */

    /* counts */
    int64_t pushes, pops, bad_context; /* bad_context: calls without a current context */
    int64_t retained, contexts;        /* retained: primary contexts, less the released ones */
    int64_t allocs, live, streams, events, modules, graphs, pinned,
        registered;     /* live: blocks of device memory; the others: objects */
    int64_t peer_pools; /* pools made accessible to another device */
    int64_t loads, function_lookups, launches, copies, copies_2d, clears, syncs, max_pending;
    uint64_t used_bytes, reserved_bytes;
    int sticky;
    double device_ms;                                  /* time of library kernels */
    int64_t nvidia_handles, nvidia_parts, nvidia_runs; /* parts: descriptors alive */
    int nvidia_biased;                                 /* the last run had a bias */
    mock_launch launch[MOCK_LAUNCHES];                 /* the last, at (launches - 1) % MOCK_LAUNCHES */
} mock_state;

typedef mock_state *(*mock_fn)(void);

/* Back to two healthy devices and zero counts; objects stay. */
typedef void (*mock_reset_fn)(void);

#endif
