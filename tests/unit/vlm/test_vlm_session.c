/* test_vlm_session.c - a session's cache: prompts in pieces or at once, further questions, rewinding, limits, cancelling, no
 * allocation while generating a token. */
#include <math.h>

#include "tests/lib/vlm_fixture.h"
#include "tests/lib/hooks.h"

enum { VOCAB = 96 };

static bool start(fixture *f, bool qwen3) {
    return CHECK(fixture_start(f, qwen3)) && CHECK_OK(fixture_load(f, DV_VLM_AS_STORED));
}

static double apart(const float *a, const float *b) {
    double largest = 0.0;
    for (int i = 0; i < VOCAB; i++) {
        largest = fmax(largest, fabs((double)a[i] - (double)b[i]));
    }
    return largest;
}

/* Encodes a picture of noise. */
static davy_result look(const fixture *f, uint32_t seed, dv_encoded *out) {
    dv_rgb8 picture = {0};
    davy_result r = dv_picture_allocate(40, 24, &picture);
    for (int64_t i = 0; r == DAVY_OK && i < 40 * 24 * 3; i++) {
        seed = seed * 1664525u + 1013904223u;
        picture.data[i] = (uint8_t)(seed >> 24);
    }
    r = r < 0 ? r : dv_encode_image(&f->model, &picture, NULL, NULL, out);
    dv_picture_free(&picture);
    return r;
}

/* 3 words, a picture, 4 words, a picture, 5 words. */
static int64_t prompt(const dv_encoded *seen, int32_t *ids) {
    int64_t n = 0;
    for (int part = 0; part < 3; part++) {
        for (int i = 0; i < 3 + part; i++) {
            ids[n++] = 7 * part + i;
        }
        for (int64_t i = 0; part < 2 && i < seen[part].features.tokens; i++) {
            ids[n++] = 90;
        }
    }
    return n;
}

static void feed_all(const fixture *f, const dv_encoded *seen, int64_t chunk, float *logits) {
    const dv_session_options o = {.context = 128, .chunk = chunk};
    const dv_session_picture pictures[2] = {{.features = &seen[0].features}, {.features = &seen[1].features}};
    int32_t ids[128];
    const int64_t n = prompt(seen, ids);
    dv_session *d = NULL;
    if (CHECK_OK(dv_session_open(&f->model, &o, &d)) && CHECK_OK(dv_session_feed(d, ids, n, pictures, 2))) {
        CHECK(dv_session_tokens(d) == n && dv_session_context(d) == 128);
        memcpy(logits, dv_session_logits(d), VOCAB * sizeof *logits);
    }
    dv_session_release(d);
}

/* The logits do not depend on where a prompt is cut, also inside pictures. */
static void test_pieces(bool qwen3) {
    fixture f;
    dv_encoded seen[2] = {{.chat = {0}}};
    float whole[VOCAB];
    float pieces[VOCAB];
    if (start(&f, qwen3) && CHECK_OK(look(&f, 1, &seen[0])) && CHECK_OK(look(&f, 2, &seen[1]))) {
        feed_all(&f, seen, 128, whole);
        for (int64_t chunk = 1; chunk < 12; chunk += 2) {
            feed_all(&f, seen, chunk, pieces);
            CHECKF(apart(whole, pieces) < 1e-4, "pieces of %d: %.3g", (int)chunk, apart(whole, pieces));
        }
    }
    dv_encoded_free(&seen[0]);
    dv_encoded_free(&seen[1]);
    fixture_end(&f);
}

/* In Qwen3 five frames make three time steps, each a separate span of placeholders. A frame shown twice equals a still picture
 * of it. */
