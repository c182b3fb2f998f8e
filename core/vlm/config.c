/* config.c - reads the JSON files of a model folder into dv_vlm_config: detects the family, reads and checks the parts. */
#include "core/vlm/config.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/os.h"
#include "core/base/utf8.h"
#include "core/vlm/config_read.h"

/* ---- token ids of config.json and generation_config.json, and the published sampling settings. If the tokenizer has a
 * token's name, its id is used instead. ---- */

enum { MAX_ID = 1 << 30 };

static int64_t id_of(const dv_cfg *c, const char *key, int64_t fallback) {
    return dv_cfg_int(c, key, fallback, -1, MAX_ID);
}

/* Returns false if the field is absent. */
static bool read_eos(const dv_cfg *c, dv_vlm_tokens *t) {
    const int32_t n = dv_cfg_ints(c, "eos_token_id", t->eos, DV_VLM_MAX_EOS, 0, MAX_ID);
    t->n_eos = n > 0 ? n : t->n_eos;
    return n > 0;
}

static void dv_vlm_read_tokens(const dv_cfg *root, dv_vlm_config *c) {
    const dv_cfg text = dv_cfg_object(root, "text_config");
    const bool qwen = c->family == DV_VLM_QWEN2 || c->family == DV_VLM_QWEN2_5 || c->family == DV_VLM_QWEN3;
    dv_vlm_tokens *t = &c->tokens;
    const int64_t image = qwen ? 151655 : c->family == DV_VLM_LLAVA ? 32000 : -1;
    t->image = id_of(root, "image_token_id", id_of(root, "image_token_index", image));
    t->video = id_of(root, "video_token_id", id_of(root, "video_token_index", qwen ? 151656 : -1));
    t->vision_start = id_of(root, "vision_start_token_id", qwen ? 151652 : -1);
    t->vision_end = id_of(root, "vision_end_token_id", qwen ? 151653 : -1);
    t->bos = id_of(root, "bos_token_id", id_of(&text, "bos_token_id", -1));
    t->pad = id_of(root, "pad_token_id", id_of(&text, "pad_token_id", -1));
    if (t->pad >= c->text.vocab) { /* the default of Idefics3's class, found in files with smaller vocabularies */
        const int64_t inner = id_of(&text, "pad_token_id", -1);
        t->pad = inner < c->text.vocab ? inner : -1;
    }
    if (!read_eos(root, t)) {
        read_eos(&text, t);
    }
}

