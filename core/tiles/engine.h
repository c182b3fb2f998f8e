/* engine.h - a detected network ready to run: weights packed once, plans kept per size, tiles. The compute half of a model;
 * model.c owns one. It does not know davy_tensor or alpha: it turns pictures of one size into pictures.
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
    dv_tensors *tensors;         /* unwrapped; taken over on success only */
    dv_json *config;             /* may be NULL; taken over on success only */
    const char *file_name;
    const char *arch; /* NULL: detect */
    /* CPU: F32 or BF16; AUTO = F32. GPU: F32, F16 or BF16; AUTO = F16 for upscalers, BF16 for VAEs where the device
     * has it. Others E_UNSUPPORTED. */
    davy_dtype compute;
    bool tf32;        /* GPU: what would be F32 multiplies in TF32 */
    int64_t split[2]; /* as in dv_probe */
} dv_engine_desc;

/* Detects, configures and checks every weight's shape by building the graph of each stage at a small size. */
davy_result dv_engine_create(const dv_engine_desc *desc, dv_engine **out);
void dv_engine_release(dv_engine *e);

const dv_arch *dv_engine_arch(const dv_engine *e);
void dv_engine_info(const dv_engine *e, davy_model_info *out); /* all but latent_scale/shift overrides */

/* How a stage takes clips; false: it takes pictures by themselves. */
bool dv_engine_clip(const dv_engine *e, dv_stage stage, dv_clip_rule *out);

/* Packs the weights of all stages now; else the first run that needs them does. Unload frees them and cached arenas. */
davy_result dv_engine_load(dv_engine *e, const dv_control *control);
davy_result dv_engine_unload(dv_engine *e);
/* Frees cached arenas until at most keep_bytes remain. */
void dv_engine_trim(dv_engine *e, uint64_t keep_bytes);
/* The budget has changed: sizes that were cut into tiles for the old one, or do not fit the new one, are planned again. */
void dv_engine_review(dv_engine *e);

typedef struct dv_tiling { /* input samples; 0: automatic, width -1: never tile */
    int32_t width, height, overlap;
} dv_tiling;

/* One picture, or in.n of them. Conversions: network input = image * in_mul + in_add; image = clamp(network output * out_mul + out_add). The
 * caller's images may have fewer channels than the network gives: then the first out.channels are stored; `grey` appends
 * the luma of the three outputs as the only channel (0.299, 0.587, 0.114: alpha and grey pictures). */
typedef struct dv_work {
    dv_stage stage;
    dvk_image in, out;
    bool in_device, out_device; /* data is memory of gpus[0] */
    void *stream;               /* CUstream the work is enqueued on; NULL: one of our own */
    bool stream_ordered;        /* do not wait for it: what is enqueued on the stream later comes later. Needs both */
    float in_mul, in_add, out_mul, out_add, out_lo, out_hi;
    bool out_clamp;
    bool grey;
    dv_tiling tiling;
    dv_control control;
} dv_work;

typedef struct dv_batch_desc {
    dv_stage stage;
    int64_t n; /* pictures in one call; 0 and 1: one */
    int64_t h, w;
    const dv_tiling *tiling; /* NULL: automatic */
} dv_batch_desc;

/* Output size, arena and tiling of a picture, chosen under the heap's budget. Of several pictures the arena may hold some at once;
 * the rest is of one. Fills all of out but ndim and the order of shape: shape[0..2] = out height, width, channels. */
davy_result dv_engine_plan(dv_engine *e, const dv_batch_desc *desc, davy_plan_info *out);

davy_result dv_engine_run(dv_engine *e, const dv_work *work);

#endif
