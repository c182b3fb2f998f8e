/* unicode.c - see unicode.h. Form C is made run by run. A run starts at a character that form C never changes (without
 * DV_UC_NOT_NFC) and ends before the next such character. Text that is in form C already is only read. */
#include "core/text/unicode.h"

#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"

enum { HANGUL_S = 0xac00, HANGUL_L = 0x1100, HANGUL_V = 0x1161, HANGUL_T = 0x11a7, N_L = 19, N_V = 21, N_T = 28 };

uint32_t dv_utf8_put(uint8_t *out, uint32_t c) {
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (uint8_t)(0xc0u | (c >> 6));
        out[1] = (uint8_t)(0x80u | (c & 0x3fu));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (uint8_t)(0xe0u | (c >> 12));
        out[1] = (uint8_t)(0x80u | ((c >> 6) & 0x3fu));
        out[2] = (uint8_t)(0x80u | (c & 0x3fu));
        return 3;
    }
    out[0] = (uint8_t)(0xf0u | (c >> 18));
    out[1] = (uint8_t)(0x80u | ((c >> 12) & 0x3fu));
    out[2] = (uint8_t)(0x80u | ((c >> 6) & 0x3fu));
    out[3] = (uint8_t)(0x80u | (c & 0x3fu));
    return 4;
}

/* The range of the second byte excludes overlong forms, surrogates and code points above U+10FFFF. */
uint32_t dv_utf8_check(const uint8_t *p, uint64_t left, uint32_t *bad, bool *cut) {
    const uint8_t b = p[0];
    *bad = 1;
    *cut = false;
    if (b < 0x80) {
        return 1;
    }
    const uint32_t n = b >= 0xc2 && b <= 0xdf ? 2u : b >= 0xe0 && b <= 0xef ? 3u : b >= 0xf0 && b <= 0xf4 ? 4u : 0u;
    if (n == 0) {
        return 0;
    }
    for (uint32_t i = 1; i < n; i++) {
        const uint8_t low = i > 1 ? 0x80 : b == 0xe0 ? 0xa0 : b == 0xf0 ? 0x90 : 0x80;
        const uint8_t high = i > 1 ? 0xbf : b == 0xed ? 0x9f : b == 0xf4 ? 0x8f : 0xbf;
        *bad = i;
        *cut = i >= left;
        if (i >= left || p[i] < low || p[i] > high) {
            return 0;
        }
    }
    return n;
}

static uint32_t mark_class(uint32_t c) {
    if ((dv_uc_class(c) & DV_UC_NOT_NFC) == 0) {
        return 0;
    }
    uint32_t low = 0;
    uint32_t high = dv_uc_mark_ranges;
    while (low < high) {
        const uint32_t mid = (low + high) / 2;
        const uint32_t *range = dv_uc_marks + 3 * (size_t)mid;
        if (c < range[0]) {
            high = mid;
        } else if (c > range[1]) {
            low = mid + 1;
        } else {
            return range[2];
        }
    }
    return 0;
}

