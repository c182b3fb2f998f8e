/* config_text.c - the language model's part of config.json: text_config, or the top level where a file is flat. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/vlm/config_read.h"

enum { MAX_WIDTH = 1 << 17, MAX_HEADS = 1024, MAX_VOCAB = 1 << 22, MAX_CONTEXT = 1 << 24 };

/* What transformers' classes take for a field that is not there: saved files leave out what equals it. */
typedef struct text_class {
    const char *type;
    int64_t hidden, ffn, layers, heads, kv_heads, vocab, positions, head_dim; /* 0: follows from the others */
    double eps, theta;
} text_class;

static const text_class classes[] = {
    {"llama", 4096, 11008, 32, 32, 0, 32000, 2048, 0, 1e-6, 1e4},
    {"vicuna", 4096, 11008, 32, 32, 0, 32000, 2048, 0, 1e-6, 1e4},
    {"mistral", 4096, 14336, 32, 32, 8, 32000, 131072, 0, 1e-6, 1e4},
    {"qwen2", 4096, 22016, 32, 32, 32, 151936, 32768, 0, 1e-6, 1e4},
    {"qwen3", 4096, 22016, 32, 32, 32, 151936, 32768, 128, 1e-6, 1e4},
    {"qwen2_vl", 8192, 29568, 80, 64, 8, 152064, 32768, 0, 1e-5, 1e6},
    {"qwen2_5_vl", 8192, 29568, 80, 64, 8, 152064, 32768, 0, 1e-5, 1e6},
    {"qwen3_vl", 4096, 22016, 32, 32, 32, 151936, 128000, 128, 1e-6, 5e6},
};

/* NULL: not known. Nested configurations of the VL models end in "_text". */
static const text_class *class_of(const char *type) {
    const size_t n = strlen(type);
    const size_t stem = n > 5 && strcmp(type + n - 5, "_text") == 0 ? n - 5 : n;
    for (size_t i = 0; i < DV_ARRAY_LEN(classes); i++) {
        if (strlen(classes[i].type) == stem && memcmp(classes[i].type, type, stem) == 0) {
            return &classes[i];
        }
    }
    return NULL;
}

static void read_scaling(const dv_cfg *rope, dv_vlm_rope *out) {
    const char *type = dv_cfg_string(rope, "rope_type", NULL);
    type = type != NULL ? type : dv_cfg_string(rope, "type", "default");
    if (strcmp(type, "default") == 0 || strcmp(type, "mrope") == 0) {
        return;
    }
    out->factor = dv_cfg_real(rope, "factor", 1, 1, 1e6);
    if (strcmp(type, "linear") == 0) {
        out->scaling = DV_VLM_SCALE_LINEAR;
    } else if (strcmp(type, "llama3") == 0) {
        out->scaling = DV_VLM_SCALE_LLAMA3;
        out->low = dv_cfg_real(rope, "low_freq_factor", 1, 1e-3, 1e6);
        out->high = dv_cfg_real(rope, "high_freq_factor", 4, 1e-3, 1e6);
        out->original = dv_cfg_int(rope, "original_max_position_embeddings", 8192, 1, MAX_CONTEXT);
        if (!(out->high > out->low)) {
            dv_cfg_fail(rope, DAVY_E_FORMAT, "high_freq_factor", "must be above low_freq_factor");
        }
    } else {
        dv_cfg_fail(rope, DAVY_E_UNSUPPORTED, "rope_type", "only default, mrope, linear and llama3 are known");
    }
}

static void read_rope(const dv_cfg *text, double theta, dv_vlm_config *c) {
    dv_vlm_rope *out = &c->text.rope;
    dv_cfg rope = dv_cfg_object(text, "rope_parameters");
    if (rope.node == NULL) {
        rope = dv_cfg_object(text, "rope_scaling");
    }
    theta = dv_cfg_real(text, "rope_theta", theta, 1, 1e12);
    out->theta = dv_cfg_real(&rope, "rope_theta", theta, 1, 1e12);
    read_scaling(&rope, out);
    const bool qwen = c->family == DV_VLM_QWEN2 || c->family == DV_VLM_QWEN2_5 || c->family == DV_VLM_QWEN3;
    if (!qwen) {
        return;
    }
    out->axes = c->family == DV_VLM_QWEN3 ? DV_VLM_ROPE_INTERLEAVED : DV_VLM_ROPE_SECTIONS;
    int64_t sections[3] = {16, 24, 24};
    if (c->family == DV_VLM_QWEN3) {
        sections[0] = 24;
        sections[1] = sections[2] = 20;
    }
    const int32_t n = dv_cfg_ints(&rope, "mrope_section", sections, 3, 0, 4096);
    if (n >= 0 && n != 3) {
        dv_cfg_fail(&rope, DAVY_E_FORMAT, "mrope_section", "expected three numbers");
    }
    for (int i = 0; i < 3; i++) {
        out->sections[i] = (int32_t)sections[i];
    }
    if (*text->r == DAVY_OK && 2 * (sections[0] + sections[1] + sections[2]) != c->text.head_dim) {
        dv_cfg_fail(&rope, DAVY_E_FORMAT, "mrope_section", "the sections' sum is not half of head_dim");
    }
}

