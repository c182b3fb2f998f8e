/* tokenizer_gguf.c - a tokenizer from GGUF metadata: byte-level BPE or SentencePiece's pieces. For BPE the file has only a
 * word for the pre-tokeniser. The table below gives its parts, as in the same models' tokenizer.json. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/file/gguf.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"
#include "core/base/os.h"
#include "core/text/tokenizer_priv.h"

static const struct {
    const char *pre;
    bool nfc, ignore_merges;
    int32_t n_stages;
    dv_pretokenizer stages[2];
} kinds[] = {
    {"gpt-2", false, false, 1, {DV_PRETOKENIZER_GPT2}},
    {"smollm", false, false, 2, {DV_PRETOKENIZER_DIGITS, DV_PRETOKENIZER_GPT2}},
    {"qwen2", true, false, 1, {DV_PRETOKENIZER_QWEN2}},
    {"llama-bpe", false, true, 1, {DV_PRETOKENIZER_LLAMA3}},
    {"llama3", false, true, 1, {DV_PRETOKENIZER_LLAMA3}},
    {"llama-v3", false, true, 1, {DV_PRETOKENIZER_LLAMA3}},
};

enum { MODEL, PRE, TOKENS, TYPES, MERGES, BOS, EOS, ADD_BOS, SCORES, ADD_SPACE, KEYS };

static const char *const keys[KEYS] = {"tokenizer.ggml.model",        "tokenizer.ggml.pre",
                                       "tokenizer.ggml.tokens",       "tokenizer.ggml.token_type",
                                       "tokenizer.ggml.merges",       "tokenizer.ggml.bos_token_id",
                                       "tokenizer.ggml.eos_token_id", "tokenizer.ggml.add_bos_token",
                                       "tokenizer.ggml.scores",       "tokenizer.ggml.add_space_prefix"};

enum { TYPE_CONTROL = 3, TYPE_USER = 4 };

typedef struct reading {
    dv_tokenizer *t;
    dv_source *source;
    dv_gguf_value values[KEYS];
    int64_t *types;
    float *scores;
    bool pieces;  /* model "llama" */
    int32_t pass; /* 0: the vocabulary, 1: the added tokens */
} reading;

static davy_result each_pre(void *user, int64_t index, const char *text, uint64_t bytes) {
    (void)index;
    reading *g = user;
    for (size_t i = 0; i < DV_ARRAY_LEN(kinds); i++) {
        if (strlen(kinds[i].pre) == bytes && memcmp(kinds[i].pre, text, (size_t)bytes) == 0) {
            g->t->nfc = kinds[i].nfc;
            g->t->ignore_merges = kinds[i].ignore_merges;
            g->t->n_stages = kinds[i].n_stages;
            memcpy(g->t->stages, kinds[i].stages, sizeof kinds[i].stages);
            return DAVY_OK;
        }
    }
    char shown[48];
    return dv_fail(DAVY_E_UNSUPPORTED, "%s: %s \"%s\" is not supported", g->t->where, keys[PRE],
                   dv_printable(shown, sizeof shown, text, bytes));
}

/* Early files of Llama 3 do not name its pre-tokeniser, but its vocabulary identifies it. No other vocabulary has these tokens
 * after 128000 others. It has every number of three digits and none of four, as Llama 3's expression splits them. */
static bool is_llama3(const dv_tokenizer *t) {
    static const struct {
        const char *name;
        int32_t id;
    } marks[] = {{"<|begin_of_text|>", 128000},
                 {"<|end_of_text|>", 128001},
                 {"<|start_header_id|>", 128006},
                 {"<|end_header_id|>", 128007},
                 {"<|eot_id|>", 128009}};
    for (size_t i = 0; i < DV_ARRAY_LEN(marks); i++) {
        const dv_added *a = dv_added_find(t, (dv_name){marks[i].name, strlen(marks[i].name)});
        if (a == NULL || a->id != marks[i].id) {
            return false;
        }
    }
    for (int i = 0; i < 2000; i++) {
        char digits[8];
        snprintf(digits, sizeof digits, i < 1000 ? "%03d" : "%04d", i);
        if ((dv_tokenizer_find_name(t, (dv_name){digits, strlen(digits)}) >= 0) != (i < 1000)) {
            return false;
        }
    }
    return true;
}

