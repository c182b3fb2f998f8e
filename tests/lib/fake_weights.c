/* fake_weights.c - see fake_weights.h. */
#include "tests/lib/fake_weights.h"

dv_tensors *fake_new(void) {
    return dv_calloc(1, sizeof(dv_tensors));
}

void fake_add(dv_tensors *t, int32_t ndim, const int64_t *shape, const char *fmt, ...) {
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    t->refs = dv_grow(t->refs, t->count + 1, &t->capacity, sizeof *t->refs);
    dv_tensor_ref *ref = &t->refs[t->count++];
    memset(ref, 0, sizeof *ref);
    ref->name = dv_strdup(name);
    ref->dtype = DV_STORED_F32;
    memcpy(ref->dtype_name, "F32", 4);
    ref->ndim = ndim;
    int64_t stride = 1;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        ref->shape[i] = shape[i];
        ref->stride[i] = stride;
        stride *= shape[i];
    }
    ref->bytes = (uint64_t)stride * 4;
}

void fake_vector(dv_tensors *t, const char *name, int64_t n) {
    fake_add(t, 1, &n, "%s", name);
}

void fake_conv(dv_tensors *t, const char *name, int64_t o, int64_t i, int64_t k, int bias) {
    const int64_t shape[4] = {o, i, k, k};
    fake_add(t, 4, shape, "%s.weight", name);
    if (bias) {
        fake_add(t, 1, shape, "%s.bias", name);
    }
}

void fake_norm(dv_tensors *t, const char *name, int64_t n) {
    fake_add(t, 1, &n, "%s.weight", name);
    fake_add(t, 1, &n, "%s.bias", name);
}

static int fake_compare(const void *a, const void *b) {
    return strcmp(((const dv_tensor_ref *)a)->name, ((const dv_tensor_ref *)b)->name);
}

void fake_done(dv_tensors *t) {
    if (t->count > 0) {
        qsort(t->refs, (size_t)t->count, sizeof *t->refs, fake_compare);
    }
}

int fake_fill(dv_tensors *t, float **data) {
    uint64_t count = 0;
    for (int64_t i = 0; i < t->count; i++) {
        count += t->refs[i].bytes / 4;
    }
    *data = calloc((size_t)count, 4);
    dv_source *source = NULL;
    if (*data == NULL || dv_source_open_memory("fake weights", *data, count * 4, &source) != DAVY_OK) {
        return 0;
    }
    uint64_t at = 0;
    for (int64_t i = 0; i < t->count; i++) {
        dv_tensor_ref *ref = &t->refs[i];
        uint32_t state = 2166136261u;
        for (const char *p = ref->name; *p != '\0'; p++) {
            state = (state ^ (uint32_t)(unsigned char)*p) * 16777619u;
        }
        int64_t inputs = 1;
        for (int32_t d = 1; d < ref->ndim && ref->ndim >= 4; d++) {
            inputs *= ref->shape[d];
        }
        float range = 1.0f;
        while (range * range * (float)inputs > 1.0f) {
            range *= 0.5f;
        }
        ref->source = dv_source_ref(source);
        ref->offset = at * 4;
        for (uint64_t k = 0; k < ref->bytes / 4; k++) {
            state = state * 1664525u + 1013904223u;
            (*data)[at++] = ((float)(state >> 8) / 16777216.0f - 0.5f) * 4.0f * range;
        }
    }
    dv_source_release(source);
    return 1;
}
