/* test_text_tokenizer.c - vocabulary, merges, added tokens, decoding, and wrong files. */
#include "core/base/json.h"
#include "tests/lib/text_fixture.h"
#include "tests/lib/hooks.h"

#define ABC "\"ab\": 256, \"bc\": 257, \"abc\": 258, \"Ġa\": 259"

static void test_merges(void) {
    static const text_fixture in_order = {.vocabulary = ABC, .merges = "\"a b\", [\"b\", \"c\"], \"ab c\", \"Ġ a\""};
    static const text_fixture other = {.vocabulary = ABC, .merges = "\"#version: 0.2\", \"b c\", \"a b\", \"a bc\""};
    static const text_fixture whole = {
        .vocabulary = ABC, .merges = "\"a b\"", .model = "\"ignore_merges\": true, \"fuse_unk\": false, "};
    dv_tokenizer *t = text_fixture_tokenizer(&in_order);
    check_encode(t, "abc", 0, "258");
    check_encode(t, "abbc", 0, "256 257");
    check_encode(t, "bcab a", 0, "257 256 259");
    check_encode(t, "", 0, "");
    check_encode(t, "a\nb", 0, "97 10 98");
    dv_tokenizer_release(t);
    t = text_fixture_tokenizer(&other);
    check_encode(t, "abc ab", 0, "258 32 256");
    check_encode(t, "abcab", 0, "258 256");
    dv_tokenizer_release(t);
    t = text_fixture_tokenizer(&whole);
    check_encode(t, "abc", 0, "258"); /* no merges lead to it */
    check_encode(t, "abcb", 0, "256 99 98");
    dv_tokenizer_release(t);
}

/* A long piece uses another algorithm; the result must be the same. */
static void test_long_pieces(void) {
    static const text_fixture f = {.vocabulary = "\"aa\": 256, \"aaa\": 257, \"aaaa\": 258, \"ab\": 259, \"aab\": 260",
                                   .merges = "\"a b\", \"a a\", \"aa aa\", \"a ab\", \"aa a\""};
    dv_tokenizer *t = text_fixture_tokenizer(&f);
    for (int n = 1; n <= 200; n++) {
        char text[256];
        memset(text, 'a', (size_t)n);
        text[n] = '\0';
        dv_ids ids = {0};
        CHECK_OK(dv_encode(t, text, (uint64_t)n, 0, &ids));
        int64_t bytes = 0;
        for (int64_t i = 0; i < ids.n; i++) {
            bytes += ids.p[i] == 258 ? 4 : ids.p[i] == 257 ? 3 : ids.p[i] == 256 ? 2 : 1;
        }
        CHECKF(bytes == n && ids.n == n / 4 + (n % 4 != 0), "%d letters: %d ids of %d bytes", n, (int)ids.n,
               (int)bytes);
        dv_ids_clear(&ids);
    }
    enum { MANY = 1 << 20 };
    char *many = malloc(MANY);
    memset(many, 'a', MANY);
    dv_ids ids = {0};
    CHECK_OK(dv_encode(t, many, MANY, 0, &ids));
    CHECK(ids.n == MANY / 4);
    CHECK_FAILS(dv_encode(t, many, DV_MAX_TEXT_BYTES + 1ull, 0, &ids), DAVY_E_INVALID, "16777216 are allowed");
    CHECK_FAILS(dv_encode(t, "a\xff", 2, 0, &ids), DAVY_E_INVALID, "not valid UTF-8 (byte 1)");
    CHECK(ids.n == MANY / 4);
    dv_ids_clear(&ids);
    free(many);
    dv_tokenizer_release(t);
}

