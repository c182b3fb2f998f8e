/* tokenizer_json.c - loads a tokenizer.json of the `tokenizers` library. Every part is either supported or refused by its
 * name, because a skipped part would silently give other ids. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"
#include "core/text/json_big.h"

#define SPACE "\xe2\x96\x81" /* U+2581, SentencePiece's space */

enum { MAX_FIXED = 64 }; /* tokens a post-processor adds on a side */

static davy_result wrong(const dv_tokenizer *t, const char *field, const char *why) {
    return dv_fail(DAVY_E_FORMAT, "%s: %s %s", t->where, field, why);
}

static davy_result unknown(const dv_tokenizer *t, const char *field, const char *what) {
    char shown[160];
    return dv_fail(DAVY_E_UNSUPPORTED, "%s: %s: %s is not supported", t->where, field,
                   dv_printable(shown, sizeof shown, what, strlen(what)));
}

static const dv_json *present(const dv_json *object, const char *key) { /* NULL also for null */
    const dv_json *v = dv_json_get(object, key);
    return v == NULL || dv_json_is_null(v) ? NULL : v;
}

/* A bool with a default. Any other value is refused. */
static davy_result get_bool(const dv_tokenizer *t, const dv_json *object, const char *field, const char *key,
                            bool otherwise, bool *out) {
    char path[96];
    const dv_json *v = present(object, key);
    *out = otherwise;
    if (v == NULL || dv_json_bool(v, out)) {
        return DAVY_OK;
    }
    snprintf(path, sizeof path, "%s.%s", field, key);
    return wrong(t, path, "is neither true nor false");
}

static davy_result get_type(const dv_tokenizer *t, const dv_json *v, const char *field, const char **out) {
    *out = dv_json_string(dv_json_get(v, "type"));
    return *out != NULL ? DAVY_OK : wrong(t, field, "has no type");
}

static dv_name name_of(const char *s) {
    return (dv_name){s, strlen(s)};
}

/* A part may be a Sequence: its member `list` holds parts, and `each` reads one. */
typedef davy_result (*part_fn)(dv_tokenizer *t, const dv_json *part, const char *field);

static davy_result sequence(dv_tokenizer *t, const dv_json *v, const char *field, const char *list, part_fn each) {
    char path[96];
    const char *dot = field[0] != '\0' ? "." : "";
    const dv_json *parts = dv_json_get(v, list);
    davy_result r = dv_json_is_array(parts) ? DAVY_OK : DAVY_E_FORMAT;
    if (r < 0) {
        snprintf(path, sizeof path, "%s%s%s", field, dot, list);
        return wrong(t, path, "is not a list");
    }
    int64_t i = 0;
    for (const dv_json *p = dv_json_first(parts); r == DAVY_OK && p != NULL; p = dv_json_next(p)) {
        snprintf(path, sizeof path, "%s%s%s[%" PRId64 "]", field, dot, list, i++);
        r = each(t, p, path);
    }
    return r;
}

/* ---- model ---- */