/* Derives tokenizer.ggml.pre from the vocabulary. */
static davy_result infer_pre(reading *g) {
    static const char llama3[] = "llama-bpe";
    if (!is_llama3(g->t)) {
        return dv_fail(DAVY_E_FORMAT, "%s: %s is missing, and the vocabulary is not Llama 3's; convert the model again",
                       g->t->where, keys[PRE]);
    }
    g->t->note = "tokenizer.ggml.pre is missing; the vocabulary is Llama 3's, so davy splits text as Llama 3 does";
    return each_pre(g, 0, llama3, sizeof llama3 - 1);
}

static davy_result each_model(void *user, int64_t index, const char *text, uint64_t bytes) {
    (void)index;
    reading *g = user;
    char shown[48];
    g->pieces = bytes == 5 && memcmp(text, "llama", 5) == 0;
    return g->pieces || (bytes == 4 && memcmp(text, "gpt2", 4) == 0)
               ? DAVY_OK
               : dv_fail(DAVY_E_UNSUPPORTED, "%s: %s \"%s\" is not supported, only \"gpt2\" and \"llama\"", g->t->where,
                         keys[MODEL], dv_printable(shown, sizeof shown, text, bytes));
}

/* Control and user tokens become added tokens, which take no part in merging. */
static davy_result each_token(void *user, int64_t index, const char *text, uint64_t bytes) {
    reading *g = user;
    const int64_t type = g->types != NULL ? g->types[index] : 1;
    const bool added = type == TYPE_CONTROL || type == TYPE_USER;
    const dv_name name = {text, bytes};
    if (g->pass == 0) {
        return dv_tokenizer_add(g->t, keys[TOKENS], name, index);
    }
    const dv_added flags = {.id = (int32_t)index, .special = type == TYPE_CONTROL};
    return added && bytes > 0 ? dv_tokenizer_add_added(g->t, index, name, &flags) : DAVY_OK;
}

static davy_result each_merge(void *user, int64_t index, const char *text, uint64_t bytes) {
    reading *g = user;
    return dv_tokenizer_merge_line(g->t, index, (dv_name){text, bytes});
}

/* The strings of one key. */
static davy_result strings(reading *g, int key, dv_gguf_string_fn each) {
    return dv_gguf_strings(g->source, keys[key], &g->values[key], each, g);
}

static davy_result integer(const reading *g, int key, int64_t otherwise, int64_t *out) {
    const dv_gguf_value *v = &g->values[key];
    *out = otherwise;
    if (v->type == DV_GGUF_COUNT) {
        return DAVY_OK;
    }
    return v->type == DV_GGUF_ARRAY
               ? dv_fail(DAVY_E_FORMAT, "%s: %s is a list, expected one value", g->t->where, keys[key])
               : dv_gguf_integers(g->source, keys[key], v, out);
}

static davy_result read_ids(reading *g) {
    int64_t bos = 0;
    int64_t eos = 0;
    int64_t add = 0;
    davy_result r = integer(g, BOS, -1, &bos);
    r = r < 0 ? r : integer(g, EOS, -1, &eos);
    r = r < 0 ? r : integer(g, ADD_BOS, g->pieces ? 1 : 0, &add);
    if (r < 0) {
        return r;
    }
    if (bos < -1 || bos >= g->t->n_tokens || eos < -1 || eos >= g->t->n_tokens) {
        return dv_fail(DAVY_E_FORMAT, "%s: %s or %s is not the id of a token", g->t->where, keys[BOS], keys[EOS]);
    }
    return add != 0 && bos >= 0 ? dv_ids_add(&g->t->before, (int32_t)bos) : DAVY_OK;
}

