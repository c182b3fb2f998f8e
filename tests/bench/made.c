/* made.c - see made.h. */
#include "tests/bench/made.h"

void must(davy_result r, const char *what) {
    if (r != DAVY_OK) {
        davy_error_info info = {.struct_size = sizeof info};
        dv_error_get(&info);
        fprintf(stderr, "%s: %s\n", what, info.message);
        exit(1);
    }
}

void *need(void *p) {
    if (p == NULL) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return p;
}

/* ---- models ---- */

static void matrix(dv_tensors *t, const char *prefix, const char *name, int64_t n, int64_t k, bool bias) {
    const int64_t shape[2] = {n, k};
    fake_add(t, 2, shape, "%s%s.weight", prefix, name);
    if (bias) {
        fake_add(t, 1, &n, "%s%s.bias", prefix, name);
    }
}

static void vector(dv_tensors *t, const char *prefix, const char *name, int64_t n, bool bias) {
    fake_add(t, 1, &n, "%s%s.weight", prefix, name);
    if (bias) {
        fake_add(t, 1, &n, "%s%s.bias", prefix, name);
    }
}

static void add_text(dv_tensors *t, const dv_vlm_text *c, const char *root) {
    char prefix[96];
    const int64_t kv = c->kv_heads * c->head_dim;
    const int64_t vocab[2] = {c->vocab, c->hidden};
    fake_add(t, 2, vocab, "%sembed_tokens.weight", root);
    vector(t, root, "norm", c->hidden, false);
    for (int64_t i = 0; i < c->layers; i++) {
        snprintf(prefix, sizeof prefix, "%slayers.%d.", root, (int)i);
        vector(t, prefix, "input_layernorm", c->hidden, false);
        vector(t, prefix, "post_attention_layernorm", c->hidden, false);
        matrix(t, prefix, "self_attn.q_proj", c->heads * c->head_dim, c->hidden, c->qkv_bias);
        matrix(t, prefix, "self_attn.k_proj", kv, c->hidden, c->qkv_bias);
        matrix(t, prefix, "self_attn.v_proj", kv, c->hidden, c->qkv_bias);
        matrix(t, prefix, "self_attn.o_proj", c->hidden, c->heads * c->head_dim, false);
        matrix(t, prefix, "mlp.gate_proj", c->ffn, c->hidden, false);
        matrix(t, prefix, "mlp.up_proj", c->ffn, c->hidden, false);
        matrix(t, prefix, "mlp.down_proj", c->hidden, c->ffn, false);
    }
}

static void add_smolvlm(dv_tensors *t, const dv_vlm_config *c) {
    static const char *const squares[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                          "self_attn.out_proj"};
    const dv_vlm_vision *v = &c->vision;
    const char *root = "model.vision_model.";
    char prefix[96];
    add_text(t, &c->text, "model.text_model.");
    matrix(t, "", "lm_head", c->text.vocab, c->text.hidden, false);
    matrix(t, root, "embeddings.patch_embedding", v->hidden, 3 * v->patch * v->patch, true);
    matrix(t, root, "embeddings.position_embedding", v->grid * v->grid, v->hidden, false);
    vector(t, root, "post_layernorm", v->hidden, true);
    for (int64_t i = 0; i < v->layers; i++) {
        snprintf(prefix, sizeof prefix, "%sencoder.layers.%d.", root, (int)i);
        vector(t, prefix, "layer_norm1", v->hidden, true);
        vector(t, prefix, "layer_norm2", v->hidden, true);
        for (int k = 0; k < 4; k++) {
            matrix(t, prefix, squares[k], v->hidden, v->hidden, true);
        }
        matrix(t, prefix, "mlp.fc1", v->ffn, v->hidden, true);
        matrix(t, prefix, "mlp.fc2", v->hidden, v->ffn, true);
    }
    matrix(t, "model.connector.", "modality_projection.proj", v->out_hidden, v->hidden * v->shuffle * v->shuffle,
           false);
}

