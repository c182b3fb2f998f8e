/* test_vlm_clip.c - compares CLIP's tower and LLaVA's projector with plain loops in double precision: class token, norm before
 * the blocks, output of an earlier layer without the last norm, quick GELU. */
#include <math.h>

#include "tests/lib/vlm_fixture.h"

#define CLIP                                                                                                           \
    "{\"model_type\":\"llava\",\"image_token_index\":90,\"vision_feature_layer\":-2,"                                  \
    "\"vision_feature_select_strategy\":\"default\",\"text_config\":{\"model_type\":\"llama\",\"hidden_size\":64,"     \
    "\"intermediate_size\":96,\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1,"            \
    "\"head_dim\":32,\"vocab_size\":96,\"max_position_embeddings\":128,\"rms_norm_eps\":1e-05},"                       \
    "\"vision_config\":{\"model_type\":\"clip_vision_model\",\"hidden_size\":32,\"intermediate_size\":48,"             \
    "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"image_size\":16,\"patch_size\":4}}"
#define CLIP_PICTURE "{\"size\":{\"shortest_edge\":16},\"crop_size\":{\"height\":16,\"width\":16}}"

enum { PATCHES = 16, ROWS = PATCHES + 1, VALUES = 48, WIDTH = 32, WIDE = 48, OUT = 64, HEAD = 16 };

static const char *const tower = "vision_tower.vision_model.";
static const char *const block = "vision_tower.vision_model.encoder.layers.0.";

static dv_tensors *clip_tensors(void) {
    static const char *const norms[] = {"layer_norm1", "layer_norm2"};
    static const char *const squares[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                          "self_attn.out_proj"};
    const int64_t width = WIDTH;
    dv_tensors *t = fake_new();
    fixture_text(t, "language_model.model.", false);
    fixture_matrix(t, "language_model.", "lm_head", 96, 64);
    fake_add(t, 1, &width, "%sembeddings.class_embedding", tower);
    fixture_matrix(t, tower, "embeddings.patch_embedding", WIDTH, VALUES);
    fixture_matrix(t, tower, "embeddings.position_embedding", ROWS, WIDTH);
    fake_norm(t, "vision_tower.vision_model.pre_layrnorm", WIDTH);
    fixture_norms(t, block, norms, 2, WIDTH);
    for (int i = 0; i < 4; i++) {
        fixture_biased(t, block, squares[i], WIDTH, WIDTH);
    }
    fixture_biased(t, block, "mlp.fc1", WIDE, WIDTH);
    fixture_biased(t, block, "mlp.fc2", WIDTH, WIDE);
    fixture_biased(t, "multi_modal_projector.", "linear_1", OUT, WIDTH);
    fixture_biased(t, "multi_modal_projector.", "linear_2", OUT, OUT);
    fake_done(t);
    return t;
}

/* ---- the reference ---- */

static const fixture *now;

static const float *tensor(const char *prefix, const char *name) {
    char full[200];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const dv_tensor_ref *ref = dv_tensors_find(now->tensors, full);
    return CHECKF(ref != NULL, "no tensor %s", full) ? now->data + ref->offset / 4 : NULL;
}

static void linear(const char *prefix, const char *name, int n, int k, const double *x, double *y) {
    char part[64];
    snprintf(part, sizeof part, "%s.weight", name);
    const float *w = tensor(prefix, part);
    snprintf(part, sizeof part, "%s.bias", name);
    const float *b = tensor(prefix, part);
    for (int i = 0; i < n; i++) {
        y[i] = (double)b[i];
        for (int j = 0; j < k; j++) {
            y[i] += (double)w[i * k + j] * x[j];
        }
    }
}

static void layer_norm(const char *prefix, const char *name, const double *x, double *y) {
    char part[64];
    snprintf(part, sizeof part, "%s.weight", name);
    const float *w = tensor(prefix, part);
    snprintf(part, sizeof part, "%s.bias", name);
    const float *b = tensor(prefix, part);
    double mean = 0.0;
    double variance = 0.0;
    for (int i = 0; i < WIDTH; i++) {
        mean += x[i] / WIDTH;
    }
    for (int i = 0; i < WIDTH; i++) {
        variance += (x[i] - mean) * (x[i] - mean) / WIDTH;
    }
    for (int i = 0; i < WIDTH; i++) {
        y[i] = (x[i] - mean) / sqrt(variance + 1e-5) * (double)w[i] + (double)b[i];
    }
}

static void attend(double q[ROWS][WIDTH], double k[ROWS][WIDTH], double v[ROWS][WIDTH], double y[ROWS][WIDTH]) {
    for (int i = 0; i < ROWS; i++) {
        for (int h = 0; h < WIDTH; h += HEAD) {
            double weight[ROWS];
            double total = 0.0;
            for (int j = 0; j < ROWS; j++) {
                double dot = 0.0;
                for (int c = h; c < h + HEAD; c++) {
                    dot += q[i][c] * k[j][c];
                }
                total += weight[j] = exp(dot / sqrt((double)HEAD));
            }
            for (int c = h; c < h + HEAD; c++) {
                y[i][c] = 0.0;
                for (int j = 0; j < ROWS; j++) {
                    y[i][c] += weight[j] / total * v[j][c];
                }
            }
        }
    }
}

