/* run.h - programs and instances. A program is a plan with packed weights. An instance is the memory of one run: arena, scratch
 * for every thread, and steps with their pointers filled in. Idle instances are kept, so that only the first run of a size
 * allocates memory. A program runs on the device of its store's weights. run_cuda.h has the functions for instances on a GPU.
 * Thread-safe. */
#ifndef DV_RUN_H
#define DV_RUN_H

#include "core/exec/weights.h"

typedef struct dv_program dv_program;
typedef struct dv_instance dv_instance;

typedef struct dv_program_desc {
    const dv_services *services; /* must outlive the program */
    dv_store *store;             /* referenced */
    dv_stage stage;
    dv_plan *plan; /* the program takes ownership, also on failure */
} dv_program_desc;

davy_result dv_program_create(const dv_program_desc *desc, dv_program **out);
dv_program *dv_program_ref(dv_program *p);
void dv_program_release(dv_program *p);

const dv_plan *dv_program_plan(const dv_program *p);
/* Bytes that one run of a plan needs beside the weights. On a GPU n_threads is 1. */
static inline uint64_t dv_plan_workspace(const dv_plan *plan, int32_t n_threads) {
    return dv_align_up(plan->arena_bytes, 64) + plan->scratch_bytes * (uint64_t)n_threads;
}

/* Packs those weights of the program that are not packed yet. */
davy_result dv_program_load(dv_program *p, dv_watch *watch);
/* Takes an idle instance or creates one. The program must be loaded. No other run uses the instance until dv_program_give. */
davy_result dv_program_take(dv_program *p, dv_instance **out);
void dv_program_give(dv_program *p, dv_instance *instance);
/* Creates an instance on the caller's memory. block: dv_plan_workspace bytes; state: the state of a clip's plan, or NULL. The
 * program must be loaded. Program and memory must outlive the instance. */
davy_result dv_program_lend(dv_program *p, void *block, void *state, dv_instance **out);
/* For a plan with transfers, before its first run. offloaded: the plan's offloaded_bytes of host memory; for a GPU, pinned. */
void dv_instance_set_offloaded(dv_instance *i, void *offloaded);
void dv_instance_drop(dv_instance *instance);
/* Frees idle instances until they hold at most keep_bytes. Returns the bytes that they still hold. */
uint64_t dv_program_trim(dv_program *p, uint64_t keep_bytes);

dvk_view dv_instance_input(const dv_instance *i);
dvk_view dv_instance_output(const dv_instance *i);
/* For a plan with given means: the value that mean k is computed from, and the memory that receives the mean. */
dvk_view dv_instance_mean_of(const dv_instance *i, int32_t k);
void *dv_instance_given(const dv_instance *i, int32_t k);
/* The same for norm k. */
dvk_view dv_instance_norm_of(const dv_instance *i, int64_t k);
void *dv_instance_given_norm(const dv_instance *i, int64_t k);
/* Runs all steps on the CPU, as the functions below do. */
davy_result dv_instance_run(dv_instance *i, dv_watch *watch);
/* run_to_mean: runs the steps before mean k. mean: computes the mean of `part`, a part of that mean's value. */
davy_result dv_instance_run_to_mean(dv_instance *i, int32_t k, dv_watch *watch);
davy_result dv_instance_mean(dv_instance *i, int32_t k, const dvk_view *part, float *out, dv_watch *watch);
/* run_to_norm: runs the steps from norm k - 1 to norm k. k = 0 starts at the first step; k = n_norms runs to the end.
 * norm: computes the statistics of `part`, a part of that norm's value, in the format of "group_norm_stats". */
davy_result dv_instance_run_to_norm(dv_instance *i, int64_t k, dv_watch *watch);
davy_result dv_instance_norm(dv_instance *i, int64_t k, const dvk_view *part, float *partial, dv_watch *watch);
/* Copies the values that the steps after norm k need: from the arena to `kept` (live_bytes of the plan), or `back`. */
davy_result dv_instance_live(dv_instance *i, int64_t k, void *kept, bool back, dv_watch *watch);

/* Runs "load" or "store" on the CPU: the conversions from and to the caller's picture. */
davy_result dv_convert_run(dv_instance *i, const char *op, const dvk_convert_args *args, dv_watch *watch);
/* The same without an instance. */
davy_result dv_convert_alone(const dv_services *services, const char *op, const dvk_convert_args *args,
                             dv_watch *watch);
static inline double dv_convert_cost(const dvk_convert_args *args) {
    return 2.0 * (double)(args->view.h * args->view.w * args->view.c);
}

#endif
