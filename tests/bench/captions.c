/* captions.c - captions per second, one after another and several at once: pictures of noise, a question, answers of a fixed
 * length. It is not a test, but is built with the tests so that it keeps compiling.
 * usage: captions FOLDER stored|f32|bf16|int8|int4|narrow THREADS [pictures] [tokens] [width] [height] [any word: no tokenizer]
 *        captions smolvlm|qwen3b PRECISION DEVICE [pictures] [tokens] [width] [height] [tiles]   (models of made.h) */
#include <time.h>

#include "core/vlm/batch.h"
#include "core/vlm/session.h"
#include "tests/bench/made.h"

enum { MAX_PICTURES = 256 };

static dv_vlm_format format_of(const char *name, dvk_dtype *compute) {
    static const char *const names[] = {"stored", "f32", "bf16", "int8", "int4", "narrow"};
    for (int i = 0; i < 6; i++) {
        if (strcmp(name, names[i]) == 0) {
            *compute = i == DV_VLM_F32 ? DVK_F32 : DVK_BF16;
            return (dv_vlm_format)i;
        }
    }
    fprintf(stderr, "captions: unknown format %s\n", name);
    exit(2);
}

typedef struct work {
    const dv_vlm_model *model;
    dv_rgb8 picture;
    int pictures;
    dv_generate generate;
    int32_t tiles;
} work;

typedef struct caption {
    dv_encoded seen;
    dv_session_picture shown;
    dv_ids ids;
} caption;

/* Fills the picture with noise once; later pictures differ only in their first row. */
static void paint(const work *w, int i) {
    static bool filled;
    uint32_t noise = (uint32_t)i + 1;
    for (int64_t k = 0; k < (filled ? 1 : w->picture.height) * w->picture.stride; k++) {
        noise = noise * 1664525u + 1013904223u;
        w->picture.data[k] = (uint8_t)(noise >> 24);
    }
    filled = true;
}

static void begin(const work *w, int i, caption *c) {
    paint(w, i);
    *c = (caption){.ids = {0}};
    must(dv_encode_image(w->model, &w->picture, &(dv_picture_options){.max_tiles = w->tiles}, NULL, &c->seen), "look");
    c->shown = (dv_session_picture){.features = &c->seen.features};
    const dv_encoded *seen = &c->seen;
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
    dv_encoded_free(&c->seen);
    dv_ids_clear(&c->ids);
}

/* One thread is timed by its processor time: other programs then affect only the cache. */
static bool alone;

