/* fuzz_target.c - one libFuzzer target per file format, chosen by DAVY_FUZZ_<NAME>. Any bytes must give tensors, or an error
 * with a message, without a fault, a leak or much memory. A mapped file must give the same result as a file that is read in
 * pieces. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/file/pickle.h"
#include "core/file/pth.h"
#include "core/file/tensors.h"
#include "core/file/zip.h"
#include "core/base/mem.h"
#include "core/text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct bytes {
    const uint8_t *data;
    size_t size;
} bytes;

/* Aborts, so that the fuzzer stops, if `holds` is 0. */
static void require(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "broken promise: %s\n", what);
        abort();
    }
}

#if !defined(DAVY_FUZZ_JSON)
static void check_error(davy_result r) {
    davy_error_info info = {.struct_size = sizeof info};
    dv_error_get(&info);
    require(info.code == r && strncmp(info.message, "fuzz", 4) == 0,
            "an error has a message that begins with the file's name");
    require(r == DAVY_E_FORMAT || r == DAVY_E_UNSAFE || r == DAVY_E_UNSUPPORTED,
            "an error has a code that files may cause");
}

#if !defined(DAVY_FUZZ_TOKENIZER) && !defined(DAVY_FUZZ_PIECES)
/* Reads the first tensors, enough to use the ranges that the header gives. */
static void read_some(const dv_tensors *t) {
    enum { MOST = 1 << 16 };
    float *values = malloc(MOST * sizeof *values);
    for (int64_t i = 0; values != NULL && i < t->count && i < 16; i++) {
        if (dv_tensor_elements(&t->refs[i]) <= MOST) {
            const davy_result r = dv_tensor_read_f32(&t->refs[i], values);
            require(r == DAVY_OK || r == DAVY_E_FORMAT || r == DAVY_E_UNSUPPORTED,
                    "reading values fails only with an allowed code");
        }
    }
    free(values);
}
#endif
#endif

#if defined(DAVY_FUZZ_SAFETENSORS) || defined(DAVY_FUZZ_GGUF) || defined(DAVY_FUZZ_ZIP) ||                             \
    defined(DAVY_FUZZ_PTH_STREAM) || defined(DAVY_FUZZ_TAR)

#if defined(DAVY_FUZZ_SAFETENSORS)
#define PARSE dv_safetensors_parse
#elif defined(DAVY_FUZZ_GGUF)
#define PARSE dv_gguf_parse
#elif defined(DAVY_FUZZ_ZIP)
#define PARSE dv_pth_zip_parse
#elif defined(DAVY_FUZZ_PTH_STREAM)
#define PARSE dv_pth_stream_parse
#else
#define PARSE dv_pth_tar_parse
#endif

static uint64_t DAVY_CALL read_bytes(void *user, uint64_t offset, void *dst, uint64_t n) {
    const bytes *b = user;
    require(offset <= b->size && n <= b->size - offset, "no read goes beyond the file");
    memcpy(dst, b->data + offset, (size_t)n);
    return n;
}

static davy_result parse(dv_source *source, int64_t *count) {
    dv_tensors *t = dv_calloc(1, sizeof *t);
    davy_result r = t == NULL ? DAVY_E_NOMEM_HOST : PARSE(source, t);
    r = r < 0 ? r : dv_tensors_sort(t);
    if (r < 0) {
        check_error(r);
    } else {
        *count = t->count;
        read_some(t);
        r = dv_tensors_unwrap(t);
    }
    dv_tensors_release(t);
    return r;
}

static void run(bytes b) {
    dv_source *mapped = NULL;
    dv_source *read = NULL;
    int64_t counts[2] = {0, 0};
    if (dv_source_open_memory("fuzz", b.data, b.size, &mapped) == DAVY_OK &&
        dv_source_open_reader("fuzz", read_bytes, &b, b.size, &read) == DAVY_OK) {
        const davy_result r = parse(mapped, &counts[0]);
        require(parse(read, &counts[1]) == r && counts[0] == counts[1],
                "a mapped and a read file give the same result");
    }
#if defined(DAVY_FUZZ_ZIP)
    dv_zip *zip = NULL;
    if (mapped != NULL && dv_zip_open(mapped, &zip) == DAVY_OK) {
        for (int64_t i = 0; i < zip->count; i++) {
            uint64_t at = 0;
            if (dv_zip_locate(zip, &zip->entries[i], &at) == DAVY_OK) {
                require(at <= b.size && zip->entries[i].bytes <= b.size - at, "an entry is inside the file");
            }
            require(dv_zip_find(zip, zip->entries[i].name) == &zip->entries[i], "an entry is found by its name");
        }
        dv_zip_release(zip);
    }
#endif
    dv_source_release(mapped);
    dv_source_release(read);
}