static bool is_null(const dv_cfg *c, const char *key) {
    const dv_json *v = c->node != NULL ? dv_json_get(c->node, key) : NULL;
    return v != NULL && dv_json_is_null(v);
}

static void read_sizes(const dv_cfg *text, const text_class *d, dv_vlm_text *t) {
    t->hidden = dv_cfg_int(text, "hidden_size", d->hidden, 1, MAX_WIDTH);
    t->ffn = dv_cfg_int(text, "intermediate_size", d->ffn, 1, 8 * MAX_WIDTH);
    t->layers = dv_cfg_int(text, "num_hidden_layers", d->layers, 1, DV_VLM_MAX_LAYERS);
    t->heads = dv_cfg_int(text, "num_attention_heads", d->heads, 1, MAX_HEADS);
    const bool all = d->kv_heads == 0 || is_null(text, "num_key_value_heads");
    t->kv_heads = dv_cfg_int(text, "num_key_value_heads", all ? t->heads : d->kv_heads, 1, MAX_HEADS);
    const bool even = d->head_dim == 0 || is_null(text, "head_dim");
    t->head_dim = dv_cfg_int(text, "head_dim", even ? t->hidden / t->heads : d->head_dim, 1, 4096);
    t->vocab = dv_cfg_int(text, "vocab_size", d->vocab, 1, MAX_VOCAB);
    t->max_positions = dv_cfg_int(text, "max_position_embeddings", d->positions, 1, MAX_CONTEXT);
}

static void refuse_windows(const dv_cfg *text) {
    if (dv_cfg_bool(text, "use_sliding_window", false)) {
        dv_cfg_fail(text, DAVY_E_UNSUPPORTED, "use_sliding_window", "windows in the language model are not supported");
    }
    const char *type = dv_cfg_string(text, "model_type", "");
    if (strcmp(type, "mistral") == 0 && !is_null(text, "sliding_window")) { /* the class has one of 4096 */
        dv_cfg_fail(text, DAVY_E_UNSUPPORTED, "sliding_window", "windows in the language model are not supported");
    }
}

/* Llama, Qwen and Mistral, which share one block. */
static void read_llama(const dv_cfg *text, const dv_cfg *root, dv_vlm_config *c) {
    const char *own = c->family == DV_VLM_QWEN2     ? "qwen2_vl"
                      : c->family == DV_VLM_QWEN2_5 ? "qwen2_5_vl"
                      : c->family == DV_VLM_QWEN3   ? "qwen3_vl"
                                                    : dv_cfg_string(text, "model_type", "llama");
    const text_class *class = class_of(own);
    if (class == NULL) {
        dv_cfg_fail(text, DAVY_E_UNSUPPORTED, "model_type",
                    "the language model is none of Llama, Mistral, Qwen2, Qwen3");
        return;
    }
    dv_vlm_text *t = &c->text;
    read_sizes(text, class, t);
    t->norm = DV_VLM_RMS_NORM;
    t->norm_eps = dv_cfg_real(text, "rms_norm_eps", class->eps, 1e-12, 1e-1);
    t->act = dv_cfg_act(text, "hidden_act", DV_VLM_SILU);
    t->gated = true;
    const bool qwen2 = strncmp(class->type, "qwen2", 5) == 0;
    const bool bias = dv_cfg_bool(text, "attention_bias", false);
    t->qkv_bias = qwen2 || bias;
    t->out_bias = !qwen2 && bias;
    t->mlp_bias = dv_cfg_bool(text, "mlp_bias", false);
    t->qk_norm = strncmp(class->type, "qwen3", 5) == 0 ? DV_VLM_QK_BEFORE_ROPE : DV_VLM_QK_NONE;
    /* Saved at both levels, where one of them may be no more than a class's default: tied only if neither objects. */
    const bool outer = dv_cfg_bool(root, "tie_word_embeddings", true);
    const bool inner = dv_cfg_bool(text, "tie_word_embeddings", true);
    t->tied_head =
        outer && inner && (dv_cfg_has(root, "tie_word_embeddings") || dv_cfg_has(text, "tie_word_embeddings"));
    refuse_windows(text);
    read_rope(text, class->theta, c);
}

