/* context.h - what a host opens first: threads, memory under a budget, the log, the queue of jobs. Models, jobs and
 * buffers hold references, so that the order of releases is free; whoever lets go last takes everything down. */
#ifndef DV_CONTEXT_H
#define DV_CONTEXT_H

#include "core/host/device.h"
#include "core/host/job.h"
#include "core/tiles/engine.h"

/* desc is full-size (sized.h); what it points to is copied. */
davy_result dv_context_create(const davy_context_desc *desc, davy_context **out);
davy_context *dv_context_ref(davy_context *ctx);
void dv_context_release(davy_context *ctx); /* NULL: nothing */

/* DAVY_E_FORKED in a process that did not create the context. */
davy_result dv_context_check(const davy_context *ctx);
bool dv_context_is_child(const davy_context *ctx);

void dv_context_memory(davy_context *ctx, davy_memory_info *out);
/* 0: half of physical memory, nine tenths of what a device has free. Caches that no longer fit go. */
void dv_context_set_budget(davy_context *ctx, uint64_t device_bytes, uint64_t host_bytes);
typedef struct dv_keep { /* in use at most; device_bytes: of all GPUs together */
    uint64_t device_bytes, host_bytes;
} dv_keep;

/* Gives memory back until no more than this is in use: cached arenas first, then weights of models that are not
 * running, which load again when needed, then what the GPUs' pools hold. `except`: a model whose weights stay; may be
 * NULL. Returns whether anything was freed. */
bool dv_context_trim(davy_context *ctx, const dv_keep *keep, const davy_model *except);

/* The file of a shipped model; dv_free. DAVY_E_NOT_FOUND says where it was looked for. */
davy_result dv_context_find_model(const davy_context *ctx, const char *name, char **path);

const dv_services *dv_context_services(const davy_context *ctx);
dv_jobs *dv_context_jobs(const davy_context *ctx);
bool dv_context_on_gpu(const davy_context *ctx);
dv_gpu *dv_context_gpu(const davy_context *ctx,
                       int32_t device); /* by its index, as in cuda:N; NULL: not of this context */

/* ---- what lives in a context ---- */

/* A model in the context's list: what trimming and a new budget ask of it. model.c fills it, the context keeps the links. */
typedef struct dv_model_calls {
    davy_model *(*try_ref)(
        davy_model *m); /* NULL: its last reference is gone already. Called under the context's lock */
    void (*release)(davy_model *m);
    void (*trim)(davy_model *m);           /* frees cached arenas */
    void (*unload_if_idle)(davy_model *m); /* frees weights that no call uses */
    void (*review)(davy_model *m);         /* the budget has changed */
} dv_model_calls;

typedef struct dv_model_entry {
    davy_model *model;
    const dv_model_calls *calls;
    struct dv_model_entry *next;
} dv_model_entry;

void dv_context_add_model(davy_context *ctx, dv_model_entry *entry);
void dv_context_remove_model(davy_context *ctx, dv_model_entry *entry);

/* A buffer without an owner whose memory enqueued work still uses. It holds no reference to the context. */
typedef struct dv_busy_buffer {
    davy_buffer *buffer;
    bool (*free_if_idle)(davy_buffer *b); /* false: the work is not done, nothing was freed */
    struct dv_busy_buffer *next;
} dv_busy_buffer;

void dv_context_add_busy(davy_context *ctx, dv_busy_buffer *entry);
/* Frees those whose work is done; wait: all of them. The thread's error record stays as it is. */
void dv_context_free_idle(davy_context *ctx, bool wait);

#endif
