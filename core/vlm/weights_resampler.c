/* weights_resampler.c - GhostVis's resampler and projector. torch's attention keeps the matrices of queries, keys and
 * values in one tensor; queries come from other rows than the rest, so it is cut in two here. */
#include <stdio.h>

#include "core/vlm/weights.h"

/* Rows from `from` of a tensor that was read whole. */
static void cut(dv_loader *l, float *rows, float *bias, int64_t from, int64_t n, dv_vlm_matrix *out) {
    const int64_t k = l->config->vision.hidden;
    if (l->r == DAVY_OK) {
        *out = (dv_vlm_matrix){.n = n, .k = k, .bias = bias + from};
        dv_loader_rows(l, rows + from * k, out);
    }
}

static void load_layer(dv_loader *l, const char *prefix, dv_vlm_attender *out) {
    const int64_t width = l->config->vision.hidden;
    static const char *const names[] = {
        "norm1", "norm2", "cross_attn.in_proj_weight", "cross_attn.in_proj_bias", "cross_attn.out_proj",
        "mlp.0", "mlp.2"};
    char full[DV_ARRAY_LEN(names)][200];
    for (size_t i = 0; i < DV_ARRAY_LEN(names); i++) {
        snprintf(full[i], sizeof full[i], "%s%s", prefix, names[i]);
    }
    dv_loader_affine(l, full[0], width, true, &out->norm1);
    dv_loader_affine(l, full[1], width, true, &out->norm2);
    float *rows = dv_loader_table(l, full[2], 3 * width, width);
    float *bias = dv_loader_numbers(l, full[3], 3 * width);
    cut(l, rows, bias, 0, width, &out->q);
    cut(l, rows, bias, width, 2 * width, &out->kv);
    dv_loader_linear(l, full[4], width, width, true, &out->out);
    dv_loader_linear(l, full[5], 4 * width, width, true, &out->up);
    dv_loader_linear(l, full[6], width, 4 * width, true, &out->down);
}

void dv_loader_resampler(dv_loader *l) {
    const dv_vlm_vision *v = &l->config->vision;
    dv_vlm_resampler *r = &l->w->resampler;
    char name[64];
    r->queries = dv_loader_numbers(l, "vision_resampler.queries", v->queries * v->hidden);
    r->layers = dv_loader_memory(l, (uint64_t)v->resampler_layers * sizeof *r->layers);
    for (int64_t i = 0; l->r == DAVY_OK && i < v->resampler_layers; i++) {
        r->layers[i] = (dv_vlm_attender){0};
        snprintf(name, sizeof name, "vision_resampler.layers.%d.", (int)i);
        load_layer(l, name, &r->layers[i]);
    }
    dv_loader_linear(l, "vision_projector.mlp.0", v->projector_hidden, v->hidden, true, &r->first);
    dv_loader_linear(l, "vision_projector.mlp.3", v->out_hidden, v->projector_hidden, true, &r->second);
    dv_loader_affine(l, "vision_projector.mlp.4", v->out_hidden, true, &r->norm);
}