void dv_vlm_read_generation(const dv_cfg *g, dv_vlm_config *c) {
    dv_vlm_generation *out = &c->generation;
    *out = (dv_vlm_generation){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    if (g->node == NULL) { /* values of the published files */
        if (c->family == DV_VLM_QWEN3) {
            *out = (dv_vlm_generation){
                .sample = true, .temperature = 0.7, .top_p = 0.8, .repetition_penalty = 1, .top_k = 20};
        } else if (c->family == DV_VLM_QWEN2_5) {
            out->repetition_penalty = 1.05;
        }
        return;
    }
    read_eos(g, &c->tokens);
    c->tokens.bos = id_of(g, "bos_token_id", c->tokens.bos);
    out->sample = dv_cfg_bool(g, "do_sample", false);
    out->temperature = dv_cfg_real(g, "temperature", 1, 0, 1e3);
    out->top_p = dv_cfg_real(g, "top_p", 1, 0, 1);
    out->top_k = dv_cfg_int(g, "top_k", 50, 0, MAX_ID);
    out->repetition_penalty = dv_cfg_real(g, "repetition_penalty", 1, 1e-3, 1e3);
    out->min_p = dv_cfg_real(g, "min_p", 0, 0, 1);
    out->no_repeat_ngram = dv_cfg_int(g, "no_repeat_ngram_size", 0, 0, MAX_ID);
}

/* ---- the language model's part of config.json: text_config, or the top level of a flat file ---- */

enum { MAX_WIDTH = 1 << 17, MAX_HEADS = 1024, MAX_VOCAB = 1 << 22, MAX_CONTEXT = 1 << 24 };

/* Defaults of transformers' config classes. Saved files leave out fields that equal the default. */
typedef struct text_class {
    const char *type;
    int64_t hidden, ffn, layers, heads, kv_heads, vocab, positions, head_dim; /* 0: computed from the others */
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

/* Returns NULL for an unknown type. Nested configurations of VL models end in "_text". */
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
        dv_cfg_fail(rope, DAVY_E_UNSUPPORTED, "rope_type", "only default, mrope, linear and llama3 are supported");
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
        dv_cfg_fail(&rope, DAVY_E_FORMAT, "mrope_section", "the sum of the sections must be head_dim / 2");
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
    if (strcmp(type, "mistral") == 0 && !is_null(text, "sliding_window")) { /* the class default is 4096 */
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
                    "the language model must be Llama, Mistral, Qwen2 or Qwen3");
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
    /* The field can be at both levels, and one may be only a class default. Tied if no level says false. */
    const bool outer = dv_cfg_bool(root, "tie_word_embeddings", true);
    const bool inner = dv_cfg_bool(text, "tie_word_embeddings", true);
    t->tied_head =
        outer && inner && (dv_cfg_has(root, "tie_word_embeddings") || dv_cfg_has(text, "tie_word_embeddings"));
    refuse_windows(text);
    read_rope(text, class->theta, c);
}

/* Reads nanochat's own field names. */
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
        dv_cfg_fail(m, DAVY_E_UNSUPPORTED, "mlp_type", "only swiglu and relu2 are supported");
    }
    t->norm_eps = FLT_EPSILON; /* torch's default */
    const char *window = dv_cfg_string(m, "window_pattern", "L");
    if (strspn(window, "Ll") != strlen(window)) {
        dv_cfg_fail(m, DAVY_E_UNSUPPORTED, "window_pattern",
                    "the attention windows of nanochat versions from 2026 on are not supported");
    }
    if (dv_cfg_int(m, "moe_num_experts", 0, 0, 1 << 20) > 0) {
        dv_cfg_fail(m, DAVY_E_UNSUPPORTED, "moe_num_experts", "a mixture of experts is not supported");
    }
}

