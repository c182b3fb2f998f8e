/* text_fixture.c - see text_fixture.h. */
#include "tests/lib/text_fixture.h"

static const char *or_else(const char *s, const char *otherwise) {
    return s != NULL ? s : otherwise;
}

/* GPT-2's alphabet, computed independently of the tested code. */
static void put_vocabulary(blob *b) {
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

blob text_fixture_json(const text_fixture *f) {
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

davy_result text_fixture_open(const text_fixture *f, dv_tokenizer **out) {
    blob b = text_fixture_json(f);
    const davy_result r = dv_tokenizer_from_json((const char *)b.p, b.n, "tokenizer.json", out);
    drop(&b);
    return r;
}

dv_tokenizer *text_fixture_tokenizer(const text_fixture *f) {
    dv_tokenizer *t = NULL;
    CHECK_OK(text_fixture_open(f, &t));
    if (t == NULL) {
        abort(); /* nothing below makes sense */
    }
    return t;
}

void check_ids(const dv_ids *ids, const char *what, const char *wanted) {
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

void check_encode(const dv_tokenizer *t, const char *text, uint32_t flags, const char *wanted) {
    dv_ids ids = {0};
    CHECK_OK(dv_encode(t, text, strlen(text), flags, &ids));
    check_ids(&ids, text, wanted);
    dv_ids_clear(&ids);
}

const char *shared_file(const char *name) {
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