static davy_result read_types(reading *g) {
    const dv_gguf_value *v = &g->values[TYPES];
    if (v->type == DV_GGUF_COUNT) {
        return DAVY_OK;
    }
    if (v->count != g->values[TOKENS].count) {
        return dv_fail(DAVY_E_FORMAT, "%s: %s has %" PRIu64 " entries for %" PRIu64 " tokens", g->t->where, keys[TYPES],
                       v->count, g->values[TOKENS].count);
    }
    g->types = dv_calloc(v->count, sizeof *g->types);
    return g->types == NULL ? dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for the tokens", g->t->where)
                            : dv_gguf_integers(g->source, keys[TYPES], v, g->types);
}

static davy_result check_keys(const reading *g, const int *needed, int n) {
    for (int i = 0; i < n; i++) {
        if (g->values[needed[i]].type == DV_GGUF_COUNT) {
            return dv_fail(DAVY_E_FORMAT, "%s: %s is missing", g->t->where, keys[needed[i]]);
        }
    }
    return DAVY_OK;
}

static davy_result read_scores(reading *g) {
    const dv_gguf_value *v = &g->values[SCORES];
    const void *view = NULL;
    void *owned = NULL;
    if (v->type != DV_GGUF_ARRAY || v->element != DV_GGUF_F32 || v->count != g->values[TOKENS].count) {
        return dv_fail(DAVY_E_FORMAT, "%s: %s does not have one number for each token", g->t->where, keys[SCORES]);
    }
    davy_result r = dv_source_view(g->source, v->at, v->count * sizeof *g->scores, &view, &owned);
    g->scores = r == DAVY_OK ? dv_calloc(v->count, sizeof *g->scores) : NULL;
    if (r == DAVY_OK && g->scores == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for the tokens", g->t->where);
    } else if (r == DAVY_OK) {
        memcpy(g->scores, view, (size_t)v->count * sizeof *g->scores);
    }
    dv_free(owned);
    return r;
}

static davy_result each_piece(void *user, int64_t index, const char *text, uint64_t bytes) {
    reading *g = user;
    const dv_vocab_piece piece = {.name = {text, bytes}, .score = g->scores[index], .type = g->types[index]};
    return dv_pieces_add(g->t, index, &piece);
}

/* Model "llama": SentencePiece's pieces with their scores. */
static davy_result read_pieces(reading *g) {
    static const int needed[] = {TOKENS, TYPES, SCORES};
    int64_t prefix = 1;
    davy_result r = check_keys(g, needed, DV_ARRAY_LEN(needed));
    r = r < 0 ? r : integer(g, ADD_SPACE, 1, &prefix);
    const uint64_t tokens = g->values[TOKENS].count;
    r = r < 0 ? r : dv_pieces_begin(g->t, tokens > DV_MAX_TOKENS ? -1 : (int64_t)tokens, prefix != 0);
    r = r < 0 ? r : read_types(g);
    r = r < 0 ? r : read_scores(g);
    r = r < 0 ? r : strings(g, TOKENS, each_piece);
    if (r < 0) {
        return r;
    }
    bool fallback = false;
    for (uint64_t i = 0; i < tokens; i++) {
        fallback = fallback || g->types[i] == DV_PIECE_BYTE;
    }
    r = dv_pieces_done(g->t, fallback);
    return r < 0 ? r : read_ids(g);
}