static void add_qwen(dv_tensors *t, const dv_vlm_config *c) {
    const dv_vlm_vision *v = &c->vision;
    const int64_t wide = v->hidden * v->merge * v->merge;
    char prefix[96];
    add_text(t, &c->text, "model.");
    matrix(t, "visual.", "patch_embed.proj", v->hidden, 3 * v->temporal * v->patch * v->patch, false);
    for (int64_t i = 0; i < v->layers; i++) {
        snprintf(prefix, sizeof prefix, "visual.blocks.%d.", (int)i);
        vector(t, prefix, "norm1", v->hidden, false);
        vector(t, prefix, "norm2", v->hidden, false);
        matrix(t, prefix, "attn.qkv", 3 * v->hidden, v->hidden, true);
        matrix(t, prefix, "attn.proj", v->hidden, v->hidden, true);
        matrix(t, prefix, "mlp.gate_proj", v->ffn, v->hidden, true);
        matrix(t, prefix, "mlp.up_proj", v->ffn, v->hidden, true);
        matrix(t, prefix, "mlp.down_proj", v->hidden, v->ffn, true);
    }
    vector(t, "visual.", "merger.ln_q", v->hidden, false);
    matrix(t, "visual.", "merger.mlp.0", wide, wide, true);
    matrix(t, "visual.", "merger.mlp.2", v->out_hidden, wide, true);
}

