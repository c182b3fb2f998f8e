/* pretokenizer.c - splits text into the pieces that BPE works on. The loader recognises the published regular expressions by
 * their exact text, and the functions here match them. They try the alternatives in the expression's order. L, N, S are
 * letters, numbers and white space; all other characters are "other". */
#include <string.h>

#include "core/text/tokenizer_priv.h"
#include "core/text/unicode.h"

/* Alternatives in order: contractions, words, numbers, other, line breaks, trailing space, space. */
static const struct {
    const char *pattern;
    dv_pretokenizer kind;
} published[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", DV_PRETOKENIZER_GPT2},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
     "\\s+(?!\\S)|\\s+",
     DV_PRETOKENIZER_QWEN2},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
     "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     DV_PRETOKENIZER_LLAMA3},
    {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,2}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|"
     "\\s+(?!\\S)|\\s+",
     DV_PRETOKENIZER_NANOCHAT},
    {"\\p{N}", DV_PRETOKENIZER_DIGITS},
};

bool dv_pretokenizer_known(const char *pattern, dv_pretokenizer *out) {
    for (size_t i = 0; i < DV_ARRAY_LEN(published); i++) {
        if (strcmp(pattern, published[i].pattern) == 0) {
            *out = published[i].kind;
            return true;
        }
    }
    return false;
}

enum { LETTER = DV_UC_LETTER, NUMBER = DV_UC_NUMBER, SPACE = DV_UC_SPACE, LNS = LETTER | NUMBER | SPACE };

typedef struct text {
    const uint8_t *p;
    uint64_t end;
} text;

/* Class of the character at `at`, 0 for other; *n is its length. At the end: -1 and 0. */
static int kind_at(text s, uint64_t at, uint32_t *n) {
    if (at >= s.end) {
        *n = 0;
        return -1;
    }
    return (int)(dv_uc_class(dv_utf8_next(s.p + at, n)) & LNS);
}

/* The end of a run of characters of one class, at most `most` characters. */
static uint64_t run_end(text s, uint64_t at, int kind, uint64_t most) {
    uint32_t n = 0;
    for (; most > 0 && kind_at(s, at, &n) == kind; most--) {
        at += n;
    }
    return at;
}

static bool is_break(text s, uint64_t at) {
    return at < s.end && (s.p[at] == '\r' || s.p[at] == '\n');
}

static uint8_t lower_at(text s, uint64_t at) {
    const uint8_t c = at < s.end ? s.p[at] : 0;
    return c >= 'A' && c <= 'Z' ? (uint8_t)(c + 32) : c;
}

/* The end of a contraction that starts with the apostrophe at `at`; `at` itself: no contraction. */
static uint64_t contraction(text s, uint64_t at, bool any_case) {
    const uint8_t a = any_case ? lower_at(s, at + 1) : at + 1 < s.end ? s.p[at + 1] : 0;
    const uint8_t b = any_case ? lower_at(s, at + 2) : at + 2 < s.end ? s.p[at + 2] : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') {
        return at + 2;
    }
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) {
        return at + 3;
    }
    return any_case && a == 0xc5 && b == 0xbf ? at + 3 : at; /* the long s, U+017F, is an s in any case */
}

/* The end of the run of white space at `at`. If text follows, its last character is excluded, unless it is the only one. */
static uint64_t space_end(text s, uint64_t at) {
    uint64_t last = at;
    uint64_t end = at;
    uint32_t n = 0;
    while (kind_at(s, end, &n) == SPACE) {
        last = end;
        end += n;
    }
    return end < s.end && last > at ? last : end;
}

static uint64_t next_gpt2(text s, uint64_t at) {
    uint32_t n = 0;
    if (s.p[at] == '\'') {
        const uint64_t end = contraction(s, at, false);
        if (end > at) {
            return end;
        }
    }
    uint64_t from = s.p[at] == ' ' ? at + 1 : at;
    int kind = kind_at(s, from, &n);
    if (kind >= 0 && kind != SPACE) {
        return run_end(s, from, kind, UINT64_MAX);
    }
    return space_end(s, at);
}

/* The end of the last line break in the run of white space at `at`; `at` itself: no line break. */
static uint64_t breaks_end(text s, uint64_t at) {
    uint64_t found = at;
    uint32_t n = 0;
    for (uint64_t i = at; kind_at(s, i, &n) == SPACE; i += n) {
        found = is_break(s, i) ? i + 1 : found;
    }
    return found;
}

/* Qwen2, Llama 3 and nanochat differ in the largest number of digits in a piece. */
static uint64_t next_gpt4(text s, uint64_t at, uint64_t digits) {
    if (s.p[at] == '\'') {
        const uint64_t end = contraction(s, at, true);
        if (end > at) {
            return end;
        }
    }
    uint32_t n = 0;
    uint32_t n2 = 0;
    const int kind = kind_at(s, at, &n);
    if (kind == LETTER) {
        return run_end(s, at, LETTER, UINT64_MAX);
    }
    if (kind == NUMBER) {
        return run_end(s, at, NUMBER, digits);
    }
    if (!is_break(s, at) && kind_at(s, at + n, &n2) == LETTER) {
        return run_end(s, at + n, LETTER, UINT64_MAX);
    }
    uint64_t from = s.p[at] == ' ' ? at + 1 : at;
    if (kind_at(s, from, &n2) == 0) {
        uint64_t end = run_end(s, from, 0, UINT64_MAX);
        while (is_break(s, end)) {
            end++;
        }
        return end;
    }
    const uint64_t end = breaks_end(s, at);
    return end > at ? end : space_end(s, at);
}

static uint64_t next_digits(text s, uint64_t at, bool alone) {
    uint32_t n = 0;
    if (kind_at(s, at, &n) == NUMBER) {
        return alone ? at + n : run_end(s, at, NUMBER, UINT64_MAX);
    }
    for (int kind = 0; kind >= 0 && kind != NUMBER; kind = kind_at(s, at, &n)) {
        at += n;
    }
    return at;
}

uint64_t dv_pretokenizer_next(dv_pretokenizer kind, const uint8_t *p, uint64_t at, uint64_t end) {
    const text s = {p, end};
    switch (kind) {
    case DV_PRETOKENIZER_GPT2:
        return next_gpt2(s, at);
    case DV_PRETOKENIZER_QWEN2:
        return next_gpt4(s, at, 1);
    case DV_PRETOKENIZER_LLAMA3:
        return next_gpt4(s, at, 3);
    case DV_PRETOKENIZER_NANOCHAT:
        return next_gpt4(s, at, 2);
    default:
        return next_digits(s, at, kind == DV_PRETOKENIZER_DIGITS);
    }
}