static void test_video(void) {
    fixture f;
    dv_session *d = NULL;
    dv_encoded still = {.chat = {0}};
    dv_encoded video = {.chat = {0}};
    dv_rgb8 frames[5] = {{.data = NULL}};
    const int64_t index[5] = {0, 12, 24, 36, 48};
    bool ok = start(&f, true);
    f.model.config.picture.video_min_pixels = f.model.config.picture.video_max_pixels = 5 * 16 * 16;
    for (int i = 0; i < 5; i++) {
        ok = ok && CHECK_OK(dv_picture_allocate(16, 16, &frames[i]));
        for (int k = 0; ok && k < 16 * 16 * 3; k++) {
            frames[i].data[k] = (uint8_t)(k * 7 + i / 2 * 50);
        }
    }
    const dv_video v = {.frames = frames, .index = index, .n = 5, .total = 50, .fps = 24};
    if (ok && CHECK_OK(dv_encode_video(&f.model, &v, NULL, NULL, &video)) &&
        CHECK_OK(dv_encode_image(&f.model, &frames[4], NULL, NULL, &still)) &&
        CHECK_OK(dv_session_open(&f.model, NULL, &d))) {
        const int64_t each = video.features.tokens / 3;
        CHECK(video.chat.steps == 3 && video.chat.tokens == each && video.plan.grid_t == 3);
        CHECK(fabs(video.seconds[0] - 0.25) < 1e-9 && fabs(video.seconds[2] - 2.0) < 1e-9);
        CHECK(still.features.tokens == each);
        double largest = 0.0;
        for (int64_t i = 0; still.features.tokens == each && i < each * 64; i++) {
            largest = fmax(largest,
                           fabs((double)still.features.vectors[i] - (double)video.features.vectors[2 * each * 64 + i]));
        }
        CHECKF(largest < 1e-5, "the last step is not its frame: %.3g", largest);
        int32_t ids[100];
        int64_t n = 0;
        for (int step = 0; step < 3; step++) {
            ids[n++] = step;
            for (int64_t i = 0; i < each; i++) {
                ids[n++] = 90;
            }
        }
        const dv_session_picture shown = {.features = &video.features, .seconds = video.step};
        CHECK_OK(dv_session_feed(d, ids, n, &shown, 1));
        CHECK(dv_session_now(d).next == 3 + 3 * 2); /* a step of 2 x 2 tokens takes two positions */
        ids[1] = 5;
        ids[0] = 90; /* a word inside a step */
        CHECK(dv_session_feed(d, ids, n, &shown, 1) == DAVY_E_INVALID);
    }
    for (int i = 0; i < 5; i++) {
        dv_picture_free(&frames[i]);
    }
    dv_session_release(d);
    dv_encoded_free(&still);
    dv_encoded_free(&video);
    fixture_end(&f);
}

static const int32_t first[6] = {1, 5, 9, 13, 17, 21};
static const int32_t second[4] = {2, 4, 8, 16};

typedef struct list {
    int32_t *ids;
    int64_t n;
} list;

static int32_t keep(void *user, int32_t id) {
    list *l = user;
    l->ids[l->n++] = id;
    return 0;
}

static int32_t generate(dv_session *d, int64_t n, int32_t *ids) {
    list l = {.ids = ids};
    const dv_generate g = {.sample = {.top_p = 1, .repetition_penalty = 1},
                           .max_tokens = n,
                           .ignore_stops = true,
                           .token = keep,
                           .user = &l};
    int64_t tokens = 0;
    dv_session_end end;
    CHECK_OK(dv_session_generate(d, &g, &tokens, &end));
    CHECK(end == DV_END_LENGTH && tokens == n && l.n == n);
    return (int32_t)l.n;
}

/* A question after an answer gives the same result as the whole text at once. A rewind removes later tokens. */
static void test_follow_up(void) {
    fixture f;
    dv_session *d = NULL;
    dv_session *e = NULL;
    int32_t answer[16];
    int32_t again[16];
    if (start(&f, false) && CHECK_OK(dv_session_open(&f.model, NULL, &d)) &&
        CHECK_OK(dv_session_open(&f.model, NULL, &e))) {
        CHECK(dv_session_logits(d) == NULL && dv_session_context(d) == 128);
        CHECK_OK(dv_session_feed(d, first, 6, NULL, 0));
        const dv_session_mark mark = dv_session_now(d);
        generate(d, 5, answer);
        CHECK(dv_session_tokens(d) == 6 + 4); /* the last one waits for what follows */
        CHECK_OK(dv_session_feed(d, second, 4, NULL, 0));
        CHECK(dv_session_tokens(d) == 6 + 5 + 4);
        CHECK_OK(dv_session_feed(e, first, 6, NULL, 0));
        CHECK_OK(dv_session_feed(e, answer, 5, NULL, 0));
        CHECK_OK(dv_session_feed(e, second, 4, NULL, 0));
        CHECK(apart(dv_session_logits(d), dv_session_logits(e)) < 1e-5);
        CHECK_OK(dv_session_rewind(d, mark));
        CHECK(dv_session_logits(d) == NULL && dv_session_tokens(d) == 6);
        const dv_generate g = {.sample = {.top_p = 1, .repetition_penalty = 1}, .max_tokens = 1};
        int64_t tokens = 0;
        dv_session_end end;
        CHECK(dv_session_generate(d, &g, &tokens, &end) == DAVY_E_STATE);
        CHECK_OK(dv_session_rewind(d, (dv_session_mark){.tokens = 5, .next = 5}));
        CHECK_OK(dv_session_feed(d, first + 5, 1, NULL, 0));
        generate(d, 3, again); /* continues after the last token */
        generate(d, 2, again + 3);
        CHECK(memcmp(answer, again, 5 * sizeof *again) == 0);
        CHECK(dv_session_rewind(d, (dv_session_mark){.tokens = 50, .next = 50}) == DAVY_E_INVALID);
    }
    dv_session_release(d);
    dv_session_release(e);
    fixture_end(&f);
}

