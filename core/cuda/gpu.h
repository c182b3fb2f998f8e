/* gpu.h - one NVIDIA GPU of a davy context: driver, memory under a budget, streams, copies, captured graphs. All of core
 * reaches the driver through this file. Any thread may call any function. Each call pushes the CUDA context and pops it again,
 * so the calling thread's current context does not change. A failure sets the thread's error record (domain CUDA, native =
 * CUresult):
 *   out of memory            DAVY_E_NOMEM_DEVICE; the gpu stays usable
 *   a sticky error           DAVY_E_DEVICE_LOST, from this call and every later one
 *   any other error          DAVY_E_DEVICE */
#ifndef DV_GPU_H
#define DV_GPU_H

#include "core/base/common.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "kernels/cuda/cuda.h"

typedef struct dv_gpu dv_gpu;

/* ---- listing devices ---- */

/* The number of devices that the driver reports, usable or not. 0: no driver or no device; why_none (`bytes` long, may be
 * NULL) then receives the reason as a sentence. library_dir: searched first for the driver; may be NULL. Safe to call at any
 * time; calls after the first are cheap. */
int32_t dv_gpu_count(const char *library_dir, char *why_none, size_t bytes);
/* Fills a device's entry in the device list. reason empty: the device is usable. index counts from 0, as in "cuda:0". */
davy_result dv_gpu_describe(const char *library_dir, int32_t index, davy_device_info *out);
/* Finds the device that a selector names: "cuda" (the first usable one), "cuda:1", "cuda:uuid=GPU-…" (with or without GPU- and
 * dashes; a unique beginning is enough), "cuda:pci=0000:01:00.0". DAVY_E_INVALID: malformed. DAVY_E_DEVICE: no such device, or
 * it cannot be used; the message has the reason. DAVY_E_NOMEM_HOST: no memory to search for the driver; a later call tries
 * again. */
davy_result dv_gpu_find(const char *library_dir, const char *selector, int32_t *index);

/* ---- opening ---- */

typedef struct dv_gpu_desc {
    int32_t index;
    const char *library_dir;
    void *cuda_context;    /* the host's CUcontext; NULL: the device's primary context, retained */
    uint64_t budget_bytes; /* 0: nine tenths of the memory that is free now */
    const davy_host *host; /* its device_alloc and device_free are used if both are set; may be NULL */
    const dv_log *log;
    dv_heap *heap; /* the context's; staging memory in the host is counted there (DV_MEM_WORKSPACE) */
    bool nvidia;   /* cuDNN and cuBLASLt may compute convolutions if they are installed and measured to be faster */
} dv_gpu_desc;

davy_result dv_gpu_open(const dv_gpu_desc *desc, dv_gpu **out);
void dv_gpu_release(dv_gpu *g); /* waits for its streams; makes no driver calls on a lost device */

int32_t dv_gpu_index(const dv_gpu *g);
const dvk_cuda_caps *dv_gpu_caps(const dv_gpu *g);
bool dv_gpu_uses_nvidia(const dv_gpu *g); /* dv_gpu_desc.nvidia, as it was opened */

/* ---- memory ---- */

/* Allocates device memory, aligned to 256 bytes. It comes from the host's callback or from this gpu's own pool
 * (cuMemAllocFromPoolAsync, else cuMemAlloc). Every queue may use it at once. `what` names it in messages. DAVY_E_BUDGET: the
 * budget does not allow it. DAVY_E_NOMEM_DEVICE: the device has too little free memory.
 * free: no enqueued work may still use the memory; the caller makes sure of that. */
davy_result dv_gpu_alloc(dv_gpu *g, dv_mem_kind kind, uint64_t bytes, const char *what, void **out);
void dv_gpu_free(dv_gpu *g, dv_mem_kind kind, void *p, uint64_t bytes);
uint64_t dv_gpu_used(dv_gpu *g, dv_mem_kind kind);
uint64_t dv_gpu_peak(dv_gpu *g);
uint64_t dv_gpu_cached(dv_gpu *g); /* bytes that the pool holds but nothing uses */
uint64_t dv_gpu_budget(dv_gpu *g);
void dv_gpu_set_budget(dv_gpu *g, uint64_t bytes); /* 0: the automatic budget */
void dv_gpu_trim(dv_gpu *g); /* returns cached pool memory to the driver; frees idle pinned memory and staging */

