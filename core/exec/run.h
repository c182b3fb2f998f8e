/* run.h - a plan made ready to run, and its runs. A program is a plan with packed weights; an instance is the memory of
 * one run: arena, scratch for every thread, steps with their pointers filled in. Idle instances are kept, so that after
 * the first run of a size nothing is allocated. A program runs where its store's weights are; what instances on a GPU do
 * is in run_cuda.h. Thread-safe. */
#ifndef DV_RUN_H
#define DV_RUN_H

#include "core/exec/weights.h"

typedef struct dv_program dv_program;
typedef struct dv_instance dv_instance;

typedef struct dv_program_desc {
    const dv_services *services; /* must outlive the program */
    dv_store *store;             /* referenced */
    dv_stage stage;
    dv_plan *plan; /* taken over in every case */
} dv_program_desc;

davy_result dv_program_create(const dv_program_desc *desc, dv_program **out);
dv_program *dv_program_ref(dv_program *p);
void dv_program_release(dv_program *p);

const dv_plan *dv_program_plan(const dv_program *p);
/* What one run of a plan takes beside the weights; on a GPU n_threads is 1. */
static inline uint64_t dv_plan_workspace(const dv_plan *plan, int32_t n_threads) {
    return dv_align_up(plan->arena_bytes, 64) + plan->scratch_bytes * (uint64_t)n_threads;
}

/* Packs what the program's weights lack. */
davy_result dv_program_load(dv_program *p, dv_watch *watch);
/* An instance that no other run uses; the program must be loaded. */
davy_result dv_program_take(dv_program *p, dv_instance **out);
void dv_program_give(dv_program *p, dv_instance *instance);
/* An instance of the caller's own, on memory of the caller's: dv_plan_workspace bytes, and the state of a clip's plan. The
 * program, which must be loaded, and the memory outlive it. */
davy_result dv_program_lend(dv_program *p, void *block, void *state, dv_instance **out);
/* Of a plan with transfers, before it runs: dv_plan's offloaded_bytes of the host's memory; on a GPU, pinned. */
void dv_instance_set_offloaded(dv_instance *i, void *offloaded);
void dv_instance_drop(dv_instance *instance);
/* Frees idle instances until at most keep_bytes of them remain; returns what remains. */
uint64_t dv_program_trim(dv_program *p, uint64_t keep_bytes);

dvk_view dv_instance_input(const dv_instance *i);
dvk_view dv_instance_output(const dv_instance *i);
/* Mean k of a plan whose means are given: what it is of, and the place it is put into. */
dvk_view dv_instance_mean_of(const dv_instance *i, int32_t k);
void *dv_instance_given(const dv_instance *i, int32_t k);
/* The same of norm k. */
dvk_view dv_instance_norm_of(const dv_instance *i, int64_t k);
void *dv_instance_given_norm(const dv_instance *i, int64_t k);
/* On the CPU. */
davy_result dv_instance_run(dv_instance *i, dv_watch *watch);
/* The steps before mean k; the mean of `part` of what it is of. */
davy_result dv_instance_run_to_mean(dv_instance *i, int32_t k, dv_watch *watch);
davy_result dv_instance_mean(dv_instance *i, int32_t k, const dvk_view *part, float *out, dv_watch *watch);
/* The steps from norm k - 1 to norm k, of the first from the beginning, of the one behind the last to the end; the statistics of
 * `part` of what it is of, as "group_norm_stats" has them. */
davy_result dv_instance_run_to_norm(dv_instance *i, int64_t k, dv_watch *watch);
davy_result dv_instance_norm(dv_instance *i, int64_t k, const dvk_view *part, float *partial, dv_watch *watch);
/* What is needed to go on from norm k: to `kept`, the plan's live_bytes, or `back`. */
davy_result dv_instance_live(dv_instance *i, int64_t k, void *kept, bool back, dv_watch *watch);

/* "load" or "store", on the CPU: the first and the last step, whose picture is the caller's. */
davy_result dv_convert_run(dv_instance *i, const char *op, const dvk_convert_args *args, dv_watch *watch);
/* The same for a picture that no instance has computed. */
davy_result dv_convert_alone(const dv_services *services, const char *op, const dvk_convert_args *args,
                             dv_watch *watch);
static inline double dv_convert_cost(const dvk_convert_args *args) {
    return 2.0 * (double)(args->view.h * args->view.w * args->view.c);
}

#endif
