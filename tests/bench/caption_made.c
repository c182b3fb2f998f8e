/* caption_made.c - the speed of captioning with random weights (made.h). It is not a test, but is built with the tests so that
 * it keeps compiling.
 * usage: caption_made smolvlm|qwen3b [cuda[:N]|cpu] [bf16|fp16|fp32|int8|int4|q4_k|q5_k|q6_k] [tokens] [threads] */
#include "tests/bench/made.h"

enum { RUNS = 7, WIDTH = 1288, HEIGHT = 728 };

/* ---- times ---- */

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double middle(double *times) {
    qsort(times, RUNS, sizeof *times, by_value);
    return times[RUNS / 2];
}

static double since(uint64_t begin) {
    return (double)(dv_now_ns() - begin) * 1e-6;
}

static int32_t print_id(void *user, int32_t id) {
    int *left = user;
    if (*left > 0) {
        printf("%d%s", (int)id, --*left > 0 ? " " : "\n");
    }
    return 0;
}

/* Generates an answer and prints its first `show` ids. */
static int64_t generate(dv_session *d, int64_t tokens, double temperature, int show) {
    const dv_generate g = {.sample = {.temperature = temperature, .top_k = 40, .top_p = 1, .repetition_penalty = 1},
                           .max_tokens = tokens,
                           .ignore_stops = true,
                           .token = print_id,
                           .user = &show};
    int64_t n = 0;
    dv_session_end end;
    must(dv_session_generate(d, &g, &n, &end), "generate");
    return n;
}

static dv_session *talk(const dv_vlm_model *m) {
    dv_session *d = NULL;
    must(dv_session_open(m, NULL, &d), "dialogue");
    return d;
}

static void time_prefill(const dv_vlm_model *m, int64_t tokens) {
    double times[RUNS];
    int32_t *ids = need(calloc((size_t)tokens, sizeof *ids));
    dv_session *d = talk(m);
    for (int64_t i = 0; i < tokens; i++) {
        ids[i] = (int32_t)(i * 17 % 4099);
    }
    for (int i = 0; i <= RUNS; i++) { /* the first warms up */
        must(dv_session_rewind(d, (dv_session_mark){.tokens = 0}), "rewind");
        const uint64_t begin = dv_now_ns();
        must(dv_session_feed(d, ids, tokens, NULL, 0), "prefill");
        times[i > 0 ? i - 1 : 0] = since(begin);
    }
    const double ms = middle(times);
    printf("prefill %lld tokens: %.2f ms, %.0f tok/s\n", (long long)tokens, ms, 1e3 * (double)tokens / ms);
    dv_session_release(d);
    free(ids);
}

static void time_decode(const dv_vlm_model *m, int64_t past, int64_t tokens) {
    int32_t *ids = need(calloc((size_t)past, sizeof *ids));
    dv_session *d = talk(m);
    must(dv_session_feed(d, ids, past, NULL, 0), "prefill");
    generate(d, 24, 0, 24); /* the ids are the same with all kernels, except at near ties */
    uint64_t begin = dv_now_ns();
    generate(d, tokens, 0, 0);
    const double greedy = 1e3 * (double)tokens / since(begin);
    begin = dv_now_ns();
    generate(d, tokens / 4, 0.7, 0);
    printf("decode behind %lld tokens: greedy %.1f tok/s, drawn %.1f tok/s\n", (long long)past, greedy,
           1e3 * (double)(tokens / 4) / since(begin));
    dv_session_release(d);
    free(ids);
}

/* The part of a look before the vision tower: sizes, resampling, patches. */
static double time_prepare(const dv_vlm_model *m, const dv_rgb8 *picture) {
    double times[RUNS];
    const dv_picture_options o = {.max_pixels = 0};
    const dv_picture_work work = {.pool = m->pool, .cpu = m->cpu};
    dv_picture_plan plan;
    for (int i = 0; i < RUNS; i++) {
        const uint64_t begin = dv_now_ns();
        must(dv_picture_plan_make(&m->config, &o, &(dv_picture_size){picture->width, picture->height, 0}, &plan),
             "plan");
        const size_t n = (size_t)(plan.patches * plan.patch_values);
        void *patches = need(malloc(n * sizeof(float)));
        must(dv_vision_takes_bytes(m->weights) ? dv_picture_bytes(&m->config, &plan, &work, picture, patches)
                                               : dv_picture_prepare(&m->config, &plan, &work, picture, patches),
             "prepare");
        times[i] = since(begin);
        free(patches);
    }
    return middle(times);
}

/* Times the first token: a picture of noise with all its tokens, twenty words, one token of an answer. */
static void time_first(const dv_vlm_model *m) {
    double seen_ms[RUNS];
    double read_ms[RUNS];
    double all_ms[RUNS];
    dv_rgb8 picture = {0};
    dv_session *d = talk(m);
    int64_t tokens = 0;
    must(dv_picture_allocate(WIDTH, HEIGHT, &picture), "picture");
    for (int64_t i = 0; i < picture.height * picture.stride; i++) {
        picture.data[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24);
    }
    for (int i = 0; i <= RUNS; i++) {
        dv_encoded seen = {.smaller = false};
        const int at = i > 0 ? i - 1 : 0;
        must(dv_session_rewind(d, (dv_session_mark){.tokens = 0}), "rewind");
        const uint64_t begin = dv_now_ns();
        must(dv_encode_image(m, &picture, NULL, NULL, &seen), "look");
        seen_ms[at] = since(begin);
        tokens = seen.features.tokens;
        int32_t *ids = need(calloc((size_t)tokens + 20, sizeof *ids));
        for (int64_t k = 0; k < tokens; k++) {
            ids[10 + k] = m->image_id;
        }
        const dv_session_picture shown = {.features = &seen.features};
        const uint64_t read = dv_now_ns();
        must(dv_session_feed(d, ids, tokens + 20, &shown, 1), "feed");
        read_ms[at] = since(read);
        generate(d, 1, 0, 0);
        all_ms[at] = since(begin);
        free(ids);
        dv_encoded_free(&seen);
    }
    const double seen = middle(seen_ms);
    const double read = middle(read_ms);
    printf("first token of %d x %d (%lld tokens): %.2f ms (look %.2f, of it pixels %.2f; read %.2f)\n", WIDTH, HEIGHT,
           (long long)tokens, middle(all_ms), seen, time_prepare(m, &picture), read);
    dv_picture_free(&picture);
    dv_session_release(d);
}

int main(int argc, char **argv) {
    const made o = {.qwen = argc > 1 && strcmp(argv[1], "qwen3b") == 0,
                    .device = argc > 2 ? argv[2] : "cuda",
                    .precision = argc > 3 ? argv[3] : "bf16"};
    const int64_t tokens = argc > 4 ? atoi(argv[4]) : 256;
    dv_vlm_model m = {.heap = dv_heap_create(NULL, 0), .cpu = dvk_cpu_detect()};
    made_begin(&o, argc > 5 ? atoi(argv[5]) : dv_cpu_count(), &m);
    time_prefill(&m, 512);
    time_prefill(&m, 2048);
    time_decode(&m, 32, tokens);
    time_decode(&m, 1024, tokens);
    time_first(&m);
    made_end(&m);
    return 0;
}
