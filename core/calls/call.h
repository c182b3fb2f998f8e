/* call.h - one call for pictures or a clip, checked (oneshot.c), and the parts of its work: one run of the network, clips
 * (call_clip.c), the encoder's posterior (call_posterior.c), what is done with streams and CUDA memory. For the files of
 * this room. */
#ifndef DV_CALL_H
#define DV_CALL_H

#include "core/calls/tensor.h"
#include "core/cuda/gpu.h"
#include "core/host/model.h"
#include "kernels/op.h"

typedef struct dv_call {
    davy_model *model; /* one reference */
    davy_op op;        /* 0: model_load */
    dv_stage stage;
    dv_pixels in, out;
    davy_buffer *in_buffer, *out_buffer; /* one reference each; NULL: the caller's memory */
    dv_mapping map_in, map_out;
    int32_t in_channels, out_channels; /* of the network's side of the maps */
    dv_colours colours_in, colours_out;
    dv_tiling tiling;
    bool alpha;     /* alpha goes through the network in a pass of its own */
    bool grey;      /* the result is the luma of three outputs */
    bool posterior; /* moments or a sample: through memory of our own */
    bool temporal;  /* frames of a clip that depend on each other: slice by slice through a stream */
    dv_clip_rule rule;
    davy_run run;
    const davy_option *options; /* the caller's, for the checks */
    dv_gpu_event *after;        /* of a job: what it begins after; NULL: nothing */
    uint64_t deadline_ns;
    davy_job *job;        /* NULL: blocking */
    uint64_t progress_ns; /* of the last call to the host */
} dv_call;

/* What is computed at once: a picture, or a stretch of a clip: a slice. */
typedef struct dv_stretch {
    int64_t in, n_in;      /* pictures of the input: so many from that one on */
    int64_t out, n_out;    /* of the output */
    int64_t drawn;         /* number of the first result, for what is drawn */
    dv_clip_tiles *clip;   /* NULL: a picture */
    const dvk_image *tail; /* frames behind the n_in, which may be none then, from elsewhere; NULL: none */
} dv_stretch;

static inline dv_stretch dv_stretch_picture(int64_t picture) {
    return (dv_stretch){.in = picture, .n_in = 1, .out = picture, .n_out = 1, .drawn = picture};
}

void dv_call_clear(dv_call *call);
/* For a sequence: a call of one clip, whose pixels get their memory later. in, out: a frame and a result. (oneshot.c) */
davy_result dv_call_describe(davy_model *model, davy_op op, const davy_tensor *in, const davy_tensor *out,
                             const davy_run *run, dv_call *call);

/* ---- one run of the network ---- */

/* Progress and cancellation of parts [index, index + share) of `count` of equal work. */
dv_control dv_call_control(dv_call *call, int64_t index, int64_t share, int64_t count);
/* A pass with the network alone, which compute runs. */
dv_work dv_call_work(dv_call *call, const dv_stretch *stretch, const dv_control *control);
davy_result dv_call_compute(dv_call *call, const dv_stretch *stretch, const dv_work *work);

/* ---- the encoder's posterior: vae_encode with MOMENTS or SAMPLE (call_posterior.c) ---- */

davy_result dv_call_posterior(dv_call *call, const dv_stretch *stretch, const dv_control *control);
uint64_t dv_call_moments_bytes(const dv_call *call); /* memory for one latent */

/* ---- clips (call_clip.c) ---- */

/* Warns of what is left out. */
void dv_clip_warn_spare(davy_model *model, dv_stage stage, const dv_clip_rule *rule, int64_t frames);
int64_t dv_clip_results(const dv_clip_rule *rule, int64_t frames);
/* The first frame of a slice, the first or a later one, that this result of it is made of. */
int64_t dv_clip_source(const dv_clip_rule *rule, bool begun, int64_t result);
davy_result dv_call_check_clip(const dv_call *call);
davy_result dv_call_plan_clip(const dv_call *call, davy_plan_info *out);
davy_result dv_call_clips(dv_call *call);
davy_result dv_call_slice(dv_call *call, const dv_stretch *stretch, const dv_control *control);

/* ---- streams and CUDA memory ---- */

davy_result dv_call_check_stream(const dv_call *call, bool job);
/* Whether the context can work on the memory of a tensor. */
davy_result dv_call_check_reach(const dv_call *call, const dv_pixels *p, const char *name);
/* What stream-ordered work cannot do, as it must not wait: touch host memory. */
davy_result dv_call_check_ordered(const dv_call *call);
/* Where the library is to allocate an output: *gpu NULL is host memory. */
davy_result dv_call_output_gpu(const dv_call *call, const davy_tensor *out, dv_gpu **gpu);
/* A job with a stream begins after what is queued there now: noted, and waited for. */
davy_result dv_call_mark_stream(dv_call *call);
davy_result dv_call_await_stream(dv_call *call);
/* Stream-ordered work has been enqueued: the buffers it uses stay until it is done, whoever releases them. */
davy_result dv_call_keep_buffers(const dv_call *call);

dv_gpu *dv_call_gpu(const dv_call *call); /* the context's first */
/* Rows [y, y + rows) of an image and a block of packed f32, as the ops "load" and "store" take them; `convert` enqueues
 * one of these ops. */
dvk_convert_args dv_call_rows(void *block, const dvk_image *image, int64_t y, int64_t rows);
davy_result dv_call_convert(dv_gpu_queue *q, const char *op, const dvk_convert_args *args);
/* Gives back a queue that something was enqueued on: one of our own is waited for, as others go on from there. */
davy_result dv_call_finish(const dv_call *call, dv_gpu_queue *q, davy_result r);
/* A picture in CUDA memory as packed f32, numbers as they are stored; waits. */
davy_result dv_call_gather(const dv_call *call, int64_t picture, float *to);

#endif
