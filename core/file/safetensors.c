/* safetensors.c - parser of a safetensors file's header: 8 bytes of length, then JSON; the payload follows. The format
 * requires that the tensors cover the payload exactly, one after the other. An overlap, a gap or a tail means that the file
 * is damaged or crafted. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/file/tensors.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"

enum { MAX_HEADER = 100 * 1000 * 1000 /* the format's own limit */, MAX_META = 1 << 16 };

static const struct {
    const char *name;
    dv_stored_dtype dtype;
    uint32_t bits;
} types[] = {
    {"F32", DV_STORED_F32, 32},          {"F16", DV_STORED_F16, 16},        {"BF16", DV_STORED_BF16, 16},
    {"F64", DV_STORED_F64, 64},          {"I8", DV_STORED_I8, 8},           {"U8", DV_STORED_U8, 8},
    {"I16", DV_STORED_I16, 16},          {"I32", DV_STORED_I32, 32},        {"I64", DV_STORED_I64, 64},
    {"BOOL", DV_STORED_BOOL, 8},         {"F8_E4M3", DV_STORED_F8_E4M3, 8}, {"F8_E5M2", DV_STORED_F8_E5M2, 8},
    {"U16", DV_STORED_OTHER, 16},        {"U32", DV_STORED_OTHER, 32},      {"U64", DV_STORED_OTHER, 64},
    {"C64", DV_STORED_OTHER, 64},        {"F4", DV_STORED_OTHER, 4},        {"F6_E2M3", DV_STORED_OTHER, 6},
    {"F6_E3M2", DV_STORED_OTHER, 6},     {"F8_E8M0", DV_STORED_OTHER, 8},   {"F8_E4M3FNUZ", DV_STORED_OTHER, 8},
    {"F8_E5M2FNUZ", DV_STORED_OTHER, 8},
};

typedef struct st_fields { /* the three values of a tensor's entry */
    const dv_json *dtype, *shape, *offsets;
} st_fields;

static davy_result bad(const dv_source *s, const char *tensor, const char *why) {
    char name[120];
    return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_SAFETENSORS, 0, "%s: tensor \"%s\": %s", dv_source_name(s),
                      dv_printable(name, sizeof name, tensor, strlen(tensor)), why);
}

static davy_result find_fields(const dv_source *s, const dv_json *entry, st_fields *f) {
    const char *tensor = dv_json_key(entry);
    if (!dv_json_is_object(entry)) {
        return bad(s, tensor, "its entry is not an object");
    }
    for (const dv_json *v = dv_json_first(entry); v != NULL; v = dv_json_next(v)) {
        const char *key = dv_json_key(v);
        const dv_json **slot = strcmp(key, "dtype") == 0          ? &f->dtype
                               : strcmp(key, "shape") == 0        ? &f->shape
                               : strcmp(key, "data_offsets") == 0 ? &f->offsets
                                                                  : NULL;
        if (slot != NULL && *slot != NULL) {
            return bad(s, tensor, "a key of its entry occurs twice");
        }
        if (slot != NULL) {
            *slot = v;
        }
    }
    if (!dv_json_is_string(f->dtype) || !dv_json_is_array(f->shape) || !dv_json_is_array(f->offsets)) {
        return bad(s, tensor, "dtype, shape or data_offsets is missing or of the wrong kind");
    }
    return DAVY_OK;
}

static davy_result read_shape(const dv_source *s, const char *tensor, const dv_json *shape, dv_tensor_ref *ref) {
    for (const dv_json *v = dv_json_first(shape); v != NULL; v = dv_json_next(v)) {
        int64_t d = 0;
        if (!dv_json_int(v, &d) || d < 0) {
            return bad(s, tensor, "a size in its shape is not an integer from 0 to 2^53");
        }
        if (ref->ndim == DV_MAX_DIMS) {
            return bad(s, tensor, "has more than 8 dimensions");
        }
        ref->shape[ref->ndim++] = d;
    }
    return DAVY_OK;
}

/* Sets the dtype, and the bytes from shape and dtype. */
static davy_result read_type(const dv_source *s, const char *tensor, const char *dtype, dv_tensor_ref *ref) {
    size_t i = 0;
    while (i < DV_ARRAY_LEN(types) && strcmp(types[i].name, dtype) != 0) {
        i++;
    }
    if (i == DV_ARRAY_LEN(types)) {
        char name[40];
        char why[80];
        snprintf(why, sizeof why, "unknown dtype \"%s\"", dv_printable(name, sizeof name, dtype, strlen(dtype)));
        return bad(s, tensor, why);
    }
    ref->dtype = types[i].dtype;
    snprintf(ref->dtype_name, sizeof ref->dtype_name, "%s", dtype);
    uint64_t bits = 0;
    if (!dv_tensors_pack(ref) || !dv_mul_u64((uint64_t)dv_tensor_elements(ref), types[i].bits, &bits)) {
        return bad(s, tensor, "the product of its shape overflows");
    }
    ref->bytes = bits / 8 + (bits % 8 != 0);
    return DAVY_OK;
}