static void embed(const float *patches, double x[ROWS][WIDTH]) {
    const float *w = tensor(tower, "embeddings.patch_embedding.weight");
    const float *positions = tensor(tower, "embeddings.position_embedding.weight");
    const float *class_token = tensor(tower, "embeddings.class_embedding");
    for (int i = 0; i < ROWS; i++) {
        for (int c = 0; c < WIDTH; c++) {
            double sum = i == 0 ? (double)class_token[c] : 0.0;
            for (int k = 0; i > 0 && k < VALUES; k++) {
                sum += (double)w[c * VALUES + k] * (double)patches[(i - 1) * VALUES + k];
            }
            x[i][c] = sum + (double)positions[i * WIDTH + c];
        }
        layer_norm(tower, "pre_layrnorm", x[i], x[i]);
    }
}

static void plainly(const float *patches, double out[PATCHES][OUT]) {
    static double x[ROWS][WIDTH];
    static double n[ROWS][WIDTH];
    static double qkv[3][ROWS][WIDTH];
    double wide[OUT];
    double narrow[WIDTH];
    embed(patches, x);
    for (int i = 0; i < ROWS; i++) {
        layer_norm(block, "layer_norm1", x[i], n[i]);
        linear(block, "self_attn.q_proj", WIDTH, WIDTH, n[i], qkv[0][i]);
        linear(block, "self_attn.k_proj", WIDTH, WIDTH, n[i], qkv[1][i]);
        linear(block, "self_attn.v_proj", WIDTH, WIDTH, n[i], qkv[2][i]);
    }
    attend(qkv[0], qkv[1], qkv[2], n);
    for (int i = 0; i < ROWS; i++) {
        linear(block, "self_attn.out_proj", WIDTH, WIDTH, n[i], narrow);
        for (int c = 0; c < WIDTH; c++) {
            x[i][c] += narrow[c];
        }
        layer_norm(block, "layer_norm2", x[i], n[i]);
        linear(block, "mlp.fc1", WIDE, WIDTH, n[i], wide);
        for (int c = 0; c < WIDE; c++) {
            wide[c] /= 1.0 + exp(-1.702 * wide[c]);
        }
        linear(block, "mlp.fc2", WIDTH, WIDE, wide, narrow);
        for (int c = 0; c < WIDTH; c++) {
            x[i][c] += narrow[c];
        }
    }
    for (int i = 0; i < PATCHES; i++) {
        linear("multi_modal_projector.", "linear_1", OUT, WIDTH, x[i + 1], wide);
        for (int c = 0; c < OUT; c++) {
            wide[c] = 0.5 * wide[c] * (1.0 + erf(wide[c] / sqrt(2.0)));
        }
        linear("multi_modal_projector.", "linear_2", OUT, OUT, wide, out[i]);
    }
}

/* ---- main ---- */

static void compare(fixture *f, const float *patches) {
    static double expected[PATCHES][OUT];
    const dv_picture_plan plan = {.tiles = 1,
                                  .patches = PATCHES,
                                  .tokens = PATCHES,
                                  .patch_values = VALUES,
                                  .grid_t = 1,
                                  .grid_h = 4,
                                  .grid_w = 4};
    const dv_vision_desc desc = {.config = &f->model.config,
                                 .weights = f->model.weights,
                                 .heap = f->heap,
                                 .pool = f->pool,
                                 .cpu = f->model.cpu,
                                 .compute = DVK_F32};
    dv_vlm_features features = {0};
    now = f;
    plainly(patches, expected);
    if (CHECK_OK(dv_vision_run(&desc, &plan, &(dv_patches){.numbers = patches}, &features)) &&
        CHECK(features.tokens == PATCHES)) {
        double difference = 0.0;
        double norm = 0.0;
        for (int i = 0; i < PATCHES * OUT; i++) {
            difference += pow((double)features.vectors[i] - expected[i / OUT][i % OUT], 2);
            norm += pow(expected[i / OUT][i % OUT], 2);
        }
        CHECKF(sqrt(difference / norm) < 1e-5, "relative error %.3g", sqrt(difference / norm));
    }
    dv_vision_free(&features);
    CHECK(dv_heap_used(f->heap, DV_MEM_WORKSPACE) == 0);
}

int main(void) {
    static float patches[PATCHES * VALUES];
    fixture f = {.tensors = clip_tensors(), .heap = dv_heap_create(NULL, 0)};
    for (int i = 0; i < PATCHES * VALUES; i++) {
        patches[i] = (float)((i * 37 + 11) % 101) / 50.0f - 1.0f;
    }
    f.model.cpu = dvk_cpu_detect();
    if (CHECK(f.heap != NULL) && CHECK_OK(dv_pool_create(2, &f.pool)) && CHECK(fake_fill(f.tensors, &f.data)) &&
        CHECK_OK(fixture_config(CLIP, CLIP_PICTURE, &f.model.config)) &&
        CHECK(f.model.config.vision.run_layers == 1 && f.model.config.vision.drop_class) &&
        CHECK_OK(fixture_load(&f, DV_VLM_AS_STORED))) {
        compare(&f, patches);
    }
    fixture_end(&f);
    return check_done();
}
