/* test_text_gguf.c - GGUF files that do not name their pre-tokeniser. It is recognised by Llama 3's vocabulary; any
 * other vocabulary is an error. The vocabulary is made here: its marks, its numbers, its size. */
#include "tests/lib/text_fixture.h"

enum { PLAIN = 128000, ALL = 128256 };

typedef struct made {
    const char *pre;      /* NULL: not named */
    int32_t eot;          /* id of <|eot_id|> */
    const char *number;   /* an additional word */
    bool short_of_number; /* 999 is missing */
    bool no_types;        /* the marks are ordinary words */
} made;

static void put_string(blob *b, const char *text) {
    put_le(b, strlen(text), 8);
    put_text(b, text);
}

static void put_key(blob *b, const char *name, uint32_t type, uint64_t n) {
    put_string(b, name);
    put_le(b, 9, 4);
    put_le(b, type, 4);
    put_le(b, n, 8);
}

/* Ids 0 to 255 are the bytes, 256 to 1255 the numbers of three digits. */
static void name_of(const made *m, int32_t id, char *out, size_t room) {
    static const char *const marks[] = {"<|begin_of_text|>",   "<|end_of_text|>",  "", "", "", "",
                                        "<|start_header_id|>", "<|end_header_id|>"};
    const int32_t mark = id - PLAIN;
    if (id == m->eot) {
        snprintf(out, room, "<|eot_id|>");
    } else if (mark >= 0 && mark < (int32_t)DV_ARRAY_LEN(marks) && marks[mark][0] != '\0') {
        snprintf(out, room, "%s", marks[mark]);
    } else if (id > ' ' && id < 127) {
        snprintf(out, room, "%c", (char)id);
    } else if (id >= 256 && id < 1256 && !(m->short_of_number && id == 1255)) {
        snprintf(out, room, "%03d", (int)id - 256);
    } else if (id == 2000 && m->number != NULL) {
        snprintf(out, room, "%s", m->number);
    } else {
        snprintf(out, room, "w%d", (int)id);
    }
}

static void put_tokens(blob *b, const made *m) {
    static char words[ALL * 28];
    size_t at = 0;
    put_key(b, "tokenizer.ggml.tokens", 8, ALL);
    for (int32_t id = 0; id < ALL; id++) {
        char name[20];
        name_of(m, id, name, sizeof name);
        const uint64_t n = strlen(name);
        memcpy(words + at, &n, 8);
        memcpy(words + at + 8, name, n);
        at += 8 + n;
    }
    put(b, words, at);
    if (!m->no_types) {
        static int32_t types[ALL];
        for (int32_t id = 0; id < ALL; id++) {
            types[id] = id >= PLAIN ? 3 : 1;
        }
        put_key(b, "tokenizer.ggml.token_type", 5, ALL);
        put(b, types, sizeof types);
    }
}

static davy_result open_made(const made *m, dv_tokenizer **out) {
    blob b = {NULL, 0};
    dv_source *source = NULL;
    put_text(&b, "GGUF");
    put_le(&b, 3, 4);
    put_le(&b, 0, 8);
    put_le(&b, 3u + (m->no_types ? 0 : 1u) + (m->pre != NULL ? 1u : 0), 8);
    put_string(&b, "tokenizer.ggml.model");
    put_le(&b, 8, 4);
    put_string(&b, "gpt2");
    if (m->pre != NULL) {
        put_string(&b, "tokenizer.ggml.pre");
        put_le(&b, 8, 4);
        put_string(&b, m->pre);
    }
    put_tokens(&b, m);
    put_key(&b, "tokenizer.ggml.merges", 8, 1);
    put_string(&b, "0 0");
    *out = NULL;
    davy_result r = dv_source_open_memory("text.gguf", b.p, b.n, &source);
    r = r < 0 ? r : dv_tokenizer_from_gguf(source, out);
    dv_source_release(source);
    drop(&b);
    return r;
}

static void test_told(void) {
    const made plain = {.eot = 128009, .number = "00"};
    const made named = {.eot = 128009, .number = "00", .pre = "gpt-2"};
    dv_tokenizer *t = NULL;
    CHECK_OK(open_made(&plain, &t));
    if (t != NULL) {
        CHECK(dv_tokenizer_note(t) != NULL && strstr(dv_tokenizer_note(t), "tokenizer.ggml.pre is missing") != NULL);
        check_encode(t, "4567<|eot_id|>", 0, "712 55 128009"); /* three digits and one; no merges lead to 456 */
    }
    dv_tokenizer_release(t);
    CHECK_OK(open_made(&named, &t));
    if (t != NULL) { /* a pre-tokeniser named by the file is used */
        CHECK(dv_tokenizer_note(t) == NULL);
        check_encode(t, "4567", 0, "52 53 54 55");
    }
    dv_tokenizer_release(t);
}

static void test_refused(void) {
    const made others[] = {{.eot = 128010, .number = "00"},
                           {.eot = 128009, .number = "00", .short_of_number = true},
                           {.eot = 128009, .number = "1234"},
                           {.eot = 128009, .number = "00", .no_types = true}};
    for (size_t i = 0; i < DV_ARRAY_LEN(others); i++) {
        dv_tokenizer *t = NULL;
        CHECK_FAILS(open_made(&others[i], &t), DAVY_E_FORMAT, "tokenizer.ggml.pre is missing");
        CHECK(t == NULL);
    }
}

int main(void) {
    test_told();
    test_refused();
    return check_done();
}
