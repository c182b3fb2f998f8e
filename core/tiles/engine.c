/* engine.c - creates an engine from weights, packs the weights, and reports facts about the engine. */
#include "core/tiles/engine.h"

#include <string.h>

#include "core/base/error.h"
#include "core/cuda/gpu.h"
#include "core/tiles/precision.h"
#include "core/tiles/pictures.h"

/* ---- creation ---- */

/* The tensor from which a parameter is derived. NULL: it is not derived from the whole of one tensor. */
static const dv_tensor_ref *made_of(const dv_graph *g, const dv_param_info *p) {
    const dv_tensor_ref *ref = p->from != NULL ? dv_tensors_find(g->weights, p->from->name) : NULL;
    return ref != NULL && dv_tensor_elements(ref) == p->stored ? ref : NULL;
}

/* Adds the parameters of a graph: their number, and their bytes in the file. Derived parameters without a tensor count as f32. */
static void add_parameters(dv_engine *e, const dv_graph *g) {
    e->parameters += dv_graph_parameters(g);
    for (int64_t i = 0; i < g->n_params; i++) {
        const dv_param_info *p = &g->params[i];
        const dv_tensor_ref *ref = p->ref != NULL ? p->ref : made_of(g, p);
        if (ref != NULL) {
            e->weight_bytes += ref->bytes;
        } else if (p->from != NULL && p->from->derive != NULL) {
            uint64_t elements = 1;
            for (int32_t d = 0; d < p->ndim; d++) {
                elements *= (uint64_t)p->shape[d];
            }
            e->weight_bytes += (p->stored != 0 ? (uint64_t)dv_max(p->stored, 0) : elements) * sizeof(float);
        }
    }
}

/* Builds a stage at a small size, for a clip if it takes clips. That checks every weight it needs. A file without the stage is not
 * an error. */
static davy_result probe_stage(dv_engine *e, dv_stage stage) {
    dv_clip_rule rule = {0};
    if (e->arch->clip != NULL) {
        e->arch->clip(e->cfg, stage, &rule);
    }
    const dv_request q = {.stage = stage, .pictures = rule.first + rule.step};
    const int64_t side = stage == DV_STAGE_DECODE ? DV_PROBE_LATENTS : DV_PROBE_PIXELS;
    dv_graph *g = NULL;
    davy_result r = dv_engine_build_graph(e, &q, side, side, &g);
    if (r == DAVY_E_UNSUPPORTED) {
        return DAVY_OK;
    }
    if (r == DAVY_OK) {
        add_parameters(e, g);
        r = dv_graph_reach(g, &e->reach[stage]);
        e->reach[stage].align = dv_max(e->reach[stage].align, 1);
        if (stage != DV_STAGE_UPSCALE &&
            e->reach[stage].n_norms > 0) { /* for a VAE, norms over a tile are good enough */
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
        return r < 0 || e->has_stage[DV_STAGE_UPSCALE]
                   ? r
                   : dv_fail(DAVY_E_UNSUPPORTED, "%s: davy cannot run this kind of upscaler yet", e->arch->name);
    }
    davy_result r = probe_stage(e, DV_STAGE_ENCODE);
    r = r < 0 ? r : probe_stage(e, DV_STAGE_DECODE);
    if (r == DAVY_OK && !e->has_stage[DV_STAGE_ENCODE] && !e->has_stage[DV_STAGE_DECODE]) {
        r = dv_fail(DAVY_E_TENSOR, "the weights contain neither an encoder nor a decoder");
    }
    return r;
}

static davy_result detect(dv_engine *e, const dv_engine_desc *desc) {
    const dv_probe probe = {.tensors = desc->tensors,
                            .config = desc->config,
                            .file_name = e->file_name,
                            .split = {desc->split[0], desc->split[1]}};
    davy_result r = dv_arch_detect(&probe, desc->arch, &e->arch);
    r = r < 0 ? r : e->arch->config(&probe, e->cfg);
    return r < 0 ? r : probe_stages(e);
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
        if (r < 0 && e->file_name[0] != '\0') {
            dv_fail_prefix("%s", e->file_name);
        }
    }
    r = r < 0 ? r : dv_engine_set_compute(e, desc->compute, desc->tf32);
    r = r < 0 ? r : dv_stores_create(e, e->stores);
    if (r == DAVY_OK && e->compute == DVK_INT8) {
        r = dv_engine_calibrate(e);
    }
    if (r < 0) {
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
        dv_gpu_unpin_idle(e->services.gpus[i]); /* cached for clips of this engine */
    }
    dv_tensors_release(e->tensors);
    dv_json_release(e->config);
    dv_cond_release(e->finished);
    dv_mutex_release(e->lock);
    dv_free(e->clip_choices);
    dv_free(e->file_name);
    dv_free(e);
}

