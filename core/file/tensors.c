/* tensors.c - the list of tensors that every format is read into. The checks that do not depend on a format are here:
 * names, products of shapes, strides, ranges inside the file. Offsets and sizes are untrusted, so every sum is checked for
 * overflow. */
#include "core/file/tensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/file/sha256.h"
#include "kernels/dtype.h"

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
    return dv_utf8_valid(ref->name, n) ? DAVY_OK : refuse(ref, "has a name that is not valid UTF-8");
}

/* extent: elements from the first to the last one in use, 0 for an empty tensor. The product of the shape is limited so
 * that the size in bytes fits an int64. */
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
    uint64_t step = 1; /* for an empty tensor too: products of its other sizes must not overflow later */
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
            return refuse(&t->refs[i], "occurs twice");
        }
    }
    return DAVY_OK;
}

/* Index of the first name not below `name`: the start of a prefix's names. Sorted lists only. */
static int64_t lower_bound(const dv_tensors *t, const char *name) {
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
    const int64_t i = lower_bound(t, name);
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

/* Makes the names of `from` with `prefix` in front, and checks that `into` has none of them. After an error the last
 * names[i] are NULL. */
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

/* All steps that can fail come before the first move. */
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

/* ---- unwrapping: from the names in training scripts and bundled checkpoints to the network's own names. Names are
 * sorted, so all names below a prefix are one run, and it stays sorted without the prefix. ---- */

/* In order of preference: of a file with params and params_ema only params_ema is used. "model" and "net" are not here,
 * because every name of an old ESRGAN file begins with "model.". pth.c has the dicts themselves and does unwrap these two. */
static const char *const wrappers[] = {"model_state_dict.", "state_dict.", "params_ema.", "params-ema.", "params."};
static const char *const everywhere[] = {"module.", "netG.", "_orig_mod."};
static const char *const vae_prefixes[] = {"first_stage_model.", "vae."};

static const struct {
    const char *prefix;
    const char *checkpoint;
} siblings[] = {
    {"model.diffusion_model.joint_blocks.0.", "sd3"},
    {"model.diffusion_model.double_blocks.0.", "flux"},
    {"double_blocks.0.img_attn.norm.key_norm.scale", "flux"},
    {"conditioner.embedders.1.", "sdxl"},
    {"model.diffusion_model.label_emb.0.0.weight", "sdxl"},
    {"cond_stage_model.transformer.", "sd1"},
    {"cond_stage_model.model.", "sd2"},
};

static bool has_prefix(const dv_tensors *t, int64_t i, const char *prefix) {
    return i < t->count && strncmp(t->refs[i].name, prefix, strlen(prefix)) == 0;
}

static int64_t count_below(const dv_tensors *t, const char *prefix) {
    const int64_t first = lower_bound(t, prefix);
    int64_t last = first;
    while (has_prefix(t, last, prefix)) {
        last++;
    }
    return last - first;
}

/* Keeps the tensors below prefix, strips it from their names, and releases all others. */
static davy_result keep_below(dv_tensors *t, const char *prefix) {
    char *name = dv_strndup(prefix, strlen(prefix) - 1);
    davy_result r = name == NULL ? dv_fail(DAVY_E_NOMEM_HOST, "out of memory") : dv_tensors_note_wrapper(t, name);
    dv_free(name);
    if (r < 0) {
        return r;
    }
    const int64_t first = lower_bound(t, prefix);
    const int64_t n = count_below(t, prefix);
    const size_t cut = strlen(prefix);
    for (int64_t i = 0; i < t->count; i++) {
        dv_tensor_ref *ref = &t->refs[i];
        if (i >= first && i < first + n) {
            memmove(ref->name, ref->name + cut, strlen(ref->name) - cut + 1);
        } else {
            dv_free(ref->name);
            dv_source_release(ref->source);
        }
    }
    if (n > 0) {
        memmove(t->refs, t->refs + first, (size_t)n * sizeof *t->refs);
    }
    t->count = n;
    return DAVY_OK;
}

static bool has_any(const dv_tensors *t, const char *prefix) {
    return has_prefix(t, lower_bound(t, prefix), prefix);
}

/* Whether an autoencoder was saved as a part of the class that uses it, as DiffSynth saves Wan's. */
static bool is_part(const dv_tensors *t) {
    return t->count > 0 && count_below(t, "model.") == t->count &&
           (has_any(t, "model.encoder.") || has_any(t, "model.decoder."));
}

/* The next prefix to remove; NULL: none left. */
static const char *next_prefix(const dv_tensors *t) {
    for (size_t i = 0; i < DV_ARRAY_LEN(wrappers); i++) {
        if (has_any(t, wrappers[i])) {
            return wrappers[i];
        }
    }
    for (size_t i = 0; i < DV_ARRAY_LEN(everywhere); i++) {
        if (t->count > 0 && count_below(t, everywhere[i]) == t->count) {
            return everywhere[i];
        }
    }
    for (size_t i = 0; i < DV_ARRAY_LEN(vae_prefixes); i++) {
        if (has_any(t, vae_prefixes[i])) {
            return vae_prefixes[i];
        }
    }
    return is_part(t) ? "model." : NULL;
}

static davy_result note_checkpoint(dv_tensors *t) {
    for (size_t i = 0; i < DV_ARRAY_LEN(siblings); i++) {
        if (dv_tensors_meta(t, "checkpoint") == NULL && has_any(t, siblings[i].prefix)) {
            return dv_tensors_add_meta(t, "checkpoint", siblings[i].checkpoint);
        }
    }
    return DAVY_OK;
}

/* Every step makes the names shorter, so the loop ends. The checkpoint's kind is noted before the step that keeps only the
 * VAE, because that step drops the other parts. */
davy_result dv_tensors_unwrap(dv_tensors *t) {
    davy_result r = DAVY_OK;
    const char *prefix = next_prefix(t);
    while (r == DAVY_OK && prefix != NULL) {
        r = note_checkpoint(t);
        r = r < 0 ? r : keep_below(t, prefix);
        prefix = next_prefix(t);
    }
    return r < 0 ? r : note_checkpoint(t);
}

/* ---- payload as f32. Only this code reads weights: any stored number type, any strides, any alignment. Files are
 * little-endian, and so are all targets. A NaN or an infinity in the weights would spread over the whole picture. It is
 * refused here, where the message can name the tensor. ---- */

/* Converts n elements that are `step` elements apart. */
typedef void (*row_fn)(const uint8_t *src, int64_t n, int64_t step, float *dst);

static float e4m3_to_f32(uint8_t b) { /* 1-4-3, bias 7, no infinity, 0x7f is NaN */
    const uint32_t sign = (uint32_t)(b & 0x80) << 24;
    const uint32_t exponent = (b >> 3) & 15u;
    const uint32_t mantissa = b & 7u;
    if (exponent == 15 && mantissa == 7) {
        return dvk_from_bits(sign | 0x7fc00000u);
    }
    if (exponent == 0) {
        return dvk_from_bits(sign | dvk_bits((float)mantissa * 0x1p-9f));
    }
    return dvk_from_bits(sign | ((exponent + 120u) << 23) | (mantissa << 20));
}

#define ROW(name, type, value)                                                                                         \
    static void name(const uint8_t *src, int64_t n, int64_t step, float *dst) {                                        \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type v;                                                                                                    \
            memcpy(&v, src + (uint64_t)i * (uint64_t)step * sizeof v, sizeof v);                                       \
            dst[i] = value;                                                                                            \
        }                                                                                                              \
    }

