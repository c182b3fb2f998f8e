/* test_vlm_gguf.c - configurations from GGUF: generated pairs of text model and mmproj for every projector, and a real file. */
#include "core/vlm/config.h"
#include "tests/lib/file_check.h"

typedef struct gguf {
    blob keys, tensors;
    uint64_t n_keys, n_tensors, data;
} gguf;

static void put_string(blob *b, const char *text) {
    put_le(b, strlen(text), 8);
    put_text(b, text);
}

static void key(gguf *g, const char *name, uint32_t type) {
    put_string(&g->keys, name);
    put_le(&g->keys, type, 4);
    g->n_keys++;
}

static void text_key(gguf *g, const char *name, const char *value) {
    key(g, name, 8);
    put_string(&g->keys, value);
}

static void int_key(gguf *g, const char *name, uint32_t value) {
    key(g, name, 4);
    put_le(&g->keys, value, 4);
}

static void real_key(gguf *g, const char *name, float value) {
    key(g, name, 6);
    put(&g->keys, &value, 4);
}

static void bool_key(gguf *g, const char *name, bool value) {
    key(g, name, 7);
    put_le(&g->keys, value, 1);
}

static void ints_key(gguf *g, const char *name, uint32_t type, size_t bytes, const uint32_t *values, uint64_t n) {
    key(g, name, 9);
    put_le(&g->keys, type, 4);
    put_le(&g->keys, n, 8);
    for (uint64_t i = 0; i < n; i++) {
        put_le(&g->keys, values[i], bytes);
    }
}

static void reals_key(gguf *g, const char *name, float value) {
    key(g, name, 9);
    put_le(&g->keys, 6, 4);
    put_le(&g->keys, 3, 8);
    for (int i = 0; i < 3; i++) {
        put(&g->keys, &value, 4);
    }
}

static void tensor(gguf *g, const char *name, uint64_t rows, uint64_t cols) { /* f16 */
    put_string(&g->tensors, name);
    put_le(&g->tensors, 2, 4);
    put_le(&g->tensors, cols, 8);
    put_le(&g->tensors, rows, 8);
    put_le(&g->tensors, 1, 4);
    put_le(&g->tensors, g->data, 8);
    g->data += (rows * cols * 2 + 31) / 32 * 32;
    g->n_tensors++;
}

/* The caller keeps the file, because the source points into it. */
static blob finish(gguf *g) {
    blob b = {NULL, 0};
    put_text(&b, "GGUF");
    put_le(&b, 3, 4);
    put_le(&b, g->n_tensors, 8);
    put_le(&b, g->n_keys, 8);
    put(&b, g->keys.p, g->keys.n);
    put(&b, g->tensors.p, g->tensors.n);
    put_zeros(&b, (32 - b.n % 32) % 32 + g->data);
    drop(&g->keys);
    drop(&g->tensors);
    return b;
}

static dv_tensors *open_blob(const char *name, const blob *b) {
    dv_source *source = NULL;
    dv_tensors *t = NULL;
    CHECK_OK(dv_source_open_memory(name, b->p, b->n, &source));
    CHECK_OK(dv_tensors_open(source, NULL, &t));
    dv_source_release(source);
    return t;
}

static blob language_model(const char *arch) {
    gguf g = {0};
    char name[64];
    const struct {
        const char *key;
        uint32_t value;
    } ints[] = {{"block_count", 3},           {"embedding_length", 64},       {"feed_forward_length", 128},
                {"attention.head_count", 4},  {"attention.head_count_kv", 2}, {"attention.key_length", 32},
                {"rope.dimension_count", 32}, {"context_length", 4096}};
    text_key(&g, "general.architecture", arch);
    for (size_t i = 0; i < DV_ARRAY_LEN(ints); i++) {
        snprintf(name, sizeof name, "%s.%s", arch, ints[i].key);
        int_key(&g, name, ints[i].value);
    }
    snprintf(name, sizeof name, "%s.rope.freq_base", arch);
    real_key(&g, name, 1e6f);
    snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", arch);
    real_key(&g, name, 1e-5f);
    snprintf(name, sizeof name, "%s.rope.dimension_sections", arch);
    ints_key(&g, name, 5, 4, (const uint32_t[]){4, 6, 6, 0}, 4);
    int_key(&g, "tokenizer.ggml.eos_token_id", 7);
    int_key(&g, "tokenizer.ggml.eot_token_id", 9);
    int_key(&g, "tokenizer.ggml.bos_token_id", 1);
    tensor(&g, "token_embd.weight", 100, 64);
    tensor(&g, "blk.0.attn_q.bias", 1, 128);
    tensor(&g, "blk.0.attn_q_norm.weight", 1, 32);
    tensor(&g, "rope_freqs.weight", 1, 16);
    return finish(&g);
}

