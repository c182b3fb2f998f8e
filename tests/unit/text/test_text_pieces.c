/* test_text_pieces.c - pieces of the pre-tokenisers, and Unicode: the vectors of the specification, form C, classes. */
#include "core/text/tokenizer_priv.h"
#include "tests/lib/text_fixture.h"

/* Pieces joined with '|'. */
static void check_pieces(const dv_pretokenizer *stages, int32_t n_stages, const char *text, const char *wanted) {
    blob b = {NULL, 0};
    const uint8_t *p = (const uint8_t *)text;
    const uint64_t bytes = strlen(text);
    for (uint64_t at = 0; at < bytes;) {
        const uint64_t end = n_stages > 1 ? dv_pretokenizer_next(stages[0], p, at, bytes) : bytes;
        while (at < end) { /* the second stage reads no further than the first stage's piece */
            const uint64_t next = at + dv_pretokenizer_next(stages[n_stages - 1], p + at, 0, end - at);
            put_text(&b, b.n > 0 ? "|" : "");
            put(&b, p + at, next - at);
            at = next;
        }
    }
    put(&b, "", 1);
    CHECKF(strcmp((const char *)b.p, wanted) == 0, "%s: got %s, wanted %s", text, (const char *)b.p, wanted);
    drop(&b);
}

#define NBSP "\xc2\xa0"

static const struct {
    const char *text, *gpt2, *qwen2, *llama3, *smollm, *nanochat;
} vectors[] = {
    {"I'll  pay $12345.67\n\n  now!", "I|'ll| | pay| $|12345|.|67|\n\n | now|!",
     "I|'ll| | pay| $|1|2|3|4|5|.|6|7|\n\n| | now|!", "I|'ll| | pay| $|123|45|.|67|\n\n| | now|!",
     "I|'ll| | pay| $|1|2|3|4|5|.|6|7|\n\n | now|!", "I|'ll| | pay| $|12|34|5|.|67|\n\n| | now|!"},
    {"DON'T stop", "DON|'|T| stop", "DON|'T| stop", "DON|'T| stop", "DON|'|T| stop", "DON|'T| stop"},
    {"foo" NBSP "bar  baz \n", "foo|" NBSP "|bar| | baz| \n", "foo|" NBSP "bar| | baz| \n",
     "foo|" NBSP "bar| | baz| \n", "foo|" NBSP "|bar| | baz| \n", "foo|" NBSP "bar| | baz| \n"},
    {"(word)\r\n\r\nnext", "(|word|)|\r\n\r|\n|next", "(word|)\r\n\r\n|next", "(word|)\r\n\r\n|next",
     "(|word|)|\r\n\r|\n|next", "(word|)\r\n\r\n|next"},
    {"\t\tif x==1:", "\t|\t|if| x|==|1|:", "\t|\tif| x|==|1|:", "\t|\tif| x|==|1|:", "\t|\t|if| x|==|1|:",
     "\t|\tif| x|==|1|:"},
    {"x\xc2\xb2\xc2\xbd \xe2\x85\xa7", "x|\xc2\xb2\xc2\xbd| \xe2\x85\xa7", "x|\xc2\xb2|\xc2\xbd| |\xe2\x85\xa7",
     "x|\xc2\xb2\xc2\xbd| |\xe2\x85\xa7", "x|\xc2\xb2|\xc2\xbd| |\xe2\x85\xa7", "x|\xc2\xb2\xc2\xbd| |\xe2\x85\xa7"},
    {"a\xcc\x81", "a|\xcc\x81", "a|\xcc\x81", "a|\xcc\x81", "a|\xcc\x81", "a|\xcc\x81"},
    {"x  5 a  b \n 7", "x| | 5| a| | b| \n| 7", "x| | |5| a| | b| \n| |7", "x| | |5| a| | b| \n| |7",
     "x|  |5| a| | b| \n |7", "x| | |5| a| | b| \n| |7"},
    {"  \n  x", "  \n | x", "  \n| | x", "  \n| | x", "  \n | x", "  \n| | x"},
    {"'\xc5\xbf's'S", "'|\xc5\xbf|'s|'|S", "'\xc5\xbf|'s|'S", "'\xc5\xbf|'s|'S", "'|\xc5\xbf|'s|'|S",
     "'\xc5\xbf|'s|'S"},
    {"   ", "   ", "   ", "   ", "   ", "   "},
};

