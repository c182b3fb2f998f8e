/* file_check.h - helpers of the tests of core/file: the fixtures of tests/data/files, their known values, error
 * messages, and small builders of files in memory. */
#ifndef DV_TESTS_FILE_CHECK_H
#define DV_TESTS_FILE_CHECK_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/file/tensors.h"
#include "core/base/mem.h"
#include "tests/lib/check.h"
#include "tests/lib/last_error.h"

/* Path below tests/data/files. The last 16 results stay valid. */
const char *file_fixture(const char *name);

/* The result is `code` and the message holds `text`. */
#define CHECK_FAILS(result, want, text)                                                                                \
    do {                                                                                                               \
        const davy_result check_r = (result);                                                                          \
        CHECKF(check_r == (want) && strstr(last_error(), text) != NULL, "%s: got %d \"%s\", wanted %d \"%s\"",         \
               #result, check_r, check_r < 0 ? last_error() : "", want, text);                                         \
    } while (0)

#define CHECK_OK(result)                                                                                               \
    do {                                                                                                               \
        const davy_result check_r = (result);                                                                          \
        CHECKF(check_r == DAVY_OK, "%s: got %d \"%s\"", #result, check_r, last_error());                               \
    } while (0)

/* ---- bytes in memory ---- */

typedef struct blob {
    uint8_t *p;
    size_t n;
} blob;

void put(blob *b, const void *bytes, size_t n);
void put_text(blob *b, const char *text);
void put_le(blob *b, uint64_t v, size_t bytes);
void put_zeros(blob *b, size_t n);
void drop(blob *b);
blob read_all(const char *path);

/* Opens a copy of exactly n bytes, so that a memory checker reports a read beyond them. Frees everything. */
davy_result open_bytes(const char *name, const void *bytes, size_t n, dv_tensors **out);

/* ---- the values that make.py writes ---- */

float known_value(dv_stored_dtype dtype, int64_t i);

/* Checks that the tensor exists, has this shape ("2,3", without brackets) and holds the known values in order. */
void check_known(const dv_tensors *t, const char *name, dv_stored_dtype dtype, const char *shape);

/* Checks the tensors of the fixture "plain", which are the same in every format but GGUF. */
void check_plain_tensors(const dv_tensors *t);

#endif