/* Generates an answer about a picture with the placeholder `id`. */
static void say_of(int32_t id, int32_t *said) {
    fixture f;
    dv_session *d = NULL;
    dv_encoded seen = {.chat = {0}};
    static const int32_t never[1] = {VOCAB - 1};
    list l = {.ids = said};
    const dv_generate g = {
        .sample = {.top_p = 1, .repetition_penalty = 1.3, .no_repeat_ngram = 2, .never = never, .n_never = 1},
        .max_tokens = 12,
        .ignore_stops = true,
        .token = keep,
        .user = &l};
    if (start(&f, false) && CHECK_OK(look(&f, 1, &seen)) && CHECK_OK(dv_session_open(&f.model, NULL, &d))) {
        const dv_session_picture shown = {.features = &seen.features};
        int32_t ids[64] = {3};
        int64_t n = 1;
        int64_t tokens = 0;
        dv_session_end end;
        f.model.image_id = id;
        while (n <= seen.features.tokens) {
            ids[n++] = id;
        }
        ids[n++] = 5;
        CHECK_OK(dv_session_feed(d, ids, n, &shown, 1));
        CHECK_OK(dv_session_generate(d, &g, &tokens, &end));
        CHECK(l.n == 12);
    }
    dv_session_release(d);
    dv_encoded_free(&seen);
    fixture_end(&f);
}

/* A placeholder may be outside the vocabulary, as in LLaVA's GGUF files. */
static void test_placeholder_without_row(void) {
    int32_t inside[12] = {0};
    int32_t outside[12] = {0};
    say_of(VOCAB - 1, inside);
    say_of(VOCAB, outside);
    CHECK(memcmp(inside, outside, sizeof inside) == 0);
}

static bool message_has(const char *part) {
    davy_error_info info = {.struct_size = sizeof info};
    dv_error_get(&info);
    return CHECKF(strstr(info.message, part) != NULL, "message \"%s\" without \"%s\"", info.message, part);
}

static void test_limits(void) {
    fixture f;
    dv_session *d = NULL;
    dv_encoded seen = {.chat = {0}};
    const dv_session_options o = {.context = 12};
    const dv_generate g = {.sample = {.top_p = 1, .repetition_penalty = 1}, .max_tokens = 100, .ignore_stops = true};
    int64_t tokens = 0;
    dv_session_end end;
    if (start(&f, false) && CHECK_OK(look(&f, 3, &seen)) && CHECK_OK(dv_session_open(&f.model, &o, &d))) {
        const int32_t bad[2] = {1, VOCAB};
        int32_t long_prompt[13] = {0};
        const int32_t placeholders[3] = {1, 90, 90};
        const dv_session_picture picture = {.features = &seen.features};
        CHECK(dv_session_feed(d, long_prompt, 13, NULL, 0) == DAVY_E_CONTEXT_FULL && message_has("12 tokens"));
        CHECK(dv_session_feed(d, bad, 2, NULL, 0) == DAVY_E_TOKENIZER && message_has("token 96"));
        CHECK(dv_session_feed(d, placeholders, 3, NULL, 0) == DAVY_E_INVALID && message_has("2 placeholders"));
        CHECK(dv_session_feed(d, placeholders, 3, &picture, 1) == DAVY_E_INVALID && message_has("vectors"));
        CHECK(dv_session_feed(d, first, 0, NULL, 0) == DAVY_E_INVALID && dv_session_tokens(d) == 0);
        CHECK_OK(dv_session_feed(d, first, 6, NULL, 0));
        CHECK(dv_session_generate(d, &g, &tokens, &end) == DAVY_E_CONTEXT_FULL && message_has("12 tokens"));
        CHECK(tokens == 7 && dv_session_tokens(d) == 12);
        CHECK(dv_session_ask(d, NULL, NULL, 0, "what?") == DAVY_E_TOKENIZER);
    }
    dv_session_release(d);
    d = NULL;
    CHECK(dv_session_open(&f.model, &(dv_session_options){.context = 129}, &d) == DAVY_E_INVALID && d == NULL);
    dv_encoded_free(&seen);
    fixture_end(&f);
}

