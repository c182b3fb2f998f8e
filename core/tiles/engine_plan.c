/* engine_plan.c - builds and plans the networks of an engine; see engine_plan.h. */
#include "core/tiles/engine_plan.h"

#include "core/base/error.h"
#include "core/cuda/gpu.h"

bool dv_engine_clip(const dv_engine *e, dv_stage stage, dv_clip_rule *out) {
    dv_clip_rule rule = {0};
    if (stage >= DV_STAGE_UPSCALE && stage <= DV_STAGE_DECODE && e->has_stage[stage] && e->arch->clip != NULL) {
        e->arch->clip(e->cfg, stage, &rule);
    }
    *out = rule;
    return rule.first > 0;
}

uint64_t dv_engine_budget(const dv_engine *e) {
    return e->services.n_gpus > 0 ? dv_gpu_budget(dv_engine_gpu(e, 0)) : dv_heap_budget(e->services.heap);
}

/* ---- networks ---- */

/* Appends the luma of the network's three channels. A network with one channel is left unchanged. */
static void append_luma(dv_graph *g) {
    static const float weights[3] = {0.299f, 0.587f, 0.114f};
    static const int64_t shape[4] = {1, 3, 1, 1};
    const dv_value rgb = g->output;
    const int64_t channels = dv_shape_of(g, rgb).c;
    if (rgb == DV_NO_VALUE || channels == 1) {
        return;
    }
    if (channels != 3) {
        dv_graph_fail(g, dv_fail(DAVY_E_UNSUPPORTED, "grey output needs a network with 1 or 3 channels, not %lld",
                                 (long long)channels));
        return;
    }
    const dv_conv_opts opts = {.no_bias = true,
                               .derived = true,
                               .weight = dv_param_constant(g, "luma.weight", 4, shape, weights),
                               .bias = DV_NO_PARAM};
    const dv_value luma = dv_conv(g, rgb, "luma", 1, 1, &opts);
    g->values[rgb].uses--;
    g->output = DV_NO_VALUE;
    dv_output(g, luma);
}

davy_result dv_engine_build_graph(const dv_engine *e, const dv_request *q, int64_t h, int64_t w, dv_graph **out) {
    dv_graph *g = NULL;
    davy_result r = dv_graph_create(e->tensors, &g);
    if (r < 0) {
        return r;
    }
    g->pictures = q->pictures > 1 ? q->pictures : 1;
    g->continues = q->continues;
    g->second = q->second;
    g->keeps = q->keeps;
    r = e->arch->build(e->cfg, q->stage, h, w, g);
    if (r == DAVY_OK && q->grey) {
        append_luma(g);
    }
    r = r < 0 ? r : dv_graph_check(g);
    if (r < 0) {
        dv_graph_release(g);
        return r;
    }
    *out = g;
    return DAVY_OK;
}

static davy_result build_fused(const dv_engine *e, const dv_request *q, int64_t h, int64_t w, dv_graph **out) {
    dv_graph *g = NULL;
    davy_result r = dv_engine_build_graph(e, q, h, w, &g);
    if (r == DAVY_OK) {
        const bool short_range = e->compute == DVK_F16 || (dv_is_8bit(e->compute) && !dv_engine_is_wide(e));
        r = e->services.n_gpus > 0 && short_range ? dv_rescale(g) : DAVY_OK;
        if (r == DAVY_OK && q->policy.frame_by_frame) {
            bool changed = false;
            r = dv_by_frame(g, &changed);
        }
        r = r < 0 ? r : dv_fuse(g);
        if (r < 0) {
            dv_graph_release(g);
            return r;
        }
        *out = g;
    }
    return r;
}

/* ---- plans ---- */

davy_result dv_engine_make_plan(const dv_engine *e, const dv_request *request, const dv_plan_desc *desc,
                                dv_plan **out) {
    dv_graph *g = NULL;
    const davy_result r = build_fused(e, request, desc->h, desc->w, &g);
    if (r < 0) {
        return r;
    }
    const dv_gpu *gpu = dv_engine_gpu(e, desc->lane);
    const dv_plan_options options = {.caps = gpu != NULL ? dv_gpu_caps(gpu) : NULL,
                                     .cpu = e->services.cpu,
                                     .compute = e->compute,
                                     .lean = desc->lean,
                                     .policy = request->policy,
                                     .direct = dv_tile_is_whole(request, desc->h, desc->w) && !request->apart,
                                     .given_means = request->given_means,
                                     .int8 = e->compute == DVK_INT8 && !e->int8_open ? &e->int8 : NULL,
                                     .int8_always = e->int8_always && !e->int8_open,
                                     .wide = e->compute == DVK_INT8 && dv_engine_is_wide(e)};
    return dv_plan_create(g, &options, out);
}

davy_result dv_engine_least_arena(const dv_engine *e, const dv_request *request, int64_t h, int64_t w,
                                  uint64_t *bytes) {
    const uint64_t size = e->compute == DVK_F32 || e->compute == DVK_TF32 ? 4 : 2;
    dv_graph *g = NULL;
    davy_result r = dv_engine_build_graph(e, request, h, w, &g);
    if (r == DAVY_OK) {
        r = dv_by_frame_least(g, bytes);
        *bytes *= size;
        dv_graph_release(g);
    }
    return r;
}