/* ---- weights ---- */

/* Makes the plan of a picture of moderate size. It is lean if the usual weights would take more than half of the available
 * memory. */
static davy_result make_load_plan(dv_engine *e, int32_t lane, dv_store *store, dv_stage stage, dv_plan **out) {
    dv_clip_rule rule;
    dv_request q = {.stage = stage};
    if (dv_engine_clip(e, stage, &rule)) { /* the weights of a clip's slices, not of a single picture */
        q = (dv_request){.stage = stage, .pictures = rule.step, .continues = true, .keeps = true, .apart = true};
    }
    const int64_t side = stage == DV_STAGE_DECODE ? DV_PROBE_LATENTS * 8 : DV_PROBE_PIXELS * 8;
    const davy_result r = dv_engine_make_plan(e, &q, &(dv_plan_desc){.lane = lane, .h = side, .w = side}, out);
    if (r < 0 || e->services.n_gpus > 0 || dv_store_missing(store, stage, *out) <= dv_engine_available(e) / 2) {
        return r;
    }
    dv_plan_release(*out);
    return dv_engine_make_plan(e, &q, &(dv_plan_desc){.lane = lane, .h = side, .w = side, .lean = true}, out);
}

static davy_result load_stage(dv_engine *e, int32_t lane, dv_store *store, dv_stage stage, const dv_control *control) {
    dv_plan *plan = NULL;
    davy_result r = make_load_plan(e, lane, store, stage, &plan);
    if (r < 0) {
        return r;
    }
    const void **pointers = dv_calloc((uint64_t)plan->n_weights + 1, sizeof *pointers);
    if (pointers == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "weights: out of memory");
    } else {
        dv_watch watch;
        dv_watch_begin(&watch, control, "load", dv_store_cost(dv_store_missing(store, stage, plan)));
        r = dv_store_bind(store, stage, plan, &watch, pointers);
        dv_free((void *)(uintptr_t)pointers);
    }
    dv_plan_release(plan);
    return r;
}

davy_result dv_engine_load(dv_engine *e, const dv_control *control) {
    static const dv_control nobody;
    const dv_control *c = control != NULL ? control : &nobody;
    davy_result r = DAVY_OK;
    const bool two = e->has_stage[DV_STAGE_ENCODE] && e->has_stage[DV_STAGE_DECODE];
    dv_control part = *c;
    part.share = (c->total > 0 ? c->share : 1000) / (two ? 2u : 1u) / (uint64_t)e->n_lanes;
    part.base = c->total > 0 ? c->base : 0;
    part.total = c->total > 0 ? c->total : 1000;
    for (int32_t l = 0; r == DAVY_OK && l < e->n_lanes; l++) {
        dv_store *store = dv_engine_store(e, l);
        for (dv_stage stage = DV_STAGE_UPSCALE; r == DAVY_OK && stage <= DV_STAGE_DECODE; stage++) {
            if (e->has_stage[stage]) {
                r = load_stage(e, l, store, stage, &part);
                part.base += part.share;
            }
        }
        dv_store_release(store);
    }
    return r;
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

/* Sets the relation of frames and latents from the clip rules of both stages. */
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
