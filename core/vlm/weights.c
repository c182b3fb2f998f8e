/* weights.c - the language model's tensors: names in folders and in GGUF files, tied heads, blocks. */
#include "core/vlm/weights.h"

#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/vlm/positions.h"
#include "kernels/kernel.h"

static void copy_name(dv_part *part, const char *prefix, const char *name) {
    snprintf(part->name, sizeof part->name, "%s%s", prefix, name);
}

const char *dv_loader_prefix(const dv_loader *l, const char *const *prefixes, const char *probe) {
    for (int i = 0; prefixes[i] != NULL; i++) {
        char name[256];
        snprintf(name, sizeof name, "%s%s", prefixes[i], probe);
        if (dv_loader_has(l, name)) {
            return prefixes[i];
        }
    }
    return prefixes[0];
}

void dv_loader_affine(dv_loader *l, const char *name, int64_t n, bool bias, dv_vlm_affine *out) {
    char full[256];
    snprintf(full, sizeof full, "%s.weight", name);
    out->w = dv_loader_numbers(l, full, n);
    if (bias) {
        snprintf(full, sizeof full, "%s.bias", name);
        out->b = dv_loader_numbers(l, full, n);
    }
}

void dv_loader_linear(dv_loader *l, const char *name, int64_t n, int64_t k, bool bias, dv_vlm_matrix *out) {
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
    out->n_qkv = 3; /* GGUF files may give v more bits */
    want.n_parts = 1;
    for (int32_t i = 0; i < 3; i++) {
        want.parts = &parts[i];
        dv_loader_matrix(l, &want, &out->qkv[i]);
    }
}

/* Old mmproj files have the names of the two layers of an MLP the wrong way round. */
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

void dv_loader_block(dv_loader *l, const char *prefix, const dv_block_names *names, const dv_block_shape *s,
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

static bool is_nanochat(const dv_loader *l) { /* native names, not those of transformers' class */
    return !l->gguf && (l->config->family == DV_VLM_NANOCHAT || l->config->family == DV_VLM_GHOSTVIS) &&
           !dv_loader_has(l, "model.embed_tokens.weight");
}

/* Tensors of nanochats later than the one that is known here, which are all but the same without them. */
static void refuse_later_nanochats(dv_loader *l) {
    static const char *const later[] = {"resid_lambdas", "x0_lambdas",     "value_embeds.", "ve_gate",
                                        "smear_",        "backout_lambda", ".experts.",     ".bigram"};
    for (int64_t i = 0; l->r == DAVY_OK && i < l->tensors->count; i++) {
        for (size_t k = 0; k < DV_ARRAY_LEN(later); k++) {
            if (strstr(l->tensors->refs[i].name, later[k]) != NULL) {
                l->r = dv_fail(DAVY_E_UNSUPPORTED, "%s: tensor \"%s\" is of a later kind of nanochat",
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
    want.quantise = tied || l->format == DV_VLM_F32; /* rows that are only looked up cost no time */
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

/* Three forms: transformers' class, nanochat, and nanovision with its fused SwiGLU. */
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
        return dv_fail(DAVY_E_UNSUPPORTED, "attention heads above %d values are not supported", (int)DVK_HEAD_MAX);
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
