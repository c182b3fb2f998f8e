/* text_fixture.h - small tokenizers for tests: all 256 bytes (ids are the bytes), and whatever a test adds. */
#ifndef DV_TESTS_TEXT_FIXTURE_H
#define DV_TESTS_TEXT_FIXTURE_H

#include "core/text/tokenizer.h"
#include "core/text/unicode.h"
#include "tests/unit/base/file_check.h"

typedef struct text_fixture { /* pieces of JSON; NULL: the usual */
    const char *pre, *normalizer, *post, *decoder;
    const char *vocabulary; /* more members: "\"ab\": 256" */
    const char *merges;     /* "\"a b\", [\"ab\", \"c\"]" */
    const char *added;
    const char *model; /* more members of model */
} text_fixture;

#define BYTE_LEVEL(regex)                                                                                              \
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": " regex "}"
#define SPLIT(pattern)                                                                                                 \
    "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" pattern           \
    "\"}, \"behavior\": \"Isolated\", \"invert\": false}, " BYTE_LEVEL("false") "]}"
#define SPECIAL(id, content) "{\"id\": " #id ", \"content\": \"" content "\", \"special\": true, \"normalized\": false}"

static inline const char *or_else(const char *s, const char *otherwise) {
    return s != NULL ? s : otherwise;
}

/* GPT-2's alphabet, counted again rather than asked of what is tested. */
static inline void put_vocabulary(blob *b) {
    uint32_t other = 256;
    for (uint32_t byte = 0; byte < 256; byte++) {
        const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        uint8_t name[4];
        const uint32_t n = dv_utf8_put(name, printable ? byte : other++);
        put_text(b, byte == '"' || byte == '\\' ? "\"\\" : "\"");
        put(b, name, n);
        char id[24];
        snprintf(id, sizeof id, "\": %u%s", (unsigned)byte, byte < 255 ? ", " : "");
        put_text(b, id);
    }
}

static inline blob fixture_json(const text_fixture *f) {
    blob b = {NULL, 0};
    put_text(&b, "{\"version\": \"1.0\", \"added_tokens\": [");
    put_text(&b, or_else(f->added, ""));
    put_text(&b, "], \"normalizer\": ");
    put_text(&b, or_else(f->normalizer, "null"));
    put_text(&b, ", \"pre_tokenizer\": ");
    put_text(&b, or_else(f->pre, BYTE_LEVEL("true")));
    put_text(&b, ", \"post_processor\": ");
    put_text(&b, or_else(f->post, "null"));
    put_text(&b, ", \"decoder\": ");
    put_text(&b, or_else(f->decoder, "{\"type\": \"ByteLevel\"}"));
    put_text(&b, ", \"model\": {\"type\": \"BPE\", ");
    put_text(&b, or_else(f->model, ""));
    put_text(&b, "\"vocab\": {");
    put_vocabulary(&b);
    put_text(&b, f->vocabulary != NULL ? ", " : "");
    put_text(&b, or_else(f->vocabulary, ""));
    put_text(&b, "}, \"merges\": [");
    put_text(&b, or_else(f->merges, ""));
    put_text(&b, "]}}");
    return b;
}

static inline davy_result fixture_open(const text_fixture *f, dv_tokenizer **out) {
    blob b = fixture_json(f);
    const davy_result r = dv_tokenizer_from_json((const char *)b.p, b.n, "tokenizer.json", out);
    drop(&b);
    return r;
}

static inline dv_tokenizer *fixture_tokenizer(const text_fixture *f) {
    dv_tokenizer *t = NULL;
    CHECK_OK(fixture_open(f, &t));
    if (t == NULL) {
        abort(); /* nothing below makes sense */
    }
    return t;
}

/* The ids of a text are `wanted`, written "104 105". */
static inline void check_ids(const dv_ids *ids, const char *what, const char *wanted) {
    blob got = {NULL, 0};
    for (int64_t i = 0; i < ids->n; i++) {
        char number[16];
        snprintf(number, sizeof number, "%s%d", i > 0 ? " " : "", (int)ids->p[i]);
        put_text(&got, number);
    }
    put(&got, "", 1);
    CHECKF(strcmp((const char *)got.p, wanted) == 0, "\"%s\": got \"%s\", wanted \"%s\"", what, (const char *)got.p,
           wanted);
    drop(&got);
}

static inline void check_encode(const dv_tokenizer *t, const char *text, uint32_t flags, const char *wanted) {
    dv_ids ids = {0};
    CHECK_OK(dv_encode(t, text, strlen(text), flags, &ids));
    check_ids(&ids, text, wanted);
    dv_ids_clear(&ids);
}

/* A file of DAVY_SHARED, NULL and a line "skipped" where it is not there. */
static inline const char *shared_file(const char *name) {
    static char path[1024];
    const char *root = getenv("DAVY_SHARED");
    snprintf(path, sizeof path, "%s/%s", root != NULL ? root : "", name);
    FILE *f = root != NULL ? fopen(path, "rb") : NULL;
    if (f == NULL) {
        check_skip(name);
        return NULL;
    }
    fclose(f);
    return path;
}

#endif
