/* options.h - lists of keys and values: the options that may come and go between versions. */
#ifndef DV_OPTIONS_H
#define DV_OPTIONS_H

#include "core/base/common.h"

typedef struct dv_options {
    const davy_option *list;
    uint32_t n;
} dv_options;

/* Checks that every key is one of `known` (NULL-terminated) or begins with '?'. If not, DAVY_E_OPTION names the key. */
davy_result dv_options_check(dv_options options, const char *const *known, const char *where);
/* The last value given for a key; NULL: none. */
const char *dv_options_get(dv_options options, const char *key);
/* Reads the value of a key as a number; *found: whether the key was given. DAVY_E_OPTION: the value is not a finite
 * number. The decimal sign is '.' in every locale. */
davy_result dv_options_get_number(dv_options options, const char *key, double *out, bool *found);
/* Parses an integer of an option or an environment variable. false: not an integer, or outside [lo, hi]. */
bool dv_parse_int(const char *text, int64_t lo, int64_t hi, int64_t *out);

#endif
