/* gguf_read.c - see gguf_read.h. */
#include <inttypes.h>
#include <string.h>

#include "core/base/error.h"
#include "core/file/gguf_read.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"

enum {
    WINDOW = 256 << 10, /* of a file that is read and not mapped */
    MAX_KEYS = 1 << 16,
    MAX_DEPTH = 4, /* arrays of arrays */
    MAX_STRING = 16 << 20
};

const uint8_t dv_gguf_value_bytes[DV_GGUF_COUNT] = {
    [DV_GGUF_U8] = 1,  [DV_GGUF_I8] = 1,   [DV_GGUF_U16] = 2, [DV_GGUF_I16] = 2, [DV_GGUF_U32] = 4, [DV_GGUF_I32] = 4,
    [DV_GGUF_F32] = 4, [DV_GGUF_BOOL] = 1, [DV_GGUF_U64] = 8, [DV_GGUF_I64] = 8, [DV_GGUF_F64] = 8,
};

davy_result dv_gguf_bad(const dv_gguf_cursor *c, const char *why) {
    return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_GGUF, 0, "%s: GGUF at byte %" PRIu64 ": %s", dv_source_name(c->source),
                      c->at, why);
}

davy_result dv_gguf_take(dv_gguf_cursor *c, uint64_t bytes, const uint8_t **out) {
    const uint64_t left = dv_source_bytes(c->source) - c->at;
    if (bytes > left) {
        return dv_gguf_bad(c, "the file ends inside the header (incomplete download?)");
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

davy_result dv_gguf_u32(dv_gguf_cursor *c, uint32_t *out) {
    const uint8_t *p = NULL;
    const davy_result r = dv_gguf_take(c, 4, &p);
    *out = r == DAVY_OK ? dv_le32(p) : 0;
    return r;
}

davy_result dv_gguf_u64(dv_gguf_cursor *c, uint64_t *out) {
    const uint8_t *p = NULL;
    const davy_result r = dv_gguf_take(c, 8, &p);
    *out = r == DAVY_OK ? dv_le64(p) : 0;
    return r;
}

davy_result dv_gguf_string(dv_gguf_cursor *c, const char **text, uint64_t *bytes) {
    const uint8_t *p = NULL;
    davy_result r = dv_gguf_u64(c, bytes);
    r = r < 0 ? r : *bytes > MAX_STRING ? dv_gguf_bad(c, "a string longer than 16 MiB") : dv_gguf_take(c, *bytes, &p);
    *text = (const char *)p;
    return r;
}

static davy_result skip_array(dv_gguf_cursor *c, int32_t depth) {
    uint32_t type = 0;
    uint64_t count = 0;
    davy_result r = dv_gguf_u32(c, &type);
    r = r < 0 ? r : dv_gguf_u64(c, &count);
    if (r < 0) {
        return r;
    }
    if (type >= DV_GGUF_COUNT || depth > MAX_DEPTH) {
        return dv_gguf_bad(c, "an array of an unknown type, or arrays nested deeper than 4");
    }
    if (dv_gguf_value_bytes[type] != 0) {
        uint64_t bytes = 0;
        if (!dv_mul_u64(count, dv_gguf_value_bytes[type], &bytes) || bytes > dv_source_bytes(c->source) - c->at) {
            return dv_gguf_bad(c, "an array reaches beyond the end of the file");
        }
        c->at += bytes;
        return DAVY_OK;
    }
    for (uint64_t i = 0; r == DAVY_OK && i < count; i++) { /* every turn eats at least 8 bytes of the file */
        r = dv_gguf_skip(c, type, depth);
    }
    return r;
}

davy_result dv_gguf_skip(dv_gguf_cursor *c, uint32_t type, int32_t depth) {
    const uint8_t *p = NULL;
    uint64_t bytes = 0;
    if (type >= DV_GGUF_COUNT) {
        return dv_gguf_bad(c, "a value of an unknown type");
    }
    if (type == DV_GGUF_ARRAY) {
        return skip_array(c, depth + 1);
    }
    bytes = dv_gguf_value_bytes[type];
    const davy_result r = type == DV_GGUF_STRING ? dv_gguf_u64(c, &bytes) : DAVY_OK;
    return r < 0 ? r : dv_gguf_take(c, bytes, &p);
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

static davy_result check_version(const dv_gguf_cursor *c, uint32_t version) {
    if (version == 2 || version == 3) {
        return DAVY_OK;
    }
    const char *why = version == 1                               ? "version 1, convert it again"
                      : (version & 0xffffu) == 0 && version != 0 ? "big-endian"
                                                                 : "a version unknown here";
    return dv_fail_in(DAVY_E_UNSUPPORTED, DAVY_DOMAIN_GGUF, 0, "%s: GGUF of another kind: %s",
                      dv_source_name(c->source), why);
}

davy_result dv_gguf_begin(dv_gguf_cursor *c, uint64_t *n_tensors, uint64_t *n_keys) {
    const uint8_t *magic = NULL;
    uint32_t version = 0;
    davy_result r = dv_gguf_take(c, 4, &magic);
    if (r == DAVY_OK && memcmp(magic, "GGUF", 4) != 0) {
        r = dv_gguf_bad(c, "no GGUF file");
    }
    r = r < 0 ? r : dv_gguf_u32(c, &version);
    r = r < 0 ? r : check_version(c, version);
    r = r < 0 ? r : dv_gguf_u64(c, n_tensors);
    r = r < 0 ? r : dv_gguf_u64(c, n_keys);
    return r == DAVY_OK && *n_keys > MAX_KEYS ? dv_gguf_bad(c, "more than 65536 keys") : r;
}

void dv_gguf_close(dv_gguf_cursor *c) {
    dv_free(c->owned);
    c->owned = NULL;
}

/* ---- single keys ---- */

/* A value's place; the cursor stands behind its type. */
static davy_result note(dv_gguf_cursor *c, uint32_t type, dv_gguf_value *v) {
    dv_gguf_cursor here = *c; /* without its window: the copy only looks */
    here.owned = NULL;
    here.n = 0;
    *v = (dv_gguf_value){type, type, 1, c->at};
    davy_result r = DAVY_OK;
    if (type == DV_GGUF_ARRAY) {
        r = dv_gguf_u32(&here, &v->element);
        r = r < 0 ? r : dv_gguf_u64(&here, &v->count);
        v->at = here.at;
    }
    dv_gguf_close(&here);
    return r;
}

davy_result dv_gguf_find(dv_source *source, const char *const *keys, int32_t n, dv_gguf_value *out) {
    dv_gguf_cursor c = {.source = source};
    uint64_t n_tensors = 0;
    uint64_t n_keys = 0;
    for (int32_t k = 0; k < n; k++) {
        out[k] = (dv_gguf_value){.type = DV_GGUF_COUNT};
    }
    davy_result r = dv_gguf_begin(&c, &n_tensors, &n_keys);
    for (uint64_t i = 0; r == DAVY_OK && i < n_keys; i++) {
        const char *name = NULL;
        uint64_t bytes = 0;
        uint32_t type = 0;
        int32_t found = -1;
        r = dv_gguf_string(&c, &name, &bytes);
        for (int32_t k = 0; r == DAVY_OK && k < n; k++) {
            found = strlen(keys[k]) == bytes && memcmp(keys[k], name, (size_t)bytes) == 0 ? k : found;
        }
        r = r < 0 ? r : dv_gguf_u32(&c, &type);
        r = r == DAVY_OK && found >= 0 ? note(&c, type, &out[found]) : r;
        r = r < 0 ? r : dv_gguf_skip(&c, type, 0);
    }
    dv_gguf_close(&c);
    return r;
}

static davy_result wrong_type(dv_source *source, const char *key, const char *what) {
    return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_GGUF, 0, "%s: %s holds no %s", dv_source_name(source), key, what);
}

davy_result dv_gguf_strings(dv_source *source, const char *key, const dv_gguf_value *v, dv_gguf_string_fn each,
                            void *user) {
    dv_gguf_cursor c = {.source = source, .at = v->at};
    davy_result r = v->element == DV_GGUF_STRING ? DAVY_OK : wrong_type(source, key, "texts");
    for (uint64_t i = 0; r == DAVY_OK && i < v->count; i++) {
        const char *text = NULL;
        uint64_t bytes = 0;
        r = dv_gguf_string(&c, &text, &bytes);
        r = r == DAVY_OK && !dv_utf8_valid(text, bytes) ? dv_gguf_bad(&c, "a string that is not UTF-8") : r;
        r = r < 0 ? r : each(user, (int64_t)i, text, bytes);
    }
    dv_gguf_close(&c);
    return r;
}

davy_result dv_gguf_integers(dv_source *source, const char *key, const dv_gguf_value *v, int64_t *out) {
    dv_gguf_cursor c = {.source = source, .at = v->at};
    const uint32_t e = v->element;
    const bool integer = e < DV_GGUF_COUNT && dv_gguf_value_bytes[e] != 0 && e != DV_GGUF_F32 && e != DV_GGUF_F64;
    davy_result r = integer ? DAVY_OK : wrong_type(source, key, "integers");
    for (uint64_t i = 0; r == DAVY_OK && i < v->count; i++) {
        const uint8_t *p = NULL;
        r = dv_gguf_take(&c, dv_gguf_value_bytes[e], &p);
        out[i] = r == DAVY_OK ? dv_gguf_integer_of(p, e) : 0;
    }
    dv_gguf_close(&c);
    return r;
}
