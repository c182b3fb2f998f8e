/* tokenizer.h - byte-level BPE and SentencePiece's BPE: text to token ids and back. The ids equal those of the `tokenizers`
 * library for the same tokenizer.json, and those of `sentencepiece` for the same tokenizer.model. A loaded tokenizer does not
 * change, and any number of threads may use it. */
#ifndef DV_TEXT_TOKENIZER_H
#define DV_TEXT_TOKENIZER_H

#include "core/file/source.h"

enum {
    DV_MAX_TOKENS = 1 << 20,     /* ids are below it */
    DV_MAX_TEXT_BYTES = 16 << 20 /* of one call of dv_encode */
};

typedef struct dv_tokenizer dv_tokenizer;

/* Loads a tokenizer.json with model BPE (no dropout, no prefixes or suffixes), in one of two forms:
 *
 * - Byte-level: normaliser none or NFC, a pre-tokeniser listed in pretokenizer.c, decoder ByteLevel.
 * - SentencePiece's form (Llama 2): normaliser Prepend and Replace, or pre-tokeniser Metaspace; byte_fallback; decoders that
 *   reverse them.
 *
 * DAVY_E_UNSUPPORTED: another form. DAVY_E_FORMAT: the file contradicts itself. The message names file and field. */
davy_result dv_tokenizer_from_json(const char *text, uint64_t bytes, const char *where, dv_tokenizer **out);
/* Loads SentencePiece's own file: model BPE, without normalisation rules. */
davy_result dv_tokenizer_from_model(const void *data, uint64_t bytes, const char *where, dv_tokenizer **out);
/* Loads a tokenizer from a GGUF file's metadata. tokenizer.ggml.model is "llama", or "gpt2" with a supported
 * tokenizer.ggml.pre. That key may be missing if the vocabulary is Llama 3's. */
davy_result dv_tokenizer_from_gguf(dv_source *source, dv_tokenizer **out);
/* Loads a tokenizer.json, a tokenizer.model, a .gguf file, or a folder. In a folder tokenizer.json comes before
 * tokenizer.model. */
davy_result dv_tokenizer_open(const char *path, dv_tokenizer **out);
void dv_tokenizer_release(dv_tokenizer *t);

/* Makes `content` a special token. If the file has no such token, it gets an id after all others. For placeholders in a
 * prompt that the model may not have as tokens. Call it before other threads use the tokenizer. */
davy_result dv_tokenizer_add_placeholder(dv_tokenizer *t, const char *content);

/* A note about a key that the file lacks and the loader derived from the vocabulary; NULL: none. */
const char *dv_tokenizer_note(const dv_tokenizer *t);

int32_t dv_tokenizer_size(const dv_tokenizer *t); /* one more than the largest id */
/* The id of an added token's content, or of a vocabulary entry as the file writes it ("Ġthe"); -1: none. */
int32_t dv_tokenizer_find(const dv_tokenizer *t, const char *content);
bool dv_tokenizer_is_special(const dv_tokenizer *t, int32_t id);
/* The bytes of an id, which may be incomplete characters; NULL: no such id. */
const char *dv_tokenizer_bytes(const dv_tokenizer *t, int32_t id, uint64_t *bytes);

typedef struct dv_ids { /* starts as zeros; dv_ids_clear frees its memory */
    int32_t *p;
    int64_t n, room;
} dv_ids;

davy_result dv_ids_add(dv_ids *ids, int32_t id);
void dv_ids_clear(dv_ids *ids);

enum {
    DV_ENCODE_POST = 1,  /* add the tokens of the file's post-processor (Llama 3: <|begin_of_text|>) */
    DV_ENCODE_PLAIN = 2, /* the text of special tokens is plain text */
};

typedef struct dv_text_span { /* bytes [from, to) of a text */
    uint64_t from, to;
} dv_text_span;

typedef struct dv_text_around {
    const dv_text_span *spans; /* a user's words in a prompt */
    int64_t n;
    uint64_t
        begins; /* the offset where the text proper begins, after a start token; the text's size: it began earlier */
} dv_text_around;

/* Appends the ids of a text, which must be valid UTF-8 (NUL is allowed). After an error ids is unchanged. */
davy_result dv_encode(const dv_tokenizer *t, const char *text, uint64_t bytes, uint32_t flags, dv_ids *ids);
/* The same; special tokens that touch one of the spans (sorted, apart) are not recognised. */
davy_result dv_encode_around(const dv_tokenizer *t, const char *text, uint64_t bytes, const dv_text_around *around,
                             dv_ids *ids);

/* The text of ids, NUL-terminated (dv_free). Ids without a token give no text; malformed UTF-8 becomes U+FFFD. */
davy_result dv_decode(const dv_tokenizer *t, const int32_t *ids, int64_t n, bool skip_special, char **out,
                      uint64_t *out_bytes);

#endif