ROW(row_f32, float, v)
ROW(row_f16, uint16_t, dvk_f16_to_f32(v))
ROW(row_bf16, uint16_t, dvk_bf16_to_f32(v))
ROW(row_f64, double, (float)v)
ROW(row_i8, int8_t, (float)v)
ROW(row_u8, uint8_t, (float)v)
ROW(row_i16, int16_t, (float)v)
ROW(row_i32, int32_t, (float)v)
ROW(row_i64, int64_t, (float)v)
ROW(row_bool, uint8_t, v != 0 ? 1.0f : 0.0f)
ROW(row_e4m3, uint8_t, e4m3_to_f32(v))
ROW(row_e5m2, uint8_t, dvk_f16_to_f32((uint16_t)(v << 8)))

static const row_fn rows[] = {
    [DV_STORED_F32] = row_f32,   [DV_STORED_F16] = row_f16,      [DV_STORED_BF16] = row_bf16,
    [DV_STORED_F64] = row_f64,   [DV_STORED_I8] = row_i8,        [DV_STORED_U8] = row_u8,
    [DV_STORED_I16] = row_i16,   [DV_STORED_I32] = row_i32,      [DV_STORED_I64] = row_i64,
    [DV_STORED_BOOL] = row_bool, [DV_STORED_F8_E4M3] = row_e4m3, [DV_STORED_F8_E5M2] = row_e5m2,
    [DV_STORED_OTHER] = NULL,
};

