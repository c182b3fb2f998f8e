/* call.h - one call for pictures or a clip, checked (oneshot.c), and the parts of its work: one run of the network, clips
 * (oneshot.c), the encoder's posterior (posterior.c), straight alpha (alpha.c), what is done with streams and CUDA memory.
 * For the files of this room. */
#ifndef DV_CALL_H
#define DV_CALL_H

#include "core/calls/oneshot.h"
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
/* For a sequence: a call of one clip, whose pixels get their memory later. in, out: a frame and a result; both are read
 * only, and job is not looked at. (oneshot.c) */
davy_result dv_call_describe(const dv_oneshot_args *args, dv_call *call);

/* ---- one run of the network ---- */

/* Progress and cancellation of parts [index, index + share) of `count` of equal work. */
dv_control dv_call_control(dv_call *call, int64_t index, int64_t share, int64_t count);
/* A pass with the network alone, which compute runs. */
dv_work dv_call_work(dv_call *call, const dv_stretch *stretch, const dv_control *control);
davy_result dv_call_compute(dv_call *call, const dv_stretch *stretch, const dv_work *work);

/* ---- the encoder's posterior: vae_encode with MOMENTS or SAMPLE (posterior.c) ---- */

davy_result dv_call_posterior(dv_call *call, const dv_stretch *stretch, const dv_control *control);
uint64_t dv_call_moments_bytes(const dv_call *call); /* memory for one latent */

/* ---- clips (oneshot.c) ---- */

/* Warns of what is left out. */
void dv_clip_warn_spare(davy_model *model, dv_stage stage, const dv_clip_rule *rule, int64_t frames);
/* The first frame of a slice, the first or a later one, that this result of it is made of. */
int64_t dv_clip_source(const dv_clip_rule *rule, bool begun, int64_t result);
davy_result dv_call_check_clip(const dv_call *call);
davy_result dv_call_slice(dv_call *call, const dv_stretch *stretch, const dv_control *control);

/* ---- straight alpha (alpha.c) ----
 * The colours and alpha go through the network in two passes. What lies under full transparency is no picture, and a network
 * would draw it into the edge of what is visible. So pixels of no opacity take the mean colour of their neighbours first,
 * those next to visible ones before those further away. Beyond DVK_BLEED_REACH (kernels/cuda/pixels/bleed.h) they keep
 * theirs. Visible pixels do not change. */

/* Of picture `index` of p, whose alpha means opacity as alpha * opacity->mul + opacity->add. */
typedef struct dv_bleed {
    const dv_pixels *p;
    int64_t index;
    dv_colours colours;
    dv_mapping opacity;
} dv_bleed;

bool dv_bleed_needed(const dv_bleed *b); /* some of it, but not all, is hidden */
/* out: [h][w][colours], numbers as stored; age: [h][w], working memory. */
void dv_bleed_run(const dv_bleed *b, float *out, uint8_t *age);

/* The pass of the colours of a picture that has straight alpha, from a copy in which colours have bled, and the memory that
 * it takes. */
davy_result dv_call_colours(dv_call *call, int64_t picture, dv_work *work);
uint64_t dv_call_bleed_bytes(const dv_call *call);
/* The pass of alpha, as a grey picture; alpha that is the same everywhere stays what it is. */
davy_result dv_call_alpha(dv_call *call, int64_t picture, const dv_control *control);

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
