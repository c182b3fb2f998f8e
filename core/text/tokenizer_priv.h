/* tokenizer_priv.h - the inside of a tokenizer, for the files of core/text. */
#ifndef DV_TEXT_TOKENIZER_PRIV_H
#define DV_TEXT_TOKENIZER_PRIV_H

#include "core/text/tokenizer.h"

enum {
    DV_TOKEN_PRESENT = 1,
    DV_TOKEN_LITERAL = 2, /* its name has characters outside the byte alphabet, and is the token's text */
    DV_TOKEN_SPECIAL = 4,
    DV_TOKEN_RESERVED = 8, /* SentencePiece: no merge leads to it */
};

typedef struct dv_token { /* of the vocabulary; an added token's content is in `added` */
    uint32_t at, bytes;   /* in dv_tokenizer.bytes: the token's bytes */
    uint32_t flags;
    uint32_t added;               /* index + 1 */
    uint32_t text_at, text_bytes; /* SentencePiece: the token's bytes, which differ from its name */
} dv_token;

typedef enum dv_prefix { /* when SentencePiece's form adds a space in front */
                         DV_PREFIX_NEVER,
                         DV_PREFIX_ALWAYS,  /* of every part between added tokens */
                         DV_PREFIX_MISSING, /* of every part that does not begin with one */
                         DV_PREFIX_FIRST    /* the same, but only at the start of a text */
} dv_prefix;

typedef struct dv_added {
    int32_t id;
    bool special, normalized, lstrip, rstrip, single_word;
    uint32_t at, bytes;                 /* content */
    uint32_t pattern_at, pattern_bytes; /* the content, in form C if the tokenizer normalises to it */
} dv_added;

typedef struct dv_added_set { /* the patterns of one search, sorted by bytes */
    uint32_t *order;          /* indices of dv_added */
    uint32_t n;
    uint32_t first[257]; /* of the patterns that begin with byte b: [first[b], first[b + 1]) */
} dv_added_set;

typedef struct dv_merge {
    uint32_t left, right; /* left DV_NO_MERGE: a free slot */
    uint32_t rank, id;
} dv_merge;

enum { DV_NO_MERGE = 0x7fffffff, DV_MAX_STAGES = 8 };

typedef enum dv_pretokenizer {
    DV_PRETOKENIZER_GPT2,
    DV_PRETOKENIZER_QWEN2,
    DV_PRETOKENIZER_LLAMA3,
    DV_PRETOKENIZER_NANOCHAT,
    DV_PRETOKENIZER_DIGITS,    /* each digit (N) is a piece */
    DV_PRETOKENIZER_DIGIT_RUNS /* each run of digits is a piece */
} dv_pretokenizer;

typedef struct dv_slot {
    uint64_t key;
    uint32_t id; /* id + 1; 0: free */
} dv_slot;

struct dv_tokenizer {
    char *where;
    const char *note; /* see dv_tokenizer_note */
    uint8_t *bytes;   /* texts of all tokens, one after another */
    int64_t n_bytes, bytes_room;
    dv_token *tokens; /* by id */
    int64_t n_tokens, tokens_room;
    dv_slot *slots; /* the vocabulary by text */
    uint32_t slot_mask;
    int64_t n_vocabulary;
    dv_merge *merges; /* by pair */
    uint32_t merge_mask;
    int64_t n_merges;
    int32_t last_merged; /* while loading */
    dv_added *added;
    int64_t n_added, added_room;
    dv_added_set raw, normal; /* searched before and after the normaliser */
    int32_t byte_id[256];     /* -1: not in the vocabulary */
    int32_t unk;              /* the id for such bytes; -1: they are dropped */
    bool fuse_unk, ignore_merges, nfc, byte_level;
    bool spaces;        /* SentencePiece's form: spaces are U+2581, names are the text, symbols are characters */
    bool spaces_late;   /* U+2581 is put in after the search for added tokens (Metaspace) */
    bool spaces_split;  /* with spaces_late: pieces begin at U+2581 */
    bool spaces_strip;  /* decoding removes one space from the front */
    bool byte_fallback; /* a character without a token becomes the tokens of its bytes */
    dv_prefix prefix;
    float *scores; /* by id; merging takes the best score first (SentencePiece). NULL: the list of merges is used */
    dv_pretokenizer stages[DV_MAX_STAGES];
    int32_t n_stages;
    dv_ids before, after; /* the post-processor's tokens */
};

/* ---- making a tokenizer (tokenizer.c, vocabulary.c, bpe.c): vocabulary, then merges, then added tokens, then done ---- */

typedef struct dv_name { /* a token as files write it */
    const char *p;
    uint64_t bytes;
} dv_name;

dv_tokenizer *dv_tokenizer_new(const char *where);
/* `field` goes into messages. */
davy_result dv_tokenizer_reserve(dv_tokenizer *t, int64_t vocabulary, int64_t merges);
davy_result dv_tokenizer_add(dv_tokenizer *t, const char *field, dv_name name, int64_t id);
davy_result dv_tokenizer_merge(dv_tokenizer *t, int64_t index, dv_name left, dv_name right);
/* A merge as "left right", the form of older files. */
davy_result dv_tokenizer_merge_line(dv_tokenizer *t, int64_t index, dv_name line);
davy_result dv_tokenizer_add_added(dv_tokenizer *t, int64_t index, dv_name content, const dv_added *flags);
davy_result dv_tokenizer_done(dv_tokenizer *t, const char *unk_token);
int32_t dv_tokenizer_find_name(const dv_tokenizer *t, dv_name name);
/* Makes room for a token with this id. Ids may come in any order and may have gaps. */
davy_result dv_tokenizer_take_id(dv_tokenizer *t, const char *field, int64_t id);
/* DAVY_E_FORMAT with the message: FILE: FIELD: "name" (id N) why. */
davy_result dv_tokenizer_refuse(const dv_tokenizer *t, const char *field, dv_name name, int64_t id, const char *why);
davy_result dv_tokenizer_room(dv_tokenizer *t, uint64_t n,
                              uint8_t **at);   /* room after t->bytes; t->n_bytes is unchanged */