/* "first", "siglip", "next": forms of LLaVA's files since the first ones; "no width": early files of Qwen2-VL. */
static blob tower(const char *projector, uint32_t patch, uint32_t width) {
    const bool first = strcmp(projector, "first") == 0;
    const bool next = strcmp(projector, "next") == 0;
    const bool siglip = strcmp(projector, "siglip") == 0;
    const bool no_width = strcmp(projector, "no width") == 0;
    const bool llava = first || next || siglip || strcmp(projector, "mlp") == 0;
    gguf g = {0};
    text_key(&g, "general.architecture", "clip");
    if (first) {
        bool_key(&g, "clip.has_llava_projector", true);
    } else {
        text_key(&g, "clip.projector_type", llava ? "mlp" : no_width ? "qwen2vl_merger" : projector);
    }
    if (next) {
        text_key(&g, "clip.vision.mm_patch_merge_type", "spatial_unpad");
    }
    bool_key(&g, "clip.has_vision_encoder", true);
    bool_key(&g, "clip.use_gelu", !llava);
    int_key(&g, "clip.vision.image_size", 64);
    int_key(&g, "clip.vision.patch_size", patch);
    int_key(&g, "clip.vision.embedding_length", 48);
    int_key(&g, "clip.vision.feed_forward_length", no_width ? 0 : 96);
    int_key(&g, "clip.vision.block_count", 8);
    int_key(&g, "clip.vision.attention.head_count", 4);
    int_key(&g, "clip.vision.projection_dim", width);
    int_key(&g, "clip.vision.projector.scale_factor", 4);
    int_key(&g, "clip.vision.preproc_image_size", 128);
    real_key(&g, "clip.vision.attention.layer_norm_epsilon", 1e-5f);
    reals_key(&g, "clip.vision.image_mean", 0.25f);
    reals_key(&g, "clip.vision.image_std", 0.5f);
    ints_key(&g, "clip.vision.is_deepstack_layers", 7, 1, (const uint32_t[]){0, 1, 0, 1, 0, 1, 0, 0}, 8);
    tensor(&g, "v.position_embd.weight", 256, 48);
    if (llava) {
        tensor(&g, "mm.2.weight", 64, 64);
    }
    if (no_width) {
        tensor(&g, "v.blk.0.ffn_up.weight", 48, 80); /* exchanged, as in early files */
    }
    if (llava && !siglip) {
        tensor(&g, "v.class_embd", 1, 48);
    }
    if (llava && !first) {
        tensor(&g, "v.post_ln.weight", 1, 48);
    }
    return finish(&g);
}

/* Opens the pair and reads it. */
static davy_result read_pair(const char *arch, const char *projector, uint32_t patch, uint32_t width,
                             dv_vlm_config *c) {
    blob text = language_model(arch);
    blob clip = tower(projector, patch, width);
    dv_tensors *t = open_blob("text.gguf", &text);
    dv_tensors *v = open_blob("mmproj.gguf", &clip);
    const davy_result r = dv_vlm_config_gguf(t, v, c);
    dv_tensors_release(t);
    dv_tensors_release(v);
    drop(&text);
    drop(&clip);
    return r;
}

