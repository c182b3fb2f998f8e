/* clip_calls.h - a clip on its way through a stream of the bench's network, in calls of any lengths. */
#ifndef DV_TESTS_CLIP_CALLS_H
#define DV_TESTS_CLIP_CALLS_H

#include <math.h>

#include "core/clip/stream.h"
#include "tests/cuda/clip_bench.h"

enum { HEIGHT = 8, WIDTH = 8, LATENTS = 4, FRAMES = 7, PIXELS = HEIGHT * WIDTH };

dv_clip_stream *stream_of(bench *b, int64_t frames, int64_t slice);

/* ---- calls ---- */

typedef struct way { /* in which frames come and go */
    bool in_device, out_device, pixels, stream;
} way;

typedef struct clip { /* of latents, and the frames that they become: four values a pixel, the last of them nobody's */
    float *in, *out;
} clip;

enum { IN_BYTES = LATENTS * 4 * PIXELS / 16 * 4, OUT_BYTES = FRAMES * 4 * PIXELS * 4 };

clip clip_new(void);
void clip_free(clip *c);

/* `n` latents from the first that has not been given, and what becomes of them. */
davy_result call_stream(dv_clip_stream *s, const way *y, char *in, char *out, int64_t at, int64_t n, void *stream,
                        const dv_control *control);

/* All latents, `first` in the first call and `later` in the others. */
davy_result run_clip(bench *b, dv_clip_stream *s, const way *y, clip *c, int64_t first, int64_t later);

extern const way plain;

/* The clip as one slice. */
clip whole_clip(bench *b, const way *y);

bool same(const clip *a, const clip *b);
double distance(const clip *a, const clip *b);

#endif
