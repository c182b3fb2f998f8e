/* config_gguf.c - reads dv_vlm_config from a GGUF text model and its mmproj: typed, range-checked metadata, the vision tower, the
 * language model. The architecture's name determines values that converters leave out. */
#include "core/vlm/config_read.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/file/gguf.h"

typedef struct dv_gmeta {
    const dv_tensors *t;
    const char *file;
    const char *prefix; /* prefix of every key: "llama.", "clip.vision." */
    davy_result *r;
} dv_gmeta;

enum { KEY_BYTES = 128 };

static void dv_gmeta_fail(const dv_gmeta *m, davy_result code, const char *key, const char *why) {
    if (*m->r == DAVY_OK) {
        *m->r = dv_fail(code, "%s: %s%s: %s", m->file, m->prefix, key, why);
    }
}

static const char *text_of(const dv_gmeta *m, const char *key) {
    char name[KEY_BYTES];
    const int n = snprintf(name, sizeof name, "%s%s", m->prefix, key);
    return *m->r == DAVY_OK && n < KEY_BYTES ? dv_tensors_meta(m->t, name) : NULL;
}

/* Parses a scalar's text as JSON, which does not depend on the locale. Returns NULL if absent or on an error. */
static dv_json *value_of(const dv_gmeta *m, const char *key) {
    const char *text = text_of(m, key);
    dv_json *v = NULL;
    if (text != NULL && dv_json_parse(text, strlen(text), m->file, &v) < 0) {
        dv_gmeta_fail(m, DAVY_E_FORMAT, key, "expected a number");
    }
    return v;
}

static int64_t dv_gmeta_int(const dv_gmeta *m, const char *key, int64_t fallback, int64_t lo, int64_t hi) {
    dv_json *v = value_of(m, key);
    if (v == NULL) {
        if (fallback == DV_CFG_NEEDED) {
            dv_gmeta_fail(m, DAVY_E_FORMAT, key, "is missing");
            return lo;
        }
        return fallback;
    }
    int64_t n = 0;
    if (!dv_json_int(v, &n)) {
        dv_gmeta_fail(m, DAVY_E_FORMAT, key, "expected a whole number");
        n = lo;
    } else if (n < lo || n > hi) {
        char why[96];
        snprintf(why, sizeof why, "is %" PRId64 ", expected %" PRId64 " to %" PRId64, n, lo, hi);
        dv_gmeta_fail(m, DAVY_E_FORMAT, key, why);
        n = lo;
    }
    dv_json_release(v);
    return n;
}

static double dv_gmeta_real(const dv_gmeta *m, const char *key, double fallback, double lo, double hi) {
    dv_json *v = value_of(m, key);
    if (v == NULL) {
        return fallback;
    }
    double d = 0;
    if (!dv_json_double(v, &d) || !(d >= lo && d <= hi)) {
        char why[96];
        snprintf(why, sizeof why, "is %g, expected %g to %g", d, lo, hi);
        dv_gmeta_fail(m, DAVY_E_FORMAT, key, why);
        d = lo;
    }
    dv_json_release(v);
    return d;
}

static bool dv_gmeta_bool(const dv_gmeta *m, const char *key, bool fallback) {
    dv_json *v = value_of(m, key);
    bool b = fallback;
    if (v != NULL && !dv_json_bool(v, &b)) {
        dv_gmeta_fail(m, DAVY_E_FORMAT, key, "expected true or false");
    }
    dv_json_release(v);
    return b;
}

static double element(const uint8_t *p, uint32_t type) {
    if (type == DV_GGUF_F32) {
        float f;
        memcpy(&f, p, sizeof f);
        return (double)f;
    }
    if (type == DV_GGUF_F64) {
        double d;
        memcpy(&d, p, sizeof d);
        return d;
    }
    return (double)dv_gguf_integer_of(p, type);
}

