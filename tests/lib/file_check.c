/* file_check.c - see file_check.h. */
#include "tests/lib/file_check.h"

const char *file_fixture(const char *name) {
    static char paths[16][1024];
    static int next;
    const char *root = getenv("DAVY_SOURCE");
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/tests/data/files/%s", root != NULL ? root : ".", name);
    return path;
}

/* ---- bytes in memory ---- */

void put(blob *b, const void *bytes, size_t n) {
    uint8_t *grown = realloc(b->p, b->n + n + 1);
    if (grown == NULL) {
        abort();
    }
    b->p = grown;
    if (n > 0) {
        memcpy(b->p + b->n, bytes, n);
    }
    b->n += n;
}

void put_text(blob *b, const char *text) {
    put(b, text, strlen(text));
}

void put_le(blob *b, uint64_t v, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        const uint8_t c = (uint8_t)(v >> (8 * i));
        put(b, &c, 1);
    }
}

void put_zeros(blob *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        put(b, "", 1);
    }
}

void drop(blob *b) {
    free(b->p);
    *b = (blob){NULL, 0};
}

blob read_all(const char *path) {
    blob b = {NULL, 0};
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        return b;
    }
    char piece[4096];
    size_t n = 0;
    while ((n = fread(piece, 1, sizeof piece, f)) > 0) {
        put(&b, piece, n);
    }
    fclose(f);
    return b;
}

davy_result open_bytes(const char *name, const void *bytes, size_t n, dv_tensors **out) {
    uint8_t *copy = malloc(n > 0 ? n : 1);
    dv_source *source = NULL;
    dv_tensors *t = NULL;
    if (copy == NULL) {
        abort();
    }
    memcpy(copy, bytes, n);
    davy_result r = dv_source_open_memory(name, copy, n, &source);
    r = r < 0 ? r : dv_tensors_open(source, NULL, &t);
    if (r == DAVY_OK && out != NULL) { /* for tests that look at names and shapes only */
        *out = t;
        t = NULL;
    }
    dv_tensors_release(t);
    dv_source_release(source);
    free(copy);
    return r;
}

/* ---- the values that make.py writes ---- */

float known_value(dv_stored_dtype dtype, int64_t i) {
    const int64_t v = i * 5 % 9 - 4;
    switch (dtype) {
    case DV_STORED_I8:
    case DV_STORED_I16:
    case DV_STORED_I32:
    case DV_STORED_I64:
        return (float)v;
    case DV_STORED_U8:
        return (float)(v + 4);
    case DV_STORED_BOOL:
        return v % 2 != 0 ? 1.0f : 0.0f;
    default:
        return (float)v / 8.0f;
    }
}

void check_known(const dv_tensors *t, const char *name, dv_stored_dtype dtype, const char *shape) {
    const dv_tensor_ref *r = dv_tensors_find(t, name);
    if (!CHECKF(r != NULL, "no tensor %s", name)) {
        return;
    }
    char text[64] = "";
    for (int32_t i = 0; i < r->ndim; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%" PRId64, i > 0 ? "," : "", r->shape[i]);
    }
    CHECKF(r->dtype == dtype && strcmp(r->dtype_name, dv_stored_name(dtype)) == 0, "%s is %s", name, r->dtype_name);
    CHECKF(strcmp(text, shape) == 0, "%s has shape %s, wanted %s", name, text, shape);
    const int64_t n = dv_tensor_elements(r);
    float *values = calloc((size_t)n + 1, sizeof *values);
    CHECK_OK(dv_tensor_read_f32(r, values));
    for (int64_t i = 0; i < n; i++) {
        if (values[i] != known_value(dtype, i)) {
            CHECKF(false, "%s[%" PRId64 "] is %g, wanted %g", name, i, (double)values[i],
                   (double)known_value(dtype, i));
            break;
        }
    }
    free(values);
}

void check_plain_tensors(const dv_tensors *t) {
    check_known(t, "conv.weight", DV_STORED_F32, "4,3,3,3");
    check_known(t, "conv.bias", DV_STORED_F32, "4");
    check_known(t, "half", DV_STORED_F16, "2,3");
    check_known(t, "brain", DV_STORED_BF16, "5");
    check_known(t, "double", DV_STORED_F64, "3");
    check_known(t, "long", DV_STORED_I64, "4");
    check_known(t, "int", DV_STORED_I32, "4");
    check_known(t, "short", DV_STORED_I16, "4");
    check_known(t, "char", DV_STORED_I8, "4");
    check_known(t, "byte", DV_STORED_U8, "4");
    check_known(t, "scalar", DV_STORED_F32, "");
    check_known(t, "empty", DV_STORED_F32, "0,3");
}