static void test_added(void) {
    static const text_fixture f = {
        .vocabulary = "\"<s>\": 256",
        .added = SPECIAL(256, "<s>") ", " SPECIAL(
            257, "<s><s>") ", "
                           "{\"id\": 258, \"content\": \"<l>\", \"lstrip\": true, \"special\": true, \"normalized\": "
                           "false}, "
                           "{\"id\": 259, \"content\": \"<r>\", \"rstrip\": true, \"special\": false, \"normalized\": "
                           "false}, "
                           "{\"id\": 260, \"content\": \"me\", \"single_word\": true, \"special\": false, "
                           "\"normalized\": true}, "
                           "{\"id\": 262, \"content\": \"e\\u0301\", \"special\": false, \"normalized\": true}",
        .normalizer = "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}]}",
        .post =
            "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\", \"type_id\": 0}}, "
            "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [], \"special_tokens\": {}}"};
    dv_tokenizer *t = text_fixture_tokenizer(&f);
    check_encode(t, "a<s>b", 0, "97 256 98");
    check_encode(t, "<s><s><s>", 0, "257 256");
    check_encode(t, "a  <l> b", 0, "97 258 32 98");
    check_encode(t, "a <r>  b", 0, "97 32 259 98");
    check_encode(t, "<r>  <l>", 0, "259 258");
    check_encode(t, "me mesme", 0, "260 32 109 101 115 109 101");
    check_encode(t, "e\xcc\x81 \xc3\xa9", 0, "262 32 262");
    check_encode(t, "a\xcc\x88", 0, "195 164"); /* form C */
    check_encode(t, "a<s>", DV_ENCODE_POST, "256 97 256");
    check_encode(t, "<s><r>", DV_ENCODE_PLAIN, "60 115 62 259");
    CHECK(dv_tokenizer_size(t) == 263 && dv_tokenizer_find(t, "<s>") == 256 && dv_tokenizer_find(t, "me") == 260 &&
          dv_tokenizer_find(t, "Ġ") == 32 && dv_tokenizer_find(t, "<x>") == -1 && dv_tokenizer_find(t, "") == -1);
    CHECK(dv_tokenizer_is_special(t, 258) && !dv_tokenizer_is_special(t, 259) && !dv_tokenizer_is_special(t, -1) &&
          !dv_tokenizer_is_special(t, 1000));
    uint64_t n = 0;
    CHECK(dv_tokenizer_bytes(t, 261, &n) == NULL && dv_tokenizer_bytes(t, -1, &n) == NULL);
    CHECK(memcmp(dv_tokenizer_bytes(t, 262, &n), "e\xcc\x81", 3) == 0 && n == 3);
    const dv_text_span span = {3, 6};
    dv_ids ids = {0};
    CHECK_OK(dv_encode_around(t, "<s><s><s>", 9, &(dv_text_around){.spans = &span, .n = 1}, &ids));
    check_ids(&ids, "around", "60 115 62 60 115 62 256"); /* the longest match touches the span */
    dv_ids_clear(&ids);
    dv_tokenizer_release(t);
}

static void test_unknown_bytes(void) {
    /* "a" is renamed out of the alphabet, so byte 97 has no token. */
    static const char *const models[] = {"", "\"unk_token\": \"b\", ", "\"unk_token\": \"b\", \"fuse_unk\": true, "};
    static const char *const wanted[] = {"99 99", "98 98 99 98 99", "98 99 98 99"};
    for (size_t i = 0; i < DV_ARRAY_LEN(models); i++) {
        const text_fixture f = {.model = models[i]};
        blob b = text_fixture_json(&f);
        dv_tokenizer *t = NULL;
        char *a = NULL;
        for (size_t k = 0; a == NULL && k + 4 < b.n; k++) {
            a = memcmp(b.p + k, "\"a\": ", 5) == 0 ? (char *)b.p + k : NULL;
        }
        if (CHECK(a != NULL)) {
            memcpy(a, "\" \"", 3);
        }
        CHECK_OK(dv_tokenizer_from_json((const char *)b.p, b.n, "t", &t));
        if (t != NULL) {
            check_encode(t, "aacac", 0, wanted[i]);
        }
        dv_tokenizer_release(t);
        drop(&b);
    }
}

