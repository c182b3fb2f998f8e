/* config_gguf.c - the same configuration from a GGUF text model and its mmproj. What converters leave out is told by the
 * tensors: biases, norms of q and k, a head of its own. */
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/vlm/config_gguf.h"

enum { MAX_WIDTH = 1 << 17, MAX_HEADS = 1024, MAX_VOCAB = 1 << 22, MAX_CONTEXT = 1 << 24, MAX_ID = 1 << 30 };

static const char *file_of(const dv_tensors *t) {
    return t->count > 0 ? dv_source_name(t->refs[0].source) : "GGUF file";
}

static bool there(const dv_tensors *t, const char *name) {
    return dv_tensors_find(t, name) != NULL;
}

static void read_sizes(const dv_gmeta *m, dv_vlm_text *t) {
    t->hidden = dv_gmeta_int(m, "embedding_length", DV_CFG_NEEDED, 1, MAX_WIDTH);
    t->ffn = dv_gmeta_int(m, "feed_forward_length", DV_CFG_NEEDED, 1, 8 * MAX_WIDTH);
    t->layers = dv_gmeta_int(m, "block_count", DV_CFG_NEEDED, 1, DV_VLM_MAX_LAYERS);
    t->heads = dv_gmeta_int(m, "attention.head_count", DV_CFG_NEEDED, 1, MAX_HEADS);
    t->kv_heads = dv_gmeta_int(m, "attention.head_count_kv", t->heads, 1, MAX_HEADS);
    t->head_dim = dv_gmeta_int(m, "attention.key_length", t->hidden / t->heads, 1, 4096);
    t->max_positions = dv_gmeta_int(m, "context_length", 2048, 1, MAX_CONTEXT);
    t->norm_eps = dv_gmeta_real(m, "attention.layer_norm_rms_epsilon", 1e-6, 1e-12, 1e-1);
    const dv_tensor_ref *embed = dv_tensors_find(m->t, "token_embd.weight");
    if (embed == NULL) {
        t->vocab = dv_gmeta_int(m, "vocab_size", DV_CFG_NEEDED, 1, MAX_VOCAB);
    } else if (embed->ndim == 2 && embed->shape[0] >= 1 && embed->shape[0] <= MAX_VOCAB) {
        t->vocab = embed->shape[0];
    } else {
        dv_gmeta_fail(m, DAVY_E_TENSOR, "vocab_size", "token_embd.weight is of no usable shape");
    }
}

static void read_rope(const dv_gmeta *m, dv_vlm_config *c) {
    dv_vlm_rope *out = &c->text.rope;
    out->theta = dv_gmeta_real(m, "rope.freq_base", 10000, 1, 1e12);
    out->factors = there(m->t, "rope_freqs.weight");
    out->pairs = strcmp(m->prefix, "llama.") == 0;
    const int64_t turned = dv_gmeta_int(m, "rope.dimension_count", c->text.head_dim, 1, 4096);
    if (*m->r == DAVY_OK && turned != c->text.head_dim) {
        dv_gmeta_fail(m, DAVY_E_UNSUPPORTED, "rope.dimension_count", "rotation of a part of a head is not supported");
    }
    const double factor = dv_gmeta_real(m, "rope.scaling.factor", 1, 1, 1e6);
    char key[64];
    snprintf(key, sizeof key, "%srope.scaling.type", m->prefix);
    const char *type = dv_tensors_meta(m->t, key);
    if (type != NULL && strcmp(type, "linear") == 0) {
        out->scaling = DV_VLM_SCALE_LINEAR;
        out->factor = factor;
    } else if (type != NULL && strcmp(type, "none") != 0) {
        dv_gmeta_fail(m, DAVY_E_UNSUPPORTED, "rope.scaling.type", "only none and linear are known");
    }
    if (c->family != DV_VLM_QWEN2 && c->family != DV_VLM_QWEN2_5 && c->family != DV_VLM_QWEN3) {
        return;
    }
    double sections[4] = {0};
    const int32_t n = dv_gmeta_list(m, "rope.dimension_sections", sections, 4);
    int64_t sum = 0;
    for (int i = 0; i < 3; i++) {
        out->sections[i] = sections[i] >= 0 && sections[i] <= 4096 ? (int32_t)sections[i] : -1;
        sum += out->sections[i] < 0 ? -MAX_WIDTH : out->sections[i];
    }
    if (n < 3 || 2 * sum != c->text.head_dim) {
        dv_gmeta_fail(m, DAVY_E_FORMAT, "rope.dimension_sections", "expected sections whose sum is half of a head");
    }
    out->axes = c->family == DV_VLM_QWEN3 ? DV_VLM_ROPE_INTERLEAVED : DV_VLM_ROPE_SECTIONS;
}

static void read_text(const dv_gmeta *m, dv_vlm_config *c) {
    dv_vlm_text *t = &c->text;
    read_sizes(m, t);
    t->norm = DV_VLM_RMS_NORM;
    t->act = DV_VLM_SILU;
    t->gated = true;
    t->qkv_bias = there(m->t, "blk.0.attn_q.bias");
    t->out_bias = there(m->t, "blk.0.attn_output.bias");
    t->mlp_bias = there(m->t, "blk.0.ffn_down.bias");
    t->qk_norm = there(m->t, "blk.0.attn_q_norm.weight") ? DV_VLM_QK_BEFORE_ROPE : DV_VLM_QK_NONE;
    t->tied_head = !there(m->t, "output.weight");
    read_rope(m, c);
}