static davy_result read_tensor(dv_source *s, const dv_json *entry, uint64_t data, dv_tensors *t) {
    char *tensor = (char *)(uintptr_t)dv_json_key(entry); /* only read: dv_tensors_add copies it */
    st_fields f = {NULL, NULL, NULL};
    dv_tensor_ref ref = {.name = tensor, .source = s};
    davy_result r = find_fields(s, entry, &f);
    r = r < 0 ? r : read_shape(s, tensor, f.shape, &ref);
    r = r < 0 ? r : read_type(s, tensor, dv_json_string(f.dtype), &ref);
    if (r < 0) {
        return r;
    }
    const dv_json *first = dv_json_first(f.offsets);
    int64_t begin = -1;
    int64_t end = -1;
    if (dv_json_size(f.offsets) != 2 || !dv_json_int(first, &begin) || !dv_json_int(dv_json_next(first), &end) ||
        begin < 0 || end < begin) {
        return bad(s, tensor, "its data_offsets are not two ascending integers from 0 to 2^53");
    }
    if ((uint64_t)(end - begin) != ref.bytes) {
        char shape[96];
        return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_SAFETENSORS, 0,
                          "%s: tensor \"%s\" %s %s needs %" PRIu64 " bytes, but its data_offsets hold %" PRId64,
                          dv_source_name(s), tensor, ref.dtype_name,
                          dv_shape_text(shape, sizeof shape, ref.shape, ref.ndim), ref.bytes, end - begin);
    }
    ref.offset = data + (uint64_t)begin; /* both far below 2^63 */
    return dv_tensors_add(t, &ref);
}

static davy_result read_metadata(const dv_source *s, const dv_json *object, dv_tensors *t) {
    if (t->n_meta > 0 || !dv_json_is_object(object)) {
        return bad(s, "__metadata__", t->n_meta > 0 ? "occurs twice" : "is not an object");
    }
    if (dv_json_size(object) > MAX_META) {
        return bad(s, "__metadata__", "has more than 65536 entries");
    }
    for (const dv_json *v = dv_json_first(object); v != NULL; v = dv_json_next(v)) {
        const davy_result r = dv_json_is_string(v) ? dv_tensors_add_meta(t, dv_json_key(v), dv_json_string(v))
                                                   : bad(s, "__metadata__", "has a value that is not a string");
        if (r < 0) {
            return r;
        }
    }
    return DAVY_OK;
}

static int by_offset(const void *a, const void *b) {
    const dv_tensor_ref *x = a;
    const dv_tensor_ref *y = b;
    const int order = (x->offset > y->offset) - (x->offset < y->offset);
    return order != 0 ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static davy_result check_cover(const dv_source *s, uint64_t data, dv_tensors *t) {
    if (t->count > 1) {
        qsort(t->refs, (size_t)t->count, sizeof *t->refs, by_offset);
    }
    uint64_t at = data;
    for (int64_t i = 0; i < t->count; i++) {
        if (t->refs[i].offset != at) {
            return bad(s, t->refs[i].name,
                       t->refs[i].offset < at ? "its data overlaps another tensor's"
                                              : "the file has a gap before its data");
        }
        at += t->refs[i].bytes;
    }
    if (at != dv_source_bytes(s)) {
        return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_SAFETENSORS, 0,
                          "%s: the tensors end at byte %" PRIu64 ", but the file ends at byte %" PRIu64,
                          dv_source_name(s), at, dv_source_bytes(s));
    }
    return DAVY_OK;
}

static davy_result read_header(dv_source *s, const dv_json *root, uint64_t data, dv_tensors *t) {
    if (!dv_json_is_object(root)) {
        return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_SAFETENSORS, 0, "%s: the header is not a JSON object",
                          dv_source_name(s));
    }
    for (const dv_json *v = dv_json_first(root); v != NULL; v = dv_json_next(v)) {
        const davy_result r =
            strcmp(dv_json_key(v), "__metadata__") == 0 ? read_metadata(s, v, t) : read_tensor(s, v, data, t);
        if (r < 0) {
            return r;
        }
    }
    return check_cover(s, data, t);
}

davy_result dv_safetensors_parse(dv_source *source, dv_tensors *t) {
    const void *view = NULL;
    void *owned = NULL;
    const uint64_t bytes = dv_source_bytes(source);
    if (bytes < 8) {
        return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_SAFETENSORS, 0,
                          "%s: %" PRIu64 " bytes are too few for a safetensors file", dv_source_name(source), bytes);
    }
    davy_result r = dv_source_view(source, 0, 8, &view, &owned);
    if (r < 0) {
        return r;
    }
    const uint64_t header = dv_le64(view);
    dv_free(owned);
    owned = NULL;
    if (header > bytes - 8 || header > MAX_HEADER) {
        return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_SAFETENSORS, 0,
                          "%s: the header should have %" PRIu64
                          " bytes, %s (incomplete download, or not a safetensors file)",
                          dv_source_name(source), header,
                          header > MAX_HEADER ? "but the format allows 100 MB" : "but the file is shorter");
    }
    r = dv_source_view(source, 8, header, &view, &owned);
    dv_json *root = NULL;
    r = r < 0 ? r : dv_json_parse(view, header, dv_source_name(source), &root);
    r = r < 0 ? r : read_header(source, root, 8 + header, t);
    dv_json_release(root);
    dv_free(owned);
    return r;
}
