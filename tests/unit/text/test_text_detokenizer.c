/* test_text_detokenizer.c - generated ids to text: whole characters, stop texts across tokens, the same text as
 * from decoding all ids at once. */
#include "core/text/detokenizer.h"
#include "tests/lib/text_fixture.h"
#include "tests/lib/hooks.h"

static const text_fixture letters = {
    .vocabulary = "\"ab\": 256, \"cd\": 257", .merges = "\"a b\", \"c d\"", .added = SPECIAL(258, "<end>")};

/* The texts of all pushes, joined with '
 * '; '!' marks the stop. */
static void check_stream(const dv_tokenizer *t, const dv_detokenizer_options *o, const char *ids, size_t n,
                         const char *wanted) {
    dv_detokenizer *s = NULL;
    blob b = {NULL, 0};
    const char *text = NULL;
    uint64_t bytes = 0;
    CHECK_OK(dv_detokenizer_create(t, o, &s));
    for (int round = 0; s != NULL && round < 2; round++) { /* twice: after a reset the result is the same */
        bool stop = false;
        b.n = 0;
        for (size_t i = 0; i < n; i++) {
            const int32_t id = ids[i] == 'X' ? 256 : ids[i] == 'Y' ? 257 : ids[i] == 'Z' ? 258 : (uint8_t)ids[i];
            CHECK_OK(dv_detokenizer_push(s, id, &text, &bytes, &stop));
            put(&b, text, bytes);
            put_text(&b, stop ? "!" : "|");
        }
        CHECK_OK(dv_detokenizer_end(s, &text, &bytes));
        put(&b, text, bytes);
        put(&b, "", 1);
        CHECKF(strcmp((const char *)b.p, wanted) == 0, "got %s, wanted %s", (const char *)b.p, wanted);
        dv_detokenizer_reset(s);
    }
    drop(&b);
    dv_detokenizer_release(s);
}

#define IDS(s) s, sizeof s - 1

static void test_characters(const dv_tokenizer *t) {
    check_stream(t, NULL, IDS("aXZ"), "a|ab|<end>|");
    check_stream(t, NULL,
                 IDS("\xe2\x82\xac"
                     "a"),
                 "||\xe2\x82\xac|a|");
    check_stream(t, NULL, IDS("\xf0\x9f\x98\x80"), "|||\xf0\x9f\x98\x80|");
    check_stream(t, NULL, IDS("\xf0\x9f"), "||\xef\xbf\xbd");
    check_stream(t, NULL,
                 IDS("\xe2\x82"
                     "a\xff"),
                 "||\xef\xbf\xbd"
                 "a|\xef\xbf\xbd|");
    check_stream(t, NULL, IDS("\xed\xa0"), "|\xef\xbf\xbd\xef\xbf\xbd|");
    const dv_detokenizer_options plain = {.trim_start = true};
    check_stream(t, &plain, IDS("Z \n a Z"), "||||a| ||");
    check_stream(t, &plain, IDS("\xe3\x80\x80\xe3\x80"), "|||||\xef\xbf\xbd");
}

static void test_stops(const dv_tokenizer *t) {
    static const char *const one[] = {"abcd"};
    static const char *const two[] = {"ab c", "b"};
    static const char *const end[] = {"\n\n", "User:"};
    static const char *const euro[] = {"\xe2\x82\xac!"};
    static const int32_t ids[] = {258};
    const dv_detokenizer_options o = {
        .stop_texts = one, .n_stop_texts = 1, .stop_ids = ids, .n_stop_ids = 1, .keep_special = true};
    check_stream(t, &o, IDS("XYaa"), "|!!!");
    check_stream(t, &o, IDS("xXabY"), "x||ab||!");
    check_stream(t, &o, IDS("xXc"), "x|||abc");
    check_stream(t, &o, IDS("xXZX"), "x||ab!!");
    const dv_detokenizer_options b = {.stop_texts = two, .n_stop_texts = 2};
    check_stream(t, &b, IDS("xX"), "x|a!"); /* the stop text that is complete first */
    check_stream(t, &b, IDS("xa c"), "x||a |c|");
    const dv_detokenizer_options c = {.stop_texts = end, .n_stop_texts = 2};
    check_stream(t, &c, IDS("a\nUs\nUser:x"), "a||\n||Us|\n||||!!");
    check_stream(t, &c, IDS("a\n\n"), "a||!");
    check_stream(t, &c, IDS("Use"), "|||Use");
    const dv_detokenizer_options e = {.stop_texts = euro, .n_stop_texts = 1};
    check_stream(t, &e, IDS("\xe2\x82\xac?"), "|||\xe2\x82\xac?|");
    check_stream(t, &e, IDS("a\xe2\x82\xac!"), "a||||!");
    static const char *const empty[] = {""};
    const dv_detokenizer_options bad = {.stop_texts = empty, .n_stop_texts = 1};
    const dv_detokenizer_options many = {.n_stop_texts = 65};
    dv_detokenizer *s = NULL;
    CHECK_FAILS(dv_detokenizer_create(t, &bad, &s), DAVY_E_INVALID, "a stop text has 0 bytes");
    CHECK_FAILS(dv_detokenizer_create(t, &many, &s), DAVY_E_INVALID, "more than 64");
    CHECK(s == NULL);
}