/* Reads an array of numbers or bools and returns its length, at most max; -1: absent. */
static int32_t dv_gmeta_list(const dv_gmeta *m, const char *key, double *out, int32_t max) {
    char name[KEY_BYTES];
    const char *keys[1] = {name};
    dv_gguf_value v = {0};
    if (*m->r < 0 || m->t->count == 0 || snprintf(name, sizeof name, "%s%s", m->prefix, key) >= KEY_BYTES) {
        return -1;
    }
    dv_source *source = m->t->refs[0].source;
    davy_result r = dv_gguf_find(source, keys, 1, &v);
    if (r == DAVY_OK && v.type == DV_GGUF_COUNT) {
        return -1;
    }
    const uint64_t bytes = r == DAVY_OK && v.element < DV_GGUF_COUNT ? dv_gguf_value_bytes[v.element] : 0;
    if (r < 0) {
        *m->r = r;
        return -1;
    }
    if (bytes == 0 || v.count > (uint64_t)max) {
        dv_gmeta_fail(m, DAVY_E_FORMAT, key, bytes == 0 ? "expected numbers" : "has too many elements");
        return -1;
    }
    const void *view = NULL;
    void *owned = NULL;
    r = dv_source_view(source, v.at, v.count * bytes, &view, &owned);
    for (uint64_t i = 0; r == DAVY_OK && i < v.count; i++) {
        out[i] = element((const uint8_t *)view + i * bytes, v.element);
    }
    dv_free(owned);
    *m->r = r;
    return r < 0 ? -1 : (int32_t)v.count;
}

/* ---- the vision tower of an mmproj file. Its keys are those of llama.cpp's converters. ---- */

enum { MAX_VISION_WIDTH = 1 << 16, MAX_VISION_HEADS = 256, MAX_SIDE = 1 << 14, MAX_PIXELS = 1 << 28 };

static bool has_tensor(const dv_gmeta *m, const char *name) {
    return dv_tensors_find(m->t, name) != NULL;
}

static dv_vlm_tower tower_of(const dv_gmeta *clip, dv_vlm_family family) {
    switch (family) {
    case DV_VLM_QWEN2:
        return DV_VLM_TOWER_QWEN2;
    case DV_VLM_QWEN2_5:
        return DV_VLM_TOWER_QWEN2_5;
    case DV_VLM_QWEN3:
        return DV_VLM_TOWER_QWEN3;
    default:
        return has_tensor(clip, "v.class_embd") ? DV_VLM_TOWER_CLIP : DV_VLM_TOWER_SIGLIP;
    }
}

/* In these files "GELU" means the tanh form, which every tower here except CLIP's uses. SigLIP has no other: some converters
 * recognise only the name "gelu" and wrote false for it. */
static dv_vlm_act act_of(const dv_gmeta *clip, dv_vlm_tower tower) {
    if (dv_gmeta_bool(clip, "use_silu", false)) {
        return DV_VLM_SILU;
    }
    if (tower == DV_VLM_TOWER_SIGLIP) {
        return DV_VLM_GELU_TANH;
    }
    if (!dv_gmeta_bool(clip, "use_gelu", false)) {
        return DV_VLM_GELU_QUICK;
    }
    return tower == DV_VLM_TOWER_CLIP ? DV_VLM_GELU : DV_VLM_GELU_TANH;
}

static void read_windows(const dv_gmeta *v, dv_vlm_vision *out) {
    out->window = dv_gmeta_int(v, "window_size", 112, 1, MAX_SIDE);
    out->tokens_per_second = 2; /* value of the published models; converters do not write it */
    double list[DV_VLM_MAX_LAYERS];
    const int32_t n = dv_gmeta_list(v, "wa_layer_indexes", list, DV_VLM_MAX_LAYERS);
    for (int32_t i = 0; i < n; i++) {
        if (list[i] >= 0 && list[i] < DV_VLM_MAX_LAYERS) {
            out->full[(int32_t)list[i]] = true;
        }
    }
    const int64_t every = dv_gmeta_int(v, "n_wa_pattern", 8, 1, DV_VLM_MAX_LAYERS);
    for (int64_t i = 0; n < 0 && i < out->layers; i++) {
        out->full[i] = (i + 1) % every == 0;
    }
}

static void read_deepstack(const dv_gmeta *v, dv_vlm_vision *out) {
    double flags[DV_VLM_MAX_LAYERS];
    const int32_t n = dv_gmeta_list(v, "is_deepstack_layers", flags, DV_VLM_MAX_LAYERS);
    for (int32_t i = 0; i < n && i < out->layers; i++) {
        if (flags[i] != 0) {
            if (out->n_deepstack == DV_VLM_MAX_DEEPSTACK) {
                dv_gmeta_fail(v, DAVY_E_FORMAT, "is_deepstack_layers", "names more than 16 blocks");
                return;
            }
            out->deepstack[out->n_deepstack++] = i;
        }
    }
    const dv_tensor_ref *table = dv_tensors_find(v->t, "v.position_embd.weight");
    const int64_t rows = table != NULL && table->ndim == 2 ? table->shape[0] : 0;
    out->position_side = rows > 0 && rows < (int64_t)1 << 40 ? (int64_t)(sqrt((double)rows) + 0.5) : 0;
    if (out->position_side == 0 || out->position_side * out->position_side != rows) {
        dv_gmeta_fail(v, DAVY_E_TENSOR, "position_embd",
                      "v.position_embd.weight is missing or its table is not square");
    }
}

