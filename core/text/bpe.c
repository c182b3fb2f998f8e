/* bpe.c - byte pair encoding: the table of merges, which is filled from a file's list and checked, and the merging of one
 * piece's symbols. */
#include <inttypes.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/text/tokenizer_priv.h"
#include "core/text/unicode.h"

enum { SHOWN = 48 };

static dv_merge *merge_slot(const dv_tokenizer *t, uint32_t left, uint32_t right) {
    const uint64_t h = (left * UINT64_C(0x9e3779b1) + right) * DV_GOLDEN;
    uint32_t i = (uint32_t)(h >> 40) & t->merge_mask;
    for (int probe = 0; probe < DV_MAX_PROBES; probe++, i = (i + 1) & t->merge_mask) {
        dv_merge *m = &t->merges[i];
        if (m->left == DV_NO_MERGE || (m->left == left && m->right == right)) {
            return m;
        }
    }
    return NULL;
}

/* NULL: none */
static const dv_merge *dv_merge_find(const dv_tokenizer *t, uint32_t left, uint32_t right) {
    const dv_merge *m = merge_slot(t, left, right);
    return m != NULL && m->left != DV_NO_MERGE ? m : NULL;
}

static davy_result refuse_merge(const dv_tokenizer *t, int64_t index, dv_name left, dv_name right, const char *why) {
    char a[SHOWN];
    char b[SHOWN];
    return dv_fail(DAVY_E_FORMAT, "%s: merges[%" PRId64 "]: \"%s\" and \"%s\" %s", t->where, index,
                   dv_printable(a, sizeof a, left.p, left.bytes), dv_printable(b, sizeof b, right.p, right.bytes), why);
}

davy_result dv_tokenizer_merge(dv_tokenizer *t, int64_t index, dv_name left, dv_name right) {
    if (left.bytes == 0 || right.bytes == 0) {
        return refuse_merge(t, index, left, right, "are not a pair: one of them is empty");
    }
    uint8_t *at = NULL;
    const davy_result r = dv_tokenizer_room(t, left.bytes + right.bytes, &at);
    if (r < 0) {
        return r;
    }
    uint64_t n = 0;
    uint64_t m = 0;
    const bool literal_left = !dv_name_bytes(t, left, at, &n);
    const bool literal_right = !dv_name_bytes(t, right, at + n, &m);
    const int32_t a = dv_vocabulary_find(t, at, n, literal_left);
    const int32_t b = dv_vocabulary_find(t, at + n, m, literal_right);
    if (literal_left != literal_right) { /* if one name is literal, the two together are literal */
        memcpy(at, left.p, (size_t)left.bytes);
        memcpy(at + left.bytes, right.p, (size_t)right.bytes);
        n = left.bytes;
        m = right.bytes;
    }
    /* Trained vocabularies list results in the order of their merges. The guess "the next id" avoids most look-ups, which are
     * cache misses. */
    const bool literal = literal_left || literal_right;
    const int64_t next = t->last_merged + 1;
    const bool guessed = next < t->n_tokens && (t->tokens[next].flags & DV_TOKEN_PRESENT) != 0 &&
                         dv_token_is(t, &t->tokens[next], at, n + m, literal);
    const int32_t both = guessed ? (int32_t)next : dv_vocabulary_find(t, at, n + m, literal);
    if (a < 0 || b < 0 || both < 0) {
        return refuse_merge(t, index, left, right,
                            both < 0 ? "together are not a token of the vocabulary" : "are not both in the vocabulary");
    }
    dv_merge *slot = merge_slot(t, (uint32_t)a, (uint32_t)b);
    if (slot == NULL) {
        return refuse_merge(t, index, left, right, "collide with too many others");
    } /* if a pair occurs twice, its later rank counts, as in the `tokenizers` library */
    t->last_merged = both;
    *slot = (dv_merge){(uint32_t)a, (uint32_t)b, (uint32_t)index, (uint32_t)both};
    t->n_merges++;
    return DAVY_OK;
}