/* nanochat's own names. */
static void read_native(const dv_cfg *m, dv_vlm_config *c) {
    dv_vlm_text *t = &c->text;
    t->hidden = dv_cfg_int(m, "n_embd", DV_CFG_NEEDED, 1, MAX_WIDTH);
    t->layers = dv_cfg_int(m, "n_layer", DV_CFG_NEEDED, 1, DV_VLM_MAX_LAYERS);
    t->heads = dv_cfg_int(m, "n_head", DV_CFG_NEEDED, 1, MAX_HEADS);
    t->kv_heads = dv_cfg_int(m, "n_kv_head", t->heads, 1, MAX_HEADS);
    t->head_dim = t->hidden / t->heads;
    t->ffn = dv_cfg_int(m, "intermediate_size", 4 * t->hidden, 1, 8 * MAX_WIDTH);
    t->vocab = dv_cfg_int(m, "vocab_size", DV_CFG_NEEDED, 1, MAX_VOCAB);
    t->max_positions = dv_cfg_int(m, "sequence_len", 2048, 1, MAX_CONTEXT);
    t->qkv_bias = dv_cfg_bool(m, "attention_bias", false);
    t->rope.theta = dv_cfg_real(m, "rope_theta", 10000, 1, 1e12);
    const char *mlp = dv_cfg_string(m, "mlp_type", c->family == DV_VLM_GHOSTVIS ? "swiglu" : "relu2");
    t->gated = strcmp(mlp, "swiglu") == 0;
    if (!t->gated && strcmp(mlp, "relu2") != 0) {
        dv_cfg_fail(m, DAVY_E_UNSUPPORTED, "mlp_type", "only swiglu and relu2 are known");
    }
    t->norm_eps = FLT_EPSILON; /* what torch takes where nothing is said */
    const char *window = dv_cfg_string(m, "window_pattern", "L");
    if (strspn(window, "Ll") != strlen(window)) {
        dv_cfg_fail(m, DAVY_E_UNSUPPORTED, "window_pattern", "nanochat's windows of 2026 are not supported");
    }
    if (dv_cfg_int(m, "moe_num_experts", 0, 0, 1 << 20) > 0) {
        dv_cfg_fail(m, DAVY_E_UNSUPPORTED, "moe_num_experts", "a mixture of experts is not supported");
    }
}

void dv_vlm_read_nanochat(const dv_cfg *root, dv_vlm_config *c) {
    dv_vlm_text *t = &c->text;
    t->norm = DV_VLM_RMS_PLAIN;
    t->embed_norm = true;
    t->qk_norm = DV_VLM_QK_AFTER_ROPE;
    t->rope.inverse = true;
    t->softcap = 15;
    if (dv_cfg_has(root, "n_embd")) {
        read_native(root, c);
    } else {
        const text_class d = {"nanochat", 768, 8192, 12, 6, 0, 50304, 2048, 0, 1e-6, 1e4};
        read_sizes(root, &d, t);
        t->norm_eps = dv_cfg_real(root, "rms_norm_eps", 1e-6, 1e-12, 1e-1);
        t->qkv_bias = t->out_bias = dv_cfg_bool(root, "attention_bias", false);
        t->softcap = dv_cfg_real(root, "final_logit_softcapping", 15, 0, 1e6);
        t->tied_head = dv_cfg_bool(root, "tie_word_embeddings", false);
        read_rope(root, 10000, c);
    }
    t->act = dv_cfg_act(root, "hidden_act", t->gated ? DV_VLM_SILU : DV_VLM_RELU2);
}

void dv_vlm_read_text(const dv_cfg *root, dv_vlm_config *out) {
    dv_cfg text = dv_cfg_object(root, "text_config");
    if (text.node == NULL) {
        text = *root;
    }
    read_llama(&text, root, out);
}
