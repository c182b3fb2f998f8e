/* services.h - the parts of a context that its computations use. Every member outlives its users. */
#ifndef DV_SERVICES_H
#define DV_SERVICES_H

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/pool.h"

typedef struct dv_gpu dv_gpu;         /* core/cuda/gpu.h */
typedef struct dv_profile dv_profile; /* profile.h: adds up step times while it is on */

typedef struct dv_services {
    dv_heap *heap;
    dv_pool *pool;
    const dv_log *log;
    dv_profile *profile;
    uint32_t cpu;   /* DVK_CPU_* bits allowed */
    dv_gpu **gpus;  /* all of them compute */
    int32_t n_gpus; /* 0: the CPU computes */
} dv_services;

#endif
