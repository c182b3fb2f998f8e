/* vlm_fixture.c - see vlm_fixture.h. */
#include "tests/lib/vlm_fixture.h"

bool fixture_ok(davy_result r, const char *file, int line) {
    davy_error_info info = {.struct_size = sizeof info};
    dv_error_get(&info);
    return check_that(r == DAVY_OK, file, line, "%s: %s", dv_result_name(r), info.message);
}

#define FIXTURE_SMOL                                                                                                   \
    "{\"model_type\":\"idefics3\",\"image_token_id\":90,\"scale_factor\":2,\"tie_word_embeddings\":false,"             \
    "\"text_config\":{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,"   \
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":32,\"vocab_size\":96,"                           \
    "\"max_position_embeddings\":128,\"rms_norm_eps\":1e-05,\"rope_theta\":10000.0},\"vision_config\":{"               \
    "\"hidden_size\":32,\"image_size\":32,\"intermediate_size\":48,\"num_attention_heads\":2,"                         \
    "\"num_hidden_layers\":1,\"patch_size\":8}}"
#define FIXTURE_SMOL_PICTURE                                                                                           \
    "{\"size\":{\"longest_edge\":64},\"max_image_size\":{\"longest_edge\":32},\"do_image_splitting\":true}"
#define FIXTURE_QWEN3                                                                                                  \
    "{\"model_type\":\"qwen3_vl\",\"image_token_id\":90,\"video_token_id\":91,\"tie_word_embeddings\":true,"           \
    "\"text_config\":{\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,"                            \
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":32,\"vocab_size\":96,"                           \
    "\"max_position_embeddings\":128,\"rms_norm_eps\":1e-06,\"rope_theta\":10000.0,\"rope_scaling\":{"                 \
    "\"mrope_section\":[6,5,5],\"mrope_interleaved\":true}},\"vision_config\":{\"hidden_size\":32,"                    \
    "\"out_hidden_size\":64,\"intermediate_size\":48,\"num_heads\":2,\"depth\":2,\"patch_size\":4,"                    \
    "\"num_position_embeddings\":16,\"deepstack_visual_indexes\":[0,1]}}"
#define FIXTURE_QWEN3_PICTURE "{\"size\":{\"shortest_edge\":256,\"longest_edge\":4096}}"

void fixture_matrix(dv_tensors *t, const char *prefix, const char *name, int64_t n, int64_t k) {
    const int64_t shape[4] = {n, k, 1, 1}; /* four axes: fake_fill scales by the inputs */
    fake_add(t, 4, shape, "%s%s.weight", prefix, name);
}

void fixture_biased(dv_tensors *t, const char *prefix, const char *name, int64_t n, int64_t k) {
    fixture_matrix(t, prefix, name, n, k);
    fake_add(t, 1, &n, "%s%s.bias", prefix, name);
}

void fixture_norms(dv_tensors *t, const char *prefix, const char *const *names, int n, int64_t width) {
    for (int i = 0; i < n; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s%s", prefix, names[i]);
        fake_norm(t, name, width);
    }
}

void fixture_text(dv_tensors *t, const char *root, bool head_norms) {
    static const char *const norms[] = {"input_layernorm", "post_attention_layernorm"};
    char prefix[64];
    const int64_t vocab[4] = {96, 64, 1, 1};
    fake_add(t, 2, vocab, "%sembed_tokens.weight", root);
    snprintf(prefix, sizeof prefix, "%snorm", root);
    fake_norm(t, prefix, 64);
    for (int i = 0; i < 2; i++) {
        const int64_t head = 32;
        snprintf(prefix, sizeof prefix, "%slayers.%d.", root, i);
        fixture_norms(t, prefix, norms, 2, 64);
        fixture_matrix(t, prefix, "self_attn.q_proj", 64, 64);
        fixture_matrix(t, prefix, "self_attn.k_proj", 32, 64);
        fixture_matrix(t, prefix, "self_attn.v_proj", 32, 64);
        fixture_matrix(t, prefix, "self_attn.o_proj", 64, 64);
        fixture_matrix(t, prefix, "mlp.gate_proj", 96, 64);
        fixture_matrix(t, prefix, "mlp.up_proj", 96, 64);
        fixture_matrix(t, prefix, "mlp.down_proj", 64, 96);
        if (head_norms) {
            fake_add(t, 1, &head, "%sself_attn.q_norm.weight", prefix);
            fake_add(t, 1, &head, "%sself_attn.k_norm.weight", prefix);
        }
    }
}

