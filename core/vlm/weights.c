/* weights.c - the tensors of a captioning model: names in folders and in GGUF files, the language model's blocks and tied heads,
 * the vision towers, and the projectors between them. */
#include "core/vlm/weights.h"

#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/vlm/positions.h"
#include "kernels/kernel.h"

/* ---- GhostVis's resampler and projector. torch stores the matrices of queries, keys and values in one tensor. Queries have
 * another input than keys and values, so the loader cuts the tensor in two. ---- */

static const char *dv_loader_prefix(const dv_loader *l, const char *const *prefixes, const char *probe);
static void dv_loader_affine(dv_loader *l, const char *name, int64_t n, bool bias, dv_vlm_affine *out);
static void dv_loader_linear(dv_loader *l, const char *name, int64_t n, int64_t k, bool bias, dv_vlm_matrix *out);
static void dv_loader_block(dv_loader *l, const char *prefix, const dv_block_names *names, const dv_block_shape *s,
                            dv_vlm_block *out);

/* Packs out->n rows from row `from` on of a tensor that is in memory. */
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

static void dv_loader_resampler(dv_loader *l) {
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

/* ---- tensors of the vision towers and their projectors ---- */

typedef struct tower_names {
    const char *patch, *positions, *class_token, *pre_norm, *post_norm, *block;
} tower_names;

static const tower_names vit_names = {.patch = "embeddings.patch_embedding",
                                      .positions = "embeddings.position_embedding.weight",
                                      .class_token = "embeddings.class_embedding",
                                      .pre_norm = "pre_layrnorm", /* the files' spelling */
                                      .post_norm = "post_layernorm",
                                      .block = "encoder.layers."};
static const tower_names qwen_names = {
    .patch = "patch_embed.proj", .positions = "pos_embed.weight", .block = "blocks."};
static const tower_names gguf_names = {.patch = "patch_embd",
                                       .positions = "position_embd.weight",
                                       .class_token = "class_embd",
                                       .pre_norm = "pre_ln",
                                       .post_norm = "post_ln",
                                       .block = "blk."};

static const dv_block_names vit_block = {.norm1 = "layer_norm1",
                                         .norm2 = "layer_norm2",
                                         .q = "self_attn.q_proj",
                                         .k = "self_attn.k_proj",
                                         .v = "self_attn.v_proj",
                                         .out = "self_attn.out_proj",
                                         .up = "mlp.fc1",
                                         .down = "mlp.fc2"};
static const dv_block_names qwen2_block = {
    .norm1 = "norm1", .norm2 = "norm2", .qkv = "attn.qkv", .out = "attn.proj", .up = "mlp.fc1", .down = "mlp.fc2"};
static const dv_block_names qwen2_5_block = {.norm1 = "norm1",
                                             .norm2 = "norm2",
                                             .qkv = "attn.qkv",
                                             .out = "attn.proj",
                                             .gate = "mlp.gate_proj",
                                             .up = "mlp.up_proj",
                                             .down = "mlp.down_proj"};
static const dv_block_names qwen3_block = {.norm1 = "norm1",
                                           .norm2 = "norm2",
                                           .qkv = "attn.qkv",
                                           .out = "attn.proj",
                                           .up = "mlp.linear_fc1",
                                           .down = "mlp.linear_fc2"};
static const dv_block_names gguf_block = {.norm1 = "ln1",
                                          .norm2 = "ln2",
                                          .q = "attn_q",
                                          .k = "attn_k",
                                          .v = "attn_v",
                                          .qkv = "attn_qkv",
                                          .out = "attn_out",
                                          .gate = "ffn_gate",
                                          .up = "ffn_up",
                                          .down = "ffn_down"};

static bool is_vit(const dv_vlm_vision *v) {
    return v->tower == DV_VLM_TOWER_SIGLIP || v->tower == DV_VLM_TOWER_CLIP;
}

static const char *root_of(const dv_loader *l) {
    static const char *const vit[] = {"model.vision_model.",
                                      "vision_tower.vision_model.",
                                      "model.vision_tower.vision_model.",
                                      "vision_model.",
                                      "vision_tower.",
                                      "model.vision_tower.",
                                      "vision_encoder.encoder.vision_model.",
                                      "vision_encoder.encoder.",
                                      NULL};
    static const char *const qwen[] = {"visual.", "model.visual.", NULL};
    if (l->gguf) {
        return "v.";
    }
    return is_vit(&l->config->vision) ? dv_loader_prefix(l, vit, "embeddings.patch_embedding.weight")
                                      : dv_loader_prefix(l, qwen, "patch_embed.proj.weight");
}

/* ---- patches ---- */

/* llama.cpp stores a patch of two frames as two matrices, one per frame: [hidden][colour][side][side]. */
static void load_split_patch(dv_loader *l, const char *first, const char *second) {
    const dv_vlm_vision *v = &l->config->vision;
    const int64_t area = v->patch * v->patch;
    dv_vlm_matrix *m = &l->w->patch;
    *m = (dv_vlm_matrix){.n = v->hidden, .k = 6 * area};
    const float *frames[2] = {dv_loader_table(l, first, v->hidden, 3 * area),
                              dv_loader_table(l, second, v->hidden, 3 * area)};
    float *rows = l->r == DAVY_OK ? dv_calloc((uint64_t)m->n, (uint64_t)m->k * sizeof *rows) : NULL;
    if (l->r == DAVY_OK && rows == NULL) {
        l->r = dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory for the weights");
    }
    for (int64_t i = 0; l->r == DAVY_OK && i < m->n * 3; i++) {
        memcpy(rows + 2 * i * area, frames[0] + i * area, (size_t)area * sizeof *rows);
        memcpy(rows + (2 * i + 1) * area, frames[1] + i * area, (size_t)area * sizeof *rows);
    }
    if (l->r == DAVY_OK) {
        dv_loader_rows(l, rows, m);
    }
    dv_free(rows);
}

static void load_patch(dv_loader *l, const char *root, const tower_names *names) {
    const dv_vlm_vision *v = &l->config->vision;
    char name[256];
    char second[256];
    snprintf(name, sizeof name, "%s%s.weight", root, names->patch);
    snprintf(second, sizeof second, "%s%s.weight.1", root, names->patch);
    const bool bias = v->tower == DV_VLM_TOWER_SIGLIP || v->tower == DV_VLM_TOWER_QWEN3;
    if (l->gguf && v->temporal == 2 && dv_loader_has(l, second)) {
        load_split_patch(l, name, second);
        snprintf(name, sizeof name, "%s%s.bias", root, names->patch);
        l->w->patch.bias = bias ? dv_loader_numbers(l, name, v->hidden) : NULL;
        return;
    }
    snprintf(name, sizeof name, "%s%s", root, names->patch);
    dv_loader_linear(l, name, v->hidden, 3 * v->temporal * v->patch * v->patch, bias, &l->w->patch);
}

static void load_positions(dv_loader *l, const char *root, const tower_names *names) {
    const dv_vlm_vision *v = &l->config->vision;
    dv_vlm_weights *w = l->w;
    const bool class_token = v->tower == DV_VLM_TOWER_CLIP;
    char name[256];
    if (v->position_side == 0) {
        return;
    }
    snprintf(name, sizeof name, "%s%s", root, names->positions);
    w->positions = dv_loader_table(l, name, v->position_side * v->position_side + (class_token ? 1 : 0), v->hidden);
    if (class_token) {
        snprintf(name, sizeof name, "%s%s", root, names->class_token);
        w->class_row = dv_loader_numbers(l, name, v->hidden);
        for (int64_t i = 0; l->r == DAVY_OK && i < v->hidden; i++) {
            w->class_row[i] += w->positions[i];
        }
        w->positions = l->r == DAVY_OK ? w->positions + v->hidden : NULL;
        snprintf(name, sizeof name, "%s%s", root, names->pre_norm);
        dv_loader_affine(l, name, v->hidden, true, &w->pre_norm);
    }
}

/* ---- projectors between tower and language model ---- */

static void load_merger(dv_loader *l, const char *norm, const char *first, const char *second, int64_t norm_width,
                        dv_vlm_merger *out) {
    const dv_vlm_vision *v = &l->config->vision;
    const int64_t wide = v->hidden * v->merge * v->merge;
    dv_loader_affine(l, norm, norm_width, v->norm == DV_VLM_LAYER_NORM, &out->norm);
    dv_loader_linear(l, first, wide, wide, true, &out->first);
    dv_loader_linear(l, second, v->out_hidden, wide, true, &out->second);
}

static void load_deepstack(dv_loader *l, const char *root) {
    const dv_vlm_vision *v = &l->config->vision;
    dv_vlm_weights *w = l->w;
    const int64_t wide = v->hidden * v->merge * v->merge;
    w->deepstack = v->n_deepstack > 0 ? dv_loader_memory(l, (uint64_t)v->n_deepstack * sizeof *w->deepstack) : NULL;
    for (int32_t i = 0; l->r == DAVY_OK && i < v->n_deepstack; i++) {
        char names[3][256];
        static const char *const hf[] = {"norm", "linear_fc1", "linear_fc2"};
        static const char *const gguf[] = {"norm", "fc1", "fc2"};
        for (int k = 0; k < 3; k++) {
            snprintf(names[k], sizeof names[k], l->gguf ? "%sdeepstack.%d.%s" : "%sdeepstack_merger_list.%d.%s", root,
                     (int)(l->gguf ? v->deepstack[i] : i), l->gguf ? gguf[k] : hf[k]);
        }
        w->deepstack[i] = (dv_vlm_merger){0};
        load_merger(l, names[0], names[1], names[2], wide, &w->deepstack[i]);
    }
}

static void load_qwen_merger(dv_loader *l, const char *root) {
    const dv_vlm_vision *v = &l->config->vision;
    char names[3][256];
    const bool qwen3 = v->tower == DV_VLM_TOWER_QWEN3;
    static const char *const two[] = {"merger.ln_q", "merger.mlp.0", "merger.mlp.2"};
    static const char *const three[] = {"merger.norm", "merger.linear_fc1", "merger.linear_fc2"};
    for (int k = 0; k < 3; k++) {
        snprintf(names[k], sizeof names[k], "%s%s", root, qwen3 ? three[k] : two[k]);
    }
    if (l->gguf) {
        load_merger(l, "v.post_ln", "mm.0", "mm.2", v->hidden, &l->w->merger);
    } else {
        load_merger(l, names[0], names[1], names[2], v->hidden, &l->w->merger);
    }
    load_deepstack(l, root);
}

static void load_projector(dv_loader *l) {
    static const char *const roots[] = {"model.multi_modal_projector.", "multi_modal_projector.", NULL};
    const dv_vlm_vision *v = &l->config->vision;
    dv_vlm_merger *m = &l->w->merger;
    if (l->config->family == DV_VLM_IDEFICS3) {
        static const char *const connectors[] = {"model.connector.", "connector.", NULL};
        char name[256];
        snprintf(name, sizeof name, "%smodality_projection.proj",
                 dv_loader_prefix(l, connectors, "modality_projection.proj.weight"));
        dv_loader_linear(l, l->gguf ? "mm.model.fc" : name, v->out_hidden, v->hidden * v->shuffle * v->shuffle, false,
                         &m->first);
        return;
    }
    char names[2][256];
    const char *root = dv_loader_prefix(l, roots, "linear_1.weight");
    for (int i = 0; i < 2; i++) {
        snprintf(names[i], sizeof names[i], "%slinear_%d", root, i + 1);
    }
    dv_loader_linear(l, l->gguf ? "mm.0" : names[0], v->out_hidden, v->hidden, true, &m->first);
    dv_loader_linear(l, l->gguf ? "mm.2" : names[1], v->out_hidden, v->out_hidden, true, &m->second);
}

static const dv_block_names *block_names(const dv_loader *l) {
    switch (l->gguf ? DV_VLM_TOWER_NONE : l->config->vision.tower) {
    case DV_VLM_TOWER_NONE:
        return &gguf_block;
    case DV_VLM_TOWER_QWEN2:
        return &qwen2_block;
    case DV_VLM_TOWER_QWEN2_5:
        return &qwen2_5_block;
    case DV_VLM_TOWER_QWEN3:
        return &qwen3_block;
    default:
        return &vit_block;
    }
}

static void dv_loader_vision(dv_loader *l) {
    const dv_vlm_vision *v = &l->config->vision;
    dv_vlm_weights *w = l->w;
    const char *root = root_of(l);
    const tower_names *names = l->gguf ? &gguf_names : is_vit(v) ? &vit_names : &qwen_names;
    char name[256];
    load_patch(l, root, names);
    load_positions(l, root, names);
    const bool fused = l->gguf ? dv_loader_has(l, "v.blk.0.attn_qkv.weight") : !is_vit(v);
    const dv_block_shape shape = {.hidden = v->hidden,
                                  .q_rows = v->hidden,
                                  .kv_rows = v->hidden,
                                  .ffn = v->ffn,
                                  .head_dim = v->head_dim,
                                  .gated = v->gated,
                                  .fused_qkv = fused,
                                  .qkv_bias = true,
                                  .out_bias = true,
                                  .mlp_bias = true,
                                  .norm_bias = v->norm == DV_VLM_LAYER_NORM};
    w->blocks = dv_loader_memory(l, (uint64_t)dv_max(1, v->run_layers) * sizeof *w->blocks);
    for (int64_t i = 0; l->r == DAVY_OK && i < v->run_layers; i++) {
        w->blocks[i] = (dv_vlm_block){0};
        snprintf(name, sizeof name, "%s%s%d.", root, names->block, (int)i);
        dv_loader_block(l, name, block_names(l), &shape, &w->blocks[i]);
    }
    if (l->config->family == DV_VLM_IDEFICS3) {
        snprintf(name, sizeof name, "%s%s", root, names->post_norm);
        dv_loader_affine(l, name, v->hidden, true, &w->post_norm);
    }
    if (v->queries > 0) {
        dv_loader_resampler(l);
    } else if (is_vit(v)) {
        load_projector(l);
    } else {
        load_qwen_merger(l, root);
    }
}

/* ---- tensors of the language model: names in folders and in GGUF files, tied heads, blocks ---- */

static void copy_name(dv_part *part, const char *prefix, const char *name) {
    snprintf(part->name, sizeof part->name, "%s%s", prefix, name);
}

/* Returns the first of the NULL-terminated prefixes for which the file has the tensor PREFIX + probe; else the first one. */
static const char *dv_loader_prefix(const dv_loader *l, const char *const *prefixes, const char *probe) {
    for (int i = 0; prefixes[i] != NULL; i++) {
        char name[256];
        snprintf(name, sizeof name, "%s%s", prefixes[i], probe);
        if (dv_loader_has(l, name)) {
            return prefixes[i];
        }
    }
    return prefixes[0];
}

static void dv_loader_affine(dv_loader *l, const char *name, int64_t n, bool bias, dv_vlm_affine *out) {
    char full[256];
    snprintf(full, sizeof full, "%s.weight", name);
    out->w = dv_loader_numbers(l, full, n);
    if (bias) {
        snprintf(full, sizeof full, "%s.bias", name);
        out->b = dv_loader_numbers(l, full, n);
    }
}

/* Loads one tensor NAME.weight [n][k], with `bias` also NAME.bias [n]. */
static void dv_loader_linear(dv_loader *l, const char *name, int64_t n, int64_t k, bool bias, dv_vlm_matrix *out) {
    dv_part part = {.rows = n};
    copy_name(&part, "", name);
    dv_loader_matrix(l, &(dv_matrix_want){.parts = &part, .n_parts = 1, .k = k, .bias = bias}, out);
}

/* ---- a block ---- */

static void load_norm(dv_loader *l, const char *prefix, const char *name, const dv_block_shape *s, dv_vlm_affine *out) {
    char full[256];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    if (!s->plain_norm) {
        dv_loader_affine(l, full, s->hidden, s->norm_bias, out);
    }
}

static bool same_types(dv_loader *l, const dv_part *parts, int32_t n) {
    dvk_wtype first = DVK_W_F32;
    for (int32_t i = 0; i < n; i++) {
        char name[3 * sizeof parts->name + 88];
        snprintf(name, sizeof name, "%s.weight", parts[i].name);
        const dvk_wtype type = dv_loader_type(l, name);
        first = i == 0 ? type : first;
        if (type != first) {
            return false;
        }
    }
    return true;
}

static void load_qkv(dv_loader *l, const char *prefix, const dv_block_names *names, const dv_block_shape *s,
                     dv_vlm_block *out) {
    const int64_t paired = s->paired ? s->head_dim : 0;
    dv_part parts[3] = {
        {.rows = s->q_rows, .paired_head = paired}, {.rows = s->kv_rows, .paired_head = paired}, {.rows = s->kv_rows}};
    dv_matrix_want want = {.parts = parts, .n_parts = 3, .k = s->hidden, .bias = s->qkv_bias, .quantise = s->quantise};
    if (s->fused_qkv) {
        parts[0] = (dv_part){.rows = s->q_rows + 2 * s->kv_rows};
        copy_name(&parts[0], prefix, names->qkv);
        want.n_parts = 1;
    } else {
        copy_name(&parts[0], prefix, names->q);
        copy_name(&parts[1], prefix, names->k);
        copy_name(&parts[2], prefix, names->v);
    }
    if (want.n_parts == 1 || same_types(l, parts, 3)) {
        out->n_qkv = 1;
        dv_loader_matrix(l, &want, &out->qkv[0]);
        return;
    }
    out->n_qkv = 3; /* GGUF files may store v with more bits */
    want.n_parts = 1;
    for (int32_t i = 0; i < 3; i++) {
        want.parts = &parts[i];
        dv_loader_matrix(l, &want, &out->qkv[i]);
    }
}

/* Old mmproj files have the names of an MLP's two layers exchanged. */
static bool swapped(const dv_loader *l, const char *prefix, const dv_block_names *names, const dv_block_shape *s) {
    char name[256];
    snprintf(name, sizeof name, "%s%s.weight", prefix, names->up);
    const dv_tensor_ref *up = dv_tensors_find(l->tensors, name);
    return l->gguf && !s->gated && up != NULL && up->ndim == 2 && s->ffn != s->hidden && up->shape[0] == s->hidden &&
           up->shape[1] == s->ffn;
}

static void load_mlp(dv_loader *l, const char *prefix, const dv_block_names *names, const dv_block_shape *s,
                     dv_vlm_block *out) {
    const bool wrong = swapped(l, prefix, names, s);
    dv_part parts[2] = {{.rows = s->ffn}, {.rows = s->ffn}};
    dv_part down = {.rows = s->hidden};
    copy_name(&parts[0], prefix, s->gated ? names->gate : wrong ? names->down : names->up);
    copy_name(&parts[1], prefix, names->up);
    copy_name(&down, prefix, wrong ? names->up : names->down);
    const dv_matrix_want up_want = {.parts = parts,
                                    .n_parts = s->gated ? 2 : 1,
                                    .k = s->hidden,
                                    .glu = s->gated,
                                    .bias = s->mlp_bias,
                                    .quantise = s->quantise};
    const dv_matrix_want down_want = {
        .parts = &down, .n_parts = 1, .k = s->ffn, .bias = s->mlp_bias, .quantise = s->quantise};
    dv_loader_matrix(l, &up_want, &out->up);
    dv_loader_matrix(l, &down_want, &out->down);
}

static void dv_loader_block(dv_loader *l, const char *prefix, const dv_block_names *names, const dv_block_shape *s,
                            dv_vlm_block *out) {
    char name[256];
    dv_part part = {.rows = s->hidden};
    load_norm(l, prefix, names->norm1, s, &out->norm1);
    load_qkv(l, prefix, names, s, out);
    if (s->head_norms) {
        snprintf(name, sizeof name, "%s%s.weight", prefix, names->q_norm);
        out->q_norm = dv_loader_numbers(l, name, s->head_dim);
        snprintf(name, sizeof name, "%s%s.weight", prefix, names->k_norm);
        out->k_norm = dv_loader_numbers(l, name, s->head_dim);
    }
    copy_name(&part, prefix, names->out);
    const dv_matrix_want want = {
        .parts = &part, .n_parts = 1, .k = s->q_rows, .bias = s->out_bias, .quantise = s->quantise};
    dv_loader_matrix(l, &want, &out->out);
    load_norm(l, prefix, names->norm2, s, &out->norm2);
    load_mlp(l, prefix, names, s, out);
}

/* ---- the language model ---- */

static bool is_nanochat(const dv_loader *l) { /* nanochat's own names, not transformers' */
    return !l->gguf && (l->config->family == DV_VLM_NANOCHAT || l->config->family == DV_VLM_GHOSTVIS) &&
           !dv_loader_has(l, "model.embed_tokens.weight");
}

/* Refuses tensors of later nanochat versions. Without them the model would load, but its results would be wrong. */
static void refuse_later_nanochats(dv_loader *l) {
    static const char *const later[] = {"resid_lambdas", "x0_lambdas",     "value_embeds.", "ve_gate",
                                        "smear_",        "backout_lambda", ".experts.",     ".bigram"};
    for (int64_t i = 0; l->r == DAVY_OK && i < l->tensors->count; i++) {
        for (size_t k = 0; k < DV_ARRAY_LEN(later); k++) {
            if (strstr(l->tensors->refs[i].name, later[k]) != NULL) {
                l->r = dv_fail(DAVY_E_UNSUPPORTED,
                               "%s: tensor \"%s\" belongs to a later nanochat version, which is not supported",
                               dv_source_name(l->tensors->refs[i].source), l->tensors->refs[i].name);
                return;
            }
        }
    }
}

static const char *text_prefix(const dv_loader *l) {
    if (is_nanochat(l)) {
        return "transformer.";
    }
    static const char *const prefixes[] = {"model.text_model.",
                                           "model.language_model.",
                                           "language_model.model.",
                                           "model.language_model.model.",
                                           "text_model.",
                                           "language_model.",
                                           "model.",
                                           NULL};
    return l->gguf ? "" : dv_loader_prefix(l, prefixes, "embed_tokens.weight");
}

static void load_head(dv_loader *l, const char *prefix) {
    static const char *const heads[] = {"lm_head.weight", "language_model.lm_head.weight", "model.lm_head.weight",
                                        NULL};
    const dv_vlm_text *t = &l->config->text;
    dv_vlm_weights *w = l->w;
    dv_part part = {.rows = t->vocab};
    dv_matrix_want want = {.parts = &part, .n_parts = 1, .k = t->hidden, .is_head = true, .quantise = true};
    const char *head = l->gguf ? "output.weight" : heads[0];
    for (int i = 0; !l->gguf && heads[i] != NULL; i++) {
        head = dv_loader_has(l, heads[i]) ? heads[i] : head;
    }
    const bool tied = t->tied_head || !dv_loader_has(l, head);
    copy_name(&part, prefix, l->gguf ? "token_embd" : is_nanochat(l) ? "wte" : "embed_tokens");
    want.quantise =
        tied || l->format == DV_VLM_F32; /* quantising an embedding that is only looked up would save no time */
    dv_loader_matrix(l, &want, &w->embed);
    w->head = w->embed;
    if (!tied) {
        want.quantise = true;
        snprintf(part.name, sizeof part.name, "%.*s", (int)(strlen(head) - strlen(".weight")), head);
        dv_loader_matrix(l, &want, &w->head);
    }
}

static void load_frequencies(dv_loader *l) {
    const dv_vlm_text *t = &l->config->text;
    const int64_t pairs = t->head_dim / 2;
    l->w->frequencies = dv_loader_memory(l, (uint64_t)pairs * sizeof(float));
    l->w->axes = dv_loader_memory(l, (uint64_t)pairs);
    if (l->r < 0) {
        return;
    }
    dv_vlm_rope_tables(t, l->w->frequencies, l->w->axes);
    const float *factors = t->rope.factors ? dv_loader_numbers(l, "rope_freqs.weight", pairs) : NULL;
    for (int64_t i = 0; factors != NULL && i < pairs; i++) {
        l->w->frequencies[i] /= factors[i];
    }
}

/* Tensor names of three forms: transformers, nanochat, and nanovision with its fused SwiGLU. */
static const dv_block_names *nanochat_names(const dv_loader *l, const char *prefix) {
    static const dv_block_names hf = {.q = "self_attn.q_proj",
                                      .k = "self_attn.k_proj",
                                      .v = "self_attn.v_proj",
                                      .out = "self_attn.o_proj",
                                      .up = "mlp.fc1",
                                      .down = "mlp.fc2"};
    static const dv_block_names native = {.q = "attn.c_q",
                                          .k = "attn.c_k",
                                          .v = "attn.c_v",
                                          .out = "attn.c_proj",
                                          .up = "mlp.c_fc",
                                          .down = "mlp.c_proj"};
    static const dv_block_names gated = {.q = "attn.c_q",
                                         .k = "attn.c_k",
                                         .v = "attn.c_v",
                                         .out = "attn.c_proj",
                                         .gate = "mlp.c_gate",
                                         .up = "mlp.c_up",
                                         .down = "mlp.c_proj"};
    static const dv_block_names fused = {.q = "attn.c_q",
                                         .k = "attn.c_k",
                                         .v = "attn.c_v",
                                         .out = "attn.c_proj",
                                         .gate = "mlp.swiglu.gate",
                                         .up = "mlp.swiglu.up",
                                         .down = "mlp.c_proj"};
    char probe[256];
    snprintf(probe, sizeof probe, "%sh.0.mlp.swiglu.gate.weight", prefix);
    return !is_nanochat(l) ? &hf : !l->config->text.gated ? &native : dv_loader_has(l, probe) ? &fused : &gated;
}

static const dv_block_names *text_names(const dv_loader *l, const char *prefix) {
    static const dv_block_names hf = {.norm1 = "input_layernorm",
                                      .norm2 = "post_attention_layernorm",
                                      .q = "self_attn.q_proj",
                                      .k = "self_attn.k_proj",
                                      .v = "self_attn.v_proj",
                                      .out = "self_attn.o_proj",
                                      .gate = "mlp.gate_proj",
                                      .up = "mlp.up_proj",
                                      .down = "mlp.down_proj",
                                      .q_norm = "self_attn.q_norm",
                                      .k_norm = "self_attn.k_norm"};
    static const dv_block_names gguf = {.norm1 = "attn_norm",
                                        .norm2 = "ffn_norm",
                                        .q = "attn_q",
                                        .k = "attn_k",
                                        .v = "attn_v",
                                        .out = "attn_output",
                                        .gate = "ffn_gate",
                                        .up = "ffn_up",
                                        .down = "ffn_down",
                                        .q_norm = "attn_q_norm",
                                        .k_norm = "attn_k_norm"};
    const bool nanochat = l->config->family == DV_VLM_NANOCHAT || l->config->family == DV_VLM_GHOSTVIS;
    return l->gguf ? &gguf : nanochat ? nanochat_names(l, prefix) : &hf;
}

static void load_text(dv_loader *l) {
    const dv_vlm_text *t = &l->config->text;
    const dv_block_shape shape = {.hidden = t->hidden,
                                  .q_rows = t->heads * t->head_dim,
                                  .kv_rows = t->kv_heads * t->head_dim,
                                  .ffn = t->ffn,
                                  .head_dim = t->head_dim,
                                  .gated = t->gated,
                                  .qkv_bias = t->qkv_bias,
                                  .out_bias = t->out_bias,
                                  .mlp_bias = t->mlp_bias,
                                  .plain_norm = t->norm == DV_VLM_RMS_PLAIN,
                                  .head_norms = t->qk_norm == DV_VLM_QK_BEFORE_ROPE,
                                  .paired = t->rope.pairs,
                                  .quantise = true};
    const char *prefix = text_prefix(l);
    load_head(l, prefix);
    char name[256];
    snprintf(name, sizeof name, "%s%s", prefix, l->gguf ? "output_norm" : "norm");
    if (t->norm != DV_VLM_RMS_PLAIN) {
        dv_loader_affine(l, name, t->hidden, false, &l->w->norm);
    }
    const dv_block_names *names = text_names(l, prefix);
    const char *block = l->gguf ? "%sblk.%d." : is_nanochat(l) ? "%sh.%d." : "%slayers.%d.";
    l->w->layers = dv_loader_memory(l, (uint64_t)t->layers * sizeof *l->w->layers);
    for (int64_t i = 0; l->r == DAVY_OK && i < t->layers; i++) {
        l->w->layers[i] = (dv_vlm_block){0};
        snprintf(name, sizeof name, block, prefix, (int)i);
        dv_loader_block(l, name, names, &shape, &l->w->layers[i]);
    }
    load_frequencies(l);
}

static uint64_t bytes_of(const dv_tensors *t) {
    uint64_t bytes = 0;
    for (int64_t i = 0; t != NULL && i < t->count; i++) {
        bytes += t->refs[i].bytes;
    }
    return bytes;
}

davy_result dv_vlm_weights_load(const dv_vlm_weights_source *source, dv_vlm_weights **out) {
    const dv_vlm_config *c = source->config;
    if (c->text.head_dim > DVK_HEAD_MAX || c->vision.head_dim > DVK_HEAD_MAX) {
        return dv_fail(DAVY_E_UNSUPPORTED, "attention heads with more than %d values are not supported",
                       (int)DVK_HEAD_MAX);
    }
    dv_vlm_weights *w = dv_calloc(1, sizeof *w);
    if (w == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    w->heap = source->heap;
    w->gpu = source->gpu;
    w->plain = (source->cpu & DVK_CPU_AVX2) == 0;
    dv_loader l = {.source = source, .config = c, .tensors = source->text, .w = w, .format = source->format};
    l.gguf = source->text->format == DV_FORMAT_GGUF;
    l.total = bytes_of(source->text) + (source->vision != source->text ? bytes_of(source->vision) : 0);
    l.r = source->gpu != NULL ? dv_loader_cuda_begin(&l) : DAVY_OK;
    if (c->family == DV_VLM_NANOCHAT || c->family == DV_VLM_GHOSTVIS) {
        refuse_later_nanochats(&l);
    }
    load_text(&l);
    if (source->vision != NULL && c->vision.tower != DV_VLM_TOWER_NONE) {
        l.tensors = source->vision;
        l.gguf = source->vision->format == DV_FORMAT_GGUF;
        dv_loader_vision(&l);
    }
    if (source->gpu != NULL) {
        dv_loader_cuda_end(&l);
    }
    if (l.r < 0) {
        dv_vlm_weights_release(w);
        return l.r;
    }
    *out = w;
    return DAVY_OK;
}

void dv_vlm_weights_release(dv_vlm_weights *w) {
    if (w != NULL) {
        for (int64_t i = 0; i < w->n_owned; i++) {
            const dv_owned *o = &w->owned[i];
            if (o->on_gpu) {
                dv_gpu_free(w->gpu, DV_MEM_WEIGHTS, o->data, o->bytes);
            } else {
                dv_heap_free(w->heap, DV_MEM_WEIGHTS, o->data, o->bytes);
            }
        }
        dv_free(w->owned);
        dv_free(w);
    }
}
