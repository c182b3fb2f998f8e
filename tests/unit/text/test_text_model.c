/* test_text_model.c - SentencePiece's tokenizer.model, built here byte by byte: pieces, scores, bytes without a
 * piece. Also a folder's additions, its chat template, and damaged files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/text/tokenizer.h"
#include "core/vlm/template.h"
#include "tests/lib/check.h"
#include "tests/lib/last_error.h"

typedef struct wire {
    uint8_t p[8192];
    size_t n;
} wire;

static void put(wire *w, const void *p, size_t n) {
    if (w->n + n <= sizeof w->p) {
        memcpy(w->p + w->n, p, n);
        w->n += n;
    }
}

static void put_varint(wire *w, uint64_t v) {
    for (; v >= 0x80; v >>= 7) {
        put(w, &(uint8_t){(uint8_t)(v | 0x80)}, 1);
    }
    put(w, &(uint8_t){(uint8_t)v}, 1);
}

static void put_number(wire *w, uint64_t field, uint64_t v) {
    put_varint(w, field << 3);
    put_varint(w, v);
}

static void put_bytes(wire *w, uint64_t field, const void *p, size_t n) {
    put_varint(w, field << 3 | 2);
    put_varint(w, n);
    put(w, p, n);
}

static void put_piece(wire *w, const char *text, float score, uint64_t type) {
    static wire piece;
    piece.n = 0;
    put_bytes(&piece, 1, text, strlen(text));
    put_varint(&piece, 2 << 3 | 5);
    put(&piece, &score, sizeof score);
    if (type != 1) {
        put_number(&piece, 3, type);
    }
    put_bytes(w, 1, piece.p, piece.n);
}

typedef struct settings {
    uint64_t kind;
    bool fallback, plain; /* plain: no space in front */
    const char *rules;
} settings;

static void put_settings(wire *w, const settings *s) {
    static wire inner;
    inner.n = 0;
    put_number(&inner, 3, s->kind);
    put_number(&inner, 35, s->fallback);
    put_bytes(w, 2, inner.p, inner.n);
    inner.n = 0;
    if (s->rules != NULL) {
        put_bytes(&inner, 2, s->rules, strlen(s->rules));
    }
    put_number(&inner, 3, !s->plain);
    put_number(&inner, 4, 0);
    put_bytes(w, 3, inner.p, inner.n);
}

#define SP "\xe2\x96\x81"

/* "ab" beats "bc" beats SP "a"; ids in order. */
static const struct {
    const char *text;
    float score;
    uint64_t type;
} pieces[] = {{"<unk>", 0, 2}, {"<s>", 0, 3},  {"</s>", 0, 3}, {"ab", -1, 1},  {"bc", -2, 1},
              {SP "a", -3, 1}, {"abc", -4, 1}, {SP, -5, 1},    {"a", -6, 1},   {"b", -7, 1},
              {"c", -8, 1},    {SP SP, -9, 1}, {"<im>", 0, 4}, {"cc", -10, 1}, {"\xc3\xa9", -11, 1}};
enum { PIECES = 15, IM = 12 };

static void make(wire *w, const settings *s) {
    w->n = 0;
    put_settings(w, s);
    for (int i = 0; i < PIECES; i++) {
        put_piece(w, pieces[i].text, pieces[i].score, pieces[i].type);
    }
    for (unsigned b = 0; s->fallback && b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        put_piece(w, name, 0, 6);
    }
}

static dv_tokenizer *opened(const settings *s) {
    static wire w;
    dv_tokenizer *t = NULL;
    make(&w, s);
    CHECKF(dv_tokenizer_from_model(w.p, w.n, "m", &t) == DAVY_OK, "%s", last_error());
    return t;
}

static void check_ids(const dv_tokenizer *t, const char *text, uint32_t flags, const int32_t *wanted, int64_t n) {
    dv_ids ids = {0};
    CHECK(dv_encode(t, text, strlen(text), flags, &ids) == DAVY_OK);
    CHECKF(ids.n == n && (n == 0 || memcmp(ids.p, wanted, (size_t)n * sizeof *wanted) == 0),
           "\"%s\": %lld ids, first %d", text, (long long)ids.n, ids.n > 0 ? (int)ids.p[0] : -1);
    dv_ids_clear(&ids);
}

#define IDS(t, text, flags, ...)                                                                                       \
    check_ids(t, text, flags, (const int32_t[]){__VA_ARGS__},                                                          \
              (int64_t)(sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))

