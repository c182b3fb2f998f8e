/* test_vlm_mock.c - GPU captioning without a GPU. The mock driver's kernels are the references, so everything except the device code is as
 * on a device, including captured steps and steps begun ahead. The results must equal those of the CPU with the same weights. Short
 * memory, errors and cancelling must leak nothing. */
#include "tests/cuda/vlm_mock.h"
#include "tests/lib/hooks.h"
#include "tests/lib/distance.h"

enum { VOCAB = 96 };

static davy_result look(const fixture *f, uint32_t seed, int64_t width, dv_encoded *out) {
    dv_rgb8 picture = {0};
    davy_result r = dv_picture_allocate(width, 24, &picture);
    for (int64_t i = 0; r == DAVY_OK && i < width * 24 * 3; i++) {
        seed = seed * 1664525u + 1013904223u;
        picture.data[i] = (uint8_t)(seed >> 24);
    }
    r = r < 0 ? r : dv_encode_image(&f->model, &picture, NULL, NULL, out);
    dv_picture_free(&picture);
    return r;
}

typedef struct said { /* the output of one model */
    float vectors[64 * 64];
    int64_t tokens;
    float logits[3][VOCAB]; /* after the pictures, after one word, after a few */
    int32_t ids[2][16];
} said;

typedef struct list {
    int32_t *ids;
    int64_t n;
} list;

static int32_t keep(void *user, int32_t id) {
    list *l = user;
    l->ids[l->n++] = id;
    return 0;
}

static davy_result generate(dv_session *d, int64_t n, double temperature, int32_t *ids) {
    list l = {.ids = ids};
    const dv_generate g = {.sample = {.temperature = temperature, .top_p = 1, .repetition_penalty = 1, .seed = 5},
                           .max_tokens = n,
                           .ignore_stops = true,
                           .token = keep,
                           .user = &l};
    int64_t tokens = 0;
    dv_session_end why;
    return dv_session_generate(d, &g, &tokens, &why);
}

/* Two pictures and words in chunks of `chunk`, an answer, a further question, a sampled answer, then the first question again. */
static void talk(const fixture *f, int64_t chunk, said *out) {
    const dv_session_options o = {.context = 128, .chunk = chunk};
    dv_encoded seen[2] = {{.chat = {0}}};
    dv_session *d = NULL;
    int32_t ids[128];
    int64_t n = 0;
    if (!CHECK_OK(look(f, 1, 40, &seen[0])) || !CHECK_OK(look(f, 2, 64, &seen[1])) ||
        !CHECK_OK(dv_session_open(&f->model, &o, &d))) {
        return;
    }
    for (int part = 0; part < 3; part++) {
        for (int i = 0; i < 3 + part; i++) {
            ids[n++] = 7 * part + i;
        }
        for (int64_t i = 0; part < 2 && i < seen[part].features.tokens; i++) {
            ids[n++] = 90;
        }
    }
    const dv_session_picture pictures[2] = {{.features = &seen[0].features}, {.features = &seen[1].features}};
    out->tokens = seen[1].features.tokens;
    CHECK_OK(dv_vision_read(&seen[1].features, seen[1].features.vectors, out->tokens * 64, out->vectors));
    CHECK_OK(dv_session_feed(d, ids, n, pictures, 2));
    memcpy(out->logits[0], dv_session_logits(d), sizeof out->logits[0]);
    const dv_session_mark mark = dv_session_now(d);
    CHECK_OK(generate(d, 6, 0, out->ids[0]));
    CHECK_OK(generate(d, 6, 0, out->ids[0] + 6)); /* the answer continues */
    CHECK_OK(dv_session_feed(d, (const int32_t[]){4}, 1, NULL, 0));
    CHECK_OK(dv_session_feed(d, (const int32_t[]){2}, 1, NULL, 0));
    memcpy(out->logits[1], dv_session_logits(d), sizeof out->logits[1]);
    CHECK_OK(dv_session_feed(d, (const int32_t[]){3, 1, 4, 1, 5}, 5, NULL, 0));
    memcpy(out->logits[2], dv_session_logits(d), sizeof out->logits[2]);
    CHECK_OK(generate(d, 8, 0.7, out->ids[1]));
    CHECK_OK(generate(d, 8, 0, out->ids[1] + 8));
    int32_t again[12];
    CHECK_OK(dv_session_rewind(d, (dv_session_mark){.tokens = mark.tokens - 1, .next = mark.next - 1}));
    CHECK_OK(dv_session_feed(d, ids + n - 1, 1, NULL, 0));
    CHECK_OK(generate(d, 12, 0, again));
    CHECK(memcmp(again, out->ids[0], sizeof again) == 0);
    dv_session_release(d);
    dv_encoded_free(&seen[0]);
    dv_encoded_free(&seen[1]);
}

