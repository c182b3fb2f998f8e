/* test_vlm_smollm2.c - the first block of a real GGUF file (SmolLM2-135M, Q4_1, q and k rows in pairs) in the decoder, if
 * DAVY_SHARED (default ../shared) has it. */
#include <math.h>
#include <stdlib.h>

#include "tests/lib/vlm_fixture.h"
#include "tests/lib/distance.h"

enum { WIDTH = 576, WORDS = 1024, TOKENS = 37 };

static char *shared(const char *name) {
    const char *root = getenv("DAVY_SHARED");
    return dv_sprintf("%s/models/smollm2/%s", root != NULL ? root : "../shared", name);
}

/* The excerpt has one block of thirty and the first rows of its table. */
static bool open_excerpt(const char *path, dv_tensors **t, dv_vlm_config *c) {
    if (!CHECK_OK(dv_tensors_open_path(path, true, NULL, t))) {
        return false;
    }
    for (int64_t i = 0; i < (*t)->count; i++) {
        if (strcmp((*t)->refs[i].name, "token_embd.head.weight") == 0) {
            dv_free((*t)->refs[i].name);
            (*t)->refs[i].name = dv_strdup("token_embd.weight");
        }
    }
    const bool ok = CHECK_OK(dv_tensors_sort(*t)) && CHECK_OK(dv_vlm_config_gguf(*t, NULL, c));
    c->text.layers = 1;
    return ok && CHECK(c->text.rope.pairs && c->text.vocab == WORDS && c->text.hidden == WIDTH && c->text.tied_head);
}

static bool read_rows(const dv_tensors *t, const char *name, float *to) {
    const dv_tensor_ref *ref = dv_tensors_find(t, name);
    return CHECK(ref != NULL && dv_tensor_elements(ref) == TOKENS * WIDTH) && CHECK_OK(dv_tensor_read_f32(ref, to));
}

/* Applies the last norm and the head to a hidden state. */
static void head_of(const dv_vlm_weights *w, const float *x, float *logits) {
    double squares = 0.0;
    for (int i = 0; i < WIDTH; i++) {
        squares += (double)x[i] * (double)x[i];
    }
    const double scale = 1.0 / sqrt(squares / WIDTH + 1e-5);
    for (int i = 0; i < WORDS; i++) {
        float row[WIDTH];
        double sum = 0.0;
        dv_vlm_matrix_row(w, &w->head, i, row);
        for (int k = 0; k < WIDTH; k++) {
            sum += (double)x[k] * scale * (double)w->norm.w[k] * (double)row[k];
        }
        logits[i] = (float)sum;
    }
}

static void check_tokens(const dv_decoder_desc *desc, const float *embed, const float *hidden, int64_t n) {
    static float expected[WORDS];
    int32_t vector[TOKENS];
    int32_t positions[TOKENS];
    const int32_t ids[TOKENS] = {0};
    const float *logits = NULL;
    int64_t fed = 0;
    dv_decoder *d = NULL;
    for (int32_t i = 0; i < TOKENS; i++) {
        vector[i] = positions[i] = i;
    }
    const dv_decoder_input in = {.ids = ids, .vector = vector, .vectors = embed, .positions = positions, .n = n};
    if (CHECK_OK(dv_decoder_open(desc, &d)) && CHECK_OK(dv_decoder_feed(d, &in, &logits, &fed))) {
        head_of(desc->weights, hidden + (n - 1) * WIDTH, expected);
        const double bound = desc->compute == DVK_F32 ? 1e-4 : 5e-2;
        const double apart = relative_distance(logits, expected, WORDS);
        CHECKF(apart <= bound, "%d tokens: relative error %.3g", (int)n, apart);
    }
    dv_decoder_release(d);
}

int main(void) {
    static float embed[TOKENS * WIDTH];
    static float hidden[TOKENS * WIDTH];
    char *model = shared("SmolLM2-135M-Instruct.Q4_1.blk0.gguf");
    char *reference = shared("llama-blk0.ref.safetensors");
    dv_tensors *t = NULL;
    dv_tensors *numbers = NULL;
    dv_vlm_config config = {0};
    dv_vlm_weights *w = NULL;
    dv_pool *pool = NULL;
    dv_heap *heap = dv_heap_create(NULL, 0);
    if (dv_path_stat(model) == DV_PATH_NONE) {
        check_skip("models/smollm2 is not there (DAVY_SHARED)");
    } else if (CHECK(heap != NULL) && CHECK_OK(dv_pool_create(2, &pool)) && open_excerpt(model, &t, &config) &&
               CHECK_OK(dv_tensors_open_path(reference, true, NULL, &numbers)) && read_rows(numbers, "embed", embed) &&
               read_rows(numbers, "after_blk0", hidden)) {
        const dv_vlm_weights_source source = {
            .text = t, .config = &config, .heap = heap, .pool = pool, .cpu = dvk_cpu_detect()};
        dv_decoder_desc desc = {
            .config = &config, .heap = heap, .pool = pool, .cpu = source.cpu, .compute = DVK_F32, .context = 64};
        if (CHECK_OK(dv_vlm_weights_load(&source, &w)) && CHECK(w->layers[0].up.type == DVK_W_Q4_1)) {
            desc.weights = w;
            check_tokens(&desc, embed, hidden, 1);
            check_tokens(&desc, embed, hidden, 10);
            check_tokens(&desc, embed, hidden, TOKENS);
            desc.compute = DVK_BF16;
            check_tokens(&desc, embed, hidden, TOKENS);
        }
    }
    dv_vlm_weights_release(w);
    dv_tensors_release(t);
    dv_tensors_release(numbers);
    dv_pool_release(pool);
    dv_heap_release(heap);
    dv_free(model);
    dv_free(reference);
    return check_done();
}
