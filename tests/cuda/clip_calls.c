/* clip_calls.c - see clip_calls.h. */
#include "tests/cuda/clip_calls.h"

dv_clip_stream *stream_of(bench *b, int64_t frames, int64_t slice) {
    dv_clip_stream *s = NULL;
    CHECKF(dv_clip_stream_open(
               b->engine,
               &(dv_clip_stream_desc){
                   .stage = DV_STAGE_DECODE, .h = HEIGHT / 4, .w = WIDTH / 4, .frames = frames, .slice = slice},
               &s) == DAVY_OK,
           "%s", last_error());
    return s;
}

/* ---- calls ---- */

clip clip_new(void) {
    clip c = {made_up_frames(LATENTS, 4, HEIGHT / 4, WIDTH / 4), malloc(OUT_BYTES)};
    memset(c.out, 0x5a, OUT_BYTES);
    return c;
}

void clip_free(clip *c) {
    free(c->in);
    free(c->out);
}

static dvk_image out_image(char *data, bool pixels, int64_t at, int64_t n) {
    dvk_image i = frames_image(data, n, 3, HEIGHT, WIDTH);
    i.sn = 4 * PIXELS * 4; /* room for a fourth plane */
    if (pixels) {
        i.sc = 4;
        i.sw = 16;
        i.sh = WIDTH * 16;
    }
    i.data = data + at * i.sn;
    return i;
}

davy_result call_stream(dv_clip_stream *s, const way *y, char *in, char *out, int64_t at, int64_t n, void *stream,
                        const dv_control *control) {
    const int64_t first = at == 0 ? 1 : 0;
    dv_work w = {.stage = DV_STAGE_DECODE,
                 .in = frames_image(in + at * IN_BYTES / LATENTS, n, 4, HEIGHT / 4, WIDTH / 4),
                 .out = out_image(out, y->pixels, at == 0 ? 0 : 2 * at - 1, 2 * n - first),
                 .in_device = y->in_device,
                 .out_device = y->out_device,
                 .stream = stream,
                 .in_mul = 1.0f,
                 .out_mul = 1.0f};
    w.control = control != NULL ? *control : w.control;
    return dv_clip_stream_run(s, &w);
}

davy_result run_clip(bench *b, dv_clip_stream *s, const way *y, clip *c, int64_t first, int64_t later) {
    void *device[2] = {NULL, NULL};
    char *memory[2] = {(char *)c->in, (char *)c->out};
    const uint64_t bytes[2] = {IN_BYTES, OUT_BYTES};
    dv_gpu_queue *q = NULL;
    davy_result r = y->stream ? dv_gpu_queue_take(b->gpu, NULL, &q) : DAVY_OK;
    for (int i = 0; i < 2 && r == DAVY_OK; i++) {
        if (i == 0 ? y->in_device : y->out_device) {
            r = dv_gpu_alloc(b->gpu, DV_MEM_WORKSPACE, bytes[i], "picture", &device[i]);
            memcpy(device[i], memory[i], bytes[i]); /* the mock's device memory is host memory */
            memory[i] = device[i];
        }
    }
    for (int64_t at = 0, n = first; r == DAVY_OK && at < LATENTS; at += n, n = dv_min(later, LATENTS - at)) {
        r = call_stream(s, y, memory[0], memory[1], at, n, q != NULL ? q->stream : NULL, NULL);
    }
    if (device[1] != NULL) {
        memcpy(c->out, device[1], OUT_BYTES);
    }
    for (int i = 0; i < 2; i++) {
        dv_gpu_free(b->gpu, DV_MEM_WORKSPACE, device[i], bytes[i]);
    }
    if (q != NULL) {
        dv_gpu_queue_give(q);
    }
    return r;
}

const way plain;

clip whole_clip(bench *b, const way *y) {
    clip c = clip_new();
    dv_clip_stream *s = stream_of(b, LATENTS, LATENTS);
    CHECKF(run_clip(b, s, y, &c, LATENTS, 0) == DAVY_OK, "%s", last_error());
    dv_clip_stream_release(s);
    return c;
}

bool same(const clip *a, const clip *b) {
    return memcmp(a->out, b->out, OUT_BYTES) == 0;
}

double distance(const clip *a, const clip *b) {
    double d = 0.0, norm = 0.0;
    for (int64_t i = 0; i < OUT_BYTES / 4; i++) {
        if (i / PIXELS % 4 < 3) {
            const double e = (double)a->out[i] - (double)b->out[i];
            d += e * e;
            norm += (double)b->out[i] * (double)b->out[i];
        }
    }
    return sqrt(d / norm);
}
