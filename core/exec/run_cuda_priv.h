/* run_cuda_priv.h - what run_cuda.c (an instance and what it lends) and run_cuda_steps.c (its work) share. */
#ifndef DV_RUN_CUDA_PRIV_H
#define DV_RUN_CUDA_PRIV_H

#include "core/exec/run_cuda.h"
#include "core/exec/run_priv.h"

enum { DV_SIDE_QUEUES = 3 };

typedef struct dv_timed { /* one op of a profiled run */
    const char *label;
    dv_kernel kernel;
    uint64_t flops, bytes;
    dv_gpu_event *from, *to;
} dv_timed;

typedef struct dv_lent_memory {
    void *data;
    uint64_t bytes;
} dv_lent_memory;

struct dv_cuda {
    dv_gpu_queue *own, *queue, *foreign; /* queue: own or foreign, between begin and end */
    dv_gpu_queue *side[DV_SIDE_QUEUES];
    dv_gpu_event *done; /* behind the last work that uses the instance */
    dv_gpu_event *events[DV_SLOTS];
    dv_lent_memory slots[DV_SLOTS];
    dv_gpu_graph *graph;
    uint64_t took_ns;           /* from the beginning of the last run that was waited for to its end; 0: not known */
    bool ran, refused;          /* refused: capturing; then steps are launched one by one */
    dv_gpu_event **transferred; /* of the plan's transfers: 2 each, may begin and is done */
    dv_timed *times;            /* events stay for the next run */
    int64_t n_times, cap_times, with_events;
};

#endif