/* In LLaVA's files projection_dim is the width of CLIP's own, absent projection (768, or 0). So the projector's tensor decides. */
static int64_t projector_width(const dv_gmeta *v, const dv_vlm_config *c) {
    const dv_tensor_ref *last = c->family == DV_VLM_LLAVA ? dv_tensors_find(v->t, "mm.2.weight") : NULL;
    if (c->family != DV_VLM_LLAVA) {
        return dv_gmeta_int(v, "projection_dim", c->text.hidden, 1, 32 * MAX_VISION_WIDTH);
    }
    return last != NULL && last->ndim == 2 ? last->shape[0] : c->text.hidden;
}

/* Early files of Qwen2-VL contain 0, and may have the names of the two layers exchanged. */
static int64_t ffn_of(const dv_gmeta *v, int64_t hidden) {
    const int64_t most = 8 * MAX_VISION_WIDTH;
    int64_t n = dv_gmeta_int(v, "feed_forward_length", DV_CFG_NEEDED, 0, most);
    const dv_tensor_ref *up = n == 0 ? dv_tensors_find(v->t, "v.blk.0.ffn_up.weight") : NULL;
    if (up != NULL && up->ndim == 2) {
        n = up->shape[0] == hidden ? up->shape[1] : up->shape[0];
    }
    if (n < 1 || n > most) {
        dv_gmeta_fail(v, DAVY_E_FORMAT, "feed_forward_length", "is 0, and v.blk.0.ffn_up.weight does not determine it");
    }
    return n;
}

/* Old files use other names for some activations and norm values. For towers other than CLIP's, an eps of 1e-5 is a known
 * error of converters; the models were trained with 1e-6. */
static void read_numbers(const dv_gmeta *clip, const dv_gmeta *v, dv_vlm_config *c) {
    dv_vlm_vision *out = &c->vision;
    out->tower = tower_of(clip, c->family);
    out->hidden = dv_gmeta_int(v, "embedding_length", DV_CFG_NEEDED, 1, MAX_VISION_WIDTH);
    out->ffn = ffn_of(v, out->hidden);
    out->layers = dv_gmeta_int(v, "block_count", DV_CFG_NEEDED, 1, DV_VLM_MAX_LAYERS);
    out->heads = dv_gmeta_int(v, "attention.head_count", DV_CFG_NEEDED, 1, MAX_VISION_HEADS);
    out->patch = dv_gmeta_int(v, "patch_size", DV_CFG_NEEDED, 1, 256);
    out->out_hidden = projector_width(v, c);
    const double eps = dv_gmeta_real(v, "attention.layer_norm_epsilon", 1e-6, 1e-12, 1e-1);
    out->norm_eps = out->tower != DV_VLM_TOWER_CLIP && eps > 9e-6 && eps < 1.1e-5 ? 1e-6 : eps;
    out->norm = out->tower == DV_VLM_TOWER_QWEN2_5 ? DV_VLM_RMS_NORM : DV_VLM_LAYER_NORM;
    out->act = act_of(clip, out->tower);
    out->gated = out->tower == DV_VLM_TOWER_QWEN2_5;
    out->projector_act = DV_VLM_GELU;
    out->run_layers = out->layers;
    out->temporal = out->merge = 1;
}

static void read_llava(const dv_gmeta *v, dv_vlm_vision *out) {
    /* A file without the last norm ends at LLaVA's output layer. A complete tower has one more block, which is not used. */
    out->run_layers = out->layers - (has_tensor(v, "v.post_ln.weight") ? 1 : 0);
    out->drop_class = out->tower == DV_VLM_TOWER_CLIP;
    const char *merge = dv_tensors_meta(v->t, "clip.vision.mm_patch_merge_type");
    if (merge != NULL && strcmp(merge, "flat") != 0) {
        dv_gmeta_fail(v, DAVY_E_UNSUPPORTED, "mm_patch_merge_type", "the tiles of LLaVA-NeXT are not supported");
    }
}