static void test_vectors(void) {
    static const dv_pretokenizer gpt2 = DV_PRETOKENIZER_GPT2;
    static const dv_pretokenizer qwen2 = DV_PRETOKENIZER_QWEN2;
    static const dv_pretokenizer llama3 = DV_PRETOKENIZER_LLAMA3;
    static const dv_pretokenizer nanochat = DV_PRETOKENIZER_NANOCHAT;
    static const dv_pretokenizer smollm[] = {DV_PRETOKENIZER_DIGITS, DV_PRETOKENIZER_GPT2};
    for (size_t i = 0; i < DV_ARRAY_LEN(vectors); i++) {
        check_pieces(&gpt2, 1, vectors[i].text, vectors[i].gpt2);
        check_pieces(&qwen2, 1, vectors[i].text, vectors[i].qwen2);
        check_pieces(&llama3, 1, vectors[i].text, vectors[i].llama3);
        check_pieces(smollm, 2, vectors[i].text, vectors[i].smollm);
        check_pieces(&nanochat, 1, vectors[i].text, vectors[i].nanochat);
    }
    dv_pretokenizer runs = DV_PRETOKENIZER_DIGIT_RUNS;
    check_pieces(&runs, 1, "ab12.3", "ab|12|.|3");
    CHECK(!dv_pretokenizer_known("\\s+", &runs) && runs == DV_PRETOKENIZER_DIGIT_RUNS);
}

static void check_nfc(const char *text, const char *wanted) {
    char *out = NULL;
    uint64_t n = strlen(text);
    CHECK_OK(dv_nfc(text, n, &out, &n));
    const char *got = out != NULL ? out : text;
    CHECKF(n == strlen(wanted) && memcmp(got, wanted, n) == 0, "%s became %.*s, wanted %s", text, (int)n, got, wanted);
    dv_free(out);
}

static void test_nfc(void) {
    check_nfc("", "");
    check_nfc("plain \xc3\xa9", "plain \xc3\xa9");
    check_nfc("e\xcc\x81", "\xc3\xa9");
    check_nfc("\xe2\x84\xab", "\xc3\x85");                             /* Angstrom sign */
    check_nfc("q\xcc\x87\xcc\xa3", "q\xcc\xa3\xcc\x87");               /* order of marks */
    check_nfc("\xe1\xb8\x8b\xcc\xa3", "\xe1\xb8\x8d\xcc\x87");         /* U+1E0B U+0323 */
    check_nfc("\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xea\xb0\x81"); /* Hangul L V T */
    check_nfc("\xea\xb0\x80\xe1\x86\xa8", "\xea\xb0\x81");             /* Hangul LV T */
    check_nfc("\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc");             /* excluded from composition */
    check_nfc("\xcc\x81"
              "a",
              "\xcc\x81"
              "a");                                                       /* a leading mark */
    check_nfc("\xef\xa4\x80", "\xe8\xb1\x88");                            /* compatibility ideograph */
    check_nfc("a\xcc\xa8\xcc\x84\xcc\x81x", "\xc4\x85\xcc\x84\xcc\x81x"); /* blocked */
    enum { MARKS = 200000 };
    char *many = malloc(2 * MARKS + 1);
    for (int i = 0; i < MARKS; i++) {
        memcpy(many + 2 * i, i % 2 == 0 ? "\xcc\x81" : "\xcc\xa3", 2);
    }
    char *out = NULL;
    uint64_t n = 0;
    CHECK_OK(dv_nfc(many, 2 * MARKS, &out, &n));
    CHECK(n == 2 * MARKS && memcmp(out, "\xcc\xa3\xcc\xa3", 4) == 0 && memcmp(out + MARKS, "\xcc\x81\xcc\x81", 4) == 0);
    dv_free(out);
    free(many);
}

static void test_classes(void) {
    CHECK(dv_uc_class('a') == (DV_UC_LETTER | DV_UC_WORD) && dv_uc_class('7') == (DV_UC_NUMBER | DV_UC_WORD));
    CHECK(dv_uc_class(' ') == DV_UC_SPACE && dv_uc_class(0x85) == DV_UC_SPACE && dv_uc_class(0x200b) == 0);
    CHECK(dv_uc_class('_') == DV_UC_WORD && dv_uc_class('-') == 0 && dv_uc_class(0) == 0);
    CHECK(dv_uc_class(0x301) == (DV_UC_WORD | DV_UC_NOT_NFC) && dv_uc_class(0xbd) == DV_UC_NUMBER);
    CHECK(dv_uc_class(0x4e00) == (DV_UC_LETTER | DV_UC_WORD) && dv_uc_class(0x10ffff) == 0 && dv_uc_class(0xd800) == 0);
}

int main(void) {
    test_vectors();
    test_nfc();
    test_classes();
    return check_done();
}
