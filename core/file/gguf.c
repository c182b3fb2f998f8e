/* gguf.c - parser of GGUF files, versions 2 and 3: the values of the header in order, single keys of the metadata, and the
 * list of tensors. */
#include "core/file/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/file/tensors.h"

enum {
    WINDOW = 256 << 10, /* bytes read at once if the file is not mapped */
    MAX_KEYS = 1 << 16,
    MAX_DEPTH = 4, /* arrays of arrays */
    MAX_STRING = 16 << 20
};

typedef struct cursor { /* .source set, the rest zero; close_cursor */
    dv_source *source;
    uint64_t at;         /* of the next byte in the file */
    const uint8_t *view; /* file bytes [from, from + n) */
    void *owned;
    uint64_t from, n;
    uint64_t alignment; /* general.alignment, of the data section */
} cursor;

const uint8_t dv_gguf_value_bytes[DV_GGUF_COUNT] = {
    [DV_GGUF_U8] = 1,  [DV_GGUF_I8] = 1,   [DV_GGUF_U16] = 2, [DV_GGUF_I16] = 2, [DV_GGUF_U32] = 4, [DV_GGUF_I32] = 4,
    [DV_GGUF_F32] = 4, [DV_GGUF_BOOL] = 1, [DV_GGUF_U64] = 8, [DV_GGUF_I64] = 8, [DV_GGUF_F64] = 8,
};

static davy_result bad(const cursor *c, const char *why) {
    return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_GGUF, 0, "%s: GGUF at byte %" PRIu64 ": %s", dv_source_name(c->source),
                      c->at, why);
}

static davy_result take(cursor *c, uint64_t bytes, const uint8_t **out) {
    const uint64_t left = dv_source_bytes(c->source) - c->at;
    if (bytes > left) {
        return bad(c, "the file ends inside the header (incomplete download?)");
    }
    if (c->at < c->from || c->at - c->from > c->n || bytes > c->n - (c->at - c->from)) {
        const void *view = NULL;
        void *owned = NULL;
        const uint64_t window = dv_source_is_mapped(c->source) ? left
                                : bytes > WINDOW               ? bytes
                                : left < WINDOW                ? left
                                                               : WINDOW;
        const davy_result r = dv_source_view(c->source, c->at, window, &view, &owned);
        if (r < 0) {
            return r;
        }
        dv_free(c->owned);
        c->owned = owned;
        c->view = view;
        c->from = c->at;
        c->n = window;
    }
    *out = c->view + (c->at - c->from);
    c->at += bytes;
    return DAVY_OK;
}

static davy_result take_u32(cursor *c, uint32_t *out) {
    const uint8_t *p = NULL;
    const davy_result r = take(c, 4, &p);
    *out = r == DAVY_OK ? dv_le32(p) : 0;
    return r;
}

static davy_result take_u64(cursor *c, uint64_t *out) {
    const uint8_t *p = NULL;
    const davy_result r = take(c, 8, &p);
    *out = r == DAVY_OK ? dv_le64(p) : 0;
    return r;
}

static davy_result take_string(cursor *c, const char **text, uint64_t *bytes) {
    const uint8_t *p = NULL;
    davy_result r = take_u64(c, bytes);
    r = r < 0 ? r : *bytes > MAX_STRING ? bad(c, "a string longer than 16 MiB") : take(c, *bytes, &p);
    *text = (const char *)p;
    return r;
}

static davy_result skip(cursor *c, uint32_t type, int32_t depth); /* a value of that type; depth 0 */

static davy_result skip_array(cursor *c, int32_t depth) {
    uint32_t type = 0;
    uint64_t count = 0;
    davy_result r = take_u32(c, &type);
    r = r < 0 ? r : take_u64(c, &count);
    if (r < 0) {
        return r;
    }
    if (type >= DV_GGUF_COUNT || depth > MAX_DEPTH) {
        return bad(c, "an array has an unknown type, or arrays are nested deeper than 4");
    }
    if (dv_gguf_value_bytes[type] != 0) {
        uint64_t bytes = 0;
        if (!dv_mul_u64(count, dv_gguf_value_bytes[type], &bytes) || bytes > dv_source_bytes(c->source) - c->at) {
            return bad(c, "an array reaches beyond the end of the file");
        }
        c->at += bytes;
        return DAVY_OK;
    }
    for (uint64_t i = 0; r == DAVY_OK && i < count; i++) { /* each step consumes at least 8 bytes of the file */
        r = skip(c, type, depth);
    }
    return r;
}