static void dv_vlm_read_nanochat(const dv_cfg *root, dv_vlm_config *c) {
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

static void dv_vlm_read_text(const dv_cfg *root, dv_vlm_config *out) {
    dv_cfg text = dv_cfg_object(root, "text_config");
    if (text.node == NULL) {
        text = *root;
    }
    read_llama(&text, root, out);
}

/* ---- checks between the parts of a configuration, and derived fields, for both JSON and GGUF ---- */

static davy_result bad(const char *file, const char *what, int64_t a, int64_t b) {
    return dv_fail(DAVY_E_FORMAT, "%s: %s (%" PRId64 ", %" PRId64 ")", file, what, a, b);
}

static davy_result finish_text(const char *file, const dv_vlm_text *t) {
    if (t->heads % t->kv_heads != 0) {
        return bad(file, "num_attention_heads must be a multiple of num_key_value_heads", t->heads, t->kv_heads);
    }
    if (t->head_dim % 2 != 0) {
        return bad(file, "head_dim is odd", t->head_dim, t->heads);
    }
    return DAVY_OK;
}

static davy_result finish_window(const char *file, dv_vlm_vision *v) {
    const int64_t unit = v->patch * v->merge;
    if (v->tower == DV_VLM_TOWER_QWEN2_5 && (v->window < unit || v->window % unit != 0)) {
        return bad(file, "vision_config.window_size must be a multiple of patch_size * spatial_merge_size", v->window,
                   unit);
    }
    for (int64_t i = 0; v->window == 0 && i < v->layers; i++) {
        v->full[i] = true;
    }
    return DAVY_OK;
}

/* For tiles of fixed size: the grid of patches, and the number of output vectors per tile. */
static davy_result finish_tile(const char *file, dv_vlm_config *c) {
    dv_vlm_vision *v = &c->vision;
    v->grid = v->image_size / v->patch;
    v->position_side = v->grid;
    if (v->grid < 1) {
        return bad(file, "vision_config.patch_size is larger than image_size", v->patch, v->image_size);
    }
    const int64_t class_token = v->tower == DV_VLM_TOWER_CLIP ? 1 : 0;
    v->tokens_per_tile = v->grid * v->grid + class_token - (v->drop_class ? 1 : 0);
    if (c->family == DV_VLM_GHOSTVIS) {
        v->tokens_per_tile = v->queries;
    } else if (v->shuffle > 0) {
        if (v->grid % v->shuffle != 0) {
            return bad(file, "scale_factor must divide the number of patches along a tile's side", v->shuffle, v->grid);
        }
        v->tokens_per_tile = v->grid / v->shuffle * (v->grid / v->shuffle);
    }
    const dv_vlm_picture *p = &c->picture;
    const int64_t w = p->rule == DV_VLM_PICTURE_TILES ? p->tile : p->width;
    const int64_t h = p->rule == DV_VLM_PICTURE_TILES ? p->tile : p->height;
    if (w / v->patch != v->grid || h / v->patch != v->grid) {
        return bad(file, "the preprocessor's picture size differs from the vision tower's", w, v->image_size);
    }
    return DAVY_OK;
}

static davy_result finish_vision(const char *file, dv_vlm_config *c) {
    dv_vlm_vision *v = &c->vision;
    if (v->hidden % v->heads != 0) {
        return bad(file, "the vision tower's width must be a multiple of its number of heads", v->hidden, v->heads);
    }
    v->head_dim = v->hidden / v->heads;
    if (v->queries > 0 && v->hidden % v->resampler_heads != 0) {
        return bad(file, "vision_resampler_heads must divide the vision tower's width", v->resampler_heads, v->hidden);
    }
    if (v->out_hidden != c->text.hidden) {
        return bad(file, "the projector's width differs from the language model's", v->out_hidden, c->text.hidden);
    }
    if (v->n_deepstack > c->text.layers) {
        return bad(file, "there are more deepstack blocks than layers of the language model", v->n_deepstack,
                   c->text.layers);
    }
    const bool qwen = c->picture.rule == DV_VLM_PICTURE_SMART;
    if (qwen && v->head_dim % 4 != 0) {
        return bad(file, "the head size of the vision tower does not split evenly over the position axes", v->head_dim,
                   v->heads);
    }
    const davy_result r = finish_window(file, v);
    return r < 0 || qwen ? r : finish_tile(file, c);
}

davy_result dv_vlm_config_finish(const char *file, dv_vlm_config *c) {
    const davy_result r = finish_text(file, &c->text);
    return r < 0 || c->vision.tower == DV_VLM_TOWER_NONE ? r : finish_vision(file, c);
}

/* ---- the family, and reading all files ---- */

enum { MAX_CONFIG_BYTES = 16 << 20 };

const char *dv_vlm_family_name(dv_vlm_family f) {
    switch (f) {
    case DV_VLM_IDEFICS3:
        return "SmolVLM";
    case DV_VLM_QWEN2:
        return "Qwen2-VL";
    case DV_VLM_QWEN2_5:
        return "Qwen2.5-VL";
    case DV_VLM_QWEN3:
        return "Qwen3-VL";
    case DV_VLM_LLAVA:
        return "LLaVA";
    case DV_VLM_NANOCHAT:
        return "nanochat";
    case DV_VLM_GHOSTVIS:
        return "GhostVis";
    }
    return "unknown";
}

static void find_family(const dv_cfg *root, dv_vlm_config *out) {
    static const struct {
        const char *type;
        dv_vlm_family family;
    } known[] = {{"idefics3", DV_VLM_IDEFICS3},  {"smolvlm", DV_VLM_IDEFICS3}, {"qwen2_vl", DV_VLM_QWEN2},
                 {"qwen2_5_vl", DV_VLM_QWEN2_5}, {"qwen3_vl", DV_VLM_QWEN3},   {"llava", DV_VLM_LLAVA},
                 {"nanochat", DV_VLM_NANOCHAT}};
    const char *type = dv_cfg_string(root, "model_type", dv_cfg_has(root, "n_embd") ? "nanochat" : NULL);
    if (type == NULL) {
        dv_cfg_fail(root, DAVY_E_ARCH, "model_type", "is missing");
        return;
    }
    dv_printable(out->model_type, sizeof out->model_type, type, strlen(type));
    for (size_t i = 0; i < DV_ARRAY_LEN(known); i++) {
        if (strcmp(type, known[i].type) == 0) {
            out->family = known[i].family;
        }
    }
    if (out->family == DV_VLM_NANOCHAT && dv_cfg_has(root, "vision_encoder_name")) {
        out->family = DV_VLM_GHOSTVIS;
    }
    if (out->family == 0) {
        char why[160];
        snprintf(
            why, sizeof why,
            "\"%s\" is not supported; expected idefics3, smolvlm, qwen2_vl, qwen2_5_vl, qwen3_vl, llava or nanochat",
            out->model_type);
        dv_cfg_fail(root, DAVY_E_ARCH, "model_type", why);
    }
}

/* Refuses weights packed by another quantiser: davy does not read their scales, so their values would be wrong. */
static void refuse_packed(const dv_cfg *c) {
    static const char *const keys[] = {"quantization_config", "compression_config", "quantization"};
    for (size_t i = 0; i < DV_ARRAY_LEN(keys); i++) {
        const dv_cfg packed = dv_cfg_object(c, keys[i]);
        if (packed.node != NULL) {
            char shown[40];
            char why[192];
            const char *method = dv_cfg_string(&packed, "quant_method", "unknown");
            snprintf(why, sizeof why,
                     "weights quantised as \"%s\" cannot be read; use the original model (davy can quantise it while "
                     "loading) or a GGUF file",
                     dv_printable(shown, sizeof shown, method, strlen(method)));
            dv_cfg_fail(c, DAVY_E_UNSUPPORTED, keys[i], why);
        }
    }
}

typedef struct parsed {
    dv_json *config, *preprocessor, *processor, *video, *generation;
} parsed;

static davy_result parse_all(const dv_vlm_files *files, parsed *p) {
    const dv_vlm_json *in[] = {&files->config, &files->preprocessor, &files->processor, &files->video,
                               &files->generation};
    dv_json **out[] = {&p->config, &p->preprocessor, &p->processor, &p->video, &p->generation};
    davy_result r = DAVY_OK;
    for (size_t i = 0; r == DAVY_OK && i < DV_ARRAY_LEN(in); i++) {
        if (in[i]->text != NULL) {
            r = dv_json_parse(in[i]->text, in[i]->bytes, in[i]->name, out[i]);
            if (r == DAVY_OK && !dv_json_is_object(*out[i])) {
                r = dv_fail(DAVY_E_FORMAT, "%s: expected an object", in[i]->name);
            }
        }
    }
    return r;
}

static dv_cfg node_of(const dv_json *node, const char *name, davy_result *r) {
    return (dv_cfg){.node = node, .file = name, .r = r};
}

/* Processor settings are in separate files, or nested in processor_config.json, which takes precedence as the newer form. */
static void read_processors(const dv_vlm_files *f, const parsed *p, davy_result *r, dv_vlm_config *out) {
    const dv_cfg preprocessor = node_of(p->preprocessor, f->preprocessor.name, r);
    const dv_cfg processor = node_of(p->processor, f->processor.name, r);
    const dv_cfg video = node_of(p->video, f->video.name, r);
    const dv_cfg inner = dv_cfg_object(&processor, "image_processor");
    const dv_cfg inner_video = dv_cfg_object(&processor, "video_processor");
    dv_vlm_picture_defaults(out);
    dv_vlm_read_picture(inner.node != NULL ? &inner : &preprocessor, out);
    dv_vlm_read_video(inner_video.node != NULL ? &inner_video : &video, out);
}

static davy_result read_all(const dv_vlm_files *files, const parsed *p, dv_vlm_config *out) {
    davy_result r = DAVY_OK;
    dv_cfg root = node_of(p->config, files->config.name, &r);
    const dv_cfg inner = dv_cfg_object(&root, "model_config"); /* in a nanochat meta file */
    root = inner.node != NULL ? inner : root;
    const dv_cfg generation = node_of(p->generation, files->generation.name, &r);
    find_family(&root, out);
    if (r < 0) {
        return r;
    }
    const dv_cfg text = dv_cfg_object(&root, "text_config");
    refuse_packed(&root);
    refuse_packed(&text);
    if (out->family == DV_VLM_NANOCHAT || out->family == DV_VLM_GHOSTVIS) {
        dv_vlm_read_nanochat(&root, out);
    } else {
        dv_vlm_read_text(&root, out);
    }
    dv_vlm_read_vision(&root, out);
    dv_vlm_read_tokens(&root, out);
    dv_vlm_read_generation(&generation, out);
    read_processors(files, p, &r, out);
    return r < 0 ? r : dv_vlm_config_finish(files->config.name, out);
}

davy_result dv_vlm_config_parse(const dv_vlm_files *files, dv_vlm_config *out) {
    parsed p = {0};
    dv_vlm_config c = {0};
    davy_result r = parse_all(files, &p);
    if (r == DAVY_OK && p.config == NULL) {
        r = dv_fail(DAVY_E_NOT_FOUND, "config.json is missing");
    }
    r = r < 0 ? r : read_all(files, &p, &c);
    dv_json_release(p.config);
    dv_json_release(p.preprocessor);
    dv_json_release(p.processor);
    dv_json_release(p.video);
    dv_json_release(p.generation);
    if (r == DAVY_OK) {
        *out = c;
    }
    return r;
}

/* Returns DAVY_OK with out->text NULL if the file does not exist. */
static davy_result read_file(const char *folder, const char *name, dv_vlm_json *out) {
    out->name = name;
    char *path = dv_path_join(folder, name);
    dv_file *f = NULL;
    davy_result r = path == NULL ? dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", name) : DAVY_OK;
    if (r == DAVY_OK && dv_path_stat(path) == DV_PATH_FILE) {
        r = dv_file_open(path, &f);
        const uint64_t bytes = r == DAVY_OK ? dv_file_bytes(f) : 0;
        char *text = NULL;
        if (r == DAVY_OK && bytes > MAX_CONFIG_BYTES) {
            r = dv_fail(DAVY_E_FORMAT, "%s: is longer than 16 MiB", name);
        } else if (r == DAVY_OK) {
            text = dv_calloc(bytes + 1, 1);
            r = text != NULL ? dv_file_read(f, 0, text, bytes) : dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", name);
        }
        dv_file_close(f);
        out->text = text;
        out->bytes = bytes;
    }
    dv_free(path);
    return r;
}

davy_result dv_vlm_config_open(const char *folder, dv_vlm_config *out) {
    dv_vlm_files f = {0};
    davy_result r = read_file(folder, "config.json", &f.config);
    r = r < 0 ? r : read_file(folder, "preprocessor_config.json", &f.preprocessor);
    r = r < 0 ? r : read_file(folder, "processor_config.json", &f.processor);
    r = r < 0 ? r : read_file(folder, "video_preprocessor_config.json", &f.video);
    r = r < 0 ? r : read_file(folder, "generation_config.json", &f.generation);
    r = r < 0 ? r : dv_vlm_config_parse(&f, out);
    const char *texts[] = {f.config.text, f.preprocessor.text, f.processor.text, f.video.text, f.generation.text};
    for (size_t i = 0; i < DV_ARRAY_LEN(texts); i++) {
        dv_free((void *)(uintptr_t)texts[i]);
    }
    return r;
}
