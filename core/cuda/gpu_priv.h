/* gpu_priv.h - declarations shared by the files that implement gpu.h. */
#ifndef DV_GPU_PRIV_H
#define DV_GPU_PRIV_H

#include <stdatomic.h>

#include "core/cuda/driver.h"
#include "core/cuda/gpu.h"
#include "core/base/os.h"

typedef struct gpu_function { /* its address never changes; lives as long as the gpu */
    char *module, *name;
    cu_function handle;
    _Atomic bool wide_cluster;       /* more than 8 blocks are allowed */
    _Atomic uint32_t dynamic_shared; /* bytes of dynamic shared memory it is allowed */
} gpu_function;

/* How long the host spins for a device's answer before it sleeps. A token of a model with 3 billion parameters takes 2 ms. When an
 * event woke the host instead, the token rate was 3 % lower. */
enum { ANSWER_SPIN_NS = 3000000 };

enum { STAGE_BYTES = 4 << 20, STAGES = 2, QUEUE_FUNCTIONS = 256 /* a power of two */ };

typedef struct gpu_stage {
    char *host; /* pinned */
    cu_event done;
    bool busy; /* a copy from or to it may be running, until `done` */
} gpu_stage;

typedef struct gpu_queue {
    dv_gpu_queue pub; /* first */
    cu_stream own;    /* NULL: this queue wraps foreign streams */
    bool taken, capturing;
    gpu_stage stage[STAGES];
    struct gpu_queue *next;
    struct { /* functions launched recently on this queue, by the addresses of their names */
        const char *module, *name;
        gpu_function *function;
    } recent[QUEUE_FUNCTIONS];
} gpu_queue;

typedef struct gpu_nvidia gpu_nvidia;

struct dv_gpu {
    const dv_driver *cu;
    int32_t index;
    uint64_t process;
    cu_device device;
    cu_context context;
    bool primary; /* the context is the device's primary context, retained */
    dvk_cuda_caps caps;
    davy_host host;
    bool from_host;
    dv_log log;
    dv_heap *heap;
    _Atomic int lost;         /* the CUresult that made the device unusable; 0: alive */
    _Atomic uint64_t reached; /* bit i: dv_gpu_reach has been called for device i */

    cu_stream memory_stream; /* orders allocations and frees */
    cu_pool pool;            /* NULL: cuMemAlloc is used */
    uint64_t automatic_budget;
    _Atomic uint64_t budget, total, peak, used[DV_MEM_KINDS];

    dv_mutex *lock;     /* guards the members down to functions_room */
    gpu_queue *queues;  /* all, taken or not */
    cu_module *modules; /* loaded or NULL, in the order of dvk_cuda_modules */
    int32_t n_modules;
    struct gpu_pinned *pinned; /* idle blocks */
    uint64_t pinned_idle;      /* their bytes */
    gpu_function **functions;
    int64_t n_functions, functions_room;

    gpu_nvidia *nvidia; /* NULL: NVIDIA's libraries are not used */
};

/* Makes the context current. `what` names the work in messages. After DAVY_OK a gpu_leave must follow. */
davy_result gpu_enter(dv_gpu *g, const char *what);
void gpu_leave(dv_gpu *g);
/* The same with a CUresult, which kernels return. */
cu_result gpu_enter_cu(dv_gpu *g);
/* Marks the gpu as lost if r is a sticky error. Returns r. */
cu_result gpu_note(dv_gpu *g, cu_result r);
/* Between aside and back, this thread may make calls that a stream capture in this thread would otherwise forbid. */
int gpu_capture_aside(dv_gpu *g);
void gpu_capture_back(dv_gpu *g, int mode);

/* In gpu_context.c; call inside the context. */
cu_result gpu_find_function(dv_gpu *g, const char *module, const char *name, gpu_function **out);
void gpu_modules_close(dv_gpu *g, bool alive);

davy_result gpu_memory_open(dv_gpu *g, uint64_t budget_bytes);
void gpu_memory_close(dv_gpu *g);

void gpu_queues_close(dv_gpu *g, bool alive);
void gpu_stages_free(dv_gpu *g, gpu_queue *q, bool alive); /* the queue is idle; call inside the context */

/* In conv_nvidia.c; close after the queues. */
davy_result gpu_nvidia_open(dv_gpu *g, const char *library_dir);
void gpu_nvidia_close(dv_gpu *g, bool alive);

/* Leaves the context and converts the driver's result to a davy_result. */
static inline davy_result gpu_leave_with(dv_gpu *g, cu_result c, const char *what) {
    gpu_leave(g);
    return dv_gpu_check(g, c, what);
}

static inline cu_address gpu_address(const void *p) {
    return (cu_address)(uintptr_t)p;
}

static inline void *gpu_pointer(cu_address a) {
    return (void *)(uintptr_t)a;
}

#endif