#elif defined(DAVY_FUZZ_PICKLE)

static davy_result locate(void *user, const dv_pickle *pk, const dv_pk_storage *storage, uint64_t *offset) {
    (void)user;
    (void)pk;
    require(storage->first <= storage->numel && storage->usable <= storage->numel - storage->first,
            "a view is inside its storage");
    *offset = 0;
    return DAVY_OK;
}

static void run(bytes b) {
    const dv_pk_input input = {"fuzz", 0, b.data, b.size, NULL, 0};
    dv_pickle pk;
    dv_source *source = NULL;
    davy_result r = dv_pickle_run(&input, &pk);
    if (r < 0) {
        check_error(r);
    } else if (dv_source_open_memory("fuzz", b.data, b.size, &source) == DAVY_OK) {
        dv_tensors *t = dv_calloc(1, sizeof *t);
        const dv_pth_where where = {source, locate, NULL};
        r = t == NULL ? DAVY_E_NOMEM_HOST : dv_pth_collect(&where, &pk, t);
        r = r < 0 ? r : dv_tensors_sort(t);
        if (r < 0) {
            check_error(r);
        } else {
            read_some(t);
        }
        dv_tensors_release(t);
    }
    dv_pickle_clear(&pk);
    dv_source_release(source);
}

#elif defined(DAVY_FUZZ_JSON)

static void walk(const dv_json *v, int depth) {
    int64_t integer = 0;
    double number = 0;
    require(depth <= 64, "no value is nested deeper than 64");
    if (dv_json_int(v, &integer)) {
        require(dv_json_double(v, &number) && (double)integer == number, "an integer is exact");
    }
    int64_t n = 0;
    for (const dv_json *c = dv_json_first(v); c != NULL; c = dv_json_next(c)) {
        require(!dv_json_is_object(v) || dv_json_key(c) != NULL, "a member has a key");
        walk(c, depth + 1);
        n++;
    }
    require(n == 0 || n == dv_json_size(v), "size counts the children");
}

static void run(bytes b) {
    dv_json *root = NULL;
    if (dv_json_parse((const char *)b.data, b.size, "fuzz", &root) == DAVY_OK) {
        walk(root, 0);
        dv_json_release(root);
    }
}

#elif defined(DAVY_FUZZ_TOKENIZER) || defined(DAVY_FUZZ_PIECES)

/* Loads a tokenizer.json, GGUF (detected as in dv_tokenizer_open) or tokenizer.model; then encodes and decodes a text. */
static void run(bytes b) {
    static const char text[] =
        "The cat's 12 <s>h\xc3\xa9llo  w\xcc\x81\n\n\xf0\x9f\x98\x80 aaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const bool gguf = b.size >= 4 && memcmp(b.data, "GGUF", 4) == 0;
    dv_tokenizer *t = NULL;
    dv_source *source = NULL;
    davy_result r = dv_source_open_memory("fuzz", b.data, b.size, &source);
#if defined(DAVY_FUZZ_PIECES)
    r = r < 0 || gguf ? r : dv_tokenizer_from_model(b.data, b.size, "fuzz", &t);
    r = r == DAVY_OK && gguf ? dv_tokenizer_from_gguf(source, &t) : r;
#else
    r = r < 0  ? r
        : gguf ? dv_tokenizer_from_gguf(source, &t)
               : dv_tokenizer_from_json((const char *)b.data, b.size, "fuzz", &t);
#endif
    if (r < 0) {
        check_error(r);
    }
    for (uint32_t flags = 0; r == DAVY_OK && flags < 4; flags++) {
        dv_ids ids = {0};
        char *back = NULL;
        uint64_t n = 0;
        require(dv_encode(t, text, sizeof text - 1, flags, &ids) == DAVY_OK, "a text is encoded");
        for (int64_t i = 0; i < ids.n; i++) {
            require(dv_tokenizer_bytes(t, ids.p[i], &n) != NULL, "every id is a token");
        }
        require(dv_decode(t, ids.p, ids.n, flags > 1, &back, &n) == DAVY_OK && strlen(back) <= n, "ids are decoded");
        dv_free(back);
        dv_ids_clear(&ids);
    }
    dv_tokenizer_release(t);
    dv_source_release(source);
}

#else
#error "choose a format: DAVY_FUZZ_SAFETENSORS, _GGUF, _ZIP, _PICKLE, _JSON, _PTH_STREAM, _TAR, _TOKENIZER or _PIECES"
#endif

/* A copy of the exact size, so that the sanitizer detects a read of one byte too many. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy != NULL) {
        memcpy(copy, data, size);
        run((bytes){copy, size});
    }
    free(copy);
    return 0;
}
