/* tokenizer_model.c - loads SentencePiece's tokenizer.model, a protocol-buffers message, and the tokens of the JSON files in
 * its folder. The message has the pieces with their scores, the trainer's and the normaliser's options. The field numbers
 * are those of sentencepiece_model.proto. Every length is checked against the bytes left. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"
#include "core/base/os.h"
#include "core/text/tokenizer_priv.h"

enum { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };
enum { MODEL_PIECES = 1, MODEL_TRAINER, MODEL_NORMALIZER };
enum { PIECE_TEXT = 1, PIECE_SCORE, PIECE_TYPE };
enum { TRAINER_TYPE = 3, TRAINER_SUFFIX = 24, TRAINER_FALLBACK = 35, TRAINER_BOS = 41, TRAINER_EOS };
enum { NORMALIZER_RULES = 2, NORMALIZER_PREFIX, NORMALIZER_EXTRA, NORMALIZER_ESCAPE };
enum { TYPE_UNIGRAM = 1, TYPE_BPE };
enum { MAX_JSON_BYTES = 16 << 20 };

typedef struct message {
    const uint8_t *p;
    uint64_t left;
} message;

typedef struct field {
    uint64_t number;
    uint32_t wire;
    uint64_t value; /* varint, or the bits of a 32-bit one */
    message bytes;
} field;

typedef struct reading {
    dv_tokenizer *t;
    int64_t pieces;
    uint64_t kind; /* TYPE_* */
    uint64_t bos;
    bool fallback, suffix, prefix, extra, escape, rules;
} reading;

static davy_result dv_pieces_add_folder(dv_tokenizer *t, const char *folder);

static davy_result bad(const dv_tokenizer *t, const char *why) {
    return dv_fail(DAVY_E_FORMAT, "%s: %s", t->where, why);
}

/* ---- the wire ---- */

static bool varint(message *m, uint64_t *out) {
    uint64_t v = 0;
    for (uint32_t shift = 0; shift < 64 && m->left > 0; shift += 7) {
        const uint8_t b = *m->p++;
        m->left--;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80) {
            *out = v;
            return true;
        }
    }
    return false;
}

static bool take(message *m, uint64_t n, message *out) {
    if (n > m->left) {
        return false;
    }
    *out = (message){m->p, n};
    m->p += n;
    m->left -= n;
    return true;
}

static bool next_field(message *m, field *f) {
    uint64_t tag = 0;
    uint64_t n = 0;
    *f = (field){0};
    if (!varint(m, &tag)) {
        return false;
    }
    f->number = tag >> 3;
    f->wire = (uint32_t)(tag & 7);
    switch (f->wire) {
    case WIRE_VARINT:
        return varint(m, &f->value);
    case WIRE_BYTES:
        return varint(m, &n) && take(m, n, &f->bytes);
    case WIRE_32:
    case WIRE_64:
        n = f->wire == WIRE_32 ? 4 : 8;
        if (!take(m, n, &f->bytes)) {
            return false;
        }
        for (uint64_t i = 0; i < n; i++) {
            f->value |= (uint64_t)f->bytes.p[i] << (8 * i);
        }
        return true;
    default:
        return false;
    }
}

static bool is(const field *f, uint64_t number, uint32_t wire) {
    return f->number == number && f->wire == wire;
}

/* ---- its messages ---- */

static davy_result add_piece(reading *g, message m) {
    dv_vocab_piece piece = {.name = {"", 0}, .type = DV_PIECE_NORMAL};
    while (m.left > 0) {
        field f;
        if (!next_field(&m, &f)) {
            return bad(g->t, "a piece is cut off or not a message");
        }
        if (is(&f, PIECE_TEXT, WIRE_BYTES)) {
            piece.name = (dv_name){(const char *)f.bytes.p, f.bytes.left};
        } else if (is(&f, PIECE_SCORE, WIRE_32)) {
            const uint32_t bits = (uint32_t)f.value;
            memcpy(&piece.score, &bits, sizeof bits);
        } else if (is(&f, PIECE_TYPE, WIRE_VARINT)) {
            piece.type = f.value <= DV_PIECE_BYTE ? (int64_t)f.value : 0;
        }
    }
    if (piece.name.bytes == 0 || !dv_utf8_valid(piece.name.p, piece.name.bytes)) {
        return bad(g->t, "a piece is empty or not valid UTF-8");
    }
    return dv_pieces_add(g->t, g->pieces++, &piece);
}

