/* golden_io.h - what the golden runner reads: tensors of a safetensors file as f32, pictures as planes of f32. */
#ifndef DV_TESTS_GOLDEN_IO_H
#define DV_TESTS_GOLDEN_IO_H

#include "core/base/common.h"

typedef struct array { /* planes: [c][t][h][w], t frames, 1 of a picture */
    float *data;
    int64_t c, t, h, w;
} array;

int64_t array_count(const array *a);
void array_free(array *a);
/* FNV-1a of the values' bytes: tests/identity.py compares it between two builds. */
uint64_t values_hash(const void *values, uint64_t bytes);

/* A tensor of the file, its last three axes taken as c, h, w, of five the last four as c, t, h, w. false: not there, or unreadable (printed). */
bool read_tensor(const char *path, const char *name, array *out);
/* RGB / 255. */
bool read_png(const char *path, array *out);
/* Whole text file; free(). NULL: not there. */
char *read_text(const char *path, uint64_t *bytes);

#endif