uint32_t noise(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* Whether a matrix gets K-quants: one of the language model whose rows are whole blocks. k_type NULL: none. */
static bool in_blocks(const dv_tensor_ref *ref, const char *k_type) {
    return k_type != NULL && ref->ndim == 2 && ref->shape[1] % 256 == 0 && strstr(ref->name, "vis") == NULL;
}

static void fill_blocks(unsigned char *to, uint64_t bytes, dvk_wtype type) {
    uint32_t state = 1;
    for (uint64_t i = 0; i < bytes; i++) {
        to[i] = (unsigned char)noise(&state);
    }
    const uint64_t block = (uint64_t)dvk_block_bytes(type);
    for (uint64_t i = 0; i + block <= bytes; i += block) { /* f16 of 1e-5 and 3e-5 */
        memcpy(to + i + (type == DVK_W_Q6_K ? 208 : 0), "\xa8", 2);
        if (type != DVK_W_Q6_K) {
            memcpy(to + i + 2, "\xf7\x01", 2);
        }
    }
}

/* Fills matrices with bf16 noise of about 0.01, or K-quants if k_type is not NULL, and vectors with ones. */
static uint16_t *fill(dv_tensors *t, const char *k_type, dvk_wtype type) {
    uint64_t size[3] = {0}; /* matrices, vectors, blocks */
    for (int64_t i = 0; i < t->count; i++) {
        dv_tensor_ref *ref = &t->refs[i];
        const bool blocks = in_blocks(ref, k_type);
        ref->dtype = blocks ? DV_STORED_OTHER : DV_STORED_BF16;
        memcpy(ref->dtype_name, blocks ? k_type : "BF16", 5);
        ref->bytes = blocks ? ref->bytes / 1024 * (uint64_t)dvk_block_bytes(type) : ref->bytes / 2;
        uint64_t *larger = &size[blocks ? 2 : ref->ndim == 1];
        *larger = ref->bytes > *larger ? ref->bytes : *larger;
    }
    uint16_t *data = need(malloc(size[0] + size[1] + size[2]));
    uint32_t state = 1;
    for (uint64_t i = 0; i < size[0] / 2; i++) {
        const uint32_t v = noise(&state);
        data[i] = (uint16_t)(0x3c00u | (v >> 15 << 15) | (v & 0x7fu));
    }
    for (uint64_t i = 0; i < size[1] / 2; i++) {
        data[size[0] / 2 + i] = 0x3f80;
    }
    fill_blocks((unsigned char *)data + size[0] + size[1], size[2], type);
    dv_source *source = NULL;
    must(dv_source_open_memory("made up", data, size[0] + size[1] + size[2], &source), "weights");
    for (int64_t i = 0; i < t->count; i++) {
        t->refs[i].source = dv_source_ref(source);
        t->refs[i].offset = t->refs[i].ndim == 1 ? size[0] : in_blocks(&t->refs[i], k_type) ? size[0] + size[1] : 0;
    }
    dv_source_release(source);
    return data;
}

typedef struct made_precision {
    const char *name;
    dv_vlm_format format;
    dvk_dtype compute;
    const char *k_type; /* the name in a file; NULL: no K-quants */
    dvk_wtype type;
} made_precision;

static const made_precision *precision_of(const made *o) {
    static const made_precision all[] = {
        {"bf16", DV_VLM_NARROW, DVK_BF16, NULL, DVK_W_BF16},   {"fp16", DV_VLM_F16, DVK_F16, NULL, DVK_W_BF16},
        {"fp32", DV_VLM_F32, DVK_F32, NULL, DVK_W_BF16},       {"int8", DV_VLM_INT8, DVK_BF16, NULL, DVK_W_BF16},
        {"int4", DV_VLM_INT4, DVK_BF16, NULL, DVK_W_BF16},     {"q4_k", DV_VLM_NARROW, DVK_BF16, "Q4_K", DVK_W_Q4_K},
        {"q5_k", DV_VLM_NARROW, DVK_BF16, "Q5_K", DVK_W_Q5_K}, {"q6_k", DV_VLM_NARROW, DVK_BF16, "Q6_K", DVK_W_Q6_K}};
    for (size_t i = 0; i < DV_ARRAY_LEN(all); i++) {
        if (strcmp(all[i].name, o->precision) == 0) {
            return &all[i];
        }
    }
    fprintf(stderr, "unknown precision %s\n", o->precision);
    exit(2);
}

static void make_model(const made *o, dv_vlm_model *m) {
    static const char smol[] = SMOLVLM_256M;
    static const char qwen[] = QWEN2_5_3B;
    static const char tiles[] = "{\"size\":{\"longest_edge\":2048},\"max_image_size\":{\"longest_edge\":512},"
                                "\"do_image_splitting\":true}";
    static const char pixels[] = "{\"min_pixels\":3136,\"max_pixels\":12845056}";
    const char *config = o->qwen ? qwen : smol;
    const char *picture = o->qwen ? pixels : tiles;
    const dv_vlm_files files = {.config = {config, strlen(config), "config.json"},
                                .preprocessor = {picture, strlen(picture), "preprocessor_config.json"}};
    dv_tensors *t = fake_new();
    const made_precision *p = precision_of(o);
    m->compute = p->compute;
    must(dv_vlm_config_parse(&files, &m->config), "configuration");
    m->image_id = (int32_t)(o->qwen ? 151655 : 49190);
    m->video_id = -1;
    if (o->qwen) {
        add_qwen(t, &m->config);
    } else {
        add_smolvlm(t, &m->config);
    }
    fake_done(t);
    uint16_t *data = fill(t, p->k_type, p->type);
    const dv_vlm_weights_source source = {.text = t,
                                          .vision = t,
                                          .config = &m->config,
                                          .heap = m->heap,
                                          .pool = m->pool,
                                          .gpu = m->gpu,
                                          .cpu = m->cpu,
                                          .format = p->format};
    const uint64_t begin = dv_now_ns();
    must(dv_vlm_weights_load(&source, &m->weights), "weights");
    const uint64_t bytes = m->gpu != NULL ? dv_gpu_used(m->gpu, DV_MEM_WEIGHTS) : dv_heap_used(m->heap, DV_MEM_WEIGHTS);
    printf("weights %.2f GB, loaded in %.2f s\n", (double)bytes * 1e-9, (double)(dv_now_ns() - begin) * 1e-9);
    dv_tensors_release(t);
    free(data);
}

void made_begin(const made *o, int32_t threads, dv_vlm_model *m) {
    must(dv_pool_create(threads, &m->pool), "threads");
    if (strcmp(o->device, "cpu") != 0) {
        dv_gpu_desc desc = {.heap = m->heap};
        must(dv_gpu_find(NULL, o->device, &desc.index), o->device);
        must(dv_gpu_open(&desc, &m->gpu), o->device);
    }
    printf("%s, %s, %s\n", o->qwen ? "Qwen2.5-VL-3B" : "SmolVLM-256M", o->device, o->precision);
    make_model(o, m);
}

void made_end(dv_vlm_model *m) {
    dv_vlm_weights_release(m->weights);
    if (m->gpu != NULL) {
        dv_gpu_release(m->gpu);
    }
    dv_pool_release(m->pool);
    dv_heap_release(m->heap);
}