static bool is_packed(const dv_tensor_ref *r) {
    int64_t step = 1;
    for (int32_t i = r->ndim - 1; i >= 0; i--) {
        if (r->shape[i] != 1 && r->stride[i] != step) {
            return false;
        }
        step *= r->shape[i];
    }
    return true;
}

static davy_result check_finite(const dv_tensor_ref *r, const float *values, int64_t n, int64_t first) {
    uint32_t any = 0;
    for (int64_t i = 0; i < n; i++) { /* no branch inside, so that the compiler vectorises it */
        any |= (dvk_bits(values[i]) & 0x7f800000u) == 0x7f800000u;
    }
    if (any == 0) {
        return DAVY_OK;
    }
    int64_t i = 0;
    while ((dvk_bits(values[i]) & 0x7f800000u) != 0x7f800000u) {
        i++;
    }
    char shape[96];
    return dv_fail(DAVY_E_FORMAT, "%s: tensor \"%s\" %s: value %" PRId64 " is %s", dv_source_name(r->source), r->name,
                   dv_shape_text(shape, sizeof shape, r->shape, r->ndim), first + i,
                   (dvk_bits(values[i]) & 0x007fffffu) != 0 ? "not a number" : "infinite or too large for f32");
}

/* In pieces, so that the values are still in the cache for the check. */
static davy_result read_packed(const dv_tensor_ref *r, const uint8_t *src, float *dst) {
    enum { PIECE = 4096 };
    const int64_t n = dv_tensor_elements(r);
    const uint64_t size = dv_stored_size(r->dtype);
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t m = dv_min(PIECE, n - at);
        rows[r->dtype](src + (uint64_t)at * size, m, 1, dst + at);
        const davy_result e = check_finite(r, dst + at, m, at);
        if (e < 0) {
            return e;
        }
    }
    return DAVY_OK;
}

/* Row by row along the last dimension; index[] counts the others. ndim is above 0, because a scalar is packed. */
static davy_result read_strided(const dv_tensor_ref *r, const uint8_t *src, float *dst) {
    const uint64_t size = dv_stored_size(r->dtype);
    const int32_t inner = r->ndim - 1;
    const int64_t n = dv_tensor_elements(r);
    int64_t index[DV_MAX_DIMS] = {0};
    uint64_t from = 0; /* elements */
    for (int64_t at = 0; at < n; at += r->shape[inner]) {
        rows[r->dtype](src + from * size, r->shape[inner], r->stride[inner], dst + at);
        const davy_result e = check_finite(r, dst + at, r->shape[inner], at);
        if (e < 0) {
            return e;
        }
        for (int32_t d = inner - 1; d >= 0; d--) {
            from += (uint64_t)r->stride[d];
            if (++index[d] < r->shape[d]) {
                break;
            }
            from -= (uint64_t)r->stride[d] * (uint64_t)r->shape[d];
            index[d] = 0;
        }
    }
    return DAVY_OK;
}

