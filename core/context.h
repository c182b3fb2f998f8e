/* context.h - what a host opens first: threads, memory under a budget, the log, the queue of jobs. Models, jobs and
 * buffers hold references, so that the order of releases is free; whoever lets go last takes everything down. */
#ifndef DV_CONTEXT_H
#define DV_CONTEXT_H

#include "core/engine.h"
#include "core/job.h"

/* desc is full-size (sized.h); what it points to is copied. */
davy_result dv_context_create(const davy_context_desc *desc, davy_context **out);
davy_context *dv_context_ref(davy_context *ctx);
void dv_context_release(davy_context *ctx); /* NULL: nothing */

/* DAVY_E_FORKED in a process that did not create the context. */
davy_result dv_context_check(const davy_context *ctx);
bool dv_context_is_child(const davy_context *ctx);

void dv_context_memory(davy_context *ctx, davy_memory_info *out);
/* host_bytes 0: half of physical memory again. Caches that no longer fit go. */
void dv_context_set_budget(davy_context *ctx, uint64_t host_bytes);
/* Until at most keep_bytes of host memory are in use: cached arenas go first, then the weights of models nobody is
 * running, which load again when needed. `except`: a model whose weights stay; may be NULL. Returns whether anything
 * was freed. */
bool dv_context_trim(davy_context *ctx, uint64_t keep_bytes, const davy_model *except);

/* The file of a shipped model; dv_free. DAVY_E_NOT_FOUND says where it was looked for. */
davy_result dv_context_find_model(const davy_context *ctx, const char *name, char **path);

const dv_services *dv_context_services(const davy_context *ctx);
dv_jobs *dv_context_jobs(const davy_context *ctx);

/* Models register themselves, so that trim finds them. */
void dv_context_add_model(davy_context *ctx, davy_model *model);
void dv_context_remove_model(davy_context *ctx, davy_model *model);

/* Usable without a context. Index 0 is the CPU; this build has no other back end. */
int32_t dv_device_count(void);
davy_result dv_device_info(int32_t index, davy_device_info *out);

#endif
