/* run_cuda.h - an instance on a GPU. Its steps are enqueued all at once, without waiting. The second run captures the
 * steps as a graph, which later runs launch. The graph stays valid, because the pointers never change. An instance
 * also keeps resources for its runs: device memory that only grows, events, more queues. */
#ifndef DV_RUN_CUDA_H
#define DV_RUN_CUDA_H

#include "core/cuda/gpu.h"
#include "core/exec/run.h"

/* Starts a run on `stream`, the host's, or on the instance's own queue if it is NULL. The device waits for the instance's earlier
 * work. After a successful begin, end must follow, also after failures. */
davy_result dv_instance_begin(dv_instance *i, void *stream);
void dv_instance_end(dv_instance *i);
dv_gpu_queue *dv_instance_queue(const dv_instance *i); /* between begin and end */

/* Waits until no work on the device uses the instance. */
void dv_instance_settle(dv_instance *i);

/* Enqueues all steps; of a direct plan all but the last. */
davy_result dv_instance_enqueue(dv_instance *i);
/* to_mean: enqueues the steps before mean k. mean: the mean of `part`, a part of one picture of that mean's value. out: f32 in
 * device memory. */
davy_result dv_instance_enqueue_to_mean(dv_instance *i, int32_t k);
davy_result dv_instance_enqueue_mean(dv_instance *i, int32_t k, const dvk_view *part, void *out);
/* Enqueues the store into the picture: the last step of a direct plan, or a "store" of the output of any other plan. q: a queue of
 * the instance's GPU. */
davy_result dv_instance_enqueue_store(dv_instance *i, dv_gpu_queue *q, const dvk_convert_args *args, uint64_t bytes);
/* As dv_instance_run_to_norm, dv_instance_norm and dv_instance_live. to_norm leaves out the last step of a direct plan. partial and
 * kept are in device memory. */
davy_result dv_instance_enqueue_to_norm(dv_instance *i, int64_t k);
davy_result dv_instance_enqueue_norm(dv_instance *i, int64_t k, const dvk_view *part, float *partial);
davy_result dv_instance_enqueue_live(dv_instance *i, int64_t k, void *kept, bool back);
/* Enqueues one op on a picture: "load", "store" or "blend". q: a queue of the instance's GPU. bytes: for the profile. */
davy_result dv_instance_enqueue_op(dv_instance *i, dv_gpu_queue *q, const char *op, const void *args, uint64_t bytes);
/* While a profile is on, runs are timed. Then collect waits for the enqueued work and adds its times to the profile; otherwise it
 * does nothing. */
davy_result dv_instance_collect(dv_instance *i);
bool dv_instance_timed(const dv_instance *i);

enum {                      /* slots: "memory; event". Some are pairs: one tile is copied while another is computed */
       DV_SLOT_IN = 0,      /* the picture; it has been uploaded */
       DV_SLOT_OUT = 2,     /* the result; it has been stored */
       DV_SLOT_READ = 4,    /* -; the picture has been loaded, so its memory may be reused */
       DV_SLOT_TILE = 6,    /* -; the tile is finished */
       DV_SLOT_BAND = 8,    /* rows in which faded tiles are added up */
       DV_SLOT_FADE = 9,    /* weights of the fades */
       DV_SLOT_GATHER = 10, /* -; the gather queue is up to date with the other queues */
       DV_SLOT_RESULT = 11, /* result of a direct plan whose last kernel cannot store this picture itself */
       DV_SLOT_MEANS = 12,  /* means of parts of tiles, [tile][channel] */
       DV_SLOT_KEPT = 13,   /* values that groups of tiles keep until the norm they need is complete */
       DV_SLOT_SENT = 16,   /* one for each of 16 GPUs: its input, made on the first GPU; the input is ready */
       DV_SLOT_TAKEN = 32,  /* one for each of 16 GPUs: its output, copied to the first GPU; the output has been used */
       DV_SLOTS = 48
};

/* Returns a slot's memory of at least `bytes` bytes. If the slot has to grow, the call first waits for all enqueued work; the old
 * contents are lost. */
davy_result dv_instance_memory(dv_instance *i, int32_t slot, uint64_t bytes, void **out);
davy_result dv_instance_event(dv_instance *i, int32_t slot, dv_gpu_event **out);
/* Waits on the host for an event behind the instance's steps. since_ns (dv_now_ns): latest time at which the steps began. Like
 * dv_gpu_queue_wait, but it uses the duration of the run before: it sleeps for most of it and then polls without a pause. */
davy_result dv_instance_await(dv_instance *i, dv_gpu_event *event, uint64_t since_ns, davy_result (*poll)(void *user),
                              void *user);
/* Returns additional queue 0, 1 or 2 of the instance, on its GPU. */
davy_result dv_instance_side_queue(dv_instance *i, int32_t index, dv_gpu_queue **out);

#endif