static davy_result read_trainer(reading *g, message m) {
    while (m.left > 0) {
        field f;
        if (!next_field(&m, &f)) {
            return bad(g->t, "trainer_spec is cut off or not a message");
        }
        if (f.wire != WIRE_VARINT) {
            continue;
        }
        switch (f.number) {
        case TRAINER_TYPE:
            g->kind = f.value;
            break;
        case TRAINER_SUFFIX:
            g->suffix = f.value != 0;
            break;
        case TRAINER_FALLBACK:
            g->fallback = f.value != 0;
            break;
        case TRAINER_BOS:
            g->bos = f.value;
            break;
        default:
            break;
        }
    }
    return DAVY_OK;
}

static davy_result read_normalizer(reading *g, message m) {
    while (m.left > 0) {
        field f;
        if (!next_field(&m, &f)) {
            return bad(g->t, "normalizer_spec is cut off or not a message");
        }
        if (is(&f, NORMALIZER_RULES, WIRE_BYTES)) {
            g->rules = f.bytes.left > 0;
        } else if (is(&f, NORMALIZER_PREFIX, WIRE_VARINT)) {
            g->prefix = f.value != 0;
        } else if (is(&f, NORMALIZER_EXTRA, WIRE_VARINT)) {
            g->extra = f.value != 0;
        } else if (is(&f, NORMALIZER_ESCAPE, WIRE_VARINT)) {
            g->escape = f.value != 0;
        }
    }
    return DAVY_OK;
}

/* First pass: counts the pieces and reads all other fields. The second pass reads the pieces. */
static davy_result read_around(reading *g, message m, int64_t *count) {
    davy_result r = DAVY_OK;
    *count = 0;
    while (r == DAVY_OK && m.left > 0) {
        field f;
        if (!next_field(&m, &f)) {
            return bad(g->t, "is cut off, or is not a SentencePiece model");
        }
        if (is(&f, MODEL_PIECES, WIRE_BYTES)) {
            ++*count;
        } else if (is(&f, MODEL_TRAINER, WIRE_BYTES)) {
            r = read_trainer(g, f.bytes);
        } else if (is(&f, MODEL_NORMALIZER, WIRE_BYTES)) {
            r = read_normalizer(g, f.bytes);
        }
    }
    return r;
}

static davy_result check(const reading *g) {
    const char *what = g->kind != TYPE_BPE ? "a model that is not of type BPE"
                       : g->rules          ? "a model with normalisation rules"
                       : g->extra          ? "remove_extra_whitespaces"
                       : !g->escape        ? "a model without escape_whitespaces"
                       : g->suffix         ? "treat_whitespace_as_suffix"
                                           : NULL;
    return what == NULL ? DAVY_OK : dv_fail(DAVY_E_UNSUPPORTED, "%s: %s is not supported", g->t->where, what);
}

static davy_result read_all(reading *g, message m) {
    int64_t count = 0;
    davy_result r = read_around(g, m, &count);
    r = r < 0 ? r : check(g);
    r = r < 0 ? r : dv_pieces_begin(g->t, count, g->prefix);
    while (r == DAVY_OK && m.left > 0) {
        field f;
        next_field(&m, &f); /* checked by the first pass */
        r = is(&f, MODEL_PIECES, WIRE_BYTES) ? add_piece(g, f.bytes) : DAVY_OK;
    }
    if (r == DAVY_OK && g->bos < (uint64_t)g->pieces) {
        r = dv_ids_add(&g->t->before, (int32_t)g->bos);
    }
    return r;
}

static davy_result from_model(const void *data, uint64_t bytes, const char *where, const char *folder,
                              dv_tokenizer **out) {
    reading g = {
        .t = dv_tokenizer_new(where), .kind = TYPE_UNIGRAM, .bos = 1, .prefix = true, .extra = true, .escape = true};
    davy_result r = g.t == NULL ? DAVY_E_NOMEM_HOST : read_all(&g, (message){data, bytes});
    r = r == DAVY_OK && folder != NULL ? dv_pieces_add_folder(g.t, folder) : r;
    r = r < 0 ? r : dv_pieces_done(g.t, g.fallback);
    if (r < 0) {
        dv_tokenizer_release(g.t);
        return r;
    }
    *out = g.t;
    return DAVY_OK;
}

davy_result dv_tokenizer_from_model(const void *data, uint64_t bytes, const char *where, dv_tokenizer **out) {
    return from_model(data, bytes, where, NULL, out);
}