/* Any ids: each piece is UTF-8, and together they equal the text decoded at once. */
static void test_thoughts(const dv_tokenizer *t) {
    static const char *const stop[] = {"stop"};
    const dv_detokenizer_options o = {.trim_start = true, .hide_thoughts = true, .stop_texts = stop, .n_stop_texts = 1};
    check_stream(t, &o, IDS("<think>x stop</think>\n\nX y"), "|||||||||||||||||||||||ab| |y|");
    check_stream(t, &o, IDS(" <thing"), "||||||<thing|");
    check_stream(t, &o, IDS("<th"), "|||<th");
    check_stream(t, &o, IDS("<think>X"), "||||||||");
    check_stream(t, &o, IDS("X<think>"), "ab|<|t|h|i|n|k|>|");
    check_stream(t, &o, IDS("<think></think>a<think>"), "|||||||||||||||a|<|t|h|i|n|k|>|");
    const dv_detokenizer_options inside = {.trim_start = true, .hide_thoughts = true, .thinking = true};
    check_stream(t, &inside, IDS("X</think>\nY"), "||||||||||cd|");
    const dv_detokenizer_options shown = {.trim_start = true, .thinking = true};
    check_stream(t, &shown, IDS("a</think>"), "a|<|/|t|h|i|n|k|>|");
}

/* Whether the output consists of thoughts only. */
static bool only_thought(const dv_tokenizer *t, const dv_detokenizer_options *o, const char *ids, size_t n) {
    dv_detokenizer *s = NULL;
    const char *text = NULL;
    uint64_t bytes = 0;
    bool stop = false;
    CHECK_OK(dv_detokenizer_create(t, o, &s));
    for (size_t i = 0; s != NULL && i < n; i++) {
        CHECK_OK(dv_detokenizer_push(s, (uint8_t)ids[i], &text, &bytes, &stop));
    }
    if (s == NULL) {
        return false;
    }
    CHECK_OK(dv_detokenizer_end(s, &text, &bytes));
    const bool only = dv_detokenizer_only_thought(s);
    dv_detokenizer_reset(s);
    CHECK(dv_detokenizer_only_thought(s) == (o->thinking && o->hide_thoughts));
    dv_detokenizer_release(s);
    return only;
}

static void test_only_thoughts(const dv_tokenizer *t) {
    const dv_detokenizer_options o = {.trim_start = true, .hide_thoughts = true};
    const dv_detokenizer_options inside = {.trim_start = true, .hide_thoughts = true, .thinking = true};
    const dv_detokenizer_options shown = {.trim_start = true, .thinking = true};
    CHECK(only_thought(t, &inside, IDS("")) && only_thought(t, &inside, IDS("a</think")));
    CHECK(only_thought(t, &inside, IDS("a</think>\n")) && !only_thought(t, &inside, IDS("a</think>\nb")));
    CHECK(only_thought(t, &o, IDS("<think>a")) && only_thought(t, &o, IDS("<think></think>")));
    CHECK(!only_thought(t, &o, IDS("")) && !only_thought(t, &o, IDS("<th")) && !only_thought(t, &o, IDS("a<think>")));
    CHECK(!only_thought(t, &shown, IDS("a")) && !only_thought(t, &shown, IDS("")));
}

static void test_any(const dv_tokenizer *t) {
    uint32_t seed = 12345;
    for (int round = 0; round < 300; round++) {
        int32_t ids[40];
        blob b = {NULL, 0};
        dv_detokenizer *s = NULL;
        const char *text = NULL;
        char *whole = NULL;
        uint64_t bytes = 0;
        bool stop = false;
        bool good = true;
        CHECK_OK(dv_detokenizer_create(t, NULL, &s));
        for (int i = 0; i <= 40; i++) {
            seed = seed * 1664525u + 1013904223u;
            if (i < 40) {
                ids[i] = (int32_t)(seed >> 16) % (round % 2 == 0 ? 259 : 64) + (round % 2 == 0 ? 0 : 180);
                CHECK_OK(dv_detokenizer_push(s, ids[i], &text, &bytes, &stop));
            } else {
                CHECK_OK(dv_detokenizer_end(s, &text, &bytes));
            }
            uint32_t bad = 0;
            bool cut = false;
            for (uint64_t k = 0; good && k < bytes;) {
                const uint32_t n = dv_utf8_check((const uint8_t *)text + k, bytes - k, &bad, &cut);
                good = n > 0;
                k += n;
            }
            put(&b, text, bytes);
        }
        CHECK_OK(dv_decode(t, ids, 40, false, &whole, &bytes));
        CHECK(good && b.n == bytes && memcmp(b.p, whole, bytes) == 0);
        dv_free(whole);
        drop(&b);
        dv_detokenizer_release(s);
    }
}

/* Every allocation fails in turn. */
static void test_no_memory(const dv_tokenizer *t) {
    static const char *const stop[] = {"\n\n"};
    const dv_detokenizer_options o = {.stop_texts = stop, .n_stop_texts = 1};
    davy_result r = DAVY_E_NOMEM_HOST;
    int64_t n = 0;
    for (; r == DAVY_E_NOMEM_HOST && n < 1000; n++) {
        dv_detokenizer *s = NULL;
        const char *text = NULL;
        uint64_t bytes = 0;
        bool ended = false;
        dv_alloc_fail_after(n);
        r = dv_detokenizer_create(t, &o, &s);
        for (int i = 0; r == DAVY_OK && i < 20; i++) {
            r = dv_detokenizer_push(s, 256, &text, &bytes, &ended);
        }
        r = r < 0 ? r : dv_detokenizer_end(s, &text, &bytes);
        dv_alloc_fail_after(-1);
        dv_detokenizer_release(s);
    }
    CHECKF(r == DAVY_OK && n > 4, "%d allocations, then %d", (int)n, r);
}

int main(void) {
    dv_tokenizer *t = text_fixture_tokenizer(&letters);
    test_characters(t);
    test_stops(t);
    test_thoughts(t);
    test_only_thoughts(t);
    test_any(t);
    test_no_memory(t);
    dv_tokenizer_release(t);
    return check_done();
}
