/* context.h - the context: threads, GPUs, memory budget, log and job queue. Models, jobs and buffers hold references, so the
 * host may release objects in any order. The last release destroys the context. */
#ifndef DV_CONTEXT_H
#define DV_CONTEXT_H

#include "core/host/device.h"
#include "core/host/job.h"
#include "core/tiles/engine.h"

/* desc is full-size (sized.h); the context copies everything it points to. */
davy_result dv_context_create(const davy_context_desc *desc, davy_context **out);
davy_context *dv_context_ref(davy_context *ctx);
void dv_context_release(davy_context *ctx); /* NULL: nothing */

/* DAVY_E_FORKED in a process that did not create the context. */
davy_result dv_context_check(const davy_context *ctx);
bool dv_context_is_child(const davy_context *ctx);

void dv_context_memory(davy_context *ctx, davy_memory_info *out);
/* 0: half of physical memory; nine tenths of a device's free memory. Frees caches that no longer fit. */
void dv_context_set_budget(davy_context *ctx, uint64_t device_bytes, uint64_t host_bytes);
typedef struct dv_keep { /* upper limits of memory in use; device_bytes: all GPUs together */
    uint64_t device_bytes, host_bytes;
} dv_keep;

/* Frees memory until no more than *keep is in use. Order: cached arenas, weights of idle models (the next run loads them
 * again), unused memory of the GPUs' pools. except: this model keeps its weights; may be NULL. Returns true if it freed any. */
bool dv_context_trim(davy_context *ctx, const dv_keep *keep, const davy_model *except);

/* Path of a shipped model's file; free it with dv_free. The message of DAVY_E_NOT_FOUND lists the folders searched. */
davy_result dv_context_find_model(const davy_context *ctx, const char *name, char **path);

const dv_services *dv_context_services(const davy_context *ctx);
dv_jobs *dv_context_jobs(const davy_context *ctx);
bool dv_context_on_gpu(const davy_context *ctx);
dv_gpu *dv_context_gpu(const davy_context *ctx, int32_t device); /* device: N of cuda:N; NULL: not in this context */

/* ---- objects of a context ---- */

/* Callbacks of a model in the context's list, for trimming and for a new budget. model.c sets them. */
typedef struct dv_model_calls {
    davy_model *(*try_ref)(davy_model *m); /* NULL: the model is being destroyed. Called under the context's lock */
    void (*release)(davy_model *m);
    void (*trim)(davy_model *m);           /* frees cached arenas */
    void (*unload_if_idle)(davy_model *m); /* frees weights that no call uses */
    void (*review)(davy_model *m);         /* called after the budget has changed */
} dv_model_calls;

typedef struct dv_model_entry {
    davy_model *model;
    const dv_model_calls *calls;
    struct dv_model_entry *next;
} dv_model_entry;

void dv_context_add_model(davy_context *ctx, dv_model_entry *entry);
void dv_context_remove_model(davy_context *ctx, dv_model_entry *entry);

/* A released buffer; enqueued work still uses its memory. It holds no reference to the context. */
typedef struct dv_busy_buffer {
    davy_buffer *buffer;
    bool (*free_if_idle)(davy_buffer *b); /* false: the work is not done, nothing was freed */
    struct dv_busy_buffer *next;
} dv_busy_buffer;

void dv_context_add_busy(davy_context *ctx, dv_busy_buffer *entry);
/* Frees the buffers whose work is done; with `wait` all of them, after waiting. Keeps the thread's error record. */
void dv_context_free_idle(davy_context *ctx, bool wait);

#endif