static double now_seconds(void) {
    struct timespec t;
    clock_gettime(alone ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct parts { /* seconds */
    double look, prompt, answer;
} parts;

static void print(const work *w, const char *what, const parts *p) {
    const double n = w->pictures;
    printf("%s: %.2f captions/s; each: look %.2f ms, prompt %.2f ms, answer %.2f ms\n", what,
           n / (p->look + p->prompt + p->answer), 1e3 * p->look / n, 1e3 * p->prompt / n, 1e3 * p->answer / n);
}

static void one_by_one(const work *w) {
    dv_session *d = NULL;
    parts p = {0};
    must(dv_session_open(w->model, NULL, &d), "dialogue");
    for (int i = -1; i < w->pictures; i++) { /* the first warms up */
        caption c;
        int64_t n = 0;
        dv_session_end how;
        const double start = now_seconds();
        begin(w, i, &c);
        const double looked = now_seconds();
        must(dv_session_feed(d, c.ids.p, c.ids.n, &c.shown, 1), "prompt");
        const double read = now_seconds();
        must(dv_session_generate(d, &w->generate, &n, &how), "answer");
        must(dv_session_rewind(d, (dv_session_mark){.tokens = 0}), "rewind");
        end(&c);
        p.look += i < 0 ? 0 : looked - start;
        p.prompt += i < 0 ? 0 : read - looked;
        p.answer += i < 0 ? 0 : now_seconds() - read;
    }
    dv_session_release(d);
    print(w, "one by one", &p);
}

static void ask(const work *w, int64_t width, caption *c, dv_batch **b) {
    const dv_batch_options o = {.sequences = width, .tokens = width * (c->ids.n + w->generate.max_tokens + DVK_PAGE)};
    must(*b == NULL ? dv_batch_open(w->model, &o, b) : DAVY_OK, "batch");
    const dv_batch_question q = {
        .ids = c->ids.p, .n = c->ids.n, .pictures = &c->shown, .n_pictures = 1, .generate = w->generate, .tag = c};
    must(dv_batch_ask(*b, &q), "ask");
    for (bool more = w->model->gpu != NULL; more;) { /* as core/dialogue/captions.c */
        must(dv_batch_read(*b, &more), "read");
    }
}

static void together(const work *w, int64_t width) {
    caption *list = need(calloc((size_t)w->pictures, sizeof *list));
    dv_batch *b = NULL;
    dv_batch_end e;
    parts p = {0};
    int asked = 0;
    int done = 0;
    char what[16];
    while (done < w->pictures) {
        while (asked < w->pictures && (b == NULL || dv_batch_has_room(b))) {
            const double start = now_seconds();
            begin(w, asked, &list[asked]);
            const double looked = now_seconds();
            ask(w, width, &list[asked++], &b);
            p.look += looked - start;
            p.prompt += now_seconds() - looked;
        }
        const double start = now_seconds();
        must(dv_batch_work(b), "work");
        for (; dv_batch_ended(b, &e); done++) {
            end(e.tag);
        }
        p.answer += now_seconds() - start;
    }
    const dv_batch_counts n = dv_batch_count(b);
    snprintf(what, sizeof what, "%2d at once", (int)width);
    print(w, what, &p);
    printf("    %.1f tokens a pass of %.2f ms, store %.1f MB, %d put back\n", (double)n.rows / (double)n.passes,
           1e3 * p.answer / (double)n.passes, (double)dv_batch_bytes(b) / 1e6, (int)n.put_back);
    dv_batch_release(b);
    free(list);
}

static void measure(work *w) {
    one_by_one(w);
    for (int64_t width = w->model->gpu != NULL ? 8 : 1; width <= dv_batch_most(w->model); width *= 2) {
        together(w, width);
    }
}

static void of_folder(int argc, char **argv, work *w) {
    dvk_dtype compute = DVK_BF16;
    dv_vlm_open open = {.path = argv[1], .heap = dv_heap_create(NULL, 0), .cpu = dvk_cpu_detect()};
    open.format = format_of(argv[2], &compute);
    open.compute = compute;
    open.no_tokenizer = argc > 8;
    must(dv_pool_create(atoi(argv[3]), &open.pool), "threads");
    alone = dv_pool_threads(open.pool) == 1;
    dv_vlm_model *m = NULL;
    must(dv_vlm_model_open(&open, &m), "model");
    w->model = m;
    w->tiles = 1;
    measure(w);
    dv_vlm_model_release(m);
    dv_pool_release(open.pool);
    dv_heap_release(open.heap);
}

static void of_made(int argc, char **argv, work *w) {
    const made o = {.qwen = strcmp(argv[1], "qwen3b") == 0, .device = argv[3], .precision = argv[2]};
    dv_vlm_model m = {.heap = dv_heap_create(NULL, 0), .cpu = dvk_cpu_detect()};
    made_begin(&o, dv_cpu_count(), &m);
    w->model = &m;
    w->tiles = argc > 8 ? atoi(argv[8]) : 0;
    measure(w);
    made_end(&m);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fputs("usage: captions FOLDER FORMAT THREADS [pictures] [tokens] [width] [height] [ids]\n"
              "       captions smolvlm|qwen3b PRECISION DEVICE [pictures] [tokens] [width] [height] [tiles]\n",
              stderr);
        return 2;
    }
    work w = {.pictures = argc > 4 ? atoi(argv[4]) : 32};
    w.pictures = (int)dv_min(dv_max(1, w.pictures), MAX_PICTURES);
    w.generate = (dv_generate){.sample = {.top_p = 1, .repetition_penalty = 1},
                               .max_tokens = argc > 5 ? atoi(argv[5]) : 48,
                               .ignore_stops = true,
                               .lookup = DV_LOOKUP_OFF};
    must(dv_picture_allocate(argc > 6 ? atoi(argv[6]) : 256, argc > 7 ? atoi(argv[7]) : 256, &w.picture), "picture");
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    const bool made_up = strcmp(argv[1], "smolvlm") == 0 || strcmp(argv[1], "qwen3b") == 0;
    if (made_up) {
        of_made(argc, argv, &w);
    } else {
        of_folder(argc, argv, &w);
    }
    dv_picture_free(&w.picture);
    return 0;
}
