/* gguf.h - reads single keys of a GGUF file's metadata. dv_gguf_parse skips arrays, such as a tokenizer's vocabulary: these
 * are read by key. */
#ifndef DV_FILE_GGUF_H
#define DV_FILE_GGUF_H

#include "core/file/source.h"

enum {
    DV_GGUF_U8,
    DV_GGUF_I8,
    DV_GGUF_U16,
    DV_GGUF_I16,
    DV_GGUF_U32,
    DV_GGUF_I32,
    DV_GGUF_F32,
    DV_GGUF_BOOL,
    DV_GGUF_STRING,
    DV_GGUF_ARRAY,
    DV_GGUF_U64,
    DV_GGUF_I64,
    DV_GGUF_F64,
    DV_GGUF_COUNT
};

extern const uint8_t dv_gguf_value_bytes[DV_GGUF_COUNT]; /* 0: strings and arrays */

int64_t dv_gguf_integer_of(const uint8_t *p, uint32_t type);

typedef struct dv_gguf_value {
    uint32_t type;    /* DV_GGUF_COUNT: no such key */
    uint32_t element; /* of an array; else type */
    uint64_t count;   /* of an array; else 1 */
    uint64_t at;      /* of the first element */
} dv_gguf_value;

davy_result dv_gguf_find(dv_source *source, const char *const *keys, int32_t n, dv_gguf_value *out);
/* Passes each string of an array (or the single string) to `each`, after a check of its UTF-8. DAVY_E_FORMAT names `key` if
 * its value has another type. */
typedef davy_result (*dv_gguf_string_fn)(void *user, int64_t index, const char *text, uint64_t bytes);
davy_result dv_gguf_strings(dv_source *source, const char *key, const dv_gguf_value *v, dv_gguf_string_fn each,
                            void *user);
/* The integers of an array, or the single integer. out has room for v->count. Errors as above. */
davy_result dv_gguf_integers(dv_source *source, const char *key, const dv_gguf_value *v, int64_t *out);

#endif