static davy_result skip(cursor *c, uint32_t type, int32_t depth) {
    const uint8_t *p = NULL;
    uint64_t bytes = 0;
    if (type >= DV_GGUF_COUNT) {
        return bad(c, "a value has an unknown type");
    }
    if (type == DV_GGUF_ARRAY) {
        return skip_array(c, depth + 1);
    }
    bytes = dv_gguf_value_bytes[type];
    const davy_result r = type == DV_GGUF_STRING ? take_u64(c, &bytes) : DAVY_OK;
    return r < 0 ? r : take(c, bytes, &p);
}

int64_t dv_gguf_integer_of(const uint8_t *p, uint32_t type) {
    switch (type) {
    case DV_GGUF_I8:
        return (int8_t)p[0];
    case DV_GGUF_I16:
        return (int16_t)dv_le16(p);
    case DV_GGUF_U16:
        return dv_le16(p);
    case DV_GGUF_I32:
        return (int32_t)dv_le32(p);
    case DV_GGUF_U32:
        return dv_le32(p);
    case DV_GGUF_I64:
    case DV_GGUF_U64:
        return (int64_t)dv_le64(p);
    default:
        return p[0];
    }
}

static davy_result check_version(const cursor *c, uint32_t version) {
    if (version == 2 || version == 3) {
        return DAVY_OK;
    }
    const char *why = version == 1                               ? "version 1; convert the model again"
                      : (version & 0xffffu) == 0 && version != 0 ? "big-endian"
                                                                 : "a version that davy does not support";
    return dv_fail_in(DAVY_E_UNSUPPORTED, DAVY_DOMAIN_GGUF, 0, "%s: unsupported GGUF file: %s",
                      dv_source_name(c->source), why);
}

static davy_result begin(cursor *c, uint64_t *n_tensors, uint64_t *n_keys) {
    const uint8_t *magic = NULL;
    uint32_t version = 0;
    davy_result r = take(c, 4, &magic);
    if (r == DAVY_OK && memcmp(magic, "GGUF", 4) != 0) {
        r = bad(c, "not a GGUF file");
    }
    r = r < 0 ? r : take_u32(c, &version);
    r = r < 0 ? r : check_version(c, version);
    r = r < 0 ? r : take_u64(c, n_tensors);
    r = r < 0 ? r : take_u64(c, n_keys);
    return r == DAVY_OK && *n_keys > MAX_KEYS ? bad(c, "more than 65536 keys") : r;
}

static void close_cursor(cursor *c) {
    dv_free(c->owned);
    c->owned = NULL;
}

/* ---- single keys ---- */

/* Stores type, count and offset of the value at the cursor, which is just after the value's type. */
static davy_result note(cursor *c, uint32_t type, dv_gguf_value *v) {
    cursor here = *c; /* a copy without the window, so that c does not move */
    here.owned = NULL;
    here.n = 0;
    *v = (dv_gguf_value){type, type, 1, c->at};
    davy_result r = DAVY_OK;
    if (type == DV_GGUF_ARRAY) {
        r = take_u32(&here, &v->element);
        r = r < 0 ? r : take_u64(&here, &v->count);
        v->at = here.at;
    }
    close_cursor(&here);
    return r;
}

davy_result dv_gguf_find(dv_source *source, const char *const *keys, int32_t n, dv_gguf_value *out) {
    cursor c = {.source = source};
    uint64_t n_tensors = 0;
    uint64_t n_keys = 0;
    for (int32_t k = 0; k < n; k++) {
        out[k] = (dv_gguf_value){.type = DV_GGUF_COUNT};
    }
    davy_result r = begin(&c, &n_tensors, &n_keys);
    for (uint64_t i = 0; r == DAVY_OK && i < n_keys; i++) {
        const char *name = NULL;
        uint64_t bytes = 0;
        uint32_t type = 0;
        int32_t found = -1;
        r = take_string(&c, &name, &bytes);
        for (int32_t k = 0; r == DAVY_OK && k < n; k++) {
            found = strlen(keys[k]) == bytes && memcmp(keys[k], name, (size_t)bytes) == 0 ? k : found;
        }
        r = r < 0 ? r : take_u32(&c, &type);
        r = r == DAVY_OK && found >= 0 ? note(&c, type, &out[found]) : r;
        r = r < 0 ? r : skip(&c, type, 0);
    }
    close_cursor(&c);
    return r;
}

