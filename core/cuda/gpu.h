/* gpu.h - one NVIDIA GPU as a context of davy uses it: driver, memory under a budget, streams, copies, captured graphs.
 * The only way from core to the driver. Every function may be called from any thread; each pushes the CUDA context and
 * pops it again, so that the calling thread's current context is what it was. Failures set the thread's error record
 * (domain CUDA, native = CUresult):
 *   out of memory            DAVY_E_NOMEM_DEVICE, the gpu stays usable
 *   a sticky error           DAVY_E_DEVICE_LOST, now and from every later call
 *   anything else            DAVY_E_DEVICE */
#ifndef DV_GPU_H
#define DV_GPU_H

#include "core/base/common.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "kernels/cuda/cuda.h"

typedef struct dv_gpu dv_gpu;

/* ---- what there is ---- */

/* Devices the driver reports, usable or not; 0 without a driver, and then why_none says why in a sentence (may be NULL;
 * `bytes` long). library_dir: looked in first for the driver; may be NULL. Safe to call at any time, cheap after once. */
int32_t dv_gpu_count(const char *library_dir, char *why_none, size_t bytes);
/* All of a device's line in the list; reason empty: usable. index counts from 0, as in "cuda:0". */
davy_result dv_gpu_describe(const char *library_dir, int32_t index, davy_device_info *out);
/* "cuda", "cuda:1", "cuda:uuid=GPU-…" (with or without GPU- and dashes; a unique beginning will do), "cuda:pci=0000:01:00.0".
 * DAVY_E_DEVICE with the reason where there is no such device or it cannot be used; DAVY_E_NOMEM_HOST where the driver could
 * not be looked for: the next call tries again. */
davy_result dv_gpu_find(const char *library_dir, const char *selector, int32_t *index);

/* ---- opening ---- */

typedef struct dv_gpu_desc {
    int32_t index;
    const char *library_dir;
    void *cuda_context;    /* the host's CUcontext; NULL: the device's primary context, retained */
    uint64_t budget_bytes; /* 0: nine tenths of what is free now */
    const davy_host *host; /* device_alloc and device_free are used where set; may be NULL */
    const dv_log *log;
    dv_heap *heap; /* of the context, for staging memory in the host (DV_MEM_WORKSPACE) */
    bool nvidia;   /* cuDNN and cuBLASLt may compute, where they are there and measured to be faster */
} dv_gpu_desc;

davy_result dv_gpu_open(const dv_gpu_desc *desc, dv_gpu **out);
void dv_gpu_release(dv_gpu *g); /* waits for its streams; a lost device is left alone */

int32_t dv_gpu_index(const dv_gpu *g);
const dvk_cuda_caps *dv_gpu_caps(const dv_gpu *g);
bool dv_gpu_uses_nvidia(const dv_gpu *g); /* it was opened to */

/* ---- memory ---- */

/* 256-byte aligned device memory, from a pool of this gpu's own (cuMemAllocFromPoolAsync, else cuMemAlloc) or the host's
 * callback. DAVY_E_BUDGET over the budget, DAVY_E_NOMEM_DEVICE when the device has no more. Usable on every queue at once.
 * free: the caller has made sure that no work enqueued uses it any more. */
davy_result dv_gpu_alloc(dv_gpu *g, dv_mem_kind kind, uint64_t bytes, const char *what, void **out);
void dv_gpu_free(dv_gpu *g, dv_mem_kind kind, void *p, uint64_t bytes);
uint64_t dv_gpu_used(dv_gpu *g, dv_mem_kind kind);
uint64_t dv_gpu_peak(dv_gpu *g);
uint64_t dv_gpu_cached(dv_gpu *g); /* held by the pool, not in use */
uint64_t dv_gpu_budget(dv_gpu *g);
void dv_gpu_set_budget(dv_gpu *g, uint64_t bytes); /* 0: automatic again */
void dv_gpu_trim(dv_gpu *g);                       /* what the pool holds goes back to the driver */

/* Host memory that is copied from and to without the host's doing, counted in the heap: DAVY_E_BUDGET, DAVY_E_NOMEM_HOST.
 * unpin: nothing enqueued uses it any more; it may be kept, still counted, for the next pin. unpin_idle gives up what is kept;
 * returns its bytes. */
typedef struct dv_pinned {
    void *data;
    uint64_t bytes;  /* no fewer than asked for */
    bool registered; /* memory of the process's own */
} dv_pinned;
davy_result dv_gpu_pin(dv_gpu *g, uint64_t bytes, const char *what, dv_pinned *out);
void dv_gpu_unpin(dv_gpu *g, dv_pinned *block);
uint64_t dv_gpu_unpin_idle(dv_gpu *g);

/* ---- queues ---- */

/* A stream to enqueue on. One thread at a time uses one queue. */
typedef struct dv_gpu_queue {
    dvk_queue base; /* first: kernels get this */
    dv_gpu *gpu;
    void *stream; /* CUstream */
    bool foreign; /* the host's stream: never destroyed, never waited for unless asked */
    void *priv;
} dv_gpu_queue;

/* stream: the host's CUstream (also 1 and 2, the driver's legacy and per-thread default streams), or NULL: one of our own,
 * non-blocking. Queues given back are kept for the next taker. */
davy_result dv_gpu_queue_take(dv_gpu *g, void *stream, dv_gpu_queue **out);
void dv_gpu_queue_give(dv_gpu_queue *q);
/* Turns what a kernel's enqueue returned into a davy_result; `what` for the message. */
davy_result dv_gpu_check(dv_gpu *g, int cu_result, const char *what);

/* Copies. Host memory may be pageable: it goes through pinned staging, in pieces, overlapped with the copies; upload
 * returns once src has been read, download once dst has been written. */