davy_result dv_spaces_finish(dv_tokenizer *t); /* pieces.c */

/* SentencePiece's pieces, in GGUF files too: begin, then add for each id in order, then done. */
typedef enum dv_vocab_piece_type {
    DV_PIECE_NORMAL = 1,
    DV_PIECE_UNKNOWN,
    DV_PIECE_CONTROL,
    DV_PIECE_USER,
    DV_PIECE_UNUSED,
    DV_PIECE_BYTE
} dv_vocab_piece_type;
typedef struct dv_vocab_piece {
    dv_name name;
    float score;
    int64_t type;
} dv_vocab_piece;
davy_result dv_pieces_begin(dv_tokenizer *t, int64_t n, bool prefix);
davy_result dv_pieces_add(dv_tokenizer *t, int64_t id, const dv_vocab_piece *piece);
davy_result dv_pieces_done(dv_tokenizer *t, bool byte_fallback);
/* Loads a tokenizer.model, with the tokens of the folder's tokenizer_config.json and added_tokens.json. */
davy_result dv_tokenizer_open_model(dv_source *source, const char *folder,
                                    dv_tokenizer **out); /* folder NULL: no folder */

/* Decodes a name from the byte alphabet into out (room for name.bytes); false: it is literal, and out is a copy. */
bool dv_name_bytes(const dv_tokenizer *t, dv_name name, uint8_t *out, uint64_t *bytes);
bool dv_token_is(const dv_tokenizer *t, const dv_token *token, const uint8_t *p, uint64_t n, bool literal);

/* ---- parts ---- */

/* For the hash tables: a multiplier, and the limit of probes. A table is at most two thirds full and needs far fewer probes,
 * unless a file is made to be slow. */
#define DV_GOLDEN UINT64_C(0x9e3779b97f4a7c15)
enum { DV_MAX_PROBES = 1000 };

int32_t dv_vocabulary_find(const dv_tokenizer *t, const void *bytes, uint64_t n, bool literal); /* -1: none */

davy_result dv_added_set_make(const dv_tokenizer *t, bool normalized, dv_added_set *set);
const dv_added *dv_added_find(const dv_tokenizer *t, dv_name content); /* NULL: none */

typedef struct dv_guard { /* where special tokens are not searched for */
    const dv_text_span *spans;
    int64_t n;
    bool everywhere;
} dv_guard;

/* One part of a text: an added token, or (added NULL) the text between two. `at` is its offset in the text. */
typedef davy_result (*dv_part_fn)(void *user, const dv_added *added, uint64_t at, uint64_t bytes);
typedef struct dv_splitting {
    const char *text;
    uint64_t bytes;
    const dv_guard *guard;
    dv_part_fn part;
    void *user;
} dv_splitting;
davy_result dv_added_split(const dv_tokenizer *t, const dv_added_set *set, const dv_splitting *s);

/* The end of the piece that starts at `at` in a segment of `end` bytes. */
uint64_t dv_pretokenizer_next(dv_pretokenizer kind, const uint8_t *p, uint64_t at, uint64_t end);
/* Looks up a published regular expression; false: not supported. */
bool dv_pretokenizer_known(const char *pattern, dv_pretokenizer *out);

typedef struct dv_bpe_scratch { /* starts as zeros; dv_bpe_scratch_clear */
    uint32_t *symbols, *next, *previous;
    uint64_t *heap;
    uint32_t *at; /* dv_pieces_merge */
    int64_t room, n_heap, heap_room, at_room;
} dv_bpe_scratch;

davy_result dv_bpe(const dv_tokenizer *t, const uint8_t *piece, uint64_t n, dv_bpe_scratch *scratch, dv_ids *ids);
void dv_bpe_scratch_clear(dv_bpe_scratch *scratch);
bool dv_bpe_reserve(dv_bpe_scratch *s, uint64_t n); /* symbols */
/* A heap of rank << 32 | place; the smallest value comes first. */
bool dv_bpe_push(dv_bpe_scratch *s, uint32_t rank, uint32_t place);
uint64_t dv_bpe_pop(dv_bpe_scratch *s);

/* As dv_bpe, for a tokenizer with scores (pieces.c). */
davy_result dv_pieces_merge(const dv_tokenizer *t, const uint8_t *text, uint64_t n, dv_bpe_scratch *scratch,
                            dv_ids *ids);
/* A copy (dv_free) of a text with U+2581 for spaces, and with in_front one more at the front. */
davy_result dv_spaces_put(const char *text, uint64_t bytes, bool in_front, char **out, uint64_t *out_bytes);
bool dv_spaces_prefix(const dv_tokenizer *t, const char *text, uint64_t bytes, bool begins);

#endif
