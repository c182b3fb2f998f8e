/* caption.c - measures the parts of a caption's time: a model from its folder, a picture of noise, two questions. It is not a
 * test, but is built with the tests so that it keeps compiling.
 * usage: caption FOLDER|TEXT.gguf [stored|f32|bf16|int8|int4|narrow] [threads] [width] [height] [tokens]
 *        [any word: no tokenizer] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/os.h"
#include "core/vlm/session.h"
#include "kernels/kernel.h"

static void must(davy_result r, const char *what) {
    if (r != DAVY_OK) {
        davy_error_info info = {.struct_size = sizeof info};
        dv_error_get(&info);
        fprintf(stderr, "caption: %s: %s\n", what, info.message);
        exit(1);
    }
}

static double milliseconds(uint64_t since) {
    return (double)(dv_now_ns() - since) * 1e-6;
}

static dv_vlm_format format_of(const char *name, dvk_dtype *compute) {
    static const char *const names[] = {"stored", "f32", "bf16", "int8", "int4", "narrow"};
    for (int i = 0; i < 6; i++) {
        if (strcmp(name, names[i]) == 0) {
            *compute = i == DV_VLM_F32 ? DVK_F32 : DVK_BF16;
            return (dv_vlm_format)i;
        }
    }
    fprintf(stderr, "caption: unknown format %s\n", name);
    exit(2);
}

/* Times a greedy answer of `tokens` tokens. */
static void answer(dv_session *d, const char *what, int64_t tokens) {
    const dv_generate first = {.sample = {.top_p = 1, .repetition_penalty = 1}, .max_tokens = 1, .ignore_stops = true};
    dv_generate rest = first;
    rest.max_tokens = tokens;
    int64_t n = 0;
    dv_session_end end;
    must(dv_session_generate(d, &first, &n, &end), "answer");
    const uint64_t t = dv_now_ns();
    must(dv_session_generate(d, &rest, &n, &end), "answer");
    printf("%s: %lld tokens, %.1f tok/s\n", what, (long long)n, 1e3 * (double)n / milliseconds(t));
}

static void ask(const dv_vlm_model *m, dv_session *d, const dv_encoded *const *seen, int32_t n, const char *question,
                int64_t tokens) {
    const int64_t before = dv_session_tokens(d);
    const uint64_t t = dv_now_ns();
    if (m->tokenizer != NULL) {
        must(dv_session_ask(d, NULL, seen, n, question), "ask");
    } else {
        static int32_t ids[512];
        must(dv_session_feed(d, ids, before == 0 ? 512 : 16, NULL, 0), "feed");
    }
    const double ms = milliseconds(t);
    const int64_t read = dv_session_tokens(d) - before;
    printf("prefill: %lld tokens, %.1f ms, %.1f tok/s\n", (long long)read, ms, 1e3 * (double)read / ms);
    answer(d, "decode", tokens);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fputs("usage: caption FOLDER|TEXT.gguf [stored|f32|bf16|int8|int4|narrow] [threads] [width] [height] [tokens] "
              "[ids]\n",
              stderr);
        return 2;
    }
    dvk_dtype compute = DVK_BF16;
    dv_vlm_open open = {.path = argv[1], .heap = dv_heap_create(NULL, 0), .cpu = dvk_cpu_detect()};
    open.format = format_of(argc > 2 ? argv[2] : "stored", &compute);
    open.compute = compute;
    const int64_t tokens = argc > 6 ? atoi(argv[6]) : 64;
    dv_rgb8 picture = {0};
    must(dv_pool_create(argc > 3 ? atoi(argv[3]) : dv_cpu_count(), &open.pool), "threads");
    must(dv_picture_allocate(argc > 4 ? atoi(argv[4]) : 512, argc > 5 ? atoi(argv[5]) : 512, &picture), "picture");
    for (int64_t i = 0; i < picture.height * picture.stride; i++) {
        picture.data[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24);
    }
    uint64_t t = dv_now_ns();
    dv_vlm_model *m = NULL;
    open.no_tokenizer = argc > 7; /* for files with a random tokenizer */
    must(dv_vlm_model_open(&open, &m), "model");
    printf("open: %.1f ms, weights %.1f MB\n", milliseconds(t), (double)dv_heap_used(open.heap, DV_MEM_WEIGHTS) / 1e6);
    dv_encoded seen = {.chat = {0}};
    const int32_t pictures = m->config.vision.tower != DV_VLM_TOWER_NONE ? 1 : 0;
    if (pictures > 0) {
        t = dv_now_ns();
        must(dv_encode_image(m, &picture, NULL, NULL, &seen), "look");
        printf("look: %lld tiles, %lld patches, %.1f ms\n", (long long)seen.plan.tiles, (long long)seen.plan.patches,
               milliseconds(t));
    }
    dv_session *d = NULL;
    must(dv_session_open(m, NULL, &d), "dialogue");
    const dv_encoded *shown = &seen;
    ask(m, d, &shown, pictures, "Describe the image.", tokens);
    ask(m, d, NULL, 0, "What colour is it?", tokens);
    dv_session_release(d);
    dv_encoded_free(&seen);
    dv_picture_free(&picture);
    dv_vlm_model_release(m);
    dv_pool_release(open.pool);
    dv_heap_release(open.heap);
    return 0;
}