static void test_decode(void) {
    static const text_fixture f = {.vocabulary = ABC, .added = SPECIAL(260, "<|x|>")};
    static const struct {
        int32_t ids[6];
        int64_t n;
        bool skip;
        const char *text;
    } cases[] = {
        {{258, 259, 260}, 3, false, "abc a<|x|>"},
        {{258, 260, 98}, 3, true, "abcb"},
        {{0xe2, 0x82, 0xac}, 3, false, "\xe2\x82\xac"},
        {{0xe2, 0x82}, 2, false, "\xef\xbf\xbd"},
        {{0xe2, 0x82, 97, 0xff, 0xc0},
         5,
         false,
         "\xef\xbf\xbd"
         "a\xef\xbf\xbd\xef\xbf\xbd"},
        {{0xed, 0xa0, 0x80}, 3, false, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {{0xf0, 0x9f, 0x98, 98},
         4,
         false,
         "\xef\xbf\xbd"
         "b"},
        {{-1, 5000, 97}, 3, false, "a"},
        {{0}, 0, false, ""},
    };
    dv_tokenizer *t = text_fixture_tokenizer(&f);
    for (size_t i = 0; i < DV_ARRAY_LEN(cases); i++) {
        char *text = NULL;
        uint64_t n = 0;
        CHECK_OK(dv_decode(t, cases[i].ids, cases[i].n, cases[i].skip, &text, &n));
        CHECKF(text != NULL && strcmp(text, cases[i].text) == 0 && strlen(text) == n, "case %d: \"%s\"", (int)i, text);
        dv_free(text);
    }
    dv_tokenizer_release(t);
}

/* ---- wrong files ---- */

static void refused(const text_fixture *f, davy_result code, const char *message) {
    dv_tokenizer *t = NULL;
    CHECK_FAILS(text_fixture_open(f, &t), code, message);
    CHECKF(strncmp(last_error(), "tokenizer.json: ", 16) == 0, "the message names the file: %s", last_error());
    CHECK(t == NULL);
}

static const struct {
    text_fixture f;
    davy_result code;
    const char *message;
} refusals[] = {
    {{.merges = "\"a b\""}, DAVY_E_FORMAT, "merges[0]: \"a\" and \"b\" together are not a token"},
    {{.merges = "\"ab\""}, DAVY_E_FORMAT, "merges[0]: \"ab\" is not two names"},
    {{.merges = "\"a b c\""}, DAVY_E_FORMAT, "is not two names"},
    {{.merges = "\"a \""}, DAVY_E_FORMAT, "are not a pair"},
    {{.merges = "[\"a\"]"}, DAVY_E_FORMAT, "has one string"},
    {{.merges = "7"}, DAVY_E_FORMAT, "neither a string nor a pair"},
    {{.vocabulary = "\"ab\": 256", .merges = "\"xy b\""}, DAVY_E_FORMAT, "together are not a token"},
    {{.vocabulary = "\"ab\": 97"}, DAVY_E_FORMAT, "model.vocab: \"ab\" (id 97) has the id of another token"},
    {{.vocabulary = "\"a\": 256"}, DAVY_E_FORMAT, "model.vocab: \"a\" (id 256) occurs twice"},
    {{.vocabulary = "\"ab\": -1"}, DAVY_E_FORMAT, "id -1 is outside"},
    {{.vocabulary = "\"ab\": 1048576"}, DAVY_E_FORMAT, "id 1048576 is outside"},
    {{.vocabulary = "\"ab\": 1.5"}, DAVY_E_FORMAT, "an id that is not an integer"},
    {{.vocabulary = "\"ab\": \"1\""}, DAVY_E_FORMAT, "an id that is not an integer"},
    {{.added = "{\"id\": 97, \"content\": \"<s>\"}"}, DAVY_E_FORMAT, "added_tokens[0]: \"<s>\" (id 97) has the id"},
    {{.added = "{\"id\": 300, \"content\": \"a\"}"}, DAVY_E_FORMAT, "has another id in the vocabulary"},
    {{.added = "{\"id\": 300, \"content\": \"\"}"}, DAVY_E_FORMAT, "the content has 0 bytes"},
    {{.added = "{\"id\": 3000000, \"content\": \"x\"}"}, DAVY_E_FORMAT, "added_tokens[0] has no content"},
    {{.added = "{\"id\": 300, \"content\": \"xx\", \"lstrip\": 1}"}, DAVY_E_FORMAT, "added_tokens[0].lstrip"},
    {{.added = SPECIAL(300, "xx") ", " SPECIAL(301, "xx")}, DAVY_E_FORMAT, "have the same text"},
    {{.added = SPECIAL(300, "xx") ", " SPECIAL(300, "yy")}, DAVY_E_FORMAT, "has the id of another token"},
    {{.normalizer = "{\"type\": \"NFKC\"}"}, DAVY_E_UNSUPPORTED, "normalizer: NFKC is not supported"},
    {{.normalizer = "{\"type\": \"Sequence\"}"}, DAVY_E_FORMAT, "normalizer.normalizers is not a list"},
    {{.normalizer = "3"}, DAVY_E_FORMAT, "normalizer has no type"},
    {{.pre = "null"}, DAVY_E_FORMAT, "pre_tokenizer is missing"},
    {{.pre = "{\"type\": \"Metaspace\"}"},
     DAVY_E_UNSUPPORTED,
     "pre_tokenizer: a replacement other than U+2581 is not supported"},
    {{.pre = "{\"type\": \"ByteLevel\"}"}, DAVY_E_UNSUPPORTED, "add_prefix_space is not supported"},
    {{.pre = "{\"type\": \"Digits\"}"}, DAVY_E_UNSUPPORTED, "one without ByteLevel"},
    {{.pre = SPLIT("\\\\w+")}, DAVY_E_UNSUPPORTED, "pretokenizers[0]: \\w+ is not supported"},
    {{.pre = "{\"type\": \"Sequence\", \"pretokenizers\": [" BYTE_LEVEL("true") ", {\"type\": \"Digits\"}]}"},
     DAVY_E_UNSUPPORTED,
     "a part after ByteLevel"},
    {{.decoder = "{\"type\": \"WordPiece\"}"}, DAVY_E_UNSUPPORTED, "decoder: WordPiece"},
    {{.post = "{\"type\": \"BertProcessing\"}"}, DAVY_E_UNSUPPORTED, "post_processor: BertProcessing"},
    {{.post = "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}]}"},
     DAVY_E_FORMAT,
     "post_processor adds a token that is not"},
    {{.model = "\"dropout\": 0.1, "}, DAVY_E_UNSUPPORTED, "dropout"},
    {{.model = "\"end_of_word_suffix\": \"</w>\", "}, DAVY_E_UNSUPPORTED, "end_of_word_suffix"},
    {{.model = "\"unk_token\": \"<unk>\", "}, DAVY_E_FORMAT, "model.unk_token \"<unk>\" is not in"},
    {{.model = "\"ignore_merges\": \"yes\", "}, DAVY_E_FORMAT, "model.ignore_merges is neither true nor false"},
};

static void test_refused(void) {
    for (size_t i = 0; i < DV_ARRAY_LEN(refusals); i++) {
        refused(&refusals[i].f, refusals[i].code, refusals[i].message);
    }
    static const char *const broken[] = {
        "", "{", "[]", "{\"model\": {\"type\": \"WordPiece\"}, \"pre_tokenizer\": 1}",
        "{\"model\": {\"vocab\": [], \"merges\": []}, \"pre_tokenizer\": " BYTE_LEVEL("true") "}"};
    for (size_t i = 0; i < DV_ARRAY_LEN(broken); i++) {
        dv_tokenizer *t = NULL;
        const davy_result r = dv_tokenizer_from_json(broken[i], strlen(broken[i]), "tokenizer.json", &t);
        CHECKF(r < 0 && t == NULL && strncmp(last_error(), "tokenizer.json: ", 16) == 0, "%s", broken[i]);
    }
    static const text_fixture allowed = {.model = "\"byte_fallback\": true, \"dropout\": null, "
                                                  "\"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": null, ",
                                         .decoder = "null"};
    dv_tokenizer_release(text_fixture_tokenizer(&allowed));
}

/* A separate parser reads vocab and merges. */
static void test_json_text(void) {
    static const text_fixture f = {
        .vocabulary = "\n\t\"\\u0061b\" :256 , \"\\ud83d\\ude00\": 257, \"\\u0120\\u0061\": 258, \"\\\"\\\\\": 259, "
                      "\"\\/b\": 260",
        .merges = " [ \"\\u0061\" , \"\\u0062\" ] ,\n\"\\u0120 a\", [\"\\\"\", \"\\\\\"], \"/ b\" "};
    dv_tokenizer *t = text_fixture_tokenizer(&f);
    check_encode(t, "ab a \"\\", 0, "256 258 32 259");
    CHECK(dv_tokenizer_find(t, "\xf0\x9f\x98\x80") == 257 && dv_tokenizer_find(t, "/b") == 260);
    dv_tokenizer_release(t);
    static const struct {
        text_fixture f;
        const char *message;
    } cases[] = {
        {{.vocabulary = "\"\\ud83d\": 256"}, "an invalid escape, or a NUL"},
        {{.vocabulary = "\"\\ude00\": 256"}, "an invalid escape, or a NUL"},
        {{.vocabulary = "\"\\u0000\": 256"}, "an invalid escape, or a NUL"},
        {{.vocabulary = "\"\\x\": 256"}, "an invalid escape, or a NUL"},
        {{.vocabulary = "\"a\nb\": 256"}, "a string has a control character"},
        {{.vocabulary = "\"ab\" 256"}, "has no id"},
        {{.vocabulary = "\"ab\": 256,"}, "is not a string"},
        {{.vocabulary = "\"ab\": 256 7"}, "an id that is not an integer"},
        {{.vocabulary = "\"ab\": 1e2"}, "an id that is not an integer"},
        {{.vocabulary = "\"ab\": 99999999999999999999"}, "an id that is not an integer"},
        {{.vocabulary = "\"ab\": [256]"}, "an id that is not an integer"},
        {{.merges = "[\"a\", \"b\", \"c\"]"}, "has more than two strings"},
        {{.merges = "[\"a\" \"b\"]"}, "has one string"},
        {{.merges = "[[\"a\"], \"b\"]"}, "is not a string"},
        {{.merges = "\"a b\" \"b c\"", .vocabulary = ABC}, "is not followed by a comma or the end"},
        {{.model = "\"vocab\": {}, "}, "occurs twice"},
        {{.model = "\"merges\": [], \"x\": [[[[}, "}, "JSON at byte"},
        {{.model = "\"x\" 1, "}, "a member has no value"},
        {{.model = "x: 1, "}, "a member has no name"},
        {{.model = "\"x\": nul, "}, "not valid JSON"},
        {{.vocabulary = "\"\xff\": 256"}, "not valid UTF-8"},
    };
    for (size_t i = 0; i < DV_ARRAY_LEN(cases); i++) {
        refused(&cases[i].f, DAVY_E_FORMAT, cases[i].message);
    }
    blob b = text_fixture_json(&f); /* truncated anywhere, it is an error */
    for (size_t n = 0; n < b.n; n += n < 300 ? 1 : 7) {
        dv_tokenizer *none = NULL;
        char *copy = malloc(n + 1);
        memcpy(copy, b.p, n);
        const davy_result r = dv_tokenizer_from_json(copy, n, "tokenizer.json", &none);
        CHECKF(r == DAVY_E_FORMAT && none == NULL, "the first %d bytes", (int)n);
        free(copy);
    }
    drop(&b);
}

/* Every allocation fails in turn. */
static void test_no_memory(void) {
    static const text_fixture f = {.vocabulary = ABC,
                                   .merges = "\"a b\", \"b c\"",
                                   .added = SPECIAL(260, "<|x|>"),
                                   .normalizer = "{\"type\": \"NFC\"}"};
    int64_t n = 0;
    for (davy_result r = DAVY_E_NOMEM_HOST; r == DAVY_E_NOMEM_HOST && n < 10000; n++) {
        dv_tokenizer *t = NULL;
        dv_ids ids = {0};
        char *text = NULL;
        uint64_t bytes = 0;
        dv_alloc_fail_after(n);
        r = text_fixture_open(&f, &t);
        r = r < 0 ? r : dv_encode(t, "abc<|x|> e\xcc\x81", 12, 0, &ids);
        r = r < 0 ? r : dv_decode(t, ids.p, ids.n, false, &text, &bytes);
        dv_alloc_fail_after(-1);
        CHECKF(r == DAVY_OK || r == DAVY_E_NOMEM_HOST, "allocation %d fails: %d", (int)n, r);
        dv_free(text);
        dv_ids_clear(&ids);
        dv_tokenizer_release(t);
    }
    CHECK(n > 10 && n < 10000);
}

/* ---- SmolLM2's real tokenizer, from JSON and from GGUF ---- */

enum { MARK = 0x02 }; /* replaces the NUL at the start of one text, which this library's JSON parser rejects */

static void check_reference(const dv_tokenizer *t, const dv_json *cases) {
    for (const dv_json *c = dv_json_first(cases); c != NULL; c = dv_json_next(c)) {
        const char *marked = dv_json_string(dv_json_get(c, "text"));
        char text[1024] = "";
        dv_ids ids = {0};
        char *back = NULL;
        uint64_t n = 0;
        const size_t length = marked != NULL ? strlen(marked) : 0;
        if (!CHECK(length < sizeof text)) {
            return;
        }
        memcpy(text, marked, length);
        text[0] = text[0] == MARK ? '\0' : text[0];
        CHECK_OK(dv_encode(t, text, length, 0, &ids));
        int64_t at = 0;
        bool same = true;
        for (const dv_json *v = dv_json_first(dv_json_get(c, "ids")); v != NULL; v = dv_json_next(v), at++) {
            int64_t id = -1;
            same = same && dv_json_int(v, &id) && at < ids.n && ids.p[at] == id;
        }
        CHECKF(same && at == ids.n, "%s", marked);
        CHECK_OK(dv_decode(t, ids.p, ids.n, false, &back, &n));
        CHECKF(n == length && memcmp(back, text, length) == 0, "%s comes back as %s", marked, back);
        dv_free(back);
        dv_ids_clear(&ids);
    }
}

static void test_real(void) {
    static const char *const files[] = {"models/smollm2/tokenizer.json",
                                        "models/smollm2/SmolLM2-135M-Instruct.Q4_1.blk0.gguf"};
    const char *reference = shared_file("models/smollm2/tokenizer.ref.json");
    if (reference == NULL) {
        return;
    }
    blob b = read_all(reference);
    put(&b, "", 1);
    dv_json *cases = NULL;
    char *p = (char *)b.p;
    for (char *nul = p; (nul = strstr(nul, "\\u0000")) != NULL;) {
        memcpy(nul, "\\u0002", 6);
    }
    CHECK(b.n > 1);
    for (size_t i = 0; i < DV_ARRAY_LEN(files); i++) {
        const char *path = shared_file(files[i]);
        dv_tokenizer *t = NULL;
        if (path == NULL) {
            continue;
        }
        CHECK_OK(dv_tokenizer_open(path, &t));
        CHECK(t != NULL && dv_tokenizer_size(t) == 49152 && dv_tokenizer_find(t, "<|im_end|>") == 2);
        if (t != NULL && cases == NULL) {
            CHECK_OK(dv_json_parse(p, b.n - 1, "tokenizer.ref.json", &cases));
        }
        check_reference(t, cases);
        dv_tokenizer_release(t);
    }
    dv_json_release(cases);
    drop(&b);
}

int main(void) {
    test_merges();
    test_long_pieces();
    test_added();
    test_unknown_bytes();
    test_decode();
    test_refused();
    test_json_text();
    test_no_memory();
    test_real();
    return check_done();
}