/* Pinned host memory: the device copies from and to it by DMA. It counts in the heap. Errors: DAVY_E_BUDGET, DAVY_E_NOMEM_HOST.
 * unpin: no enqueued work may still use the block. The block may stay cached, and counted, for a later pin.
 * unpin_idle: frees all cached blocks and returns their bytes. */
typedef struct dv_pinned {
    void *data;
    uint64_t bytes;  /* at least as many as requested */
    bool registered; /* the process's own pages, registered with the driver; else the driver allocated them */
} dv_pinned;
davy_result dv_gpu_pin(dv_gpu *g, uint64_t bytes, const char *what, dv_pinned *out);
void dv_gpu_unpin(dv_gpu *g, dv_pinned *block);
uint64_t dv_gpu_unpin_idle(dv_gpu *g);

/* ---- queues ---- */

/* A stream to enqueue on. One thread at a time uses one queue. */
typedef struct dv_gpu_queue {
    dvk_queue base; /* must be first: kernels receive a pointer to it */
    dv_gpu *gpu;
    void *stream; /* CUstream */
    bool foreign; /* the host's stream: never destroyed, and waited for only on request */
    void *priv;
} dv_gpu_queue;

/* stream: the host's CUstream (also 1 and 2, the driver's legacy and per-thread default streams), or NULL for a non-blocking
 * stream of davy's own. Returned queues are kept and taken again. */
davy_result dv_gpu_queue_take(dv_gpu *g, void *stream, dv_gpu_queue **out);
void dv_gpu_queue_give(dv_gpu_queue *q);
/* Converts a CUresult, such as a kernel's enqueue returns, to a davy_result. `what` names the work in the message. */
davy_result dv_gpu_check(dv_gpu *g, int cu_result, const char *what);

/* Copies between host and device. Pageable host memory is copied in pieces through pinned staging memory, overlapped with the
 * transfers. upload returns when src has been read, download when dst has been written. */
davy_result dv_gpu_upload(dv_gpu_queue *q, void *device, const void *src, uint64_t bytes);
davy_result dv_gpu_download(dv_gpu_queue *q, void *dst, const void *device, uint64_t bytes);

typedef struct dv_gpu_rows { /* a 2-D copy: `rows` rows of `row_bytes` bytes */
    void *dst;
    uint64_t dst_pitch; /* bytes from the start of one row to the next */
    const void *src;
    uint64_t src_pitch;
    uint64_t row_bytes, rows;
} dv_gpu_rows;

davy_result dv_gpu_upload_2d(dv_gpu_queue *q, const dv_gpu_rows *rows);
davy_result dv_gpu_download_2d(dv_gpu_queue *q, const dv_gpu_rows *rows);
/* Makes copies from `from`'s memory to g direct (peer to peer) if hardware and driver allow it. Otherwise they go through host
 * memory, which is slow. */
void dv_gpu_reach(dv_gpu *g, dv_gpu *from);
/* Enqueues a copy from another gpu's memory or this one's; does not wait. */
davy_result dv_gpu_copy(dv_gpu_queue *q, void *dst, const dv_gpu *src_gpu, const void *src, uint64_t bytes);

/* Enqueues a copy of rows between any of: this gpu's memory, pinned host memory. Does not wait. */
davy_result dv_gpu_copy_2d(dv_gpu_queue *q, const dv_gpu_rows *rows);

/* Events: record a place in a queue, make another queue wait for it on the device, query it from the host, measure the time
 * between two (both created with `timing`). */
