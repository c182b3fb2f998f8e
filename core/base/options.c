/* options.c - see options.h. */
#include "core/base/options.h"

#include <string.h>

#include "core/base/error.h"
#include "core/base/json.h"

static bool is_known(const char *key, const char *const *known) {
    for (size_t i = 0; known[i] != NULL; i++) {
        if (strcmp(key, known[i]) == 0) {
            return true;
        }
    }
    return false;
}

davy_result dv_options_check(dv_options options, const char *const *known, const char *where) {
    if (options.n > 0 && options.list == NULL) {
        return dv_fail(DAVY_E_INVALID, "%s: n_options is %u, but options is NULL", where, (unsigned)options.n);
    }
    for (uint32_t i = 0; i < options.n; i++) {
        const davy_option *o = &options.list[i];
        if (o->key == NULL || o->key[0] == '\0') {
            return dv_fail(DAVY_E_OPTION, "%s: option %u has no key", where, (unsigned)i);
        }
        if (!is_known(o->key[0] == '?' ? o->key + 1 : o->key, known)) {
            if (o->key[0] == '?') {
                continue;
            }
            return dv_fail(DAVY_E_OPTION, "%s: no option is called \"%s\"", where, o->key);
        }
        if (o->value == NULL) {
            return dv_fail(DAVY_E_OPTION, "%s: option %s has no value", where, o->key);
        }
    }
    return DAVY_OK;
}

const char *dv_options_get(dv_options options, const char *key) {
    const char *value = NULL;
    for (uint32_t i = 0; i < options.n; i++) {
        const char *k = options.list[i].key;
        value = strcmp(k[0] == '?' ? k + 1 : k, key) == 0 ? options.list[i].value : value;
    }
    return value;
}

davy_result dv_options_get_number(dv_options options, const char *key, double *out, bool *found) {
    const char *text = dv_options_get(options, key);
    *found = text != NULL;
    if (text == NULL) {
        return DAVY_OK;
    }
    dv_json *root = NULL; /* a number in an option has the syntax of JSON */
    double v = 0.0;
    const bool ok =
        dv_json_parse(text, strlen(text), key, &root) == DAVY_OK && dv_json_double(root, &v) && v - v == 0.0;
    dv_json_release(root);
    if (!ok) {
        return dv_fail(DAVY_E_OPTION, "option %s: \"%s\" is not a number", key, text);
    }
    *out = v;
    return DAVY_OK;
}

bool dv_parse_int(const char *text, int64_t lo, int64_t hi, int64_t *out) {
    const bool negative = text[0] == '-';
    const char *p = text + (negative ? 1 : 0);
    int64_t v = 0;
    if (*p == '\0') {
        return false;
    }
    for (; *p != '\0'; p++) {
        if (*p < '0' || *p > '9' || v > (INT64_MAX - 9) / 10) {
            return false;
        }
        v = v * 10 + (*p - '0');
    }
    v = negative ? -v : v;
    if (v < lo || v > hi) {
        return false;
    }
    *out = v;
    return true;
}
