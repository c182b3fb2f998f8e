/* gguf.c - header of a GGUF file, versions 2 and 3: metadata, then name, shape, type and offset of each tensor. Sizes
 * in the file run from the innermost dimension outwards; here they are turned into row-major order. Quantised types are
 * listed by their names with the right number of bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/file/gguf_read.h"
#include "core/file/tensors.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"

enum { MAX_META_TEXT = 64 << 10, DEFAULT_ALIGNMENT = 32 };

/* Elements and bytes of a block, by the format's type number. */
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

/* The same as a copy of its own (dv_free), UTF-8 checked. */
static davy_result take_copy(dv_gguf_cursor *c, char **out) {
    const char *text = NULL;
    uint64_t bytes = 0;
    const davy_result r = dv_gguf_string(c, &text, &bytes);
    if (r < 0) {
        return r;
    }
    if (!dv_utf8_valid(text, bytes)) {
        return dv_gguf_bad(c, "a string that is not UTF-8");
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

/* A scalar as text. The host's locale may write a comma into the number. */
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

static davy_result read_scalar(dv_gguf_cursor *c, const char *key, uint32_t type, dv_tensors *t) {
    char text[64];
    const uint8_t *p = NULL;
    const davy_result r = dv_gguf_take(c, dv_gguf_value_bytes[type], &p);
    if (r < 0) {
        return r;
    }
    if (strcmp(key, "general.alignment") == 0) {
        c->alignment = type == DV_GGUF_U32 ? dv_le32(p) : 0;
        if (c->alignment == 0 || c->alignment > (1u << 20) || (c->alignment & (c->alignment - 1)) != 0) {
            return dv_gguf_bad(c, "general.alignment is no power of two up to 2^20");
        }
    }
    print_value(text, sizeof text, p, type);
    return dv_tensors_add_meta(t, key, text);
}

static davy_result read_string(dv_gguf_cursor *c, const char *key, dv_tensors *t) {
    const char *text = NULL;
    uint64_t bytes = 0;
    davy_result r = dv_gguf_string(c, &text, &bytes);
    if (r < 0 || bytes > MAX_META_TEXT || !dv_utf8_valid(text, bytes)) {
        return r; /* a long text is of no use as metadata */
    }
    char *value = dv_strndup(text, (size_t)bytes);
    r = value == NULL ? dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", dv_source_name(c->source))
                      : dv_tensors_add_meta(t, key, value);
    dv_free(value);
    return r;
}

static davy_result read_key(dv_gguf_cursor *c, dv_tensors *t) {
    char *key = NULL;
    uint32_t type = 0;
    davy_result r = take_copy(c, &key);
    r = r < 0 ? r : dv_gguf_u32(c, &type);
    if (r == DAVY_OK) {
        r = type == DV_GGUF_STRING                          ? read_string(c, key, t)
            : type < DV_GGUF_COUNT && type != DV_GGUF_ARRAY ? read_scalar(c, key, type, t)
                                                            : dv_gguf_skip(c, type, 0);
    }
    dv_free(key);
    return r;
}

/* ---- tensors ---- */

static davy_result set_type(const dv_gguf_cursor *c, uint32_t type, dv_tensor_ref *ref) {
    if (type >= DV_ARRAY_LEN(types) || types[type].name == NULL) {
        return dv_fail_in(DAVY_E_UNSUPPORTED, DAVY_DOMAIN_GGUF, 0,
                          "%s: tensor \"%s\" has type %" PRIu32 ", unknown to this version", dv_source_name(c->source),
                          ref->name, type);
    }
    ref->dtype = types[type].dtype;
    snprintf(ref->dtype_name, sizeof ref->dtype_name, "%s", types[type].name);
    if (!dv_tensors_pack(ref)) {
        return dv_gguf_bad(c, "the product of a shape overflows");
    }
    const uint64_t elements = (uint64_t)dv_tensor_elements(ref);
    const uint64_t inner = ref->ndim > 0 ? (uint64_t)ref->shape[ref->ndim - 1] : 1;
    if (inner % types[type].elements != 0) {
        return dv_gguf_bad(c, "a row that is no whole number of blocks");
    }
    ref->bytes =
        elements / types[type].elements * types[type].bytes; /* elements <= 2^60, a block holds <= 8 bytes each */
    return DAVY_OK;
}

/* ref->offset is still relative to the data section afterwards. */
static davy_result read_tensor(dv_gguf_cursor *c, dv_tensor_ref *ref) {
    uint32_t ndim = 0;
    uint32_t type = 0;
    davy_result r = take_copy(c, &ref->name);
    r = r < 0 ? r : dv_gguf_u32(c, &ndim);
    if (r == DAVY_OK && ndim > DV_MAX_DIMS) {
        r = dv_gguf_bad(c, "a tensor of more than 8 dimensions");
    }
    ref->ndim = (int32_t)ndim;
    for (uint32_t i = 0; r == DAVY_OK && i < ndim; i++) {
        uint64_t d = 0;
        r = dv_gguf_u64(c, &d);
        ref->shape[ndim - 1 - i] = (int64_t)d;
        r = r == DAVY_OK && d > INT64_MAX ? dv_gguf_bad(c, "a size above 2^63") : r;
    }
    r = r < 0 ? r : dv_gguf_u32(c, &type);
    r = r < 0 ? r : dv_gguf_u64(c, &ref->offset);
    r = r < 0 ? r : set_type(c, type, ref);
    if (r == DAVY_OK && ref->offset % c->alignment != 0) {
        r = dv_gguf_bad(c, "a tensor whose offset is not aligned");
    }
    return r;
}

static int by_offset(const void *a, const void *b) {
    const dv_tensor_ref *x = a;
    const dv_tensor_ref *y = b;
    const int order = (x->offset > y->offset) - (x->offset < y->offset);
    return order != 0 ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static davy_result check_overlap(const dv_gguf_cursor *c, dv_tensors *t) {
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

/* The data section begins after the last entry, so entries wait in a list of their own. */
static davy_result read_tensors(dv_gguf_cursor *c, uint64_t count, dv_tensors *t) {
    if (count > DV_MAX_TENSORS) {
        return dv_gguf_bad(c, "more than 200000 tensors");
    }
    dv_tensor_ref *list = NULL;
    int64_t capacity = 0;
    int64_t n = 0;
    davy_result r = DAVY_OK;
    while (r == DAVY_OK && n < (int64_t)count) { /* grown step by step: the count is only a claim */
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
                                                              : dv_gguf_bad(c, "an offset overflows");
    }
    for (int64_t i = 0; i < n; i++) {
        dv_free(list[i].name);
    }
    dv_free(list);
    return r < 0 ? r : check_overlap(c, t);
}

davy_result dv_gguf_parse(dv_source *source, dv_tensors *t) {
    dv_gguf_cursor c = {.source = source, .alignment = DEFAULT_ALIGNMENT};
    uint64_t n_tensors = 0;
    uint64_t n_keys = 0;
    davy_result r = dv_gguf_begin(&c, &n_tensors, &n_keys);
    for (uint64_t i = 0; r == DAVY_OK && i < n_keys; i++) {
        r = read_key(&c, t);
    }
    r = r < 0 ? r : read_tensors(&c, n_tensors, t);
    dv_gguf_close(&c);
    return r;
}