static void read_tokens(const dv_gmeta *m, dv_vlm_tokens *t) {
    static const char *const ends[] = {"eos_token_id", "eot_token_id"};
    *t = (dv_vlm_tokens){.image = -1, .video = -1, .vision_start = -1, .vision_end = -1};
    t->bos = dv_gmeta_int(m, "bos_token_id", -1, -1, MAX_ID);
    t->pad = dv_gmeta_int(m, "padding_token_id", -1, -1, MAX_ID);
    for (size_t i = 0; i < DV_ARRAY_LEN(ends); i++) {
        const int64_t id = dv_gmeta_int(m, ends[i], -1, -1, MAX_ID);
        if (id >= 0 && (t->n_eos == 0 || t->eos[0] != id)) {
            t->eos[t->n_eos++] = id;
        }
    }
}

/* By the projector, and the language model where there is none. */
static davy_result tell_family(const dv_tensors *text, const dv_tensors *mmproj, const char *arch, dv_vlm_config *c) {
    static const struct {
        const char *projector, *arch, *arch_too;
        dv_vlm_family family;
    } known[] = {{"idefics3", "llama", "", DV_VLM_IDEFICS3},
                 {"mlp", "llama", "qwen2", DV_VLM_LLAVA},
                 {"qwen2vl_merger", "qwen2vl", "", DV_VLM_QWEN2},
                 {"qwen2.5vl_merger", "qwen2vl", "", DV_VLM_QWEN2_5},
                 {"qwen3vl_merger", "qwen3vl", "", DV_VLM_QWEN3}};
    const char *projector = mmproj != NULL ? dv_tensors_meta(mmproj, "clip.projector_type") : "";
    if (projector == NULL) {
        projector = dv_tensors_meta(mmproj, "clip.vision.projector_type");
    }
    if (projector == NULL) { /* the first LLaVA files say that they have one, and no more */
        const char *has = dv_tensors_meta(mmproj, "clip.has_llava_projector");
        projector = has != NULL && strcmp(has, "true") == 0 ? "mlp" : NULL;
    }
    char shown[40];
    char shown_too[40];
    for (size_t i = 0; projector != NULL && i < DV_ARRAY_LEN(known); i++) {
        const bool fits = strcmp(arch, known[i].arch) == 0 || strcmp(arch, known[i].arch_too) == 0;
        if (fits && (mmproj == NULL || strcmp(projector, known[i].projector) == 0)) {
            c->family = known[i].family;
            dv_printable(c->model_type, sizeof c->model_type, arch, strlen(arch));
            return DAVY_OK;
        }
    }
    dv_printable(shown, sizeof shown, arch, strlen(arch));
    if (mmproj == NULL) {
        return dv_fail(DAVY_E_ARCH, "%s: architecture \"%s\" is none of llama, qwen2, qwen2vl, qwen3vl", file_of(text),
                       shown);
    }
    projector = projector != NULL ? projector : "none";
    dv_printable(shown_too, sizeof shown_too, projector, strlen(projector));
    return dv_fail(DAVY_E_ARCH, "%s: a projector of type \"%s\" is not known for the architecture \"%s\" of %s",
                   file_of(mmproj), shown_too, shown, file_of(text));
}

static davy_result architecture(const dv_tensors *t, const char **out) {
    const char *arch = dv_tensors_meta(t, "general.architecture");
    if (t->format != DV_FORMAT_GGUF || arch == NULL || strlen(arch) > 30) {
        return dv_fail(DAVY_E_FORMAT, "%s: no GGUF file with a general.architecture", file_of(t));
    }
    const char *parts = dv_tensors_meta(t, "split.count");
    if (parts != NULL && strcmp(parts, "0") != 0 && strcmp(parts, "1") != 0) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: a part of a model that was split into %.20s files; join them into one",
                       file_of(t), parts);
    }
    *out = arch;
    return DAVY_OK;
}

davy_result dv_vlm_config_gguf(const dv_tensors *text, const dv_tensors *mmproj, dv_vlm_config *out) {
    const char *arch = NULL;
    const char *arch_too = "clip";
    dv_vlm_config c = {0};
    davy_result r = architecture(text, &arch);
    r = r < 0 || mmproj == NULL ? r : architecture(mmproj, &arch_too);
    if (r == DAVY_OK && strcmp(arch_too, "clip") != 0) {
        r = dv_fail(DAVY_E_ARCH, "%s: no vision tower (its architecture is not \"clip\")", file_of(mmproj));
    }
    r = r < 0 ? r : tell_family(text, mmproj, arch, &c);
    if (r < 0) {
        return r;
    }
    char prefix[32];
    snprintf(prefix, sizeof prefix, "%s.", arch);
    const dv_gmeta m = {.t = text, .file = file_of(text), .prefix = prefix, .r = &r};
    const dv_gmeta tokens = {.t = text, .file = m.file, .prefix = "tokenizer.ggml.", .r = &r};
    const dv_cfg no_file = {.file = m.file, .r = &r};
    read_text(&m, &c);
    read_tokens(&tokens, &c.tokens);
    dv_vlm_read_generation(&no_file, &c);
    if (r == DAVY_OK && mmproj != NULL) {
        const dv_gmeta clip = {.t = mmproj, .file = file_of(mmproj), .prefix = "clip.", .r = &r};
        dv_vlm_gguf_vision(&clip, &c);
    }
    r = r < 0 ? r : dv_vlm_config_finish(mmproj != NULL ? file_of(mmproj) : m.file, &c);
    if (r == DAVY_OK) {
        *out = c;
    }
    return r;
}
