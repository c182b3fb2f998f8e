/* tensors.c - the list of tensors every format is read into. All checks that do not depend on a format are here: names,
 * shapes whose product fits, strides, extents inside the file. Offsets and sizes come from strangers, so sums are
 * checked. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/file/sha256.h"
#include "core/file/tensors.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"

enum { MAX_NAME = 1024 };

static const struct {
    const char *name;
    uint64_t bytes;
} stored[] = {
    [DV_STORED_F32] = {"F32", 4},     [DV_STORED_F16] = {"F16", 2},         [DV_STORED_BF16] = {"BF16", 2},
    [DV_STORED_F64] = {"F64", 8},     [DV_STORED_I8] = {"I8", 1},           [DV_STORED_U8] = {"U8", 1},
    [DV_STORED_I16] = {"I16", 2},     [DV_STORED_I32] = {"I32", 4},         [DV_STORED_I64] = {"I64", 8},
    [DV_STORED_BOOL] = {"BOOL", 1},   [DV_STORED_F8_E4M3] = {"F8_E4M3", 1}, [DV_STORED_F8_E5M2] = {"F8_E5M2", 1},
    [DV_STORED_OTHER] = {"other", 0},
};

static int compare_refs(const void *a, const void *b) {
    return strcmp(((const dv_tensor_ref *)a)->name, ((const dv_tensor_ref *)b)->name);
}

static davy_result refuse(const dv_tensor_ref *ref, const char *why) {
    char name[120];
    return dv_fail(DAVY_E_FORMAT, "%s: tensor \"%s\": %s", dv_source_name(ref->source),
                   dv_printable(name, sizeof name, ref->name, strlen(ref->name)), why);
}

static davy_result check_name(const dv_tensor_ref *ref) {
    const size_t n = strlen(ref->name);
    if (n == 0 || n > MAX_NAME) {
        return refuse(ref, n == 0 ? "has no name" : "has a name longer than 1024 bytes");
    }
    for (size_t i = 0; i < n; i++) {
        if ((uint8_t)ref->name[i] < 0x20 || ref->name[i] == 0x7f) {
            return refuse(ref, "has a control character in its name");
        }
    }
    return dv_utf8_valid(ref->name, n) ? DAVY_OK : refuse(ref, "has a name that is not UTF-8");
}

/* Elements from the first to the last one that is touched, 0 for an empty tensor. The product of the shape is limited
 * so that its size as f32 fits an int64. */
static davy_result check_shape(const dv_tensor_ref *ref, uint64_t *extent) {
    if (ref->ndim < 0 || ref->ndim > DV_MAX_DIMS) {
        return refuse(ref, "has more than 8 dimensions");
    }
    uint64_t product = 1;
    uint64_t last = 0;
    bool empty = false;
    for (int32_t i = 0; i < ref->ndim; i++) {
        if (ref->shape[i] < 0 || ref->stride[i] < 0) {
            return refuse(ref, "has a negative size or stride");
        }
        if (ref->shape[i] == 0) {
            empty = true;
            continue;
        }
        uint64_t span = 0;
        if (!dv_mul_u64(product, (uint64_t)ref->shape[i], &product) || product > INT64_MAX / 8 ||
            !dv_mul_u64((uint64_t)ref->shape[i] - 1, (uint64_t)ref->stride[i], &span) ||
            !dv_add_u64(last, span, &last)) {
            return refuse(ref, "has a shape or strides whose product overflows");
        }
    }
    if (!empty && !dv_add_u64(last, 1, &last)) {
        return refuse(ref, "has strides whose sum overflows");
    }
    *extent = empty ? 0 : last;
    return DAVY_OK;
}

static davy_result check_ref(const dv_tensor_ref *ref) {
    uint64_t extent = 0;
    davy_result r = check_name(ref);
    r = r < 0 ? r : check_shape(ref, &extent);
    if (r < 0) {
        return r;
    }
    uint64_t need = 0;
    if (!dv_mul_u64(extent, dv_stored_size(ref->dtype), &need) || need > ref->bytes) {
        return refuse(ref, "its shape and strides reach beyond its storage");
    }
    uint64_t end = 0;
    const uint64_t file = dv_source_bytes(ref->source);
    if (!dv_add_u64(ref->offset, ref->bytes, &end) || end > file) {
        return dv_fail(DAVY_E_FORMAT,
                       "%s: tensor \"%s\": %" PRIu64 " bytes at %" PRIu64
                       " reach beyond the end of the file at %" PRIu64 " (incomplete download?)",
                       dv_source_name(ref->source), ref->name, ref->bytes, ref->offset, file);
    }
    return DAVY_OK;
}

