/* config_read.c - see config_read.h. */
#include "core/vlm/config_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/utf8.h"

void dv_cfg_fail(const dv_cfg *c, davy_result code, const char *key, const char *why) {
    if (*c->r == DAVY_OK) {
        *c->r = dv_fail(code, "%s: %s%s: %s", c->file, c->path, key, why);
    }
}

/* Returns the value, or NULL if it is absent or after an error. */
static const dv_json *value(const dv_cfg *c, const char *key) {
    const dv_json *v = *c->r == DAVY_OK && c->node != NULL ? dv_json_get(c->node, key) : NULL;
    return v == NULL || dv_json_is_null(v) ? NULL : v;
}

bool dv_cfg_has(const dv_cfg *c, const char *key) {
    return value(c, key) != NULL;
}

dv_cfg dv_cfg_object(const dv_cfg *c, const char *key) {
    dv_cfg out = {.node = value(c, key), .file = c->file, .r = c->r};
    if (snprintf(out.path, sizeof out.path, "%s%s.", c->path, key) >= (int)sizeof out.path) {
        out.path[0] = '\0'; /* no known field is nested that deep */
    }
    if (out.node != NULL && !dv_json_is_object(out.node)) {
        dv_cfg_fail(c, DAVY_E_FORMAT, key, "expected an object");
        out.node = NULL;
    }
    return out;
}

static int64_t checked_int(const dv_cfg *c, const char *key, const dv_json *v, int64_t lo, int64_t hi) {
    int64_t n = 0;
    if (!dv_json_int(v, &n)) {
        dv_cfg_fail(c, DAVY_E_FORMAT, key, "expected a whole number");
        return lo;
    }
    if (n < lo || n > hi) {
        char why[96];
        snprintf(why, sizeof why, "is %" PRId64 ", expected %" PRId64 " to %" PRId64, n, lo, hi);
        dv_cfg_fail(c, DAVY_E_FORMAT, key, why);
        return lo;
    }
    return n;
}

int64_t dv_cfg_int(const dv_cfg *c, const char *key, int64_t fallback, int64_t lo, int64_t hi) {
    const dv_json *v = value(c, key);
    if (v != NULL) {
        return checked_int(c, key, v, lo, hi);
    }
    if (fallback == DV_CFG_NEEDED) {
        dv_cfg_fail(c, DAVY_E_FORMAT, key, "is missing");
        return lo;
    }
    return fallback;
}

static double checked_real(const dv_cfg *c, const char *key, const dv_json *v, double lo, double hi) {
    double d = 0;
    if (!dv_json_double(v, &d)) {
        dv_cfg_fail(c, DAVY_E_FORMAT, key, "expected a number");
        return lo;
    }
    if (!(d >= lo && d <= hi)) {
        char why[96];
        snprintf(why, sizeof why, "is %g, expected %g to %g", d, lo, hi);
        dv_cfg_fail(c, DAVY_E_FORMAT, key, why);
        return lo;
    }
    return d;
}

double dv_cfg_real(const dv_cfg *c, const char *key, double fallback, double lo, double hi) {
    const dv_json *v = value(c, key);
    return v != NULL ? checked_real(c, key, v, lo, hi) : fallback;
}

bool dv_cfg_bool(const dv_cfg *c, const char *key, bool fallback) {
    const dv_json *v = value(c, key);
    bool b = fallback;
    if (v != NULL && !dv_json_bool(v, &b)) {
        dv_cfg_fail(c, DAVY_E_FORMAT, key, "expected true or false");
    }
    return b;
}

const char *dv_cfg_string(const dv_cfg *c, const char *key, const char *fallback) {
    const dv_json *v = value(c, key);
    if (v != NULL && !dv_json_is_string(v)) {
        dv_cfg_fail(c, DAVY_E_FORMAT, key, "expected a text");
        return fallback;
    }
    return v != NULL ? dv_json_string(v) : fallback;
}

/* Returns the first element of a list of *n elements, or the value itself. */
static const dv_json *list_of(const dv_cfg *c, const char *key, const dv_json *v, int32_t max, int64_t *n) {
    *n = dv_json_is_array(v) ? dv_json_size(v) : 1;
    if (*n > max) {
        char why[64];
        snprintf(why, sizeof why, "has %" PRId64 " elements, at most %d expected", *n, (int)max);
        dv_cfg_fail(c, DAVY_E_FORMAT, key, why);
        *n = 0;
    }
    return dv_json_is_array(v) ? dv_json_first(v) : v;
}

int32_t dv_cfg_ints(const dv_cfg *c, const char *key, int64_t *out, int32_t max, int64_t lo, int64_t hi) {
    const dv_json *v = value(c, key);
    if (v == NULL) {
        return -1;
    }
    int64_t n = 0;
    v = list_of(c, key, v, max, &n);
    for (int64_t i = 0; i < n; i++, v = dv_json_next(v)) {
        out[i] = checked_int(c, key, v, lo, hi);
    }
    return (int32_t)n;
}

int32_t dv_cfg_reals(const dv_cfg *c, const char *key, double *out, int32_t max, double lo, double hi) {
    const dv_json *v = value(c, key);
    if (v == NULL) {
        return -1;
    }
    int64_t n = 0;
    v = list_of(c, key, v, max, &n);
    for (int64_t i = 0; i < n; i++, v = dv_json_next(v)) {
        out[i] = checked_real(c, key, v, lo, hi);
    }
    return (int32_t)n;
}

dv_vlm_act dv_cfg_act(const dv_cfg *c, const char *key, dv_vlm_act fallback) {
    static const struct {
        const char *name;
        dv_vlm_act act;
    } acts[] = {{"silu", DV_VLM_SILU},          {"swish", DV_VLM_SILU},
                {"gelu", DV_VLM_GELU},          {"gelu_pytorch_tanh", DV_VLM_GELU_TANH},
                {"gelu_new", DV_VLM_GELU_TANH}, {"quick_gelu", DV_VLM_GELU_QUICK},
                {"relu2", DV_VLM_RELU2}};
    const char *name = dv_cfg_string(c, key, NULL);
    if (name == NULL) {
        return fallback;
    }
    for (size_t i = 0; i < DV_ARRAY_LEN(acts); i++) {
        if (strcmp(name, acts[i].name) == 0) {
            return acts[i].act;
        }
    }
    char shown[40];
    char why[96];
    snprintf(why, sizeof why, "the activation \"%s\" is not supported",
             dv_printable(shown, sizeof shown, name, strlen(name)));
    dv_cfg_fail(c, DAVY_E_UNSUPPORTED, key, why);
    return fallback;
}