/* Refuses the options of the model that this library does not implement. */
static davy_result check_model(dv_tokenizer *t, const dv_json *model) {
    static const char *const texts[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    double dropout = 0;
    const char *type = dv_json_string(dv_json_get(model, "type"));
    if (!dv_json_is_object(model) || (type != NULL && strcmp(type, "BPE") != 0)) {
        return type != NULL ? unknown(t, "model.type", type) : wrong(t, "model", "is not an object");
    }
    for (size_t i = 0; i < DV_ARRAY_LEN(texts); i++) {
        const dv_json *v = present(model, texts[i]);
        if (v != NULL && (!dv_json_is_string(v) || dv_json_string(v)[0] != '\0')) {
            return unknown(t, "model", texts[i]);
        }
    }
    const dv_json *v = present(model, "dropout");
    if (v != NULL && (!dv_json_double(v, &dropout) || dropout != 0)) {
        return unknown(t, "model", "dropout");
    }
    return DAVY_OK;
}

static davy_result read_model(dv_tokenizer *t, const dv_json *model, const dv_json_big *big) {
    davy_result r = check_model(t, model);
    r = r < 0 ? r : get_bool(t, model, "model", "fuse_unk", false, &t->fuse_unk);
    r = r < 0 ? r : get_bool(t, model, "model", "ignore_merges", false, &t->ignore_merges);
    if (r < 0) {
        return r;
    }
    if (big->vocabulary.from == NULL || big->merges.from == NULL) {
        return wrong(t, "model", "has no vocab or no merges");
    }
    r = dv_tokenizer_reserve(t, big->vocabulary.entries, big->merges.entries);
    r = r < 0 ? r : dv_json_big_vocabulary(big, t);
    return r < 0 ? r : dv_json_big_merges(big, t);
}

/* byte_fallback gives tokens such as <0x0A>. In byte-level BPE it has no effect if the vocabulary has all 256 bytes. */
static davy_result finish_model(dv_tokenizer *t, const dv_json *model) {
    const dv_json *unk = present(model, "unk_token");
    bool fallback = false;
    if (unk != NULL && !dv_json_is_string(unk)) {
        return wrong(t, "model.unk_token", "is not a string");
    }
    davy_result r = get_bool(t, model, "model", "byte_fallback", false, &fallback);
    t->byte_fallback = fallback && t->spaces;
    fallback = fallback && !t->spaces;
    r = r < 0 ? r : dv_tokenizer_done(t, unk != NULL ? dv_json_string(unk) : NULL);
    for (int b = 0; r == DAVY_OK && fallback && b < 256; b++) {
        r = t->byte_id[b] >= 0 ? r : unknown(t, "model", "byte_fallback with bytes missing from the vocabulary");
    }
    return r;
}

/* ---- normaliser, pre-tokeniser and decoder ---- */

static bool is_text(const dv_json *v, const char *key, const char *text) {
    const char *s = dv_json_string(dv_json_get(v, key));
    return s != NULL && strcmp(s, text) == 0;
}

/* Llama 2's normaliser: U+2581 in front, then instead of every space. */
static davy_result read_spaces(dv_tokenizer *t, const dv_json *v, const char *field, const char *type) {
    if (t->nfc || t->spaces) {
        return unknown(t, field, "another part beside Prepend and Replace");
    }
    if (strcmp(type, "Prepend") == 0) {
        const bool again = t->prefix != DV_PREFIX_NEVER;
        t->prefix = DV_PREFIX_ALWAYS;
        return is_text(v, "prepend", SPACE) && !again
                   ? DAVY_OK
                   : unknown(t, field, "a second Prepend, or one of another text than U+2581,");
    }
    t->spaces = true;
    return is_text(dv_json_get(v, "pattern"), "String", " ") && is_text(v, "content", SPACE)
               ? DAVY_OK
               : unknown(t, field, "a Replace other than of a space by U+2581");
}

static davy_result read_normalizer(dv_tokenizer *t, const dv_json *v, const char *field) {
    const char *type = NULL;
    const davy_result r = get_type(t, v, field, &type);
    if (r < 0) {
        return r;
    }
    if (strcmp(type, "Sequence") == 0) {
        return sequence(t, v, field, "normalizers", read_normalizer);
    }
    if (strcmp(type, "Prepend") == 0 || strcmp(type, "Replace") == 0) {
        return read_spaces(t, v, field, type);
    }
    t->nfc = true;
    return strcmp(type, "NFC") == 0 && !t->spaces ? DAVY_OK : unknown(t, field, type);
}

static davy_result add_stage(dv_tokenizer *t, const char *field, dv_pretokenizer stage) {
    if (t->n_stages == DV_MAX_STAGES) {
        return wrong(t, field, "is more than the eighth part");
    }
    t->stages[t->n_stages++] = stage;
    return DAVY_OK;
}

static davy_result read_split(dv_tokenizer *t, const dv_json *v, const char *field) {
    dv_pretokenizer kind = DV_PRETOKENIZER_GPT2;
    bool invert = false;
    const char *pattern = dv_json_string(dv_json_get(dv_json_get(v, "pattern"), "Regex"));
    const char *behavior = dv_json_string(dv_json_get(v, "behavior"));
    davy_result r = get_bool(t, v, field, "invert", false, &invert);
    if (r < 0 || pattern == NULL || behavior == NULL) {
        return r < 0 ? r : wrong(t, field, "has no pattern.Regex or no behavior");
    }
    if (!dv_pretokenizer_known(pattern, &kind)) {
        return unknown(t, field, pattern);
    }
    return strcmp(behavior, "Isolated") == 0 && !invert ? add_stage(t, field, kind)
                                                        : unknown(t, field, "a Split whose behavior is not Isolated");
}

static davy_result read_metaspace(dv_tokenizer *t, const dv_json *v, const char *field) {
    const char *scheme = dv_json_string(dv_json_get(v, "prepend_scheme"));
    bool prefix = true;
    davy_result r = get_bool(t, v, field, "add_prefix_space", true, &prefix); /* of older files */
    r = r < 0 ? r : get_bool(t, v, field, "split", true, &t->spaces_split);
    if (r == DAVY_OK && (t->spaces || t->nfc || t->prefix != DV_PREFIX_NEVER || t->n_stages > 0)) {
        return unknown(t, field, "Metaspace beside other parts");
    }
    scheme = scheme != NULL ? scheme : prefix ? "always" : "never";
    t->spaces = t->spaces_late = true;
    t->prefix = strcmp(scheme, "always") == 0  ? DV_PREFIX_MISSING
                : strcmp(scheme, "first") == 0 ? DV_PREFIX_FIRST
                                               : DV_PREFIX_NEVER;
    if (r == DAVY_OK && t->prefix == DV_PREFIX_NEVER && strcmp(scheme, "never") != 0) {
        return unknown(t, field, scheme);
    }
    return r < 0 || is_text(v, "replacement", SPACE) ? r : unknown(t, field, "a replacement other than U+2581");
}

/* ByteLevel or Metaspace must be the last part, because it changes the text. */
static davy_result read_pre_tokenizer(dv_tokenizer *t, const dv_json *v, const char *field) {
    const char *type = NULL;
    bool flag = false;
    davy_result r = get_type(t, v, field, &type);
    if (r < 0) {
        return r;
    }
    if (strcmp(type, "Sequence") == 0) {
        return sequence(t, v, field, "pretokenizers", read_pre_tokenizer);
    }
    if (t->byte_level || t->spaces_late) {
        return unknown(t, field, "a part after ByteLevel or Metaspace");
    }
    if (strcmp(type, "Metaspace") == 0) {
        return read_metaspace(t, v, field);
    }
    if (strcmp(type, "Split") == 0) {
        return read_split(t, v, field);
    }
    if (strcmp(type, "Digits") == 0) {
        r = get_bool(t, v, field, "individual_digits", false, &flag);
        return r < 0 ? r : add_stage(t, field, flag ? DV_PRETOKENIZER_DIGITS : DV_PRETOKENIZER_DIGIT_RUNS);
    }
    if (strcmp(type, "ByteLevel") != 0) {
        return unknown(t, field, type);
    }
    t->byte_level = true;
    r = get_bool(t, v, field, "add_prefix_space", true, &flag);
    if (r < 0 || flag) {
        return r < 0 ? r : unknown(t, field, "add_prefix_space");
    }
    r = get_bool(t, v, field, "use_regex", true, &flag);
    return r == DAVY_OK && flag ? add_stage(t, field, DV_PRETOKENIZER_GPT2) : r;
}

static davy_result read_decoder(dv_tokenizer *t, const dv_json *v, const char *field) {
    const char *type = NULL;
    const davy_result r = get_type(t, v, field, &type);
    if (r < 0) {
        return r;
    }
    if (strcmp(type, "Sequence") == 0) {
        return sequence(t, v, field, "decoders", read_decoder);
    }
    if (!t->spaces) {
        return strcmp(type, "ByteLevel") == 0 ? DAVY_OK : unknown(t, field, type);
    }
    if (strcmp(type, "Replace") == 0) {
        return is_text(dv_json_get(v, "pattern"), "String", SPACE) && is_text(v, "content", " ")
                   ? DAVY_OK
                   : unknown(t, field, "a Replace other than of U+2581 by a space");
    }
    if (strcmp(type, "Strip") == 0) {
        int64_t start = 0;
        int64_t stop = 0;
        dv_json_int(dv_json_get(v, "start"), &start);
        dv_json_int(dv_json_get(v, "stop"), &stop);
        t->spaces_strip = true;
        return is_text(v, "content", " ") && start == 1 && stop == 0
                   ? DAVY_OK
                   : unknown(t, field, "a Strip other than of one space at the start");
    }
    return strcmp(type, "ByteFallback") == 0 || strcmp(type, "Fuse") == 0 ? DAVY_OK : unknown(t, field, type);
}

/* ---- post-processor ---- */

static davy_result add_special(dv_tokenizer *t, const char *field, const dv_json *name, dv_ids *ids) {
    const char *content = name != NULL ? dv_json_string(name) : NULL;
    const int32_t id = content != NULL && ids->n < MAX_FIXED ? dv_tokenizer_find(t, content) : -1;
    return id >= 0 ? dv_ids_add(ids, id)
                   : wrong(t, field, "adds a token that is not in the vocabulary, or more than 64 tokens");
}

/* {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]} */
static davy_result read_template(dv_tokenizer *t, const dv_json *v, const char *field) {
    const dv_json *single = dv_json_get(v, "single");
    bool seen = false;
    davy_result r = dv_json_is_array(single) ? DAVY_OK : wrong(t, field, "has no list \"single\"");
    for (const dv_json *p = r < 0 ? NULL : dv_json_first(single); r == DAVY_OK && p != NULL; p = dv_json_next(p)) {
        const dv_json *special = dv_json_get(p, "SpecialToken");
        if (special != NULL) {
            r = add_special(t, field, dv_json_get(special, "id"), seen ? &t->after : &t->before);
        } else if (dv_json_get(p, "Sequence") == NULL || seen) {
            r = wrong(t, field, "is not a template of one text and special tokens");
        } else {
            seen = true;
        }
    }
    return r;
}

static davy_result read_post_processor(dv_tokenizer *t, const dv_json *v, const char *field) {
    const char *type = NULL;
    davy_result r = get_type(t, v, field, &type);
    if (r < 0) {
        return r;
    }
    if (strcmp(type, "Sequence") == 0) {
        return sequence(t, v, field, "processors", read_post_processor);
    }
    if (strcmp(type, "TemplateProcessing") == 0) {
        return read_template(t, v, field);
    }
    if (strcmp(type, "RobertaProcessing") == 0) { /* "cls": ["<s>", 0] */
        const dv_json *cls = dv_json_get(v, "cls");
        const dv_json *sep = dv_json_get(v, "sep");
        r = add_special(t, field, cls != NULL ? dv_json_first(cls) : NULL, &t->before);
        return r < 0 ? r : add_special(t, field, sep != NULL ? dv_json_first(sep) : NULL, &t->after);
    }
    return strcmp(type, "ByteLevel") == 0 ? DAVY_OK : unknown(t, field, type); /* ByteLevel changes only offsets */
}

/* ---- added tokens ---- */

static davy_result read_added(dv_tokenizer *t, const dv_json *v, const char *field) {
    int64_t id = 0;
    dv_added a = {0};
    const char *content = dv_json_string(dv_json_get(v, "content"));
    const dv_json *id_value = dv_json_get(v, "id");
    if (content == NULL || id_value == NULL || !dv_json_int(id_value, &id) || id < 0 || id >= DV_MAX_TOKENS) {
        return wrong(t, field, "has no content or no valid id");
    }
    a.id = (int32_t)id;
    davy_result r = get_bool(t, v, field, "special", false, &a.special);
    r = r < 0 ? r : get_bool(t, v, field, "normalized", true, &a.normalized);
    r = r < 0 ? r : get_bool(t, v, field, "lstrip", false, &a.lstrip);
    r = r < 0 ? r : get_bool(t, v, field, "rstrip", false, &a.rstrip);
    r = r < 0 ? r : get_bool(t, v, field, "single_word", false, &a.single_word);
    return r < 0 ? r : dv_tokenizer_add_added(t, t->n_added, name_of(content), &a);
}

static davy_result read_root(dv_tokenizer *t, const dv_json_big *big) {
    const dv_json *root = big->rest;
    const dv_json *model = dv_json_get(root, "model");
    const dv_json *normalizer = present(root, "normalizer");
    const dv_json *pre = present(root, "pre_tokenizer");
    const dv_json *post = present(root, "post_processor");
    const dv_json *decoder = present(root, "decoder");
    davy_result r = normalizer != NULL ? read_normalizer(t, normalizer, "normalizer") : DAVY_OK;
    if (r == DAVY_OK && (model == NULL || (pre == NULL && !t->spaces))) {
        return wrong(t, model == NULL ? "model" : "pre_tokenizer", "is missing");
    }
    r = r == DAVY_OK && pre != NULL ? read_pre_tokenizer(t, pre, "pre_tokenizer") : r;
    if (r == DAVY_OK && (t->byte_level ? t->spaces || t->prefix != DV_PREFIX_NEVER : !t->spaces)) {
        r = unknown(t, "pre_tokenizer", t->spaces ? "ByteLevel after spaces were replaced" : "one without ByteLevel");
    }
    r = r == DAVY_OK && decoder != NULL ? read_decoder(t, decoder, "decoder") : r;
    r = r < 0 ? r : read_model(t, model, big);
    r = r == DAVY_OK && present(root, "added_tokens") != NULL ? sequence(t, root, "", "added_tokens", read_added) : r;
    r = r < 0 ? r : finish_model(t, model);
    return r == DAVY_OK && post != NULL ? read_post_processor(t, post, "post_processor") : r;
}

davy_result dv_tokenizer_from_json(const char *text, uint64_t bytes, const char *where, dv_tokenizer **out) {
    dv_json_big big = {0};
    dv_tokenizer *t = NULL;
    davy_result r = dv_json_big_open(text, bytes, where, &big);
    if (r == DAVY_OK) {
        t = dv_tokenizer_new(where);
        r = t == NULL ? DAVY_E_NOMEM_HOST : read_root(t, &big);
    }
    dv_json_big_clear(&big);
    if (r < 0) {
        dv_tokenizer_release(t);
        return r;
    }
    *out = t;
    return DAVY_OK;
}
