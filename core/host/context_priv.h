/* context_priv.h - what context.c and context_memory.c share. */
#ifndef DV_CONTEXT_PRIV_H
#define DV_CONTEXT_PRIV_H

#include <stdatomic.h>

#include "core/host/context.h"
#include "core/base/os.h"

enum { DV_MODEL_FOLDERS = 6 };

struct davy_context {
    _Atomic int64_t refs; /* the host's handle, models, jobs, buffers */
    uint64_t process;
    dv_log log;
    davy_host host; /* zeros where there is none */
    dv_services services;
    dv_gpu *gpus[DV_GPUS_MAX];
    dv_jobs *jobs;
    char *model_folders[DV_MODEL_FOLDERS]; /* in order of search; NULL: none */
    dv_mutex *lock;                        /* guards models, buffers */
    davy_model *models;
    davy_buffer *buffers; /* see dv_context_add_buffer */
};

uint64_t dv_context_default_budget(void); /* of host memory; 0: none */

#endif