static davy_result wrong_type(dv_source *source, const char *key, const char *what) {
    return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_GGUF, 0, "%s: %s does not hold %s", dv_source_name(source), key, what);
}

davy_result dv_gguf_strings(dv_source *source, const char *key, const dv_gguf_value *v, dv_gguf_string_fn each,
                            void *user) {
    cursor c = {.source = source, .at = v->at};
    davy_result r = v->element == DV_GGUF_STRING ? DAVY_OK : wrong_type(source, key, "strings");
    for (uint64_t i = 0; r == DAVY_OK && i < v->count; i++) {
        const char *text = NULL;
        uint64_t bytes = 0;
        r = take_string(&c, &text, &bytes);
        r = r == DAVY_OK && !dv_utf8_valid(text, bytes) ? bad(&c, "a string is not valid UTF-8") : r;
        r = r < 0 ? r : each(user, (int64_t)i, text, bytes);
    }
    close_cursor(&c);
    return r;
}

davy_result dv_gguf_integers(dv_source *source, const char *key, const dv_gguf_value *v, int64_t *out) {
    cursor c = {.source = source, .at = v->at};
    const uint32_t e = v->element;
    const bool integer = e < DV_GGUF_COUNT && dv_gguf_value_bytes[e] != 0 && e != DV_GGUF_F32 && e != DV_GGUF_F64;
    davy_result r = integer ? DAVY_OK : wrong_type(source, key, "integers");
    for (uint64_t i = 0; r == DAVY_OK && i < v->count; i++) {
        const uint8_t *p = NULL;
        r = take(&c, dv_gguf_value_bytes[e], &p);
        out[i] = r == DAVY_OK ? dv_gguf_integer_of(p, e) : 0;
    }
    close_cursor(&c);
    return r;
}

/* ---- the whole header: metadata, then name, shape, type and offset of each tensor. The file lists a shape from the
 * innermost dimension outwards; the parser reverses it. Tensors of quantised types are listed with the type's name and
 * their size in bytes. ---- */

enum { MAX_META_TEXT = 64 << 10, DEFAULT_ALIGNMENT = 32 };

/* Elements and bytes of a block, by GGUF's type number. */
static const struct {
    const char *name;
    dv_stored_dtype dtype;
    uint16_t elements, bytes;
} types[] = {
    [0] = {"F32", DV_STORED_F32, 1, 4},
    [1] = {"F16", DV_STORED_F16, 1, 2},
    [2] = {"Q4_0", DV_STORED_OTHER, 32, 18},
    [3] = {"Q4_1", DV_STORED_OTHER, 32, 20},
    [6] = {"Q5_0", DV_STORED_OTHER, 32, 22},
    [7] = {"Q5_1", DV_STORED_OTHER, 32, 24},
    [8] = {"Q8_0", DV_STORED_OTHER, 32, 34},
    [9] = {"Q8_1", DV_STORED_OTHER, 32, 36},
    [10] = {"Q2_K", DV_STORED_OTHER, 256, 84},
    [11] = {"Q3_K", DV_STORED_OTHER, 256, 110},
    [12] = {"Q4_K", DV_STORED_OTHER, 256, 144},
    [13] = {"Q5_K", DV_STORED_OTHER, 256, 176},
    [14] = {"Q6_K", DV_STORED_OTHER, 256, 210},
    [15] = {"Q8_K", DV_STORED_OTHER, 256, 292},
    [16] = {"IQ2_XXS", DV_STORED_OTHER, 256, 66},
    [17] = {"IQ2_XS", DV_STORED_OTHER, 256, 74},
    [18] = {"IQ3_XXS", DV_STORED_OTHER, 256, 98},
    [19] = {"IQ1_S", DV_STORED_OTHER, 256, 50},
    [20] = {"IQ4_NL", DV_STORED_OTHER, 32, 18},
    [21] = {"IQ3_S", DV_STORED_OTHER, 256, 110},
    [22] = {"IQ2_S", DV_STORED_OTHER, 256, 82},
    [23] = {"IQ4_XS", DV_STORED_OTHER, 256, 136},
    [24] = {"I8", DV_STORED_I8, 1, 1},
    [25] = {"I16", DV_STORED_I16, 1, 2},
    [26] = {"I32", DV_STORED_I32, 1, 4},
    [27] = {"I64", DV_STORED_I64, 1, 8},
    [28] = {"F64", DV_STORED_F64, 1, 8},
    [29] = {"IQ1_M", DV_STORED_OTHER, 256, 56},
    [30] = {"BF16", DV_STORED_BF16, 1, 2},
    [34] = {"TQ1_0", DV_STORED_OTHER, 256, 54},
    [35] = {"TQ2_0", DV_STORED_OTHER, 256, 66},
    [39] = {"MXFP4", DV_STORED_OTHER, 32, 17},
};

