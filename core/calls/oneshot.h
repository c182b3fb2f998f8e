/* oneshot.h - upscale, vae_encode, vae_decode: from the caller's tensors to runs of the engine, one picture after the
 * other, now or as a job. The structs passed in are full-size (sized.h). */
#ifndef DV_ONESHOT_H
#define DV_ONESHOT_H

#include "core/cuda/gpu.h"
#include "core/host/model.h"
#include "core/calls/tensor.h"

/* run: never NULL. out is written to on success only. job NULL: blocks. */
davy_result dv_oneshot(davy_model *model, davy_op op, const davy_tensor *in, davy_tensor *out, const davy_run *run,
                       davy_job **job);
davy_result dv_oneshot_plan(davy_model *model, davy_op op, const davy_tensor *in, const davy_run *run,
                            davy_plan_info *out);
/* Sizes of the result alone. */
davy_result dv_oneshot_size(davy_model *model, davy_op op, const davy_tensor *in, const davy_run *run, dv_pixels *out);
davy_result dv_oneshot_load(davy_model *model, const davy_run *run, davy_job **job);

/* ---- between oneshot.c, which checks, oneshot_run.c, oneshot_clip.c, oneshot_posterior.c and oneshot_bleed.c, which
 * work, and the two that know CUDA memory: oneshot_device.c and oneshot_pixels.c ---- */

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
    bool moving;    /* frames of a clip that depend on each other: slice by slice through a stream */
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

int64_t dv_call_pictures(const dv_call *call);
bool dv_call_together(const dv_call *call);      /* in one run of the engine */
int64_t dv_call_passes(const dv_call *call);     /* runs of the network for one picture */
uint64_t dv_call_workspace(const dv_call *call); /* beyond the engine's own */
davy_result dv_call_run(dv_call *call);
/* Parts [index, index + share) of `count` of equal work. */
dv_control dv_call_control(dv_call *call, int64_t index, int64_t share, int64_t count);
dv_work dv_call_work(dv_call *call, const dv_stretch *stretch,
                     const dv_control *control); /* of a pass with the network alone */
davy_result dv_call_compute(dv_call *call, const dv_stretch *stretch, const dv_work *work);
/* The pass of the colours of a picture that has straight alpha, and the memory that it takes. */
davy_result dv_call_colours(dv_call *call, int64_t picture, dv_work *work);
uint64_t dv_call_bleed_bytes(const dv_call *call);
/* vae_encode with MOMENTS or SAMPLE. */
davy_result dv_call_posterior(dv_call *call, const dv_stretch *stretch, const dv_control *control);

/* ---- clips: oneshot_clip.c ---- */

/* Frames (or latents) that make whole slices, of a clip of `frames`: what is missing repeats the last one, what is over
 * is left out. */
int64_t dv_clip_whole(const dv_clip_rule *rule, int64_t frames);
/* Warns of what is left out. */
void dv_clip_tell_spare(davy_model *model, dv_stage stage, const dv_clip_rule *rule, int64_t frames);
int64_t dv_clip_results(const dv_clip_rule *rule, int64_t frames);
/* The first frame of a slice, the first or a later one, that this result of it is made of. */
int64_t dv_clip_source(const dv_clip_rule *rule, bool begun, int64_t result);
davy_result dv_call_check_clip(const dv_call *call);
davy_result dv_call_plan_clip(const dv_call *call, davy_plan_info *out);
davy_result dv_call_clips(dv_call *call);
davy_result dv_call_slice(dv_call *call, const dv_stretch *stretch, const dv_control *control);
/* For a sequence: a call of one clip, whose pixels get their memory later. in, out: a frame and a result. */
davy_result dv_call_describe(davy_model *model, davy_op op, const davy_tensor *in, const davy_tensor *out,
                             const davy_run *run, dv_call *call);
void dv_call_clear(dv_call *call);

davy_result dv_call_check_stream(const dv_call *call, bool job);
/* Whether the context can work on the memory of a tensor. */
davy_result dv_call_check_reach(const dv_call *call, const dv_pixels *p, const char *name);
/* What stream-ordered work cannot do, as it must not wait: touch host memory. */
davy_result dv_call_check_ordered(const dv_call *call);
/* Where the library is to allocate an output: *gpu NULL is host memory. */
davy_result dv_call_check_wish(const dv_call *call, const davy_tensor *out, dv_gpu **gpu);
/* A job with a stream begins after what is queued there now: noted, and waited for. */
davy_result dv_call_mark_stream(dv_call *call);
davy_result dv_call_await_stream(dv_call *call);
/* Stream-ordered work has been enqueued: the buffers it uses stay until it is done, whoever releases them. */
davy_result dv_call_keep_buffers(const dv_call *call);

/* Gives back a queue that something was enqueued on: one of our own is waited for, as others go on from there. */
davy_result dv_call_finish(const dv_call *call, dv_gpu_queue *q, davy_result r);
/* An image in CUDA memory. Each waits for what it does. constant: whether all numbers are the same. */
davy_result dv_call_constant(const dv_call *call, const dvk_image *image, bool *constant, float *value);
davy_result dv_call_fill(const dv_call *call, const dvk_image *image, float value);
/* The pass of alpha, stream-ordered: through the network, then the number itself where it is the same everywhere. */
davy_result dv_call_alpha_ordered(const dv_call *call, const dv_work *work);
/* A picture in CUDA memory as packed f32, numbers as they are stored; waits. */
davy_result dv_call_gather(const dv_call *call, int64_t picture, float *to);
/* Packed f32 moments of one latent in device memory: their means become a sample, number `drawn`, scaled as latents are
 * (enqueued); a buffer of them is copied to the host (waits). */
davy_result dv_call_draw(const dv_call *call, int64_t drawn, float *moments, float lo, float hi);
davy_result dv_call_fetch_moments(const dv_call *call, davy_buffer *moments, float *host);
/* They become picture `picture` of the output, the log-variances, where they are asked for, within [lo, hi]. Waits unless
 * stream-ordered. */
davy_result dv_call_store_moments(const dv_call *call, int64_t picture, float *moments, float lo, float hi);

#endif
