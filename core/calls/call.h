/* call.h - one checked call for pictures or a clip, and the parts of its work: one run of the network, clips (oneshot.c),
 * the encoder's posterior (posterior.c), straight alpha (alpha.c), streams and CUDA memory (call.c). Internal to core/calls. */
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
    int32_t in_channels, out_channels; /* of the network's input and output */
    dv_colours colours_in, colours_out;
    dv_tiling tiling;
    bool alpha;     /* a separate pass upscales alpha */
    bool grey;      /* the result is the luma of three outputs */
    bool posterior; /* moments or a sample: the call allocates memory for the moments */
    bool temporal;  /* frames of the clip depend on each other: they go slice by slice through dv_clip_tiles */
    dv_clip_rule rule;
    davy_run run;
    const davy_option *options; /* the caller's array; read by the checks only */
    dv_gpu_event *after;        /* the job starts after this event; NULL: at once */
    uint64_t deadline_ns;
    davy_job *job;        /* NULL: blocking */
    uint64_t progress_ns; /* time of the last progress call to the host */
} dv_call;

/* The unit of one run: a picture, or a slice of a clip. */
typedef struct dv_stretch {
    int64_t in, n_in;      /* input pictures [in, in + n_in) */
    int64_t out, n_out;    /* output pictures [out, out + n_out) */
    int64_t drawn;         /* number of the first result: selects the random numbers of SAMPLE */
    dv_clip_tiles *clip;   /* NULL: a picture */
    const dvk_image *tail; /* further frames in other memory, after the n_in (then n_in may be 0); NULL: none */
} dv_stretch;

static inline dv_stretch dv_stretch_picture(int64_t picture) {
    return (dv_stretch){.in = picture, .n_in = 1, .out = picture, .n_out = 1, .drawn = picture};
}

void dv_call_clear(dv_call *call);
/* For a sequence: describes a call for one clip. The sequence supplies the memory later. args->in and args->out describe one
 * frame and one result; both are only read. args->job is ignored. (oneshot.c) */
davy_result dv_call_describe(const dv_oneshot_args *args, dv_call *call);

/* ---- one run of the network ---- */

/* Progress and cancellation for parts [index, index + share) of `count` equal parts. */
dv_control dv_call_control(dv_call *call, int64_t index, int64_t share, int64_t count);
/* One pass through the network without posterior or alpha; dv_call_compute runs it. */
dv_work dv_call_work(dv_call *call, const dv_stretch *stretch, const dv_control *control);
davy_result dv_call_compute(dv_call *call, const dv_stretch *stretch, const dv_work *work);

/* ---- the encoder's posterior: vae_encode with MOMENTS or SAMPLE (posterior.c) ---- */

davy_result dv_call_posterior(dv_call *call, const dv_stretch *stretch, const dv_control *control);
uint64_t dv_call_moments_bytes(const dv_call *call); /* memory for one latent */

/* ---- clips (oneshot.c) ---- */

/* Logs a warning if the network leaves out the clip's last frames. */
void dv_clip_warn_spare(davy_model *model, dv_stage stage, const dv_clip_rule *rule, int64_t frames);
/* Index within a slice of the first frame that result `result` of the slice depends on. begun: it is not the first slice. */
int64_t dv_clip_source(const dv_clip_rule *rule, bool begun, int64_t result);
davy_result dv_call_check_clip(const dv_call *call);
davy_result dv_call_slice(dv_call *call, const dv_stretch *stretch, const dv_control *control);

/* ---- straight alpha (alpha.c) ----
 * The colours and alpha go through the network in two passes. Colours of fully transparent pixels are arbitrary, and the
 * network would mix them into the visible edge. So bleeding first replaces them with the mean colour of their neighbours,
 * outwards from the visible pixels, one pixel a pass. Pixels further than DVK_BLEED_REACH (kernels/cuda/pixels/bleed.h) keep
 * their colour. Visible pixels do not change. */

/* Picture `index` of p. Its opacity is alpha * opacity.mul + opacity.add. */
typedef struct dv_bleed {
    const dv_pixels *p;
    int64_t index;
    dv_colours colours;
    dv_mapping opacity;
} dv_bleed;

bool dv_bleed_needed(const dv_bleed *b); /* true if it has both transparent and visible pixels */
/* out: [h][w][colours], numbers as stored; age: [h][w], working memory. */
void dv_bleed_run(const dv_bleed *b, float *out, uint8_t *age);

/* Runs the colour pass of a picture with straight alpha, on a copy after bleeding; bleed_bytes: size of that copy. */
davy_result dv_call_colours(dv_call *call, int64_t picture, dv_work *work);
uint64_t dv_call_bleed_bytes(const dv_call *call);
/* Runs the alpha pass, with alpha as a grey picture. A constant alpha keeps its value exactly. */
davy_result dv_call_alpha(dv_call *call, int64_t picture, const dv_control *control);

/* ---- streams and CUDA memory ---- */

davy_result dv_call_check_stream(const dv_call *call, bool job);
/* Whether the context can work on the memory of a tensor. */
davy_result dv_call_check_reach(const dv_call *call, const dv_pixels *p, const char *name);
/* Stream-ordered work must not wait, so input and output must be in CUDA memory. DAVY_E_UNSUPPORTED otherwise. */
davy_result dv_call_check_ordered(const dv_call *call);
/* Selects where the library allocates an output: *gpu NULL is host memory. */
davy_result dv_call_output_gpu(const dv_call *call, const davy_tensor *out, dv_gpu **gpu);
/* A job with a stream starts after the work queued there now: mark records an event, await waits for it. */
davy_result dv_call_mark_stream(dv_call *call);
davy_result dv_call_await_stream(dv_call *call);
/* After enqueuing stream-ordered work: keeps the memory of its buffers until the work is done, even if they are released. */
davy_result dv_call_keep_buffers(const dv_call *call);

dv_gpu *dv_call_gpu(const dv_call *call); /* the context's first GPU */
/* Arguments of the ops "load" and "store": rows [y, y + rows) of an image and a block of packed f32. dv_call_convert
 * enqueues one of these ops. */
dvk_convert_args dv_call_rows(void *block, const dvk_image *image, int64_t y, int64_t rows);
davy_result dv_call_convert(dv_gpu_queue *q, const char *op, const dvk_convert_args *args);
/* Gives a queue back after enqueuing on it. Waits for a queue of davy's own, because the next step may use another queue. */
davy_result dv_call_finish(const dv_call *call, dv_gpu_queue *q, davy_result r);
/* Copies a picture from CUDA memory into packed f32, without mapping its range; waits. */
davy_result dv_call_gather(const dv_call *call, int64_t picture, float *to);

#endif
