/* weights_vision.c - the vision towers' tensors, and what joins them to the language model. */
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/vlm/weights.h"

typedef struct tower_names {
    const char *patch, *positions, *class_token, *pre_norm, *post_norm, *block;
} tower_names;

static const tower_names vit_names = {.patch = "embeddings.patch_embedding",
                                      .positions = "embeddings.position_embedding.weight",
                                      .class_token = "embeddings.class_embedding",
                                      .pre_norm = "pre_layrnorm", /* spelled so */
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

/* llama.cpp keeps a patch of two frames as two matrices, one a frame: [hidden][colour][side][side] each. */
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

/* ---- what joins tower and language model ---- */

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

void dv_loader_vision(dv_loader *l) {
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