static void test_pairs(void) {
    dv_vlm_config c = {0};
    CHECK_OK(read_pair("llama", "idefics3", 16, 64, &c));
    CHECK(c.family == DV_VLM_IDEFICS3 && c.text.hidden == 64 && c.text.heads == 4 && c.text.kv_heads == 2);
    CHECK(c.text.vocab == 100 && c.text.tied_head && c.text.rope.pairs && c.text.rope.factors && c.text.qkv_bias);
    CHECK(c.text.rope.theta == 1e6 && c.text.head_dim == 32 && c.text.qk_norm == DV_VLM_QK_BEFORE_ROPE);
    CHECK(c.vision.grid == 4 && c.vision.tokens_per_tile == 1 && c.vision.norm_eps == 1e-6);
    CHECK(c.picture.longest == 128 && c.picture.tile == 64 && c.picture.mean[2] == 0.25 && c.picture.std[0] == 0.5);
    CHECK(c.tokens.n_eos == 2 && c.tokens.eos[0] == 7 && c.tokens.eos[1] == 9 && c.tokens.image == -1);
    CHECK_OK(read_pair("llama", "mlp", 16, 64, &c));
    CHECK(c.family == DV_VLM_LLAVA && c.vision.tower == DV_VLM_TOWER_CLIP && c.vision.run_layers == 7);
    CHECK(c.vision.drop_class && c.vision.tokens_per_tile == 16 && c.vision.act == DV_VLM_GELU_QUICK);
    CHECK(c.picture.rule == DV_VLM_PICTURE_CROP && c.vision.norm_eps > 9e-6);
    CHECK_OK(read_pair("llama", "first", 16, 768, &c)); /* 768: CLIP's own projection, which is not there */
    CHECK(c.family == DV_VLM_LLAVA && c.vision.out_hidden == 64 && c.vision.run_layers == 8);
    CHECK_OK(read_pair("qwen2", "siglip", 16, 0, &c));
    CHECK(c.vision.tower == DV_VLM_TOWER_SIGLIP && c.vision.act == DV_VLM_GELU_TANH && !c.vision.drop_class);
    CHECK_OK(read_pair("qwen2vl", "qwen2vl_merger", 14, 64, &c));
    CHECK(c.family == DV_VLM_QWEN2 && !c.text.rope.pairs && c.text.rope.sections[1] == 6 && c.vision.full[0]);
    CHECK_OK(read_pair("qwen2vl", "no width", 14, 64, &c));
    CHECK(c.family == DV_VLM_QWEN2 && c.vision.ffn == 80);
    CHECK_OK(read_pair("qwen2vl", "qwen2.5vl_merger", 14, 64, &c));
    CHECK(c.family == DV_VLM_QWEN2_5 && c.vision.full[7] && !c.vision.full[6] && c.vision.gated);
    CHECK(c.vision.window == 112 && c.vision.tokens_per_second == 2 && c.picture.rule == DV_VLM_PICTURE_SMART);
    CHECK_OK(read_pair("qwen3vl", "qwen3vl_merger", 16, 256, &c)); /* 64 and three times the same of the deepstack */
    CHECK(c.family == DV_VLM_QWEN3 && c.vision.n_deepstack == 3 && c.vision.deepstack[1] == 3);
    CHECK(c.vision.position_side == 16 && c.vision.out_hidden == 64 && c.text.rope.axes == DV_VLM_ROPE_INTERLEAVED);
}

static void test_refused(void) {
    dv_vlm_config c;
    CHECK_FAILS(read_pair("llama", "idefics3", 16, 63, &c), DAVY_E_FORMAT, "projector's width");
    CHECK_FAILS(read_pair("llama", "idefics3", 0, 64, &c), DAVY_E_FORMAT, "mmproj.gguf: clip.vision.patch_size: is 0");
    CHECK_FAILS(read_pair("llama", "ldp", 16, 64, &c), DAVY_E_ARCH, "projector type \"ldp\"");
    CHECK_FAILS(read_pair("qwen2vl", "idefics3", 16, 64, &c), DAVY_E_ARCH, "architecture \"qwen2vl\"");
    CHECK_FAILS(read_pair("llama", "next", 16, 64, &c), DAVY_E_UNSUPPORTED, "tiles of LLaVA-NeXT");
    gguf g = {0};
    text_key(&g, "general.architecture", "llama");
    int_key(&g, "split.count", 3);
    tensor(&g, "token_embd.weight", 100, 64);
    blob part = finish(&g);
    dv_tensors *p = open_blob("text-00001-of-00003.gguf", &part);
    CHECK_FAILS(dv_vlm_config_gguf(p, NULL, &c), DAVY_E_UNSUPPORTED, "split into 3 files");
    dv_tensors_release(p);
    drop(&part);
    blob text = language_model("gemma");
    dv_tensors *t = open_blob("text.gguf", &text);
    CHECK_FAILS(dv_vlm_config_gguf(t, NULL, &c), DAVY_E_ARCH, "\"gemma\" is not supported");
    CHECK_FAILS(dv_vlm_config_gguf(t, t, &c), DAVY_E_ARCH, "is not an mmproj");
    dv_tensors_release(t);
    drop(&text);
}

static void test_real(void) {
    const char *shared = getenv("DAVY_SHARED");
    char path[1024];
    snprintf(path, sizeof path, "%s/models/smollm2/SmolLM2-135M-Instruct.Q4_1.blk0.gguf",
             shared != NULL ? shared : "../shared");
    dv_tensors *t = NULL;
    if (dv_tensors_open_path(path, true, NULL, &t) < 0) {
        check_skip("no SmolLM2 file");
        return;
    }
    dv_vlm_config c = {0};
    const davy_result r = dv_vlm_config_gguf(t, NULL, &c);
    CHECKF(r == DAVY_OK, "%s", last_error());
    CHECK(c.text.hidden == 576 && c.text.heads == 9 && c.text.kv_heads == 3 && c.text.vocab == 49152);
    CHECK(c.text.rope.pairs && c.vision.tower == DV_VLM_TOWER_NONE && c.text.tied_head);
    dv_tensors_release(t);
}

int main(void) {
    test_pairs();
    test_refused();
    test_real();
    return check_done();
}