/* As take_string, but a copy (dv_free) whose UTF-8 was checked. */
static davy_result take_copy(cursor *c, char **out) {
    const char *text = NULL;
    uint64_t bytes = 0;
    const davy_result r = take_string(c, &text, &bytes);
    if (r < 0) {
        return r;
    }
    if (!dv_utf8_valid(text, bytes)) {
        return bad(c, "a string is not valid UTF-8");
    }
    *out = dv_strndup(text, (size_t)bytes);
    return *out != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", dv_source_name(c->source));
}

/* ---- metadata ---- */

static double number_of(const uint8_t *p, uint32_t type) {
    if (type == DV_GGUF_F32) {
        float f;
        memcpy(&f, p, sizeof f);
        return (double)f;
    }
    double d;
    memcpy(&d, p, sizeof d);
    return d;
}

/* A scalar as text. A decimal comma of the host's locale becomes a point. */
static void print_value(char *out, size_t size, const uint8_t *p, uint32_t type) {
    if (type == DV_GGUF_F32 || type == DV_GGUF_F64) {
        snprintf(out, size, "%.9g", number_of(p, type));
        for (char *comma = strchr(out, ','); comma != NULL; comma = strchr(comma, ',')) {
            *comma = '.';
        }
    } else if (type == DV_GGUF_U64) {
        snprintf(out, size, "%" PRIu64, dv_le64(p));
    } else if (type == DV_GGUF_BOOL) {
        snprintf(out, size, "%s", p[0] != 0 ? "true" : "false");
    } else {
        snprintf(out, size, "%" PRId64, dv_gguf_integer_of(p, type));
    }
}

static davy_result read_scalar(cursor *c, const char *key, uint32_t type, dv_tensors *t) {
    char text[64];
    const uint8_t *p = NULL;
    const davy_result r = take(c, dv_gguf_value_bytes[type], &p);
    if (r < 0) {
        return r;
    }
    if (strcmp(key, "general.alignment") == 0) {
        c->alignment = type == DV_GGUF_U32 ? dv_le32(p) : 0;
        if (c->alignment == 0 || c->alignment > (1u << 20) || (c->alignment & (c->alignment - 1)) != 0) {
            return bad(c, "general.alignment is not a power of two up to 2^20");
        }
    }
    print_value(text, sizeof text, p, type);
    return dv_tensors_add_meta(t, key, text);
}

static davy_result read_string(cursor *c, const char *key, dv_tensors *t) {
    const char *text = NULL;
    uint64_t bytes = 0;
    davy_result r = take_string(c, &text, &bytes);
    if (r < 0 || bytes > MAX_META_TEXT || !dv_utf8_valid(text, bytes)) {
        return r; /* texts above 64 KiB are not kept as metadata */
    }
    char *value = dv_strndup(text, (size_t)bytes);
    r = value == NULL ? dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", dv_source_name(c->source))
                      : dv_tensors_add_meta(t, key, value);
    dv_free(value);
    return r;
}

static davy_result read_key(cursor *c, dv_tensors *t) {
    char *key = NULL;
    uint32_t type = 0;
    davy_result r = take_copy(c, &key);
    r = r < 0 ? r : take_u32(c, &type);
    if (r == DAVY_OK) {
        r = type == DV_GGUF_STRING                          ? read_string(c, key, t)
            : type < DV_GGUF_COUNT && type != DV_GGUF_ARRAY ? read_scalar(c, key, type, t)
                                                            : skip(c, type, 0);
    }
    dv_free(key);
    return r;
}

/* ---- tensors ---- */

static davy_result set_type(const cursor *c, uint32_t type, dv_tensor_ref *ref) {
    if (type >= DV_ARRAY_LEN(types) || types[type].name == NULL) {
        return dv_fail_in(DAVY_E_UNSUPPORTED, DAVY_DOMAIN_GGUF, 0,
                          "%s: tensor \"%s\" has the unsupported type %" PRIu32, dv_source_name(c->source), ref->name,
                          type);
    }
    ref->dtype = types[type].dtype;
    snprintf(ref->dtype_name, sizeof ref->dtype_name, "%s", types[type].name);
    if (!dv_tensors_pack(ref)) {
        return bad(c, "the product of a shape overflows");
    }
    const uint64_t elements = (uint64_t)dv_tensor_elements(ref);
    const uint64_t inner = ref->ndim > 0 ? (uint64_t)ref->shape[ref->ndim - 1] : 1;
    if (inner % types[type].elements != 0) {
        return bad(c, "a tensor's row is not a whole number of blocks");
    }
    ref->bytes =
        elements / types[type].elements * types[type].bytes; /* elements <= 2^60, a block holds <= 8 bytes each */
    return DAVY_OK;
}