/* 0: the two do not compose. */
static uint32_t compose(uint32_t a, uint32_t b) {
    if (a - HANGUL_L < N_L && b - HANGUL_V < N_V) {
        return HANGUL_S + ((a - HANGUL_L) * N_V + (b - HANGUL_V)) * N_T;
    }
    if (a - HANGUL_S < (uint32_t)N_L * N_V * N_T && (a - HANGUL_S) % N_T == 0 && b - HANGUL_T - 1 < N_T - 1) {
        return a + (b - HANGUL_T);
    }
    const uint64_t key = ((uint64_t)a << 32) | b;
    uint32_t low = 0;
    uint32_t high = dv_uc_compositions;
    while (low < high) {
        const uint32_t mid = (low + high) / 2;
        const uint32_t *entry = dv_uc_composed + 3 * (size_t)mid;
        const uint64_t found = ((uint64_t)entry[0] << 32) | entry[1];
        if (found == key) {
            return entry[2];
        }
        if (found < key) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return 0;
}

typedef struct run {
    uint32_t *c;     /* code points */
    uint8_t *marks;  /* their combining classes */
    uint32_t *spare; /* for sorting */
    int64_t n, room;
} run;

static bool run_add(run *r, uint32_t c) {
    if (r->n == r->room) {
        const int64_t room = r->room > 0 ? 2 * r->room : 64;
        uint32_t *grown = dv_realloc(r->c, (uint64_t)room, sizeof *grown);
        r->c = grown != NULL ? grown : r->c;
        uint8_t *marks = dv_realloc(r->marks, (uint64_t)room, 1);
        r->marks = marks != NULL ? marks : r->marks;
        uint32_t *spare = dv_realloc(r->spare, (uint64_t)room, sizeof *spare);
        r->spare = spare != NULL ? spare : r->spare;
        if (grown == NULL || marks == NULL || spare == NULL) {
            return false;
        }
        r->room = room;
    }
    r->c[r->n] = c;
    r->marks[r->n] = (uint8_t)mark_class(c);
    r->n++;
    return true;
}

static bool run_decompose(run *r, uint32_t c) {
    const uint32_t s = c - HANGUL_S;
    if (s < (uint32_t)N_L * N_V * N_T) {
        bool ok = run_add(r, HANGUL_L + s / (N_V * N_T)) && run_add(r, HANGUL_V + s % (N_V * N_T) / N_T);
        return ok && (s % N_T == 0 || run_add(r, HANGUL_T + s % N_T));
    }
    uint32_t low = 0;
    uint32_t high = dv_uc_decompositions;
    while (low < high) {
        const uint32_t mid = (low + high) / 2;
        if (dv_uc_decomposed[mid] < c) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    if (low == dv_uc_decompositions || dv_uc_decomposed[low] != c) {
        return run_add(r, c);
    }
    bool ok = true;
    for (uint32_t i = dv_uc_part_start[low]; ok && i < dv_uc_part_start[low + 1]; i++) {
        ok = run_add(r, dv_uc_parts[i]);
    }
    return ok;
}

/* Sorts the marks [from, to) by combining class and keeps equal ones in order. A counting sort, because a hostile text may
 * have a million marks in a row. */
static void sort_marks(run *r, int64_t from, int64_t to) {
    if (to - from < 2) {
        return;
    }
    int64_t at[257] = {0};
    bool sorted = true;
    for (int64_t i = from; i < to; i++) {
        at[r->marks[i] + 1]++;
        sorted = sorted && (i == from || r->marks[i - 1] <= r->marks[i]);
    }
    if (sorted) {
        return;
    }
    for (int k = 1; k < 257; k++) {
        at[k] += at[k - 1];
    }
    for (int64_t i = from; i < to; i++) {
        r->spare[from + at[r->marks[i]]++] = r->c[i];
    }
    for (int64_t i = from; i < to; i++) {
        r->c[i] = r->spare[i];
        r->marks[i] = (uint8_t)mark_class(r->c[i]);
    }
}

static void run_compose(run *r) {
    for (int64_t i = 0; i < r->n; i++) {
        int64_t end = i;
        while (end < r->n && r->marks[end] != 0) {
            end++;
        }
        sort_marks(r, i, end);
        i = end;
    }
    int64_t starter = -1;
    int64_t kept = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const uint32_t c = r->c[i];
        const uint8_t mark = r->marks[i];
        const bool blocked = starter < 0 || (kept > starter + 1 && r->marks[kept - 1] >= mark);
        const uint32_t both = blocked ? 0 : compose(r->c[starter], c);
        if (both != 0) {
            r->c[starter] = both;
            continue;
        }
        starter = mark == 0 ? kept : starter;
        r->c[kept] = c;
        r->marks[kept++] = mark;
    }
    r->n = kept;
}

static bool in_form(const uint8_t *p, uint64_t bytes) {
    uint32_t n = 1;
    for (uint64_t i = 0; i < bytes; i += n) {
        n = 1;
        if (p[i] >= 0x80 && (dv_uc_class(dv_utf8_next(p + i, &n)) & DV_UC_NOT_NFC) != 0) {
            return false;
        }
    }
    return true;
}

typedef struct buffer {
    uint8_t *p;
    int64_t n, room;
} buffer;

static bool flush(run *r, buffer *out) {
    run_compose(r);
    uint8_t *grown = dv_grow(out->p, out->n + 4 * r->n + 1, &out->room, 1);
    if (grown == NULL) {
        return false;
    }
    out->p = grown;
    for (int64_t i = 0; i < r->n; i++) {
        out->n += dv_utf8_put(out->p + out->n, r->c[i]);
    }
    r->n = 0;
    return true;
}

davy_result dv_nfc(const char *text, uint64_t bytes, char **out, uint64_t *out_bytes) {
    const uint8_t *p = (const uint8_t *)text;
    *out = NULL;
    if (in_form(p, bytes)) {
        return DAVY_OK;
    }
    run r = {0};
    buffer b = {0};
    bool ok = true;
    uint32_t n = 0;
    for (uint64_t i = 0; ok && i < bytes; i += n) {
        const uint32_t c = dv_utf8_next(p + i, &n);
        if ((dv_uc_class(c) & DV_UC_NOT_NFC) == 0 && r.n > 0) {
            ok = flush(&r, &b);
        }
        ok = ok && run_decompose(&r, c);
    }
    ok = ok && flush(&r, &b);
    dv_free(r.c);
    dv_free(r.marks);
    dv_free(r.spare);
    if (!ok) {
        dv_free(b.p);
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a text of %llu bytes", (unsigned long long)bytes);
    }
    *out = (char *)b.p;
    *out_bytes = (uint64_t)b.n;
    return DAVY_OK;
}
