/* mock_driver.h - a CUDA driver without a device, for tests: device memory is host memory, copies and clears happen,
 * kernels are only counted, but a function called "host_call": its parameters are a function of the host's and that one's
 * argument, which is called as if it were the kernel. A test loads the library itself (DAVY_CUDA_DRIVER points to it too), asks mock() for this
 * struct, and sets and reads what it likes. */
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
    int fail_launch_with;   /* 700 and above: sticky, every later call says the same */
    int fail_capture;       /* the result of the next end of a capture */
    int fail_module;        /* the result of loading a module */
    int fail_register;      /* the result of registering memory of the host */
    int lazy;               /* work waits until somebody waits for it */
    int no_peers;           /* no device reaches another */
    int64_t not_ready;      /* so many questions for a stream or event are answered "not ready" first */
    /* of NVIDIA's libraries (mock_nvidia.c) */
    int nvidia_version; /* major; 0: the right one */
    int nvidia_refuses; /* 1: no handle, 2: no kernel, 3: no kernel with bias or relu, 4: kernels do not run */
    double nvidia_ms;   /* that one of their kernels takes; one of ours takes 1 */

    /* what happened */
    int64_t pushes, pops, bad_context; /* bad_context: calls without a current context */
    int64_t retained, contexts;        /* retained: of primary contexts, less those given back */
    int64_t allocs, live, streams, events, modules, graphs, pinned,
        registered;     /* live: blocks of device memory; the others: objects */
    int64_t peer_pools; /* made accessible to another device */
    int64_t loads, function_lookups, launches, copies, copies_2d, clears, syncs, max_pending;
    uint64_t used_bytes, reserved_bytes;
    int sticky;
    double device_ms;                                  /* that libraries have computed */
    int64_t nvidia_handles, nvidia_parts, nvidia_runs; /* parts: descriptors alive */
    int nvidia_biased;                                 /* the last run had a bias */
    mock_launch launch[MOCK_LAUNCHES];                 /* the last, at (launches - 1) % MOCK_LAUNCHES */
} mock_state;

typedef mock_state *(*mock_fn)(void);

/* Back to two healthy devices and zero counts; objects stay. */
typedef void (*mock_reset_fn)(void);

#endif
