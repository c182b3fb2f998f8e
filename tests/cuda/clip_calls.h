/* clip_calls.h - a clip computed by a stream of the bench's network, in calls of any length. */
#ifndef DV_TESTS_CLIP_CALLS_H
#define DV_TESTS_CLIP_CALLS_H

#include <math.h>

#include "core/clip/stream.h"
#include "tests/cuda/clip_bench.h"

enum { HEIGHT = 8, WIDTH = 8, LATENTS = 4, FRAMES = 7, PIXELS = HEIGHT * WIDTH };

dv_clip_stream *stream_of(bench *b, int64_t frames, int64_t slice);

/* ---- calls ---- */

typedef struct way { /* how frames enter and leave */
    bool in_device, out_device, pixels, stream;
} way;

typedef struct clip { /* latents, and their frames: four values per pixel, the last one unused */
    float *in, *out;
} clip;

enum { IN_BYTES = LATENTS * 4 * PIXELS / 16 * 4, OUT_BYTES = FRAMES * 4 * PIXELS * 4 };

clip clip_new(void);
void clip_free(clip *c);

/* The next `n` latents and their frames. */
davy_result call_stream(dv_clip_stream *s, const way *y, char *in, char *out, int64_t at, int64_t n, void *stream,
                        const dv_control *control);

/* Computes all latents, `first` in the first call and `later` in each other call. */
davy_result run_clip(bench *b, dv_clip_stream *s, const way *y, clip *c, int64_t first, int64_t later);

extern const way plain;

/* The clip as one slice. */
clip whole_clip(bench *b, const way *y);

bool same(const clip *a, const clip *b);
double distance(const clip *a, const clip *b);

#endif