static void test_merging(void) {
    const settings usual = {.kind = 2, .fallback = true};
    dv_tokenizer *t = opened(&usual);
    IDS(t, "abc", 0, 7, 6);      /* ab first, then abc; the space stays alone */
    IDS(t, "ac", 0, 5, 10);      /* SP a */
    IDS(t, "  a", 0, 11, 5);     /* SP a before SP SP */
    IDS(t, "bcc", 0, 7, 4, 10);  /* bc before cc */
    IDS(t, "ccc", 0, 7, 13, 10); /* the leftmost of equal ones */
    IDS(t, "\xc3\xa9", 0, 7, 14);
    IDS(t, "z\xc3\xa8", 0, 7, PIECES + 'z', PIECES + 0xc3, PIECES + 0xa8);
    IDS(t, "a<s>b", 0, 5, 1, 7, 9);
    IDS(t, "<s>", DV_ENCODE_PLAIN, 7, PIECES + '<', PIECES + 's', PIECES + '>');
    IDS(t, "b<im>b", 0, 7, 9, IM, 9); /* a user-defined piece splits the text, without a space in front of the rest */
    IDS(t, "a", DV_ENCODE_POST, 1, 5);
    check_ids(t, "", 0, NULL, 0);
    CHECK(dv_tokenizer_find(t, SP "a") == 5);
    const int32_t said[] = {1, 5, 11, IM, PIECES + 0xc3, PIECES + 0xa9};
    char *text = NULL;
    uint64_t n = 0;
    CHECK(dv_decode(t, said, 6, true, &text, &n) == DAVY_OK);
    CHECKF(text != NULL && strcmp(text, "a  <im>\xc3\xa9") == 0, "\"%s\"", text);
    dv_free(text);
    dv_tokenizer_release(t);
    t = opened(&usual); /* a placeholder for pictures, for which the file has no piece */
    CHECK(dv_tokenizer_add_placeholder(t, "<image>") == DAVY_OK && dv_tokenizer_add_placeholder(t, "<s>") == DAVY_OK);
    CHECK(dv_tokenizer_find(t, "<image>") == PIECES + 256 && dv_tokenizer_size(t) == PIECES + 257);
    CHECK(dv_tokenizer_is_special(t, PIECES + 256));
    IDS(t, "<s>a<image>b", 0, 1, 5, PIECES + 256, 7, 9);
    dv_tokenizer_release(t);
    const settings unknown = {.kind = 2, .plain = true};
    t = opened(&unknown);
    IDS(t, "zza z", 0, 0, 8, 7, 0);
    dv_tokenizer_release(t);
}

static void refused(const wire *w, davy_result code, const char *message) {
    dv_tokenizer *t = NULL;
    const davy_result r = dv_tokenizer_from_model(w->p, w->n, "m", &t);
    CHECKF(r == code && strstr(last_error(), message) != NULL && strncmp(last_error(), "m: ", 3) == 0, "%s: %s",
           dv_result_name(r), last_error());
}

static void test_refused(void) {
    static wire w;
    const settings usual = {.kind = 2, .fallback = true};
    const settings unigram = {.kind = 1};
    const settings rules = {.kind = 2, .rules = "x"};
    make(&w, &unigram);
    refused(&w, DAVY_E_UNSUPPORTED, "BPE");
    make(&w, &rules);
    refused(&w, DAVY_E_UNSUPPORTED, "normalisation");
    make(&w, &usual);
    put_piece(&w, "ab", 0, 1);
    refused(&w, DAVY_E_FORMAT, "twice");
    make(&w, &usual);
    put_piece(&w, "xy", 0, 5);
    refused(&w, DAVY_E_UNSUPPORTED, "unused");
    make(&w, &usual);
    put_piece(&w, "xy", 0, 77);
    refused(&w, DAVY_E_FORMAT, "type");
    make(&w, &usual);
    put_piece(&w, "xy", 0, 2);
    refused(&w, DAVY_E_FORMAT, "of type unknown");
    make(&w, &usual);
    put_piece(&w, "\xff", 0, 1);
    refused(&w, DAVY_E_FORMAT, "UTF-8");
    make(&w, &usual);
    put_bytes(&w, 1, "\x0a\x7f", 2); /* a piece shorter than its stated length */
    refused(&w, DAVY_E_FORMAT, "cut off");
    w.n = 0;
    put_settings(&w, &usual);
    put_piece(&w, "a", 0, 1);
    refused(&w, DAVY_E_FORMAT, "<0x00>");
    w.n = 0;
    put_settings(&w, &(settings){.kind = 2});
    put_piece(&w, "a", 0, 1);
    refused(&w, DAVY_E_FORMAT, "unknown piece");
    w.n = 0;
    put_settings(&w, &usual);
    refused(&w, DAVY_E_FORMAT, "0 tokens");
}