static void compare(const said *got, const said *expected, double bound, const char *what) {
    CHECK(got->tokens == expected->tokens);
    const double vectors = relative_distance(got->vectors, expected->vectors, got->tokens * 64);
    CHECKF(vectors <= bound, "%s: vectors %.3g", what, vectors);
    for (int i = 0; i < 3; i++) {
        const bool same = i == 0 || memcmp(got->ids, expected->ids, sizeof got->ids[0]) == 0;
        const double logits = relative_distance(got->logits[i], expected->logits[i], VOCAB);
        CHECKF(!same || logits <= bound, "%s: logits %d %.3g", what, i, logits);
    }
    if (bound < 1e-3) {
        CHECKF(memcmp(got->ids, expected->ids, sizeof got->ids) == 0, "%s: other words", what);
    }
}

static void test_same(bool qwen3, dvk_dtype compute, dv_vlm_format format, double bound) {
    pair p;
    said cpu = {.tokens = 0};
    said gpu = {.tokens = 0};
    if (vlm_mock_start(&p, qwen3, compute, format)) {
        talk(&p.cpu, 0, &cpu);
        talk(&p.gpu, 0, &gpu);
        compare(&gpu, &cpu, bound, "at once");
        CHECK(dv_gpu_used(p.device, DV_MEM_WORKSPACE) == 0);
        m->lazy = 1; /* work is done only when the program waits for it */
        talk(&p.gpu, 11, &gpu);
        m->lazy = 0;
        compare(&gpu, &cpu, bound, "in pieces, late");
    }
    vlm_mock_end(&p, "same");
}

/* ---- failures ---- */

static davy_result whole(const fixture *f) {
    dv_encoded seen = {.chat = {0}};
    dv_session *d = NULL;
    int32_t ids[64];
    int32_t answer[8];
    davy_result r = look(f, 3, 40, &seen);
    for (int64_t i = 0; r == DAVY_OK && i < seen.features.tokens; i++) {
        ids[i] = 90;
    }
    const dv_session_picture shown = {.features = &seen.features};
    r = r < 0 ? r : dv_session_open(&f->model, &(dv_session_options){.context = 64}, &d);
    r = r < 0 ? r : dv_session_feed(d, ids, seen.features.tokens, &shown, 1);
    r = r < 0 ? r : generate(d, 6, 0, answer);
    dv_session_release(d);
    dv_encoded_free(&seen);
    return r;
}

/* Host and device memory that runs out at any place. If a smaller picture is possible, it is tried. */
static void test_memory(bool qwen3) {
    pair p;
    m->no_pools = 1; /* with a pool each failing allocation is tried twice */
    if (vlm_mock_start(&p, qwen3, DVK_BF16, DV_VLM_NARROW)) {
        davy_result r = DAVY_E_NOMEM_HOST;
        for (int64_t n = 0; r < 0 && n < 3000; n++) {
            dv_alloc_fail_after(n);
            r = whole(&p.gpu);
            dv_alloc_fail_after(-1);
            CHECK(r == DAVY_OK || r == DAVY_E_NOMEM_HOST);
            CHECK(dv_gpu_used(p.device, DV_MEM_WORKSPACE) == 0);
        }
        CHECK_OK(r);
        int64_t failed = 0;
        for (int64_t n = 1; n < 60; n++) {
            m->fail_alloc_at = n;
            r = whole(&p.gpu);
            m->fail_alloc_at = 0;
            failed += r == DAVY_E_NOMEM_DEVICE;
            CHECK(r == DAVY_OK || r == DAVY_E_NOMEM_DEVICE);
            CHECK(dv_gpu_used(p.device, DV_MEM_WORKSPACE) == 0);
        }
        CHECKF(failed > 5, "%d", (int)failed);
        CHECK_OK(whole(&p.gpu));
    }
    vlm_mock_end(&p, "memory");
}

static void test_weights_memory(void) {
    pair p;
    m->no_pools = 1;
    if (vlm_mock_start(&p, true, DVK_BF16, DV_VLM_NARROW)) {
        dv_vlm_weights_release(p.gpu.model.weights);
        p.gpu.model.weights = NULL;
        davy_result r = DAVY_E_NOMEM_DEVICE;
        for (int64_t n = 1; r < 0 && n < 200; n++) {
            m->fail_alloc_at = n;
            r = fixture_load(&p.gpu, DV_VLM_INT8);
            m->fail_alloc_at = 0;
            CHECK(r == DAVY_OK || (r == DAVY_E_NOMEM_DEVICE && dv_gpu_used(p.device, DV_MEM_WEIGHTS) == 0));
        }
        CHECK_OK(r);
        CHECK_OK(whole(&p.gpu));
    }
    vlm_mock_end(&p, "memory for weights");
}

