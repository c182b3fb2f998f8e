/* kcheck_cuda.h - declarations shared by the parts of kcheck --cuda: the kernels in each of their precisions, and a
 * problem's memory on the device. */
#ifndef KCHECK_CUDA_H
#define KCHECK_CUDA_H

#include "core/cuda/gpu.h"
#include "tests/kcheck/kcheck.h"

typedef struct kc_entry {
    const dvk_cuda_kernel *kernel;
    uint32_t computes; /* one DVK_COMPUTES_* bit; all of them if the kernel is independent of it */
    dvk_dtype compute; /* precision that selects the bounds */
    char variant[48];
} kc_entry;

int kc_cuda_entries(void);
const kc_entry *kc_cuda_entry(int i);

typedef struct kc_device {
    dv_gpu *gpu;
    dv_heap *heap;
    dv_gpu_queue *queue;
    dvk_cuda_caps caps; /* modified by --sm */
    unsigned char *arena;
    uint64_t arena_bytes;
    unsigned char *staging;
    uint64_t staging_bytes;
} kc_device;

/* 0 on failure, with the reason in why. */
int kc_device_open(kc_device *d, const kc_options *o, char *why, size_t bytes);
void kc_device_close(kc_device *d);
int kc_cuda_selected(const kc_options *o, const kc_device *d, const kc_entry *e, const char *op);
/* Sets the entry's parameters in the problem's arguments; 0: the kernel does not support them. */
int kc_cuda_fits(const kc_device *d, const kc_entry *e, kc_problem *p);

/* The packed weights of a problem, released with free; NULL: no memory. One byte if there are none. */
unsigned char *kc_cuda_pack(const kc_entry *e, const kc_problem *p);

/* Layout of a problem's memory in the arena: every buffer with the same misalignment as on the host, then scratch and
 * statistics or sums, all between canaries. This part is copied both ways in every run. The weights follow. */
typedef struct kc_layout {
    uint64_t buffers[KC_MAX_BUFFERS];
    uint64_t scratch, scratch_bytes;
    uint64_t stats, stats_bytes;
    int64_t stats_chunks;
    uint64_t exchanged; /* bytes of all that */
    uint64_t packed, packed_bytes;
    uint64_t bytes; /* of all */
} kc_layout;
void kc_layout_make(const kc_device *d, const kc_entry *e, kc_problem *p, kc_layout *l);
/* For runs under a checker: every buffer is a separate allocation that ends with its data, and scratch is not filled.
 * Runs the kernel once and copies all buffers back. Returns a davy_result. */
davy_result kc_run_apart(kc_device *d, const kc_entry *e, kc_problem *p, kc_layout *l, const unsigned char *packed);
int kc_device_reserve(kc_device *d, uint64_t arena_bytes, uint64_t staging_bytes);
/* The problem's arguments with device addresses, for memory at `base`. */
dvk_args kc_args_at(const kc_problem *p, const kc_layout *l, unsigned char *base);

#endif