static int32_t count_down(void *user) {
    int32_t *left = user;
    return (*left)-- <= 0;
}

static void test_cancel(void) {
    fixture f;
    dv_session *d = NULL;
    int32_t left = 0;
    const dv_session_options o = {.chunk = 2, .cancel = count_down, .user = &left};
    const dv_generate g = {.sample = {.top_p = 1, .repetition_penalty = 1}, .max_tokens = 100, .ignore_stops = true};
    if (start(&f, false) && CHECK_OK(dv_session_open(&f.model, &o, &d))) {
        davy_result r = DAVY_E_CANCELLED;
        int32_t n = 0;
        for (; r == DAVY_E_CANCELLED && n < 100; n++) { /* 6 tokens in passes of 2, of 2 layers each */
            left = n;
            r = dv_session_feed(d, first, 6, NULL, 0);
            CHECK(r == DAVY_OK || dv_session_tokens(d) == 0);
        }
        CHECKF(r == DAVY_OK && n == 7, "asked %d times", (int)n);
        int64_t tokens = 0;
        dv_session_end end;
        left = 4;
        CHECK(dv_session_generate(d, &g, &tokens, &end) == DAVY_E_CANCELLED);
        CHECK(tokens > 0 && tokens <= 4);
        left = 1000;
        CHECK_OK(dv_session_feed(d, second, 4, NULL, 0)); /* goes on */
    }
    dv_session_release(d);
    fixture_end(&f);
}

static void test_memory(void) {
    fixture f;
    if (start(&f, true)) {
        int32_t ids[40];
        int32_t positions[3 * 40];
        for (int i = 0; i < 40; i++) {
            ids[i] = i;
            positions[3 * i] = positions[3 * i + 1] = positions[3 * i + 2] = i;
        }
        const dv_decoder_desc desc = {.config = &f.model.config,
                                      .weights = f.model.weights,
                                      .heap = f.heap,
                                      .pool = f.pool,
                                      .cpu = f.model.cpu,
                                      .compute = DVK_F32,
                                      .context = 128};
        dv_decoder *d = NULL;
        davy_result r = DAVY_E_NOMEM_HOST;
        for (int64_t n = 0; r == DAVY_E_NOMEM_HOST && n < 1000; n++) {
            dv_alloc_fail_after(n);
            r = dv_decoder_open(&desc, &d);
            dv_alloc_fail_after(-1);
            CHECK(r == DAVY_OK || dv_heap_used(f.heap, DV_MEM_WORKSPACE) == 0);
        }
        CHECK_OK(r);
        const float *logits = NULL;
        int64_t fed = 0;
        dv_decoder_input in = {.ids = ids, .positions = positions, .n = 40};
        CHECK_OK(dv_decoder_feed(d, &in, &logits, &fed));
        in.n = 1;
        in.past = 40;
        CHECK_OK(dv_decoder_feed(d, &in, &logits, &fed));
        dv_alloc_fail_after(0); /* from here on all allocations fail */
        for (in.past = 41; in.past < 128; in.past++) {
            CHECK_OK(dv_decoder_feed(d, &in, &logits, &fed));
        }
        dv_alloc_fail_after(-1);
        CHECK(dv_decoder_bytes(d) == dv_heap_used(f.heap, DV_MEM_WORKSPACE));
        dv_decoder_release(d);
        CHECK(dv_heap_used(f.heap, DV_MEM_WORKSPACE) == 0);
    }
    fixture_end(&f);
}