davy_result dv_gpu_upload(dv_gpu_queue *q, void *device, const void *src, uint64_t bytes);
davy_result dv_gpu_download(dv_gpu_queue *q, void *dst, const void *device, uint64_t bytes);

typedef struct dv_gpu_rows { /* rows of bytes: where they are copied to and from */
    void *dst;
    uint64_t dst_pitch; /* from the start of one row to the next */
    const void *src;
    uint64_t src_pitch;
    uint64_t row_bytes, rows;
} dv_gpu_rows;

davy_result dv_gpu_upload_2d(dv_gpu_queue *q, const dv_gpu_rows *rows);
davy_result dv_gpu_download_2d(dv_gpu_queue *q, const dv_gpu_rows *rows);
/* Copies of g from memory of `from` become direct where the hardware and driver allow; otherwise they stay slow. */
void dv_gpu_reach(dv_gpu *g, dv_gpu *from);
/* From another gpu's memory or this one's; enqueued only. */
davy_result dv_gpu_copy(dv_gpu_queue *q, void *dst, const dv_gpu *src_gpu, const void *src, uint64_t bytes);

/* Rows within this gpu's memory and pinned memory of the host; enqueued only. */
davy_result dv_gpu_copy_2d(dv_gpu_queue *q, const dv_gpu_rows *rows);

/* Events: mark a place of a queue, have another queue wait for it on the device, look or wait on the host, time two. */
typedef struct dv_gpu_event dv_gpu_event;
davy_result dv_gpu_event_create(dv_gpu *g, bool timing, dv_gpu_event **out);
void dv_gpu_event_release(dv_gpu_event *e);
davy_result dv_gpu_event_record(dv_gpu_event *e, dv_gpu_queue *q);
davy_result dv_gpu_event_wait(dv_gpu_queue *q, dv_gpu_event *e); /* q waits, not the host */
davy_result dv_gpu_event_ready(dv_gpu_event *e, bool *ready);
davy_result dv_gpu_event_ms(dv_gpu_event *from, dv_gpu_event *to, float *ms);
/* Waits for all of the queue. Sleeps between looks (at most 1 ms) and calls poll, if given, at least every 20 ms; a non-OK
 * answer ends the wait at once with that answer, the work goes on. */
davy_result dv_gpu_queue_wait(dv_gpu_queue *q, davy_result (*poll)(void *user), void *user);

/* A pinned readback: a few bytes from the device without waiting for them. They are sent behind what is enqueued on q, and
 * read when they are needed, which waits for the last that was sent. */
typedef struct dv_gpu_readback dv_gpu_readback;
davy_result dv_gpu_readback_create(dv_gpu *g, uint32_t bytes, dv_gpu_readback **out);
void dv_gpu_readback_release(dv_gpu_readback *readback); /* nothing sent is on its way any more */
davy_result dv_gpu_readback_send(dv_gpu_readback *readback, dv_gpu_queue *q, const void *device);
davy_result dv_gpu_readback_read(dv_gpu_readback *readback, void *out);

/* A completion ring: pinned memory into which a kernel writes number i of a queue without a copy (kernels/lm.h):
 * slot[i % DVK_COMPLETION_SLOTS] = i << 32 | number i, stored in one piece. At most DVK_COMPLETION_SLOTS numbers are under
 * way. mark: the kernel that writes number i is enqueued on q. Where numbers come so seldom that the host sleeps in between,
 * it sleeps until that place of the queue. */
typedef struct dv_gpu_completion_ring dv_gpu_completion_ring;
davy_result dv_gpu_completion_ring_create(dv_gpu *g, dv_gpu_completion_ring **out);
void dv_gpu_completion_ring_release(dv_gpu_completion_ring *ring); /* no work enqueued writes to it any more */
uint64_t *dv_gpu_completion_ring_data(const dv_gpu_completion_ring *ring);
davy_result dv_gpu_completion_ring_mark(dv_gpu_completion_ring *ring, dv_gpu_queue *q, uint32_t i);
davy_result dv_gpu_completion_ring_read(dv_gpu_completion_ring *ring, dv_gpu_queue *q, uint32_t i, int32_t *number);

/* Graphs: everything enqueued on q between begin and end is recorded, not run. A foreign queue is not captured: take one of
 * our own for it; the graph may be launched on any queue. */
typedef struct dv_gpu_graph dv_gpu_graph;
davy_result dv_gpu_capture_begin(dv_gpu_queue *q);
davy_result dv_gpu_capture_end(dv_gpu_queue *q,
                               dv_gpu_graph **out); /* after a failure: graph NULL, queue usable again */
davy_result dv_gpu_graph_launch(dv_gpu_graph *graph, dv_gpu_queue *q);
void dv_gpu_graph_release(dv_gpu_graph *graph);

/* A replay: work that is enqueued again and again with the same arguments. `enqueue` is called for the first run, which loads
 * the kernels. The second run is recorded on `own`, a queue of ours, and from then on the graph is launched on q, which may be
 * the host's. What a driver does not record is enqueued one by one. */
typedef struct dv_gpu_replay {
    davy_result (*enqueue)(void *user, dv_gpu_queue *q);
    void *user;
    dv_gpu_graph *graph;
    bool ran, refused; /* refused: to be recorded */
} dv_gpu_replay;
davy_result dv_gpu_replay_run(dv_gpu_replay *replay, dv_gpu_queue *own, dv_gpu_queue *q);
void dv_gpu_replay_reset(dv_gpu_replay *replay); /* the graph is not at work; the next run is a first one */

/* Whether p is device memory of this gpu (or memory it can reach); false for anything the driver does not know. */
bool dv_gpu_owns(dv_gpu *g, const void *p, uint64_t bytes);

#endif