static void release_ref(dv_tensor_ref *ref) {
    dv_free(ref->name);
    dv_source_release(ref->source);
}

uint64_t dv_stored_size(dv_stored_dtype t) {
    return (size_t)t < DV_ARRAY_LEN(stored) ? stored[t].bytes : 0;
}

const char *dv_stored_name(dv_stored_dtype t) {
    return (size_t)t < DV_ARRAY_LEN(stored) && stored[t].name != NULL ? stored[t].name : "unknown";
}

bool dv_tensors_pack(dv_tensor_ref *ref) {
    uint64_t step = 1; /* of an empty tensor too: later products of its other sizes must not overflow either */
    bool empty = false;
    for (int32_t i = ref->ndim - 1; i >= 0; i--) {
        ref->stride[i] = (int64_t)step;
        empty = empty || ref->shape[i] == 0;
        if (ref->shape[i] < 0 || !dv_mul_u64(step, (uint64_t)dv_max(ref->shape[i], 1), &step) || step > INT64_MAX / 8) {
            return false;
        }
    }
    if (ref->dtype != DV_STORED_OTHER) {
        ref->bytes = empty ? 0 : step * dv_stored_size(ref->dtype); /* at most 8 bytes each: cannot overflow */
    }
    return true;
}

davy_result dv_tensors_add(dv_tensors *t, const dv_tensor_ref *ref) {
    if (t->count >= DV_MAX_TENSORS) {
        return dv_fail(DAVY_E_FORMAT, "%s: more than %d tensors", dv_source_name(ref->source), (int)DV_MAX_TENSORS);
    }
    const davy_result r = check_ref(ref);
    if (r < 0) {
        return r;
    }
    dv_tensor_ref *grown = dv_grow(t->refs, t->count + 1, &t->capacity, sizeof *grown);
    char *name = dv_strdup(ref->name);
    t->refs = grown != NULL ? grown : t->refs;
    if (grown == NULL || name == NULL) {
        dv_free(name);
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for the list of tensors", dv_source_name(ref->source));
    }
    t->refs[t->count] = *ref;
    t->refs[t->count].name = name;
    t->refs[t->count].source = dv_source_ref(ref->source);
    t->count++;
    return DAVY_OK;
}

davy_result dv_tensors_add_meta(dv_tensors *t, const char *key, const char *value) {
    dv_meta *grown = dv_grow(t->meta, t->n_meta + 1, &t->meta_capacity, sizeof *grown);
    t->meta = grown != NULL ? grown : t->meta;
    char *k = dv_strdup(key);
    char *v = dv_strdup(value);
    if (grown == NULL || k == NULL || v == NULL) {
        dv_free(k);
        dv_free(v);
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for metadata");
    }
    t->meta[t->n_meta].key = k;
    t->meta[t->n_meta].value = v;
    t->n_meta++;
    return DAVY_OK;
}

davy_result dv_tensors_note_wrapper(dv_tensors *t, const char *name) {
    char *joined = t->wrapper == NULL ? dv_strdup(name) : dv_sprintf("%s.%s", t->wrapper, name);
    if (joined == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory");
    }
    dv_free(t->wrapper);
    t->wrapper = joined;
    return DAVY_OK;
}

davy_result dv_tensors_sort(dv_tensors *t) {
    if (t->count > 1) {
        qsort(t->refs, (size_t)t->count, sizeof *t->refs, compare_refs);
    }
    for (int64_t i = 1; i < t->count; i++) {
        if (strcmp(t->refs[i - 1].name, t->refs[i].name) == 0) {
            return refuse(&t->refs[i], "is there twice");
        }
    }
    return DAVY_OK;
}