static void read_family(const dv_gmeta *v, dv_vlm_config *c) {
    dv_vlm_vision *out = &c->vision;
    if (c->family == DV_VLM_IDEFICS3 || c->family == DV_VLM_LLAVA) {
        out->image_size = dv_gmeta_int(v, "image_size", DV_CFG_NEEDED, 1, MAX_SIDE);
        if (c->family == DV_VLM_IDEFICS3) {
            out->shuffle = dv_gmeta_int(v, "projector.scale_factor", 2, 1, 64);
        } else {
            read_llava(v, out);
        }
        return;
    }
    out->temporal = 2;
    out->merge = dv_gmeta_int(v, "spatial_merge_size", 2, 1, 16);
    if (out->tower == DV_VLM_TOWER_QWEN2_5) {
        read_windows(v, out);
    } else if (out->tower == DV_VLM_TOWER_QWEN3) {
        read_deepstack(v, out);
        if (out->out_hidden == c->text.hidden * (1 + out->n_deepstack)) {
            out->out_hidden = c->text.hidden; /* llama.cpp's value includes the deepstack outputs */
        }
    }
}

static void read_picture(const dv_gmeta *v, dv_vlm_config *c) {
    dv_vlm_picture *p = &c->picture;
    static const char *const keys[2] = {"image_mean", "image_std"};
    double *const to[2] = {p->mean, p->std};
    dv_vlm_picture_defaults(c);
    for (int k = 0; k < 2; k++) {
        double three[3] = {0};
        const int32_t n = dv_gmeta_list(v, keys[k], three, 3);
        for (int i = 0; n == 3 && i < 3; i++) {
            if (!(three[i] >= (k == 0 ? -1e3 : 1e-6) && three[i] <= 1e3)) {
                dv_gmeta_fail(v, DAVY_E_FORMAT, keys[k], "is out of range");
            }
            to[k][i] = three[i];
        }
    }
    if (p->rule == DV_VLM_PICTURE_TILES) {
        p->longest = dv_gmeta_int(v, "preproc_image_size", p->longest, 1, MAX_SIDE);
    } else if (p->rule == DV_VLM_PICTURE_SMART) {
        p->min_pixels = dv_gmeta_int(v, "image_min_pixels", p->min_pixels, 1, MAX_PIXELS);
        p->max_pixels = dv_gmeta_int(v, "image_max_pixels", p->max_pixels, p->min_pixels, MAX_PIXELS);
    }
}

static void dv_vlm_gguf_vision(const dv_gmeta *clip, dv_vlm_config *c) {
    const dv_gmeta v = {.t = clip->t, .file = clip->file, .prefix = "clip.vision.", .r = clip->r};
    if (!dv_gmeta_bool(clip, "has_vision_encoder", true)) {
        dv_gmeta_fail(clip, DAVY_E_ARCH, "has_vision_encoder", "the file has no vision tower");
    }
    read_numbers(clip, &v, c);
    read_family(&v, c);
    if (*clip->r == DAVY_OK) {
        read_picture(&v, c);
    }
}

/* ---- the language model. The tensors show what converters leave out: biases, norms of q and k, a separate head. ---- */

enum { MAX_TEXT_WIDTH = 1 << 17, MAX_TEXT_HEADS = 1024, MAX_VOCAB = 1 << 22, MAX_CONTEXT = 1 << 24, MAX_ID = 1 << 30 };

static const char *file_of(const dv_tensors *t) {
    return t->count > 0 ? dv_source_name(t->refs[0].source) : "GGUF file";
}

static void read_sizes(const dv_gmeta *m, dv_vlm_text *t) {
    t->hidden = dv_gmeta_int(m, "embedding_length", DV_CFG_NEEDED, 1, MAX_TEXT_WIDTH);
    t->ffn = dv_gmeta_int(m, "feed_forward_length", DV_CFG_NEEDED, 1, 8 * MAX_TEXT_WIDTH);
    t->layers = dv_gmeta_int(m, "block_count", DV_CFG_NEEDED, 1, DV_VLM_MAX_LAYERS);
    t->heads = dv_gmeta_int(m, "attention.head_count", DV_CFG_NEEDED, 1, MAX_TEXT_HEADS);
    t->kv_heads = dv_gmeta_int(m, "attention.head_count_kv", t->heads, 1, MAX_TEXT_HEADS);
    t->head_dim = dv_gmeta_int(m, "attention.key_length", t->hidden / t->heads, 1, 4096);
    t->max_positions = dv_gmeta_int(m, "context_length", 2048, 1, MAX_CONTEXT);
    t->norm_eps = dv_gmeta_real(m, "attention.layer_norm_rms_epsilon", 1e-6, 1e-12, 1e-1);
    const dv_tensor_ref *embed = dv_tensors_find(m->t, "token_embd.weight");
    if (embed == NULL) {
        t->vocab = dv_gmeta_int(m, "vocab_size", DV_CFG_NEEDED, 1, MAX_VOCAB);
    } else if (embed->ndim == 2 && embed->shape[0] >= 1 && embed->shape[0] <= MAX_VOCAB) {
        t->vocab = embed->shape[0];
    } else {
        dv_gmeta_fail(m, DAVY_E_TENSOR, "vocab_size", "token_embd.weight has an invalid shape");
    }
}

