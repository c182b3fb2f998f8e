/* golden_io.h - the golden runner's input: tensors of a safetensors file as f32, pictures as planes of f32. */
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

/* Reads a tensor of the file. Its last three axes are c, h, w; of five axes the last four are c, t, h, w. false: missing, or
 * unreadable (printed). */
bool read_tensor(const char *path, const char *name, array *out);
/* Reads a picture file as RGB / 255. */
bool read_png(const char *path, array *out);
/* The whole text file; free(). NULL: no such file. */
char *read_text(const char *path, uint64_t *bytes);

#endif