davy_result dv_tokenizer_merge_line(dv_tokenizer *t, int64_t index, dv_name line) {
    const char *space = memchr(line.p, ' ', (size_t)line.bytes);
    const uint64_t n = space != NULL ? (uint64_t)(space - line.p) : line.bytes;
    const dv_name left = {line.p, n};
    const dv_name right = {line.p + n + 1, space != NULL ? line.bytes - n - 1 : 0};
    if (space == NULL || memchr(right.p, ' ', (size_t)right.bytes) != NULL) {
        char shown[SHOWN];
        return dv_fail(DAVY_E_FORMAT, "%s: merges[%" PRId64 "]: \"%s\" is not two names separated by one space",
                       t->where, index, dv_printable(shown, sizeof shown, line.p, line.bytes));
    }
    return dv_tokenizer_merge(t, index, left, right);
}

/* ---- merging the bytes, or characters, of one piece. Each step merges the pair of lowest rank; of equal pairs the leftmost.
 * For short pieces, such as words, a scan for the lowest rank is fastest. A long piece keeps its pairs in a heap. ---- */

enum { SHORT = 48 };

#define NONE UINT32_MAX

typedef struct pair {
    uint32_t rank, id;
} pair;

static inline pair look(const dv_tokenizer *t, uint32_t left, uint32_t right) {
    const dv_merge *m = dv_merge_find(t, left, right);
    return m != NULL ? (pair){m->rank, m->id} : (pair){NONE, 0};
}

/* Makes one symbol for each byte. Bytes without a token are dropped, or become the unknown token. */
static int64_t begin(const dv_tokenizer *t, const uint8_t *piece, uint64_t n, uint32_t *symbols) {
    int64_t count = 0;
    bool was_unknown = false;
    for (uint64_t i = 0; i < n; i++) {
        const int32_t id = t->byte_id[piece[i]];
        if (id >= 0) {
            symbols[count++] = (uint32_t)id;
        } else if (t->unk >= 0 && !(was_unknown && t->fuse_unk)) {
            symbols[count++] = (uint32_t)t->unk;
        }
        was_unknown = id < 0;
    }
    return count;
}

/* Makes one symbol for each character. A character without a token becomes the tokens of its bytes. */
static int64_t begin_characters(const dv_tokenizer *t, const uint8_t *piece, uint64_t n, uint32_t *symbols) {
    int64_t count = 0;
    bool was_unknown = false;
    uint32_t length = 0;
    for (uint64_t i = 0; i < n; i += length) {
        dv_utf8_next(piece + i, &length);
        const int32_t id = dv_vocabulary_find(t, piece + i, length, true);
        bool bytes = id < 0 && t->byte_fallback;
        for (uint32_t k = 0; bytes && k < length; k++) {
            bytes = t->byte_id[piece[i + k]] >= 0;
        }
        if (id >= 0) {
            symbols[count++] = (uint32_t)id;
        } else if (bytes) {
            for (uint32_t k = 0; k < length; k++) {
                symbols[count++] = (uint32_t)t->byte_id[piece[i + k]];
            }
        } else if (t->unk >= 0 && !(was_unknown && t->fuse_unk)) {
            symbols[count++] = (uint32_t)t->unk;
        }
        was_unknown = id < 0 && !bytes;
    }
    return count;
}

static int64_t merge_short(const dv_tokenizer *t, uint32_t *symbols, int64_t n) {
    pair pairs[SHORT];
    for (int64_t i = 0; i + 1 < n; i++) {
        pairs[i] = look(t, symbols[i], symbols[i + 1]);
    }
    while (n > 1) {
        int64_t best = 0;
        for (int64_t i = 1; i + 1 < n; i++) {
            best = pairs[i].rank < pairs[best].rank ? i : best;
        }
        if (pairs[best].rank == NONE) {
            break;
        }
        symbols[best] = pairs[best].id;
        n--;
        memmove(symbols + best + 1, symbols + best + 2, (size_t)(n - best - 1) * sizeof *symbols);
        if (best + 1 < n) {
            memmove(pairs + best + 1, pairs + best + 2, (size_t)(n - best - 2) * sizeof *pairs);
            pairs[best] = look(t, symbols[best], symbols[best + 1]);
        }
        if (best > 0) {
            pairs[best - 1] = look(t, symbols[best - 1], symbols[best]);
        }
    }
    return n;
}

/* ---- long pieces: a list of symbols, a heap of rank << 32 | place ---- */