typedef struct spare {
    dv_gpu *gpu;
    void *block;
    uint64_t bytes;
} spare;

static bool make_room(void *user) {
    spare *s = user;
    const bool had = s->block != NULL;
    dv_gpu_free(s->gpu, DV_MEM_WORKSPACE, s->block, s->bytes);
    s->block = NULL;
    return had;
}

/* A budget too small for the longest context, unless another holder can spare memory. */
static void test_smaller(void) {
    pair p;
    dv_session *d = NULL;
    if (vlm_mock_start(&p, true, DVK_BF16, DV_VLM_NARROW)) {
        p.gpu.model.config.text.max_positions = 8192;
        CHECK_OK(dv_session_open(&p.gpu.model, NULL, &d));
        const uint64_t most = dv_gpu_used(p.device, DV_MEM_WEIGHTS) + dv_gpu_used(p.device, DV_MEM_WORKSPACE);
        CHECK(dv_session_context(d) == 8192);
        dv_session_release(d);
        d = NULL;
        spare s = {.gpu = p.device, .bytes = 1000};
        const dv_session_options o = {.room = make_room, .user = &s};
        OK(dv_gpu_alloc(p.device, DV_MEM_WORKSPACE, s.bytes, "spare", &s.block));
        dv_gpu_set_budget(p.device, most);
        CHECK_OK(dv_session_open(&p.gpu.model, &o, &d));
        CHECK(dv_session_context(d) == 8192 && s.block == NULL);
        dv_session_release(d);
        d = NULL;
        dv_gpu_set_budget(p.device, most - 1);
        CHECK_OK(dv_session_open(&p.gpu.model, &o, &d));
        CHECK(dv_session_context(d) == 4096);
        dv_session_release(d);
        d = NULL;
        CHECK(dv_session_open(&p.gpu.model, &(dv_session_options){.context = 8192}, &d) == DAVY_E_BUDGET);
    }
    vlm_mock_end(&p, "smaller");
}

static int32_t count_down(void *user) {
    int32_t *left = user;
    return (*left)-- <= 0;
}

static void test_cancel(void) {
    pair p;
    dv_session *d = NULL;
    int32_t left = 0;
    int32_t ids[16] = {0};
    const dv_session_options o = {.chunk = 9, .cancel = count_down, .user = &left};
    if (vlm_mock_start(&p, false, DVK_F32, DV_VLM_AS_STORED) && CHECK_OK(dv_session_open(&p.gpu.model, &o, &d))) {
        davy_result r = DAVY_E_CANCELLED;
        for (int32_t n = 0; r == DAVY_E_CANCELLED && n < 100; n++) {
            left = n;
            r = dv_session_feed(d, ids, 16, NULL, 0);
            CHECK(r == DAVY_OK || dv_session_tokens(d) == 0);
        }
        CHECK_OK(r);
        left = 4;
        CHECK(generate(d, 100, 0, (int32_t[100]){0}) == DAVY_E_CANCELLED);
        left = 1000;
        CHECK_OK(dv_session_feed(d, ids, 2, NULL, 0));
    }
    dv_session_release(d);
    vlm_mock_end(&p, "cancelled");
}

/* The context is full at a place where a step could still be begun ahead. */
static void test_full(void) {
    pair p;
    dv_session *d = NULL;
    int32_t words[2][32];
    const dv_session_options o = {.context = 20};
    if (vlm_mock_start(&p, false, DVK_F32, DV_VLM_AS_STORED)) {
        for (int i = 0; i < 2; i++) {
            CHECK_OK(dv_session_open(i == 0 ? &p.cpu.model : &p.gpu.model, &o, &d));
            CHECK_OK(dv_session_feed(d, (const int32_t[]){1, 2, 3}, 3, NULL, 0));
            CHECK(generate(d, 32, 0, words[i]) == DAVY_E_CONTEXT_FULL);
            SAYS("20 tokens");
            CHECK(dv_session_tokens(d) == 20);
            dv_session_release(d);
            d = NULL;
        }
        CHECK(memcmp(words[0], words[1], 18 * sizeof(int32_t)) == 0);
    }
    vlm_mock_end(&p, "full");
}

