/* captions.c - captions a second, one after another and several at once: pictures of noise in one tile, a question, answers
 * of a fixed length. Not a test: it is built with them so that it cannot rot.
 * usage: captions FOLDER [stored|f32|bf16|int8|int4|narrow] [threads] [pictures] [tokens] [width] [height]
 *        [any word: no tokenizer] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/error.h"
#include "core/os.h"
#include "core/vlm/batch.h"
#include "core/vlm/dialogue_priv.h"
#include "kernels/kernel.h"

enum { MAX_PICTURES = 256 };

static void must(davy_result r, const char *what) {
    if (r != DAVY_OK) {
        davy_error_info info = {.struct_size = sizeof info};
        dv_error_get(&info);
        fprintf(stderr, "captions: %s: %s\n", what, info.message);
        exit(1);
    }
}

static dv_vlm_format format_of(const char *name, dvk_dtype *compute) {
    static const char *const names[] = {"stored", "f32", "bf16", "int8", "int4", "narrow"};
    for (int i = 0; i < 6; i++) {
        if (strcmp(name, names[i]) == 0) {
            *compute = i == DV_VLM_F32 ? DVK_F32 : DVK_BF16;
            return (dv_vlm_format)i;
        }
    }
    fprintf(stderr, "captions: no format %s\n", name);
    exit(2);
}

typedef struct work {
    const dv_vlm_model *model;
    dv_rgb8 picture;
    int pictures;
    dv_generate generate;
} work;

typedef struct caption {
    dv_seen seen;
    dv_dialogue_picture shown;
    dv_ids ids;
} caption;

static void begin(const work *w, int i, caption *c) {
    uint32_t noise = (uint32_t)i;
    for (int64_t k = 0; k < w->picture.height * w->picture.stride; k++) {
        noise = noise * 1664525u + 1013904223u;
        w->picture.data[k] = (uint8_t)(noise >> 24);
    }
    *c = (caption){.ids = {0}};
    must(dv_dialogue_look(w->model, &w->picture, &(dv_picture_options){.max_tiles = 1}, NULL, &c->seen), "look");
    c->shown = (dv_dialogue_picture){.features = &c->seen.features};
    const dv_seen *seen = &c->seen;
    const dv_prompt prompt = {.pictures = &seen, .n = 1, .question = "Describe the image."};
    if (w->model->tokenizer != NULL) {
        must(dv_prompt_ids(w->model, &prompt, &c->ids), "prompt");
        return;
    }
    for (int64_t k = 0; k < 24 + c->seen.features.tokens; k++) {
        must(dv_ids_add(&c->ids, k < 12 || k >= 12 + c->seen.features.tokens ? (int32_t)k % 100 : w->model->image_id),
             "prompt");
    }
}

static void end(caption *c) {
    dv_seen_free(&c->seen);
    dv_ids_clear(&c->ids);
}

/* One thread is timed by the processor's clock: others on the machine cost cache only. */
static bool alone;

static double now_seconds(void) {
    struct timespec t;
    clock_gettime(alone ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void one_by_one(const work *w) {
    dv_dialogue *d = NULL;
    double parts[3] = {0.0, 0.0, 0.0};
    must(dv_dialogue_open(w->model, NULL, &d), "dialogue");
    for (int i = 0; i < w->pictures; i++) {
        caption c;
        int64_t n = 0;
        dv_dialogue_end how;
        double t = now_seconds();
        begin(w, i, &c);
        parts[0] += now_seconds() - t;
        t = now_seconds();
        must(dv_dialogue_feed(d, c.ids.p, c.ids.n, &c.shown, 1), "prompt");
        parts[1] += now_seconds() - t;
        t = now_seconds();
        must(dv_dialogue_generate(d, &w->generate, &n, &how), "answer");
        parts[2] += now_seconds() - t;
        must(dv_dialogue_rewind(d, (dv_dialogue_mark){.tokens = 0}), "rewind");
        end(&c);
    }
    dv_dialogue_release(d);
    const double n = w->pictures;
    printf("one by one: %.2f captions/s; look %.1f ms, prompt %.1f ms, answer %.1f ms\n",
           n / (parts[0] + parts[1] + parts[2]), 1e3 * parts[0] / n, 1e3 * parts[1] / n, 1e3 * parts[2] / n);
}

static void together(const work *w, int64_t width) {
    caption *list = calloc((size_t)w->pictures, sizeof *list);
    dv_batch *b = NULL;
    dv_batch_end e;
    int asked = 0;
    int done = 0;
    const double start = now_seconds();
    if (list == NULL) {
        exit(1);
    }
    while (done < w->pictures) {
        while (asked < w->pictures && (b == NULL || dv_batch_has_room(b))) {
            caption *c = &list[asked];
            begin(w, asked, c);
            const dv_batch_options o = {.sequences = width,
                                        .tokens = width * (c->ids.n + w->generate.max_tokens + DVK_PAGE)};
            must(b == NULL ? dv_batch_open(w->model, &o, &b) : DAVY_OK, "batch");
            const dv_batch_question q = {.ids = c->ids.p,
                                         .n = c->ids.n,
                                         .pictures = &c->shown,
                                         .n_pictures = 1,
                                         .generate = w->generate,
                                         .tag = c};
            must(dv_batch_ask(b, &q), "ask");
            asked++;
        }
        must(dv_batch_work(b), "work");
        for (; dv_batch_ended(b, &e); done++) {
            end(e.tag);
        }
    }
    const dv_batch_counts n = dv_batch_count(b);
    printf("%2d at once: %.2f captions/s; %.1f tokens a pass, store %.1f MB, %d put back\n", (int)width,
           w->pictures / (now_seconds() - start), (double)n.rows / (double)n.passes, (double)dv_batch_bytes(b) / 1e6,
           (int)n.put_back);
    dv_batch_release(b);
    free(list);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fputs(
            "usage: captions FOLDER [stored|f32|bf16|int8|int4|narrow] [threads] [pictures] [tokens] [width] [height] "
            "[ids]\n",
            stderr);
        return 2;
    }
    dvk_dtype compute = DVK_BF16;
    dv_vlm_open open = {.path = argv[1], .heap = dv_heap_create(NULL, 0), .cpu = dvk_cpu_detect()};
    open.format = format_of(argc > 2 ? argv[2] : "stored", &compute);
    open.compute = compute;
    open.no_tokenizer = argc > 8;
    must(dv_pool_create(argc > 3 ? atoi(argv[3]) : dv_cpu_count(), &open.pool), "threads");
    alone = dv_pool_threads(open.pool) == 1;
    dv_vlm_model *m = NULL;
    must(dv_vlm_model_open(&open, &m), "model");
    work w = {.model = m, .pictures = argc > 4 ? atoi(argv[4]) : 32};
    w.pictures = (int)dv_min(dv_max(1, w.pictures), MAX_PICTURES);
    w.generate = (dv_generate){.sample = {.top_p = 1, .repetition_penalty = 1},
                               .max_tokens = argc > 5 ? atoi(argv[5]) : 48,
                               .ignore_stops = true,
                               .lookup = DV_LOOKUP_OFF};
    must(dv_picture_allocate(argc > 6 ? atoi(argv[6]) : 256, argc > 7 ? atoi(argv[7]) : 256, &w.picture), "picture");
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    one_by_one(&w);
    for (int64_t width = 1; width <= DVK_FEW; width *= 2) {
        together(&w, width);
    }
    dv_picture_free(&w.picture);
    dv_vlm_model_release(m);
    dv_pool_release(open.pool);
    dv_heap_release(open.heap);
    return 0;
}