/* Every truncation of a file, and every byte changed: an error or a tokenizer, without a fault. */
static void test_lies(void) {
    static wire w;
    const settings usual = {.kind = 2};
    make(&w, &usual);
    const size_t whole = w.n;
    int64_t opened_ones = 0;
    for (size_t n = 0; n < whole; n++) {
        dv_tokenizer *t = NULL;
        w.n = n;
        opened_ones += dv_tokenizer_from_model(w.p, n, "m", &t) == DAVY_OK;
        dv_tokenizer_release(t);
    }
    CHECKF(opened_ones > 0 && opened_ones < 20, "%lld beginnings are whole",
           (long long)opened_ones); /* truncated right behind a piece */
    for (size_t i = 0; i < whole; i++) {
        for (int k = 0; k < 3; k++) {
            const uint8_t was = w.p[i];
            const uint8_t lies[] = {0xff, 0x00, (uint8_t)(was + 1)};
            dv_tokenizer *t = NULL;
            w.p[i] = lies[k];
            if (dv_tokenizer_from_model(w.p, whole, "m", &t) == DAVY_OK) {
                dv_ids ids = {0};
                CHECK(dv_encode(t, "abc <s>\xc3\xa9", 9, 0, &ids) == DAVY_OK);
                dv_ids_clear(&ids);
            }
            dv_tokenizer_release(t);
            w.p[i] = was;
        }
    }
}

/* ---- folders ---- */

static const char *in_folder(const char *folder, const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *folder, const char *name, const void *p, size_t n) {
    FILE *f = fopen(in_folder(folder, name), "wb");
    CHECK(f != NULL && fwrite(p, 1, n, f) == n);
    if (f != NULL) {
        fclose(f);
    }
}

static void test_folder(const char *folder) {
    static wire w;
    const settings usual = {.kind = 2};
    static const char config[] =
        "{\"added_tokens_decoder\": {\"1\": {\"content\": \"<s>\"}, \"40\": {\"content\": \"<image>\", "
        "\"special\": true}}}";
    static const char added[] = "{\"<image>\": 40, \"<pad>\": 41}";
    static const char wrong[] = "{\"<pad>\": -5}";
    dv_tokenizer *t = NULL;
    make(&w, &usual);
    write_file(folder, "tokenizer.model", w.p, w.n);
    write_file(folder, "tokenizer_config.json", config, sizeof config - 1);
    write_file(folder, "added_tokens.json", added, sizeof added - 1);
    CHECKF(dv_tokenizer_open(folder, &t) == DAVY_OK, "%s", last_error());
    if (t != NULL) {
        CHECK(dv_tokenizer_find(t, "<image>") == 40 && dv_tokenizer_find(t, "<pad>") == 41);
        CHECK(dv_tokenizer_is_special(t, 40) && dv_tokenizer_size(t) == 42);
        IDS(t, "<s>a<image>b", 0, 1, 5, 40, 7, 9);
    }
    dv_tokenizer_release(t);
    t = NULL;
    write_file(folder, "added_tokens.json", wrong, sizeof wrong - 1);
    CHECK(dv_tokenizer_open(folder, &t) == DAVY_E_FORMAT && t == NULL);
    CHECKF(strncmp(last_error(), "added_tokens.json: ", 19) == 0, "%s", last_error());
}

static void check_template(const char *folder, const char *name, const char *text, bool wanted) {
    bool thinks = !wanted;
    write_file(folder, name, text, strlen(text));
    CHECK(dv_template_thinks(folder, NULL, &thinks) == DAVY_OK);
    CHECKF(thinks == wanted, "%s: %s", name, text);
    remove(in_folder(folder, name));
}

static void test_template(const char *folder) {
    check_template(folder, "chat_template.jinja", "{{- '<|im_start|>assistant\\n<think>\\n' }}", true);
    check_template(folder, "chat_template.jinja", "{{- '<|im_start|>assistant\\n' }} <think> {{ x }}", false);
    check_template(folder, "chat_template.json", "{\"chat_template\": \"'assistant\\\\n<think>\\\\n'\"}", true);
    check_template(folder, "tokenizer_config.json", "<think>", false);
    check_template(folder, "tokenizer_config.json", "n<think>\\n<think>", false);
    check_template(folder, "tokenizer_config.json", "", false);
}

int main(void) {
    test_merging();
    test_refused();
    test_lies();
    char folder[] = "davy-model-XXXXXX"; /* in the tests' working directory, the build folder */
    if (CHECK(mkdtemp(folder) != NULL)) {
        test_folder(folder);
        test_template(folder);
        static const char *const left[] = {"tokenizer.model", "added_tokens.json", "tokenizer_config.json"};
        for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
            remove(in_folder(folder, left[i]));
        }
        rmdir(folder);
    }
    return check_done();
}
