/* tokenizer.h - byte-level BPE, and SentencePiece's: text to token ids and back, token for token as the `tokenizers`
 * library does it for the same tokenizer.json and `sentencepiece` for the same tokenizer.model. A tokenizer does not change
 * once it is loaded and may be used by any number of threads. */
#ifndef DV_TEXT_TOKENIZER_H
#define DV_TEXT_TOKENIZER_H

#include "core/file/source.h"

enum {
    DV_MAX_TOKENS = 1 << 20,     /* ids are below it */
    DV_MAX_TEXT_BYTES = 16 << 20 /* of one call of dv_encode */
};

typedef struct dv_tokenizer dv_tokenizer;

/* Of tokenizer.json: model BPE (no dropout, no prefixes or suffixes). Byte-level: normaliser none or NFC; pre-tokenisers of
 * the forms and regular expressions listed in pretokenizer.c; decoder ByteLevel. SentencePiece's form (Llama 2): normaliser
 * Prepend and Replace, or pre-tokeniser Metaspace; byte_fallback; decoders that undo them.
 * Anything else is DAVY_E_UNSUPPORTED, a file that contradicts itself DAVY_E_FORMAT; the message names file and field.
 */
davy_result dv_tokenizer_from_json(const char *text, uint64_t bytes, const char *where, dv_tokenizer **out);
/* Of SentencePiece's own file: model BPE, without rules of normalisation. */
davy_result dv_tokenizer_from_model(const void *data, uint64_t bytes, const char *where, dv_tokenizer **out);
/* Of a GGUF file's metadata: tokenizer.ggml.model "gpt2" with a known tokenizer.ggml.pre, or without where the vocabulary is
 * Llama 3's, or "llama". */
davy_result dv_tokenizer_from_gguf(dv_source *source, dv_tokenizer **out);
/* A tokenizer.json, a tokenizer.model, a folder that holds one of them (the first wins), or a .gguf file. */
davy_result dv_tokenizer_open(const char *path, dv_tokenizer **out);
void dv_tokenizer_release(dv_tokenizer *t);

/* Before anybody else has it: `content` becomes a special token, behind all others where the file has no such name. For
 * what has a place in a prompt, but need not be a word of the model's. */
davy_result dv_tokenizer_add_placeholder(dv_tokenizer *t, const char *content);

/* A sentence about what the file lacks and the loader took from the vocabulary; NULL: nothing. */
const char *dv_tokenizer_note(const dv_tokenizer *t);

int32_t dv_tokenizer_size(const dv_tokenizer *t); /* one more than the largest id */
/* The id of an added token's content or of an entry of the vocabulary as the file writes it ("Ġthe"); -1: none. */
int32_t dv_tokenizer_find(const dv_tokenizer *t, const char *content);
bool dv_tokenizer_is_special(const dv_tokenizer *t, int32_t id);
/* The bytes an id stands for, not necessarily whole characters; NULL: no such id. */
const char *dv_tokenizer_bytes(const dv_tokenizer *t, int32_t id, uint64_t *bytes);

typedef struct dv_ids { /* starts as zeros; dv_ids_clear gives its memory back */
    int32_t *p;
    int64_t n, room;
} dv_ids;

davy_result dv_ids_add(dv_ids *ids, int32_t id);
void dv_ids_clear(dv_ids *ids);

enum {
    DV_ENCODE_POST = 1,  /* with what the file's post-processor adds (Llama 3: <|begin_of_text|>) */
    DV_ENCODE_PLAIN = 2, /* the text of special tokens is text like any other */
};

typedef struct dv_text_span { /* bytes [from, to) of a text */
    uint64_t from, to;
} dv_text_span;

typedef struct dv_text_around {
    const dv_text_span *spans; /* a user's words in a prompt */
    int64_t n;
    uint64_t begins; /* behind what the whole begins; as many as there are bytes: it began before */
} dv_text_around;

/* Appends the ids of a text, which must be UTF-8 (NUL is a character like any other). On an error ids is as before. */
davy_result dv_encode(const dv_tokenizer *t, const char *text, uint64_t bytes, uint32_t flags, dv_ids *ids);
/* The same; special tokens that touch one of the spans (sorted, apart) are not recognised. */
davy_result dv_encode_around(const dv_tokenizer *t, const char *text, uint64_t bytes, const dv_text_around *around,
                             dv_ids *ids);

/* The text of ids, NUL-terminated (dv_free); ids without a token give nothing, bytes that are not UTF-8 U+FFFD. */
davy_result dv_decode(const dv_tokenizer *t, const int32_t *ids, int64_t n, bool skip_special, char **out,
                      uint64_t *out_bytes);

#endif