davy_result dv_tokenizer_open_model(dv_source *source, const char *folder, dv_tokenizer **out) {
    const void *view = NULL;
    void *owned = NULL;
    davy_result r = dv_source_view(source, 0, dv_source_bytes(source), &view, &owned);
    r = r < 0 ? r : from_model(view, dv_source_bytes(source), dv_source_name(source), folder, out);
    dv_free(owned);
    return r;
}

/* ---- added tokens of a folder's JSON files ---- */

static davy_result add_token(dv_tokenizer *t, const char *file, const char *content, int64_t id,
                             const dv_added *flags) {
    if (id >= 0 && id < t->n_tokens && (t->tokens[id].flags & DV_TOKEN_PRESENT) != 0) {
        return DAVY_OK; /* listed before, or a piece of the model */
    }
    if (content == NULL || id < 0 || id >= DV_MAX_TOKENS) {
        return dv_fail(DAVY_E_FORMAT, "%s: a token has no content, or its id %" PRId64 " is out of range", file, id);
    }
    dv_added a = *flags;
    a.id = (int32_t)id;
    return dv_tokenizer_add_added(t, t->n_added, (dv_name){content, strlen(content)}, &a);
}

static bool flag_of(const dv_json *v, const char *key) {
    bool flag = false;
    const dv_json *at = dv_json_get(v, key);
    return at != NULL && dv_json_bool(at, &flag) && flag;
}

/* {"32000": {"content": "<image>", "special": true}} */
static davy_result add_decoder(dv_tokenizer *t, const char *file, const dv_json *tokens) {
    davy_result r = DAVY_OK;
    for (const dv_json *v = dv_json_first(tokens); r == DAVY_OK && v != NULL; v = dv_json_next(v)) {
        const char *key = dv_json_key(v);
        char *end = NULL;
        const long long id = key != NULL ? strtoll(key, &end, 10) : -1;
        const dv_added flags = {.special = flag_of(v, "special"),
                                .lstrip = flag_of(v, "lstrip"),
                                .rstrip = flag_of(v, "rstrip"),
                                .single_word = flag_of(v, "single_word")};
        r = add_token(t, file, dv_json_string(dv_json_get(v, "content")), end != NULL && *end == '\0' ? id : -1,
                      &flags);
    }
    return r;
}

/* {"<image>": 32000} */
static davy_result add_list(dv_tokenizer *t, const char *file, const dv_json *tokens) {
    davy_result r = DAVY_OK;
    for (const dv_json *v = dv_json_first(tokens); r == DAVY_OK && v != NULL; v = dv_json_next(v)) {
        int64_t id = -1;
        dv_json_int(v, &id);
        r = add_token(t, file, dv_json_key(v), id, &(dv_added){.special = true});
    }
    return r;
}

static davy_result add_file(dv_tokenizer *t, const char *folder, const char *name, bool decoder) {
    char *path = dv_path_join(folder, name);
    dv_source *source = NULL;
    dv_json *json = NULL;
    const void *view = NULL;
    void *owned = NULL;
    davy_result r = path == NULL ? dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", name) : DAVY_OK;
    if (r == DAVY_OK && dv_path_stat(path) == DV_PATH_FILE) {
        r = dv_source_open_path(path, true, &source);
        if (r == DAVY_OK && dv_source_bytes(source) > MAX_JSON_BYTES) {
            r = dv_fail(DAVY_E_FORMAT, "%s: the file is longer than 16 MiB", name);
        }
        r = r < 0 ? r : dv_source_view(source, 0, dv_source_bytes(source), &view, &owned);
        r = r < 0 ? r : dv_json_parse(view, dv_source_bytes(source), name, &json);
        const dv_json *tokens = r < 0 ? NULL : decoder ? dv_json_get(json, "added_tokens_decoder") : json;
        if (tokens != NULL && dv_json_is_object(tokens)) {
            r = decoder ? add_decoder(t, name, tokens) : add_list(t, name, tokens);
        }
    }
    dv_json_release(json);
    dv_free(owned);
    dv_source_release(source);
    dv_free(path);
    return r;
}

static davy_result dv_pieces_add_folder(dv_tokenizer *t, const char *folder) {
    const davy_result r = add_file(t, folder, "tokenizer_config.json", true);
    return r < 0 ? r : add_file(t, folder, "added_tokens.json", false);
}