/* Reads one tensor's entry. ref->offset stays relative to the data section. */
static davy_result read_tensor(cursor *c, dv_tensor_ref *ref) {
    uint32_t ndim = 0;
    uint32_t type = 0;
    davy_result r = take_copy(c, &ref->name);
    r = r < 0 ? r : take_u32(c, &ndim);
    if (r == DAVY_OK && ndim > DV_MAX_DIMS) {
        r = bad(c, "a tensor has more than 8 dimensions");
    }
    ref->ndim = (int32_t)ndim;
    for (uint32_t i = 0; r == DAVY_OK && i < ndim; i++) {
        uint64_t d = 0;
        r = take_u64(c, &d);
        ref->shape[ndim - 1 - i] = (int64_t)d;
        r = r == DAVY_OK && d > INT64_MAX ? bad(c, "a tensor's size is above 2^63") : r;
    }
    r = r < 0 ? r : take_u32(c, &type);
    r = r < 0 ? r : take_u64(c, &ref->offset);
    r = r < 0 ? r : set_type(c, type, ref);
    if (r == DAVY_OK && ref->offset % c->alignment != 0) {
        r = bad(c, "a tensor's offset is not a multiple of general.alignment");
    }
    return r;
}

static int by_offset(const void *a, const void *b) {
    const dv_tensor_ref *x = a;
    const dv_tensor_ref *y = b;
    const int order = (x->offset > y->offset) - (x->offset < y->offset);
    return order != 0 ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static davy_result check_overlap(const cursor *c, dv_tensors *t) {
    if (t->count > 1) {
        qsort(t->refs, (size_t)t->count, sizeof *t->refs, by_offset);
    }
    for (int64_t i = 1; i < t->count; i++) {
        if (t->refs[i - 1].offset + t->refs[i - 1].bytes > t->refs[i].offset) {
            return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_GGUF, 0, "%s: tensors \"%s\" and \"%s\" overlap",
                              dv_source_name(c->source), t->refs[i - 1].name, t->refs[i].name);
        }
    }
    return DAVY_OK;
}

/* The data section begins after the last entry. The entries are therefore collected first and added at the end. */
static davy_result read_tensors(cursor *c, uint64_t count, dv_tensors *t) {
    if (count > DV_MAX_TENSORS) {
        return bad(c, "more than 200000 tensors");
    }
    dv_tensor_ref *list = NULL;
    int64_t capacity = 0;
    int64_t n = 0;
    davy_result r = DAVY_OK;
    while (r == DAVY_OK && n < (int64_t)count) { /* the list grows step by step, because `count` is not verified yet */
        dv_tensor_ref *grown = dv_grow(list, n + 1, &capacity, sizeof *list);
        if (grown == NULL) {
            r = dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for the list of tensors", dv_source_name(c->source));
            break;
        }
        list = grown;
        list[n] = (dv_tensor_ref){.source = c->source};
        r = read_tensor(c, &list[n++]);
    }
    const uint64_t data = dv_align_up(c->at, c->alignment);
    for (int64_t i = 0; r == DAVY_OK && i < n; i++) {
        r = dv_add_u64(list[i].offset, data, &list[i].offset) ? dv_tensors_add(t, &list[i])
                                                              : bad(c, "a tensor's offset overflows");
    }
    for (int64_t i = 0; i < n; i++) {
        dv_free(list[i].name);
    }
    dv_free(list);
    return r < 0 ? r : check_overlap(c, t);
}

davy_result dv_gguf_parse(dv_source *source, dv_tensors *t) {
    cursor c = {.source = source, .alignment = DEFAULT_ALIGNMENT};
    uint64_t n_tensors = 0;
    uint64_t n_keys = 0;
    davy_result r = begin(&c, &n_tensors, &n_keys);
    for (uint64_t i = 0; r == DAVY_OK && i < n_keys; i++) {
        r = read_key(&c, t);
    }
    r = r < 0 ? r : read_tensors(&c, n_tensors, t);
    close_cursor(&c);
    return r;
}