static davy_result read_all(reading *g) {
    static const int needed[] = {TOKENS, MERGES};
    static const int model[] = {MODEL};
    davy_result r = dv_gguf_find(g->source, keys, KEYS, g->values);
    r = r < 0 ? r : check_keys(g, model, 1);
    if (r == DAVY_OK && g->values[MODEL].type != DV_GGUF_STRING) {
        r = dv_fail(DAVY_E_FORMAT, "%s: %s is not a string", g->t->where, keys[MODEL]);
    }
    r = r < 0 ? r : strings(g, MODEL, each_model);
    if (r < 0 || g->pieces) {
        return r < 0 ? r : read_pieces(g);
    }
    r = check_keys(g, needed, DV_ARRAY_LEN(needed));
    const bool named = g->values[PRE].type != DV_GGUF_COUNT;
    if (r == DAVY_OK && named && g->values[PRE].type != DV_GGUF_STRING) {
        r = dv_fail(DAVY_E_FORMAT, "%s: %s is not a string", g->t->where, keys[PRE]);
    }
    r = r < 0 || !named ? r : strings(g, PRE, each_pre);
    if (r < 0) {
        return r;
    }
    const uint64_t tokens = g->values[TOKENS].count;
    const uint64_t merges = g->values[MERGES].count;
    r = dv_tokenizer_reserve(g->t, tokens > DV_MAX_TOKENS ? -1 : (int64_t)tokens,
                             merges > 4 * DV_MAX_TOKENS ? -1 : (int64_t)merges);
    r = r < 0 ? r : read_types(g);
    r = r < 0 ? r : strings(g, TOKENS, each_token);
    g->pass = 1;
    r = r < 0 ? r : strings(g, TOKENS, each_token);
    r = r < 0 || named ? r : infer_pre(g);
    r = r < 0 ? r : strings(g, MERGES, each_merge);
    r = r < 0 ? r : dv_tokenizer_done(g->t, NULL);
    return r < 0 ? r : read_ids(g);
}

davy_result dv_tokenizer_from_gguf(dv_source *source, dv_tokenizer **out) {
    reading g = {.t = dv_tokenizer_new(dv_source_name(source)), .source = source};
    const davy_result r = g.t == NULL ? DAVY_E_NOMEM_HOST : read_all(&g);
    dv_free(g.types);
    dv_free(g.scores);
    if (r < 0) {
        dv_tokenizer_release(g.t);
        return r;
    }
    *out = g.t;
    return DAVY_OK;
}

/* ---- a tokenizer of any form, by path ---- */

static davy_result open_source(dv_source *source, const char *folder, dv_tokenizer **out) {
    if (dv_ends_with(dv_source_name(source), ".model")) {
        return dv_tokenizer_open_model(source, folder, out);
    }
    const void *view = NULL;
    void *owned = NULL;
    const uint64_t bytes = dv_source_bytes(source);
    davy_result r = dv_source_view(source, 0, bytes < 4 ? bytes : 4, &view, &owned);
    const bool gguf = r == DAVY_OK && bytes >= 4 && memcmp(view, "GGUF", 4) == 0;
    dv_free(owned);
    owned = NULL;
    if (r < 0 || gguf) {
        return r < 0 ? r : dv_tokenizer_from_gguf(source, out);
    }
    r = dv_source_view(source, 0, bytes, &view, &owned);
    r = r < 0 ? r : dv_tokenizer_from_json(view, bytes, dv_source_name(source), out);
    dv_free(owned);
    return r;
}

davy_result dv_tokenizer_open(const char *path, dv_tokenizer **out) {
    dv_source *source = NULL;
    const bool folder = dv_path_stat(path) == DV_PATH_FOLDER;
    char *inside = folder ? dv_path_join(path, "tokenizer.json") : dv_strdup(path);
    char *other = folder ? dv_path_join(path, "tokenizer.model") : NULL;
    if (inside == NULL || (folder && other == NULL)) {
        dv_free(inside);
        dv_free(other);
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", path);
    }
    const bool model = folder && dv_path_stat(inside) != DV_PATH_FILE && dv_path_stat(other) == DV_PATH_FILE;
    davy_result r = dv_source_open_path(model ? other : inside, true, &source);
    r = r < 0 ? r : open_source(source, folder ? path : NULL, out);
    dv_source_release(source);
    dv_free(inside);
    dv_free(other);
    return r;
}