davy_result dv_tensor_read_f32(const dv_tensor_ref *r, float *dst) {
    if ((size_t)r->dtype >= DV_ARRAY_LEN(rows) || rows[r->dtype] == NULL) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: tensor \"%s\" is stored as %s, which this version cannot read",
                       dv_source_name(r->source), r->name, r->dtype_name);
    }
    const void *view = NULL;
    void *owned = NULL;
    davy_result e = dv_source_view(r->source, r->offset, r->bytes, &view, &owned);
    if (e < 0) {
        return e;
    }
    e = is_packed(r) ? read_packed(r, view, dst) : read_strided(r, view, dst);
    dv_free(owned);
    dv_source_done_with(r->source, r->offset, r->bytes);
    return e;
}

/* ---- blending two files of one network: each tensor is a weighted sum (X. Wang et al., "Deep network interpolation").
 * Real-ESRGAN's denoising strength is such a blend. ---- */

static bool alike(const dv_tensor_ref *a, const dv_tensor_ref *b) {
    return b != NULL && a->ndim == b->ndim && memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

/* Counts the elements of all tensors, and checks that `with` has the same tensors. */
static davy_result count_elements(const dv_tensors *t, const dv_tensors *with, uint64_t *out) {
    if (t->count != with->count) {
        return dv_fail(DAVY_E_FORMAT, "blend: one file has %" PRId64 " tensors, the other has %" PRId64, t->count,
                       with->count);
    }
    *out = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const dv_tensor_ref *r = &t->refs[i];
        if (!alike(r, dv_tensors_find(with, r->name))) {
            return dv_fail(DAVY_E_FORMAT, "blend: tensor %s is missing or has another shape in the second file",
                           r->name);
        }
        if (!dv_add_u64(*out, (uint64_t)dv_tensor_elements(r), out)) {
            return dv_fail(DAVY_E_FORMAT, "blend: too many elements");
        }
    }
    return DAVY_OK;
}

static davy_result blend_one(const dv_tensor_ref *a, const dv_tensor_ref *b, float share, float *to) {
    const int64_t n = dv_tensor_elements(a);
    float *other = dv_calloc((uint64_t)n + 1, sizeof *other);
    if (other == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", a->name);
    }
    davy_result r = dv_tensor_read_f32(a, to);
    r = r < 0 ? r : dv_tensor_read_f32(b, other);
    for (int64_t i = 0; r == DAVY_OK && i < n; i++) {
        to[i] = share * to[i] + (1.0f - share) * other[i];
    }
    dv_free(other);
    return r;
}

/* Makes the refs of t point into `blended`. */
static davy_result point_to(dv_tensors *t, dv_source *blended) {
    uint64_t at = 0;
    for (int64_t i = 0; i < t->count; i++) {
        dv_tensor_ref *r = &t->refs[i];
        const uint64_t n = (uint64_t)dv_tensor_elements(r);
        dv_source_release(r->source);
        r->source = dv_source_ref(blended);
        r->dtype = DV_STORED_F32;
        memcpy(r->dtype_name, "F32", sizeof "F32");
        r->offset = at * sizeof(float);
        if (!dv_tensors_pack(r)) {
            return dv_fail(DAVY_E_FORMAT, "%s: the tensor has too many elements", r->name);
        }
        at += n;
    }
    return DAVY_OK;
}

davy_result dv_tensors_blend(dv_tensors *t, const dv_tensors *with, double share) {
    uint64_t elements = 0;
    uint64_t at = 0;
    dv_source *blended = NULL;
    davy_result r = count_elements(t, with, &elements);
    if (r < 0) {
        return r;
    }
    float *all = dv_calloc(elements + 1, sizeof *all);
    if (all == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "blend: out of memory for %" PRIu64 " numbers", elements);
    }
    for (int64_t i = 0; r == DAVY_OK && i < t->count; i++) {
        const dv_tensor_ref *ref = &t->refs[i];
        r = blend_one(ref, dv_tensors_find(with, ref->name), (float)share, all + at);
        at += (uint64_t)dv_tensor_elements(ref);
    }
    const char *name = t->count > 0 ? dv_source_name(t->refs[0].source) : NULL;
    r = r < 0 ? r : dv_source_take_memory(name, all, elements * sizeof *all, &blended);
    if (r < 0) {
        dv_free(all);
        return r;
    }
    r = point_to(t, blended);
    dv_source_release(blended);
    return r;
}
