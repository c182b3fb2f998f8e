/* config_gguf_read.c - see config_gguf.h. Scalars are in the list of metadata as text, arrays are read from the file. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/file/gguf_read.h"
#include "core/base/mem.h"
#include "core/vlm/config_gguf.h"

enum { KEY_BYTES = 128 };

void dv_gmeta_fail(const dv_gmeta *m, davy_result code, const char *key, const char *why) {
    if (*m->r == DAVY_OK) {
        *m->r = dv_fail(code, "%s: %s%s: %s", m->file, m->prefix, key, why);
    }
}

static const char *text_of(const dv_gmeta *m, const char *key) {
    char name[KEY_BYTES];
    const int n = snprintf(name, sizeof name, "%s%s", m->prefix, key);
    return *m->r == DAVY_OK && n < KEY_BYTES ? dv_tensors_meta(m->t, name) : NULL;
}

/* A scalar's text is JSON, which reads numbers alike in every locale. NULL: absent, or an error. */
static dv_json *value_of(const dv_gmeta *m, const char *key) {
    const char *text = text_of(m, key);
    dv_json *v = NULL;
    if (text != NULL && dv_json_parse(text, strlen(text), m->file, &v) < 0) {
        dv_gmeta_fail(m, DAVY_E_FORMAT, key, "expected a number");
    }
    return v;
}

int64_t dv_gmeta_int(const dv_gmeta *m, const char *key, int64_t fallback, int64_t lo, int64_t hi) {
    dv_json *v = value_of(m, key);
    if (v == NULL) {
        if (fallback == DV_CFG_NEEDED) {
            dv_gmeta_fail(m, DAVY_E_FORMAT, key, "is missing");
            return lo;
        }
        return fallback;
    }
    int64_t n = 0;
    if (!dv_json_int(v, &n)) {
        dv_gmeta_fail(m, DAVY_E_FORMAT, key, "expected a whole number");
        n = lo;
    } else if (n < lo || n > hi) {
        char why[96];
        snprintf(why, sizeof why, "is %" PRId64 ", expected %" PRId64 " to %" PRId64, n, lo, hi);
        dv_gmeta_fail(m, DAVY_E_FORMAT, key, why);
        n = lo;
    }
    dv_json_release(v);
    return n;
}

double dv_gmeta_real(const dv_gmeta *m, const char *key, double fallback, double lo, double hi) {
    dv_json *v = value_of(m, key);
    if (v == NULL) {
        return fallback;
    }
    double d = 0;
    if (!dv_json_double(v, &d) || !(d >= lo && d <= hi)) {
        char why[96];
        snprintf(why, sizeof why, "is %g, expected %g to %g", d, lo, hi);
        dv_gmeta_fail(m, DAVY_E_FORMAT, key, why);
        d = lo;
    }
    dv_json_release(v);
    return d;
}

bool dv_gmeta_bool(const dv_gmeta *m, const char *key, bool fallback) {
    dv_json *v = value_of(m, key);
    bool b = fallback;
    if (v != NULL && !dv_json_bool(v, &b)) {
        dv_gmeta_fail(m, DAVY_E_FORMAT, key, "expected true or false");
    }
    dv_json_release(v);
    return b;
}

static double element(const uint8_t *p, uint32_t type) {
    if (type == DV_GGUF_F32) {
        float f;
        memcpy(&f, p, sizeof f);
        return (double)f;
    }
    if (type == DV_GGUF_F64) {
        double d;
        memcpy(&d, p, sizeof d);
        return d;
    }
    return (double)dv_gguf_integer_of(p, type);
}

int32_t dv_gmeta_list(const dv_gmeta *m, const char *key, double *out, int32_t max) {
    char name[KEY_BYTES];
    const char *keys[1] = {name};
    dv_gguf_value v = {0};
    if (*m->r < 0 || m->t->count == 0 || snprintf(name, sizeof name, "%s%s", m->prefix, key) >= KEY_BYTES) {
        return -1;
    }
    dv_source *source = m->t->refs[0].source;
    davy_result r = dv_gguf_find(source, keys, 1, &v);
    if (r == DAVY_OK && v.type == DV_GGUF_COUNT) {
        return -1;
    }
    const uint64_t bytes = r == DAVY_OK && v.element < DV_GGUF_COUNT ? dv_gguf_value_bytes[v.element] : 0;
    if (r < 0) {
        *m->r = r;
        return -1;
    }
    if (bytes == 0 || v.count > (uint64_t)max) {
        dv_gmeta_fail(m, DAVY_E_FORMAT, key, bytes == 0 ? "expected numbers" : "has too many elements");
        return -1;
    }
    const void *view = NULL;
    void *owned = NULL;
    r = dv_source_view(source, v.at, v.count * bytes, &view, &owned);
    for (uint64_t i = 0; r == DAVY_OK && i < v.count; i++) {
        out[i] = element((const uint8_t *)view + i * bytes, v.element);
    }
    dv_free(owned);
    *m->r = r;
    return r < 0 ? -1 : (int32_t)v.count;
}