static dv_tensors *fixture_smol(void) {
    static const char *const norms[] = {"layer_norm1", "layer_norm2"};
    static const char *const squares[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                          "self_attn.out_proj"};
    const char *block = "model.vision_model.encoder.layers.0.";
    dv_tensors *t = fake_new();
    fixture_text(t, "model.text_model.", false);
    fixture_matrix(t, "", "lm_head", 96, 64);
    fixture_biased(t, "model.vision_model.", "embeddings.patch_embedding", 32, 192);
    fixture_matrix(t, "model.vision_model.", "embeddings.position_embedding", 16, 32);
    fake_norm(t, "model.vision_model.post_layernorm", 32);
    fixture_norms(t, block, norms, 2, 32);
    for (int i = 0; i < 4; i++) {
        fixture_biased(t, block, squares[i], 32, 32);
    }
    fixture_biased(t, block, "mlp.fc1", 48, 32);
    fixture_biased(t, block, "mlp.fc2", 32, 48);
    fixture_matrix(t, "model.connector.", "modality_projection.proj", 64, 128);
    fake_done(t);
    return t;
}

static dv_tensors *fixture_qwen3(void) {
    static const char *const norms[] = {"norm1", "norm2"};
    static const char *const mergers[] = {"model.visual.merger.", "model.visual.deepstack_merger_list.0.",
                                          "model.visual.deepstack_merger_list.1."};
    dv_tensors *t = fake_new();
    fixture_text(t, "model.language_model.", true);
    fixture_biased(t, "model.visual.", "patch_embed.proj", 32, 96);
    fixture_matrix(t, "model.visual.", "pos_embed", 16, 32);
    for (int i = 0; i < 2; i++) {
        char block[64];
        snprintf(block, sizeof block, "model.visual.blocks.%d.", i);
        fixture_norms(t, block, norms, 2, 32);
        fixture_biased(t, block, "attn.qkv", 96, 32);
        fixture_biased(t, block, "attn.proj", 32, 32);
        fixture_biased(t, block, "mlp.linear_fc1", 48, 32);
        fixture_biased(t, block, "mlp.linear_fc2", 32, 48);
    }
    for (int i = 0; i < 3; i++) {
        char norm[64];
        snprintf(norm, sizeof norm, "%snorm", mergers[i]);
        fake_norm(t, norm, i == 0 ? 32 : 128);
        fixture_biased(t, mergers[i], "linear_fc1", 128, 128);
        fixture_biased(t, mergers[i], "linear_fc2", 64, 128);
    }
    fake_done(t);
    return t;
}

davy_result fixture_config(const char *config, const char *picture, dv_vlm_config *out) {
    const dv_vlm_files files = {.config = {config, strlen(config), "config.json"},
                                .preprocessor = {picture, strlen(picture), "preprocessor_config.json"}};
    return dv_vlm_config_parse(&files, out);
}

bool fixture_start(fixture *f, bool qwen3) {
    *f = (fixture){.tensors = qwen3 ? fixture_qwen3() : fixture_smol()};
    f->heap = dv_heap_create(NULL, 0);
    f->model.heap = f->heap;
    f->model.cpu = dvk_cpu_detect();
    f->model.compute = DVK_F32;
    f->model.image_id = 90;
    f->model.video_id = -1;
    const char *config = qwen3 ? FIXTURE_QWEN3 : FIXTURE_SMOL;
    const char *picture = qwen3 ? FIXTURE_QWEN3_PICTURE : FIXTURE_SMOL_PICTURE;
    if (f->heap == NULL || dv_pool_create(2, &f->pool) != DAVY_OK || !fake_fill(f->tensors, &f->data) ||
        fixture_config(config, picture, &f->model.config) != DAVY_OK) {
        return false;
    }
    f->model.pool = f->pool;
    return true;
}

davy_result fixture_load(fixture *f, dv_vlm_format format) {
    const dv_vlm_weights_source source = {.text = f->tensors,
                                          .vision = f->tensors,
                                          .config = &f->model.config,
                                          .heap = f->heap,
                                          .pool = f->pool,
                                          .gpu = f->model.gpu,
                                          .cpu = f->model.cpu,
                                          .format = format};
    return dv_vlm_weights_load(&source, &f->model.weights);
}

void fixture_end(fixture *f) {
    dv_vlm_weights_release(f->model.weights);
    dv_tensors_release(f->tensors);
    free(f->data);
    dv_pool_release(f->pool);
    dv_heap_release(f->heap);
}
