/* engine.h - a detected network that is ready to run: packed weights, cached plans for each size, tiles. It is the compute half of a
 * model; model.c owns one. It computes pictures from pictures of one size; davy_tensor and alpha are handled by its caller.
 * Thread-safe: any number of threads may run one engine. */
#ifndef DV_ENGINE_H
#define DV_ENGINE_H

#include "core/arch/arch.h"
#include "core/base/services.h"
#include "core/base/watch.h"
#include "kernels/kernel.h"

typedef struct dv_engine dv_engine;

typedef struct dv_engine_desc {
    const dv_services *services; /* copied */
    dv_tensors *tensors;         /* unwrapped; the engine takes ownership on success only */
    dv_json *config;             /* may be NULL; the engine takes ownership on success only */
    const char *file_name;
    const char *arch; /* NULL: detect */
    /* CPU: F32, BF16 or INT8; AUTO = F32. GPU: F32, F16, BF16, FP8 or INT8. AUTO on a GPU: F16 for upscalers; BF16 for VAEs and
     * for values beyond F16's range, if the GPU has it. A type that the device does not support is DAVY_E_UNSUPPORTED. */
    davy_dtype compute;
    bool tf32;        /* GPU: F32 products are computed in TF32 */
    int64_t split[2]; /* as in dv_probe */
} dv_engine_desc;

/* Detects the architecture, reads its configuration and builds the graph of each stage at a small size. That checks the shape of
 * every weight. */
davy_result dv_engine_create(const dv_engine_desc *desc, dv_engine **out);
void dv_engine_release(dv_engine *e);

const dv_arch *dv_engine_arch(const dv_engine *e);
void dv_engine_info(const dv_engine *e, davy_model_info *out); /* without the latent_scale/shift overrides */

/* The rule by which a stage takes clips. False: it takes single pictures. */
bool dv_engine_clip(const dv_engine *e, dv_stage stage, dv_clip_rule *out);

/* Packs the weights of all stages now; otherwise the first run that needs them packs them. Unload frees them and the cached
 * arenas. */
davy_result dv_engine_load(dv_engine *e, const dv_control *control);
davy_result dv_engine_unload(dv_engine *e);
/* Frees cached arenas until at most keep_bytes remain. */
void dv_engine_trim(dv_engine *e, uint64_t keep_bytes);
/* Call it after the budget has changed. Drops cached tile plans with automatic tiles and those that exceed the new budget. The next
 * run plans these sizes again. */
void dv_engine_review(dv_engine *e);

typedef struct dv_tiling { /* input samples; 0: automatic, width -1: never tile */
    int32_t width, height, overlap;
} dv_tiling;

/* One call: in.n pictures. Conversions: network input = image * in_mul + in_add; image = clamp(network output * out_mul + out_add).
 * If the output image has fewer channels than the network, the first out.channels are stored. `grey`: the output has one channel,
 * the luma of the network's three (0.299, 0.587, 0.114); used for alpha and grey pictures. */
typedef struct dv_work {
    dv_stage stage;
    dvk_image in, out;
    bool in_device, out_device; /* the image's data is in memory of gpus[0] */
    void *stream;               /* CUstream on which the work is enqueued; NULL: one of davy's own */
    bool
        stream_ordered; /* return without waiting; later work on the stream runs after this. Needs in_device and out_device */
    float in_mul, in_add, out_mul, out_add, out_lo, out_hi;
    bool out_clamp;
    bool grey;
    dv_tiling tiling;
    dv_control control;
} dv_work;

typedef struct dv_batch_desc {
    dv_stage stage;
    int64_t n; /* pictures in one call; 0 counts as 1 */
    int64_t h, w;
    const dv_tiling *tiling; /* NULL: automatic */
} dv_batch_desc;

/* Chooses tiles under the memory budget and returns output size, workspace and tiling. The workspace may be that of several pictures
 * computed at once; all other values are for one picture. Fills all of out except ndim; shape[0..2] = output height, width,
 * channels. */
davy_result dv_engine_plan(dv_engine *e, const dv_batch_desc *desc, davy_plan_info *out);

davy_result dv_engine_run(dv_engine *e, const dv_work *work);

#endif
