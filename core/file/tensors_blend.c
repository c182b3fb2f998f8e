/* tensors_blend.c - between two files of one network: each tensor a weighted sum of theirs (X. Wang et al., "Deep network
 * interpolation"), which is how Real-ESRGAN's denoising strength is set. */
#include <inttypes.h>
#include <string.h>

#include "core/base/error.h"
#include "core/file/tensors.h"
#include "core/base/mem.h"

static bool alike(const dv_tensor_ref *a, const dv_tensor_ref *b) {
    return b != NULL && a->ndim == b->ndim && memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

/* The elements of all tensors; `with` has the same ones. */
static davy_result count_elements(const dv_tensors *t, const dv_tensors *with, uint64_t *out) {
    if (t->count != with->count) {
        return dv_fail(DAVY_E_FORMAT, "blend: one file has %" PRId64 " tensors, the other %" PRId64, t->count,
                       with->count);
    }
    *out = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const dv_tensor_ref *r = &t->refs[i];
        if (!alike(r, dv_tensors_find(with, r->name))) {
            return dv_fail(DAVY_E_FORMAT, "blend: %s is another tensor in the second file, or not there", r->name);
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

/* The tensors lie in `blended` now. */
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
            return dv_fail(DAVY_E_FORMAT, "%s: a tensor of more elements than there is room for", r->name);
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
