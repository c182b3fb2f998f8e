/* engine.c - from detected weights to something that runs: creation, facts, plans of a size. Loading is in load.c,
 * the runs are in run.c, the choice of tiles in size.c, what is remembered in tile_plan_cache.c. */
#include "core/tiles/engine_priv.h"

#include <string.h>

#include "core/cuda/gpu.h"
#include "core/base/error.h"
#include "core/graph/segment.h"

const char *dv_stage_name(dv_stage stage) {
    return stage == DV_STAGE_ENCODE ? "encode" : stage == DV_STAGE_DECODE ? "decode" : "upscale";
}

/* Puts a luma behind the network's three channels; a network of one channel gives it as it is. */
static void append_luma(dv_graph *g) {
    static const float weights[3] = {0.299f, 0.587f, 0.114f};
    static const int64_t shape[4] = {1, 3, 1, 1};
    const dv_value rgb = g->output;
    const int64_t channels = dv_shape_of(g, rgb).c;
    if (rgb == DV_NO_VALUE || channels == 1) {
        return;
    }
    if (channels != 3) {
        dv_graph_fail(g,
                      dv_fail(DAVY_E_UNSUPPORTED, "grey output of a network with %lld channels", (long long)channels));
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

static davy_result build(const dv_engine *e, const dv_request *q, int64_t h, int64_t w, dv_graph **out) {
    dv_graph *g = NULL;
    davy_result r = dv_graph_create(e->tensors, &g);
    if (r != DAVY_OK) {
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
    if (r == DAVY_OK) {
        r = dv_graph_check(g);
    }
    if (r != DAVY_OK) {
        dv_graph_release(g);
        return r;
    }
    *out = g;
    return DAVY_OK;
}

static davy_result build_fused(const dv_engine *e, const dv_request *q, int64_t h, int64_t w, dv_graph **out) {
    dv_graph *g = NULL;
    davy_result r = build(e, q, h, w, &g);
    if (r == DAVY_OK) {
        const bool short_range = e->compute == DVK_F16 || (dv_is_8bit(e->compute) && !dv_engine_is_wide(e));
        r = e->services.n_gpus > 0 && short_range ? dv_rescale(g) : DAVY_OK;
        if (r == DAVY_OK && q->policy.frame_by_frame) {
            bool changed = false;
            r = dv_by_frame(g, &changed);
        }
        r = r == DAVY_OK ? dv_fuse(g) : r;
        if (r != DAVY_OK) {
            dv_graph_release(g);
            return r;
        }
        *out = g;
    }
    return r;
}

davy_result dv_engine_channels(const dv_engine *e, dv_stage stage, int64_t *out) {
    const dv_request q = {.stage = stage};
    const int64_t side = stage == DV_STAGE_DECODE ? DV_PROBE_LATENTS : DV_PROBE_PIXELS;
    dv_graph *g = NULL;
    const davy_result r = build(e, &q, side, side, &g);
    if (r == DAVY_OK) {
        *out = dv_shape_of(g, g->input).c;
        dv_graph_release(g);
    }
    return r;
}

davy_result dv_engine_make_plan(const dv_engine *e, int32_t lane, const dv_request *request, int64_t h, int64_t w,
                                bool lean, dv_plan **out) {
    dv_graph *g = NULL;
    const davy_result r = build_fused(e, request, h, w, &g);
    if (r != DAVY_OK) {
        return r;
    }
    const dv_gpu *gpu = dv_engine_gpu(e, lane);
    const dv_plan_options options = {.caps = gpu != NULL ? dv_gpu_caps(gpu) : NULL,
                                     .cpu = e->services.cpu,
                                     .compute = e->compute,
                                     .lean = lean,
                                     .policy = request->policy,
                                     .direct = dv_tile_is_whole(request, h, w) && !request->apart,
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
    davy_result r = build(e, request, h, w, &g);
    if (r == DAVY_OK) {
        r = dv_segments_least(g, bytes);
        *bytes *= size;
        dv_graph_release(g);
    }
    return r;
}

/* ---- creation ---- */

/* Keys of derivations end in the name of what is stored. NULL: this parameter is not made of all of one tensor. */
static const dv_tensor_ref *made_of(const dv_graph *g, const dv_param_info *p) {
    const char *last = p->key != NULL ? strrchr(p->key, ':') : NULL;
    const char *name = last != NULL ? last + 1 : p->key;
    const dv_tensor_ref *ref = name != NULL ? dv_tensors_find(g->weights, name) : NULL;
    return ref != NULL && dv_tensor_elements(ref) == p->stored ? ref : NULL;
}

/* Parameters of a graph: how many, and how many bytes they are in the file, where that is known, else as f32. */
static void add_parameters(dv_engine *e, const dv_graph *g) {
    e->parameters += dv_graph_parameters(g);
    for (int64_t i = 0; i < g->n_params; i++) {
        const dv_param_info *p = &g->params[i];
        const dv_tensor_ref *ref = p->ref != NULL ? p->ref : made_of(g, p);
        if (ref != NULL) {
            e->weight_bytes += ref->bytes;
        } else if (p->derive != NULL) {
            uint64_t elements = 1;
            for (int32_t d = 0; d < p->ndim; d++) {
                elements *= (uint64_t)p->shape[d];
            }
            e->weight_bytes += (p->stored != 0 ? (uint64_t)dv_max(p->stored, 0) : elements) * sizeof(float);
        }
    }
}

/* Builds a stage at a small size, of a clip where it has such: that checks every weight it needs. A stage the file does not
 * have is no error. */
static davy_result probe_stage(dv_engine *e, dv_stage stage) {
    dv_clip_rule rule = {0};
    if (e->arch->clip != NULL) {
        e->arch->clip(e->cfg, stage, &rule);
    }
    const dv_request q = {.stage = stage, .pictures = rule.first + rule.step};
    const int64_t side = stage == DV_STAGE_DECODE ? DV_PROBE_LATENTS : DV_PROBE_PIXELS;
    dv_graph *g = NULL;
    davy_result r = build(e, &q, side, side, &g);
    if (r == DAVY_E_UNSUPPORTED) {
        return DAVY_OK;
    }
    if (r == DAVY_OK) {
        add_parameters(e, g);
        r = dv_graph_reach(g, &e->reach[stage]);
        e->reach[stage].align = dv_max(e->reach[stage].align, 1);
        if (stage != DV_STAGE_UPSCALE && e->reach[stage].n_norms > 0) { /* a tile's own do for small encoders */
            e->reach[stage].n_norms = 0;
            e->reach[stage].global = true;
        }
        e->has_stage[stage] = true;
    }
    dv_graph_release(g);
    return r;
}

static davy_result probe_stages(dv_engine *e) {
    if (e->arch->task == DAVY_TASK_UPSCALE) {
        const davy_result r = probe_stage(e, DV_STAGE_UPSCALE);
        return r != DAVY_OK || e->has_stage[DV_STAGE_UPSCALE]
                   ? r
                   : dv_fail(DAVY_E_UNSUPPORTED, "%s: this kind of upscaler cannot be run yet", e->arch->name);
    }
    davy_result r = probe_stage(e, DV_STAGE_ENCODE);
    if (r == DAVY_OK) {
        r = probe_stage(e, DV_STAGE_DECODE);
    }
    if (r == DAVY_OK && !e->has_stage[DV_STAGE_ENCODE] && !e->has_stage[DV_STAGE_DECODE]) {
        r = dv_fail(DAVY_E_TENSOR, "neither an encoder nor a decoder");
    }
    return r;
}

static davy_result detect(dv_engine *e, const dv_engine_desc *desc) {
    const dv_probe probe = {.tensors = desc->tensors,
                            .config = desc->config,
                            .file_name = e->file_name,
                            .split = {desc->split[0], desc->split[1]}};
    davy_result r = dv_arch_detect(&probe, desc->arch, &e->arch);
    if (r == DAVY_OK) {
        r = e->arch->config(&probe, e->cfg);
    }
    return r == DAVY_OK ? probe_stages(e) : r;
}

davy_result dv_engine_create(const dv_engine_desc *desc, dv_engine **out) {
    dv_engine *e = dv_calloc(1, sizeof *e);
    if (e == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "engine: out of memory");
    }
    e->services = *desc->services;
    e->services.n_gpus = (int32_t)dv_min(e->services.n_gpus, DV_LANES);
    e->n_lanes = (int32_t)dv_max(e->services.n_gpus, 1);
    e->tensors = desc->tensors;
    e->file_name = dv_strdup(desc->file_name != NULL ? desc->file_name : "");
    e->lock = dv_mutex_create();
    e->finished = dv_cond_create();
    davy_result r = DAVY_OK;
    if (e->file_name == NULL || e->lock == NULL || e->finished == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "engine: out of memory");
    }
    if (r == DAVY_OK) {
        r = detect(e, desc);
        if (r != DAVY_OK && e->file_name[0] != '\0') {
            dv_fail_prefix("%s", e->file_name);
        }
    }
    if (r == DAVY_OK) {
        r = dv_engine_set_compute(e, desc->compute, desc->tf32);
    }
    if (r == DAVY_OK) {
        r = dv_stores_create(e, e->stores);
    }
    if (r == DAVY_OK && e->compute == DVK_INT8) {
        r = dv_engine_calibrate(e);
    }
    if (r != DAVY_OK) {
        e->tensors = NULL; /* still the caller's */
        dv_engine_release(e);
        return r;
    }
    e->config = desc->config;
    *out = e;
    return DAVY_OK;
}

void dv_engine_release(dv_engine *e) {
    if (e == NULL) {
        return;
    }
    if (e->lock != NULL) {
        dv_tile_plans_drop(e);
    }
    dv_int8_clear(&e->int8);
    dv_stores_release(e->stores);
    for (int32_t i = 0; i < e->services.n_gpus; i++) {
        dv_gpu_unpin_idle(e->services.gpus[i]); /* for clips like those of this engine */
    }
    dv_tensors_release(e->tensors);
    dv_json_release(e->config);
    dv_cond_release(e->finished);
    dv_mutex_release(e->lock);
    dv_free(e->clips);
    dv_free(e->file_name);
    dv_free(e);
}

/* ---- facts ---- */

const dv_arch *dv_engine_arch(const dv_engine *e) {
    return e->arch;
}

static bool tiles_exactly(const dv_engine *e) {
    bool exact = true;
    for (int stage = 1; stage < DV_STAGES; stage++) {
        exact = exact && (!e->has_stage[stage] || dv_stage_tiles_exactly(&e->reach[stage]));
    }
    return exact;
}

/* How time goes together with latents: what the rules of both stages say. */
static void take_time(const dv_engine *e, davy_model_info *info) {
    dv_clip_rule rule;
    if (dv_engine_clip(e, DV_STAGE_DECODE, &rule)) {
        info->temporal_factor = (int32_t)dv_div_up(rule.step_out, dv_max(rule.step, 1));
    }
    if (dv_engine_clip(e, DV_STAGE_ENCODE, &rule)) {
        info->temporal_factor = (int32_t)dv_div_up(rule.step, dv_max(rule.step_out, 1));
        info->window_frames = (int32_t)dv_max(rule.first, rule.step);
        info->latency_frames = info->window_frames - 1;
    }
    info->temporal_factor = (int32_t)dv_max(info->temporal_factor, 1);
}

void dv_engine_info(const dv_engine *e, davy_model_info *out) {
    e->arch->info(e->cfg, out);
    out->task = e->arch->task;
    strncpy(out->arch, e->arch->name, sizeof out->arch - 1);
    out->arch[sizeof out->arch - 1] = '\0';
    out->compute = e->compute == DVK_TF32 ? DAVY_DTYPE_F32 : (davy_dtype)e->compute;
    out->parameters = e->parameters;
    out->weight_bytes = e->weight_bytes;
    out->features |= tiles_exactly(e) ? DAVY_MODEL_TILES_EXACT : 0u;
    take_time(e, out);
}

davy_result dv_engine_plan(dv_engine *e, dv_stage stage, int64_t h, int64_t w, const dv_tiling *tiling,
                           davy_plan_info *out) {
    return dv_engine_plan_batch(e, stage, 1, h, w, tiling, out);
}

davy_result dv_engine_plan_batch(dv_engine *e, dv_stage stage, int64_t n, int64_t h, int64_t w, const dv_tiling *tiling,
                                 davy_plan_info *out) {
    const dv_tiling none = {0};
    const dv_request q = {.stage = stage, .batch = n, .h = h, .w = w, .tiling = tiling != NULL ? *tiling : none};
    if (stage < DV_STAGE_UPSCALE || stage > DV_STAGE_DECODE || !e->has_stage[stage]) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: these weights cannot %s", e->file_name, dv_stage_name(stage));
    }
    if (h < 1 || w < 1) {
        return dv_fail(DAVY_E_SHAPE, "%s: a picture of %lld x %lld", dv_stage_name(stage), (long long)w, (long long)h);
    }
    dv_cached_tile_plan *route = NULL;
    const davy_result r = dv_tile_plan_get(e, &q, &route);
    if (r != DAVY_OK) {
        return r;
    }
    out->shape[0] = dv_axis_end(&route->y, route->y.count - 1);
    out->shape[1] = dv_axis_end(&route->x, route->x.count - 1);
    out->shape[2] = route->out_c;
    out->workspace_bytes = route->layout.workspace + route->layout.band;
    out->flops = route->layout.flops;
    out->tiles_x = (int32_t)route->x.count;
    out->tiles_y = (int32_t)route->y.count;
    out->tiles_t = 1;
    out->tile_width = (int32_t)route->x.tile;
    out->tile_height = (int32_t)route->y.tile;
    out->tile_frames = 1;
    dv_tile_plan_release(route);
    return DAVY_OK;
}

/* ---- dumps ---- */

char *dv_engine_dump_graph(dv_engine *e, dv_stage stage, int64_t h, int64_t w, bool fused) {
    const dv_request q = {.stage = stage};
    dv_graph *g = NULL;
    if ((fused ? build_fused : build)(e, &q, h, w, &g) != DAVY_OK) {
        return NULL;
    }
    char *text = dv_graph_dump(g);
    dv_graph_release(g);
    return text;
}

char *dv_engine_dump_plan(dv_engine *e, dv_stage stage, int64_t h, int64_t w) {
    const dv_request q = {.stage = stage};
    dv_plan *plan = NULL;
    if (dv_engine_make_plan(e, 0, &q, h, w, false, &plan) != DAVY_OK) {
        return NULL;
    }
    char *text = dv_plan_dump(plan);
    dv_plan_release(plan);
    return text;
}

bool dv_engine_clip(const dv_engine *e, dv_stage stage, dv_clip_rule *out) {
    dv_clip_rule rule = {0};
    if (stage >= DV_STAGE_UPSCALE && stage <= DV_STAGE_DECODE && e->has_stage[stage] && e->arch->clip != NULL) {
        e->arch->clip(e->cfg, stage, &rule);
    }
    *out = rule;
    return rule.first > 0;
}