typedef struct dv_gpu_event dv_gpu_event;
davy_result dv_gpu_event_create(dv_gpu *g, bool timing, dv_gpu_event **out);
void dv_gpu_event_release(dv_gpu_event *e);
davy_result dv_gpu_event_record(dv_gpu_event *e, dv_gpu_queue *q);
davy_result dv_gpu_event_wait(dv_gpu_queue *q, dv_gpu_event *e); /* q waits on the device; the host does not */
davy_result dv_gpu_event_ready(dv_gpu_event *e, bool *ready);
davy_result dv_gpu_event_ms(dv_gpu_event *from, dv_gpu_event *to, float *ms);
/* Waits until the queue is empty. Between queries it sleeps for at most 1 ms. poll (may be NULL) is called at least every 20 ms.
 * If poll returns anything but DAVY_OK, the wait ends with that result and the enqueued work continues. */
davy_result dv_gpu_queue_wait(dv_gpu_queue *q, davy_result (*poll)(void *user), void *user);

/* A pinned readback copies a few bytes from the device asynchronously. send enqueues the copy on q. read waits for the last send
 * and returns its bytes. */
typedef struct dv_gpu_readback dv_gpu_readback;
davy_result dv_gpu_readback_create(dv_gpu *g, uint32_t bytes, dv_gpu_readback **out);
void dv_gpu_readback_release(dv_gpu_readback *readback); /* no send may be under way */
davy_result dv_gpu_readback_send(dv_gpu_readback *readback, dv_gpu_queue *q, const void *device);
davy_result dv_gpu_readback_read(dv_gpu_readback *readback, void *out);

/* A completion ring is pinned memory into which a kernel writes number i of a queue directly, without a copy (kernels/lm.h):
 * slot[i % DVK_COMPLETION_SLOTS] = i << 32 | number i, in one 64-bit store. At most DVK_COMPLETION_SLOTS numbers may be under way.
 * mark: call it after the kernel that writes number i has been enqueued on q. If numbers are so rare that the host sleeps
 * between them, read sleeps until the queue reaches that mark. */
typedef struct dv_gpu_completion_ring dv_gpu_completion_ring;
davy_result dv_gpu_completion_ring_create(dv_gpu *g, dv_gpu_completion_ring **out);
void dv_gpu_completion_ring_release(dv_gpu_completion_ring *ring); /* no enqueued work may still write to it */
uint64_t *dv_gpu_completion_ring_data(const dv_gpu_completion_ring *ring);
davy_result dv_gpu_completion_ring_mark(dv_gpu_completion_ring *ring, dv_gpu_queue *q, uint32_t i);
davy_result dv_gpu_completion_ring_read(dv_gpu_completion_ring *ring, dv_gpu_queue *q, uint32_t i, int32_t *number);

/* Graphs: work enqueued on q between begin and end is captured, not run. q must be a queue of davy's own, not a foreign one. The
 * graph may be launched on any queue. */
typedef struct dv_gpu_graph dv_gpu_graph;
davy_result dv_gpu_capture_begin(dv_gpu_queue *q);
davy_result dv_gpu_capture_end(dv_gpu_queue *q,
                               dv_gpu_graph **out); /* on failure *out is NULL and the queue is usable again */
davy_result dv_gpu_graph_launch(dv_gpu_graph *graph, dv_gpu_queue *q);
void dv_gpu_graph_release(dv_gpu_graph *graph);

/* A replay is work that is enqueued many times with the same arguments. The first run calls `enqueue`, which also loads the
 * kernels. The second run captures the work on `own`, a queue of davy's, as a graph. That run and all later ones launch the graph
 * on q, which may be the host's. If the driver cannot capture the work, every run calls `enqueue`. */
typedef struct dv_gpu_replay {
    davy_result (*enqueue)(void *user, dv_gpu_queue *q);
    void *user;
    dv_gpu_graph *graph;
    bool ran, refused; /* refused: the capture failed */
} dv_gpu_replay;
davy_result dv_gpu_replay_run(dv_gpu_replay *replay, dv_gpu_queue *own, dv_gpu_queue *q);
void dv_gpu_replay_reset(dv_gpu_replay *replay); /* the graph must not be running; the next run is a first one */

/* Whether p is memory that the driver reports as accessible to this gpu: its own, managed, or pinned host memory. False for
 * pageable memory and for memory of another GPU. */
bool dv_gpu_owns(dv_gpu *g, const void *p, uint64_t bytes);

#endif