/* A long context: steps are made for the current number of tokens, and again when it grows or becomes far smaller. */
static void test_limit(void) {
    pair p;
    dv_session *d = NULL;
    int32_t words[2][60];
    int32_t ids[500];
    for (int i = 0; i < 500; i++) {
        ids[i] = i * 31 % 89;
    }
    if (vlm_mock_start(&p, false, DVK_F32, DV_VLM_AS_STORED)) {
        for (int i = 0; i < 2; i++) {
            dv_vlm_model *model = i == 0 ? &p.cpu.model : &p.gpu.model;
            model->config.text.max_positions = 8192;
            CHECK_OK(dv_session_open(model, NULL, &d));
            CHECK_OK(dv_session_feed(d, ids, 5, NULL, 0));
            CHECK_OK(generate(d, 20, 0, words[i]));
            CHECK_OK(dv_session_feed(d, ids, 500, NULL, 0));
            CHECK_OK(dv_session_feed(d, ids, 496, NULL, 0));
            CHECK_OK(generate(d, 20, 0, words[i] + 20)); /* across 1024 */
            m->lazy = 1;
            CHECK_OK(dv_session_rewind(d, (dv_session_mark){.tokens = 20, .next = 20}));
            CHECK_OK(dv_session_feed(d, ids, 3, NULL, 0));
            CHECK_OK(generate(d, 20, 0, words[i] + 40));
            m->lazy = 0;
            dv_session_release(d);
            d = NULL;
        }
        CHECK(memcmp(words[0], words[1], sizeof words[0]) == 0);
    }
    vlm_mock_end(&p, "limit");
}

/* A driver that cannot capture still computes. A lost device is reported by every call, and everything can be released. */
static void test_device(void) {
    pair p;
    dv_encoded seen = {.chat = {0}};
    dv_session *d = NULL;
    int32_t words[2][12];
    if (vlm_mock_start(&p, false, DVK_F32, DV_VLM_AS_STORED)) {
        for (int i = 0; i < 2; i++) {
            CHECK_OK(dv_session_open(&p.gpu.model, NULL, &d));
            CHECK_OK(dv_session_feed(d, (const int32_t[]){1, 2, 3}, 3, NULL, 0));
            m->fail_capture = i == 0 ? 0 : 901;
            CHECK_OK(generate(d, 12, 0, words[i]));
            CHECK(m->fail_capture == 0);
            dv_session_release(d);
            d = NULL;
        }
        CHECK(memcmp(words[0], words[1], sizeof words[0]) == 0);
        CHECK_OK(dv_session_open(&p.gpu.model, NULL, &d));
        CHECK_OK(dv_session_feed(d, (const int32_t[]){1, 2, 3}, 3, NULL, 0));
        m->fail_launch_at = 40;
        m->fail_launch_with = 700;
        CHECK(generate(d, 12, 0, words[0]) == DAVY_E_DEVICE_LOST);
        CHECK(look(&p.gpu, 3, 40, &seen) == DAVY_E_DEVICE_LOST);
        CHECK(dv_session_feed(d, (const int32_t[]){1, 2, 3}, 3, NULL, 0) == DAVY_E_DEVICE_LOST);
        dv_session_release(d);
    }
    fixture_end(&p.cpu);
    dv_vlm_weights_release(p.gpu.model.weights);
    p.gpu.model.weights = NULL;
    CHECK(dv_gpu_used(p.device, DV_MEM_WORKSPACE) == 0 && dv_gpu_used(p.device, DV_MEM_WEIGHTS) == 0);
    dv_gpu_release(p.device);
    mock_call("mock_reset");
    fixture_end(&p.gpu);
    vlm_chooses = false;
    vlm_calls_free();
}

int main(void) {
    mock_use(MOCK_FOLDER "/libmock_cuda.so");
    test_same(false, DVK_F32, DV_VLM_AS_STORED, 1e-5);
    test_same(true, DVK_F32, DV_VLM_AS_STORED, 1e-5);
    test_same(false, DVK_BF16, DV_VLM_NARROW, 3e-2);
    test_same(true, DVK_BF16, DV_VLM_NARROW, 3e-2);
    test_same(false, DVK_F32, DV_VLM_INT4, 1e-2); /* the vision tower is bf16 on the GPU, f32 on the CPU */
    test_same(true, DVK_F32, DV_VLM_INT8, 1e-2);
    test_same(true, DVK_BF16, DV_VLM_INT8, 6e-2);
    test_memory(false);
    test_memory(true);
    test_weights_memory();
    test_smaller();
    test_cancel();
    test_full();
    test_limit();
    test_device();
    return check_done();
}