bool dv_bpe_push(dv_bpe_scratch *s, uint32_t rank, uint32_t place) {
    uint64_t *heap = dv_grow(s->heap, s->n_heap + 1, &s->heap_room, sizeof *heap);
    if (heap == NULL) {
        return false;
    }
    s->heap = heap;
    const uint64_t key = ((uint64_t)rank << 32) | place;
    int64_t i = s->n_heap++;
    for (; i > 0 && heap[(i - 1) / 2] > key; i = (i - 1) / 2) {
        heap[i] = heap[(i - 1) / 2];
    }
    heap[i] = key;
    return true;
}

uint64_t dv_bpe_pop(dv_bpe_scratch *s) {
    const uint64_t top = s->heap[0];
    const uint64_t last = s->heap[--s->n_heap];
    int64_t i = 0;
    for (int64_t child = 1; child < s->n_heap; child = 2 * i + 1) {
        child += child + 1 < s->n_heap && s->heap[child + 1] < s->heap[child];
        if (s->heap[child] >= last) {
            break;
        }
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

static bool push_pair(const dv_tokenizer *t, dv_bpe_scratch *s, uint32_t left, uint32_t right) {
    const pair p = look(t, s->symbols[left], s->symbols[right]);
    return p.rank == NONE || dv_bpe_push(s, p.rank, left);
}

/* A symbol that was merged into its neighbour is NONE. A heap entry is stale if the pair at its place now has another
 * rank. */
static bool merge_long(const dv_tokenizer *t, dv_bpe_scratch *s, uint32_t n) {
    bool ok = true;
    s->n_heap = 0;
    for (uint32_t i = 0; ok && i < n; i++) {
        s->next[i] = i + 1;
        s->previous[i] = i - 1;
        ok = i + 1 >= n || push_pair(t, s, i, i + 1);
    }
    while (ok && s->n_heap > 0) {
        const uint64_t top = dv_bpe_pop(s);
        const uint32_t i = (uint32_t)top;
        const uint32_t j = s->symbols[i] != NONE ? s->next[i] : n;
        if (j >= n) {
            continue;
        }
        const pair p = look(t, s->symbols[i], s->symbols[j]);
        if (p.rank != (uint32_t)(top >> 32)) {
            continue;
        }
        s->symbols[i] = p.id;
        s->symbols[j] = NONE;
        s->next[i] = s->next[j];
        if (s->next[i] < n) {
            s->previous[s->next[i]] = i;
            ok = push_pair(t, s, i, s->next[i]);
        }
        ok = ok && (i == 0 || push_pair(t, s, s->previous[i], i));
    }
    return ok;
}

bool dv_bpe_reserve(dv_bpe_scratch *s, uint64_t n) {
    if ((int64_t)n <= s->room) {
        return true;
    }
    dv_bpe_scratch_clear(s);
    s->symbols = dv_calloc(n, sizeof *s->symbols);
    s->next = dv_calloc(n, sizeof *s->next);
    s->previous = dv_calloc(n, sizeof *s->previous);
    s->room = (int64_t)n;
    return s->symbols != NULL && s->next != NULL && s->previous != NULL;
}

davy_result dv_bpe(const dv_tokenizer *t, const uint8_t *piece, uint64_t n, dv_bpe_scratch *scratch, dv_ids *ids) {
    uint32_t few[SHORT];
    uint32_t *symbols = few;
    const int32_t whole = t->ignore_merges ? dv_vocabulary_find(t, piece, n, t->spaces) : -1;
    if (whole >= 0) {
        return dv_ids_add(ids, whole);
    }
    if (n > SHORT && !dv_bpe_reserve(scratch, n)) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a piece of text of %llu bytes", (unsigned long long)n);
    }
    symbols = n > SHORT ? scratch->symbols : few;
    int64_t count = t->spaces ? begin_characters(t, piece, n, symbols) : begin(t, piece, n, symbols);
    if (count <= SHORT) {
        count = merge_short(t, symbols, count);
    } else if (!merge_long(t, scratch, (uint32_t)count)) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a piece of text of %llu bytes", (unsigned long long)n);
    }
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < count; i++) {
        r = symbols[i] != NONE ? dv_ids_add(ids, (int32_t)symbols[i]) : DAVY_OK;
    }
    return r;
}

void dv_bpe_scratch_clear(dv_bpe_scratch *s) {
    dv_free(s->symbols);
    dv_free(s->next);
    dv_free(s->previous);
    dv_free(s->heap);
    dv_free(s->at);
    *s = (dv_bpe_scratch){0};
}
