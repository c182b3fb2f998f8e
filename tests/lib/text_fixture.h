/* text_fixture.h - small tokenizers for tests: all 256 bytes (the ids are the bytes), and tokens that a test adds. */
#ifndef DV_TESTS_TEXT_FIXTURE_H
#define DV_TESTS_TEXT_FIXTURE_H

#include "core/text/tokenizer.h"
#include "core/text/unicode.h"
#include "tests/lib/file_check.h"

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

blob text_fixture_json(const text_fixture *f);
davy_result text_fixture_open(const text_fixture *f, dv_tokenizer **out);
dv_tokenizer *text_fixture_tokenizer(const text_fixture *f);

/* The ids of a text are `wanted`, written "104 105". */
void check_ids(const dv_ids *ids, const char *what, const char *wanted);

void check_encode(const dv_tokenizer *t, const char *text, uint32_t flags, const char *wanted);

/* A file of DAVY_SHARED, NULL and a line "skipped" where it is not there. */
const char *shared_file(const char *name);

#endif