int64_t dv_tensors_lower_bound(const dv_tensors *t, const char *name) {
    int64_t low = 0;
    int64_t high = t->count;
    while (low < high) {
        const int64_t mid = low + (high - low) / 2;
        if (strcmp(t->refs[mid].name, name) < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

const dv_tensor_ref *dv_tensors_find(const dv_tensors *t, const char *name) {
    const int64_t i = dv_tensors_lower_bound(t, name);
    return i < t->count && strcmp(t->refs[i].name, name) == 0 ? &t->refs[i] : NULL;
}

const char *dv_tensors_meta(const dv_tensors *t, const char *key) {
    for (int64_t i = 0; i < t->n_meta; i++) {
        if (strcmp(t->meta[i].key, key) == 0) {
            return t->meta[i].value;
        }
    }
    return NULL;
}

int64_t dv_tensor_elements(const dv_tensor_ref *r) {
    int64_t n = 1;
    for (int32_t i = 0; i < r->ndim; i++) {
        n *= r->shape[i];
    }
    return n;
}

bool dv_tensors_are_file(const dv_tensors *t, uint64_t bytes, const char *sha256) {
    char hex[65];
    dv_source *source = t->count > 0 ? t->refs[0].source : NULL;
    for (int64_t i = 0; i < t->count; i++) {
        if (t->refs[i].source != source) {
            return false;
        }
    }
    return source != NULL && dv_source_bytes(source) == bytes && dv_sha256_source(source, hex) == DAVY_OK &&
           strcmp(hex, sha256) == 0;
}

/* The names of `from` below `prefix`, none of them in `into`. names[i] NULL after an error. */
static davy_result prefixed_names(const dv_tensors *into, const dv_tensors *from, const char *prefix, char **names) {
    for (int64_t i = 0; i < from->count; i++) {
        names[i] = dv_sprintf("%s%s", prefix, from->refs[i].name);
        if (names[i] == NULL) {
            return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for names");
        }
        const dv_tensor_ref *other = dv_tensors_find(into, names[i]);
        if (other != NULL) {
            return dv_fail(DAVY_E_FORMAT, "%s: tensor \"%s\" is also in %s", dv_source_name(from->refs[i].source),
                           names[i], dv_source_name(other->source));
        }
    }
    return DAVY_OK;
}

/* Everything that can fail comes before anything is moved. */
davy_result dv_tensors_merge(dv_tensors *into, dv_tensors *from, const char *prefix) {
    if (into->count + from->count > DV_MAX_TENSORS) {
        return dv_fail(DAVY_E_FORMAT, "more than %d tensors in all files together", (int)DV_MAX_TENSORS);
    }
    const int64_t n = from->count;
    char **names = dv_calloc((uint64_t)n + 1, sizeof *names);
    dv_tensor_ref *refs = dv_grow(into->refs, into->count + n + 1, &into->capacity, sizeof *refs);
    into->refs = refs != NULL ? refs : into->refs;
    dv_meta *meta = dv_grow(into->meta, into->n_meta + from->n_meta + 1, &into->meta_capacity, sizeof *meta);
    into->meta = meta != NULL ? meta : into->meta;
    davy_result r =
        names == NULL || refs == NULL || meta == NULL ? dv_fail(DAVY_E_NOMEM_HOST, "out of memory") : DAVY_OK;
    r = r < 0 ? r : prefixed_names(into, from, prefix != NULL ? prefix : "", names);
    for (int64_t i = 0; r == DAVY_OK && i < n; i++) {
        char *old = from->refs[i].name;
        into->refs[into->count] = from->refs[i];
        into->refs[into->count++].name = names[i];
        names[i] = old;
    }
    if (r == DAVY_OK) {
        for (int64_t i = 0; i < from->n_meta; i++) {
            into->meta[into->n_meta++] = from->meta[i];
        }
        from->n_meta = 0;
        from->count = 0;
        r = dv_tensors_sort(into);
    }
    for (int64_t i = 0; names != NULL && i < n; i++) {
        dv_free(names[i]);
    }
    dv_free(names);
    return r;
}

void dv_tensors_release(dv_tensors *t) {
    if (t == NULL) {
        return;
    }
    for (int64_t i = 0; i < t->count; i++) {
        release_ref(&t->refs[i]);
    }
    for (int64_t i = 0; i < t->n_meta; i++) {
        dv_free(t->meta[i].key);
        dv_free(t->meta[i].value);
    }
    dv_free(t->refs);
    dv_free(t->meta);
    dv_free(t->wrapper);
    dv_free(t);
}
