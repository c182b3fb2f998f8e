/* run_cuda.h - an instance on a GPU: its steps are enqueued, all at once, and nothing waits unless it is asked to. After
 * its first run an instance has its steps captured as a graph, which later runs launch; its pointers never change, so
 * that stays valid. Beside arena and scratch it lends what a run of a picture needs again and again: device memory that
 * only grows, events, more queues. */
#ifndef DV_RUN_CUDA_H
#define DV_RUN_CUDA_H

#include "core/cuda/gpu.h"
#include "core/exec/run.h"

/* Work goes to `stream`, the host's, or to a queue of the instance's own where it is NULL. Earlier work of the instance is
 * waited for on the device. Every begin that succeeds is followed by end, also after failures. */
davy_result dv_instance_begin(dv_instance *i, void *stream);
void dv_instance_end(dv_instance *i);
dv_gpu_queue *dv_instance_queue(const dv_instance *i); /* between begin and end */

/* Waits until nothing on the device uses the instance any more. */
void dv_instance_settle(dv_instance *i);

/* All steps; of a direct plan all but the last. */
davy_result dv_instance_enqueue(dv_instance *i);
/* Those before mean k; the mean of `part` of what it is of, one picture, to `out`, f32 in device memory. */
davy_result dv_instance_enqueue_to_mean(dv_instance *i, int32_t k);
davy_result dv_instance_enqueue_mean(dv_instance *i, int32_t k, const dvk_view *part, void *out);
/* That one, into the picture; of any other plan a "store" of its output. On q, of the instance's GPU. */
davy_result dv_instance_enqueue_store(dv_instance *i, dv_gpu_queue *q, const dvk_convert_args *args, uint64_t bytes);
/* As dv_instance_run_to_norm, but for the last of a direct plan; statistics, in device memory; what is needed to go on, to or
 * from (`back`) device memory. */
davy_result dv_instance_enqueue_to_norm(dv_instance *i, int64_t k);
davy_result dv_instance_enqueue_norm(dv_instance *i, int64_t k, const dvk_view *part, float *partial);
davy_result dv_instance_enqueue_live(dv_instance *i, int64_t k, void *kept, bool back);
/* One op of the picture: "load", "store", "blend"; on q, of the instance's GPU. */
davy_result dv_instance_enqueue_op(dv_instance *i, dv_gpu_queue *q, const char *op, const void *args, uint64_t bytes);
/* While a profile is on, runs are timed: waits for all that is enqueued and adds it up. Else nothing. */
davy_result dv_instance_collect(dv_instance *i);
bool dv_instance_timed(const dv_instance *i);

enum {                      /* of memory and of events; pairs, for one tile is moved while another is computed */
       DV_SLOT_IN = 0,      /* picture; has been uploaded */
       DV_SLOT_OUT = 2,     /* result; has been stored */
       DV_SLOT_READ = 4,    /* -; the picture has been loaded, its memory is free again */
       DV_SLOT_TILE = 6,    /* -; the tile is finished */
       DV_SLOT_BAND = 8,    /* rows in which fades are added up */
       DV_SLOT_FADE = 9,    /* weights of fades */
       DV_SLOT_GATHER = 10, /* -; the gather queue has what came before */
       DV_SLOT_RESULT = 11, /* of a direct plan, on its way into a picture that has to be stored by a step of its own */
       DV_SLOT_MEANS = 12,  /* of parts of tiles, [tile][channel] */
       DV_SLOT_KEPT = 13,   /* of groups of tiles, until the norm is known that they wait for */
       DV_SLOT_SENT = 16,   /* of 16 GPUs: an input made here; is ready */
       DV_SLOT_TAKEN = 32,  /* of 16 GPUs: an output of theirs; has been used */
       DV_SLOTS = 48
};

/* At least so many bytes; what was in a slot that grows is lost, after all that is enqueued has ended. */
davy_result dv_instance_memory(dv_instance *i, int32_t slot, uint64_t bytes, void **out);
davy_result dv_instance_event(dv_instance *i, int32_t slot, dv_gpu_event **out);
/* Waits on the host for an event behind the instance's steps, which began at since_ns (dv_now_ns) at the latest. As
 * dv_gpu_queue_wait, but it has learnt how long that takes: sleeps most of it and then looks without a pause. */
davy_result dv_instance_await(dv_instance *i, dv_gpu_event *event, uint64_t since_ns, davy_result (*poll)(void *user),
                              void *user);
/* Queue 0, 1, 2 of the instance's GPU beside its own. */
davy_result dv_instance_side_queue(dv_instance *i, int32_t index, dv_gpu_queue **out);

#endif