/* Picture, session, question, answer. Each run gets one more allocation; until it succeeds it must fail without leaks. */
static davy_result talk(const fixture *f) {
    const dv_generate g = {.sample = {.top_p = 1, .repetition_penalty = 1}, .max_tokens = 3, .ignore_stops = true};
    const int32_t words[3] = {1, 2, 3};
    dv_session *d = NULL;
    dv_encoded seen = {.chat = {0}};
    int32_t ids[64];
    int64_t tokens = 0;
    dv_session_end end;
    davy_result r = look(f, 5, &seen);
    for (int64_t i = 0; r == DAVY_OK && i < seen.features.tokens; i++) {
        ids[i] = 90;
    }
    const dv_session_picture shown = {.features = &seen.features};
    r = r < 0 ? r : dv_session_open(&f->model, NULL, &d);
    r = r < 0 ? r : dv_session_feed(d, ids, seen.features.tokens, &shown, 1);
    r = r < 0 ? r : dv_session_feed(d, words, 3, NULL, 0);
    r = r < 0 ? r : dv_session_generate(d, &g, &tokens, &end);
    dv_session_release(d);
    dv_encoded_free(&seen);
    return r;
}

static void test_out_of_memory(bool qwen3) {
    fixture f;
    if (start(&f, qwen3)) {
        davy_result r = DAVY_E_NOMEM_HOST;
        int64_t n = 0;
        for (; r == DAVY_E_NOMEM_HOST && n < 10000; n++) {
            dv_alloc_fail_after(n);
            r = talk(&f);
            dv_alloc_fail_after(-1);
            CHECK(dv_heap_used(f.heap, DV_MEM_WORKSPACE) == 0);
        }
        CHECKF(r == DAVY_OK && n > 50, "after %d allocations: %s", (int)n, dv_result_name(r));
    }
    fixture_end(&f);
}

/* A budget too small for the whole picture, and one too small for the longest context. */
static void test_smaller(void) {
    fixture f;
    dv_encoded seen = {.chat = {0}};
    dv_session *d = NULL;
    dv_rgb8 picture = {0};
    if (start(&f, true) && CHECK_OK(dv_picture_allocate(64, 64, &picture))) {
        CHECK_OK(dv_encode_image(&f.model, &picture, NULL, NULL, &seen));
        const int64_t tokens = seen.features.tokens;
        const uint64_t most = dv_heap_peak(f.heap);
        CHECK(!seen.smaller && tokens == 64);
        dv_encoded_free(&seen);
        dv_heap_set_budget(f.heap, most - 1);
        CHECK_OK(dv_encode_image(&f.model, &picture, NULL, NULL, &seen));
        CHECK(seen.smaller && seen.features.tokens < tokens && seen.chat.tokens == seen.features.tokens);
        dv_encoded_free(&seen);
        dv_heap_set_budget(f.heap, dv_heap_used(f.heap, DV_MEM_WEIGHTS) + 1000);
        CHECK(dv_encode_image(&f.model, &picture, NULL, NULL, &seen) == DAVY_E_BUDGET);
        dv_heap_set_budget(f.heap, 0);
        f.model.config.text.max_positions = 8192;
        CHECK_OK(dv_session_open(&f.model, NULL, &d));
        CHECK(dv_session_context(d) == 8192);
        const uint64_t used = dv_heap_used(f.heap, DV_MEM_WEIGHTS) + dv_heap_used(f.heap, DV_MEM_WORKSPACE);
        dv_session_release(d);
        d = NULL;
        dv_heap_set_budget(f.heap, used - 1);
        CHECK_OK(dv_session_open(&f.model, NULL, &d));
        CHECK(dv_session_context(d) == 4096);
        dv_session_release(d);
        d = NULL;
        CHECK(dv_session_open(&f.model, &(dv_session_options){.context = 8192}, &d) == DAVY_E_BUDGET && d == NULL);
    }
    dv_picture_free(&picture);
    fixture_end(&f);
}

int main(void) {
    test_smaller();
    test_out_of_memory(false);
    test_out_of_memory(true);
    test_pieces(false);
    test_pieces(true);
    test_video();
    test_follow_up();
    test_placeholder_without_row();
    test_limits();
    test_cancel();
    test_memory();
    return check_done();
}