static void read_rope(const dv_gmeta *m, dv_vlm_config *c) {
    dv_vlm_rope *out = &c->text.rope;
    out->theta = dv_gmeta_real(m, "rope.freq_base", 10000, 1, 1e12);
    out->factors = has_tensor(m, "rope_freqs.weight");
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
        dv_gmeta_fail(m, DAVY_E_UNSUPPORTED, "rope.scaling.type", "only none and linear are supported");
    }
    if (c->family != DV_VLM_QWEN2 && c->family != DV_VLM_QWEN2_5 && c->family != DV_VLM_QWEN3) {
        return;
    }
    double sections[4] = {0};
    const int32_t n = dv_gmeta_list(m, "rope.dimension_sections", sections, 4);
    int64_t sum = 0;
    for (int i = 0; i < 3; i++) {
        out->sections[i] = sections[i] >= 0 && sections[i] <= 4096 ? (int32_t)sections[i] : -1;
        sum += out->sections[i] < 0 ? -MAX_TEXT_WIDTH : out->sections[i];
    }
    if (n < 3 || 2 * sum != c->text.head_dim) {
        dv_gmeta_fail(m, DAVY_E_FORMAT, "rope.dimension_sections",
                      "the sum of the sections must be half of the head size");
    }
    out->axes = c->family == DV_VLM_QWEN3 ? DV_VLM_ROPE_INTERLEAVED : DV_VLM_ROPE_SECTIONS;
}

static void read_text(const dv_gmeta *m, dv_vlm_config *c) {
    dv_vlm_text *t = &c->text;
    read_sizes(m, t);
    t->norm = DV_VLM_RMS_NORM;
    t->act = DV_VLM_SILU;
    t->gated = true;
    t->qkv_bias = has_tensor(m, "blk.0.attn_q.bias");
    t->out_bias = has_tensor(m, "blk.0.attn_output.bias");
    t->mlp_bias = has_tensor(m, "blk.0.ffn_down.bias");
    t->qk_norm = has_tensor(m, "blk.0.attn_q_norm.weight") ? DV_VLM_QK_BEFORE_ROPE : DV_VLM_QK_NONE;
    t->tied_head = !has_tensor(m, "output.weight");
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

/* Determines the family by the projector, or by the language model if there is no projector. */
static davy_result find_family(const dv_tensors *text, const dv_tensors *mmproj, const char *arch, dv_vlm_config *c) {
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
    if (projector == NULL) { /* early LLaVA files only state that they have one */
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
        return dv_fail(DAVY_E_ARCH,
                       "%s: architecture \"%s\" is not supported; expected llama, qwen2, qwen2vl or qwen3vl",
                       file_of(text), shown);
    }
    projector = projector != NULL ? projector : "none";
    dv_printable(shown_too, sizeof shown_too, projector, strlen(projector));
    return dv_fail(DAVY_E_ARCH, "%s: projector type \"%s\" is not supported with architecture \"%s\" of %s",
                   file_of(mmproj), shown_too, shown, file_of(text));
}

static davy_result architecture(const dv_tensors *t, const char **out) {
    const char *arch = dv_tensors_meta(t, "general.architecture");
    if (t->format != DV_FORMAT_GGUF || arch == NULL || strlen(arch) > 30) {
        return dv_fail(DAVY_E_FORMAT, "%s: is not a GGUF file with general.architecture", file_of(t));
    }
    const char *parts = dv_tensors_meta(t, "split.count");
    if (parts != NULL && strcmp(parts, "0") != 0 && strcmp(parts, "1") != 0) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: is one part of a model split into %.20s files; join them into one file",
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
        r = dv_fail(DAVY_E_ARCH, "%s: is not an mmproj: its architecture is not \"clip\"", file_of(mmproj));
    }
    r = r < 0 ? r : find_family(text, mmproj, arch, &c);
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
