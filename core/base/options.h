/* options.h - the lists of key and value that carry what may come and go. */
#ifndef DV_OPTIONS_H
#define DV_OPTIONS_H

#include "core/base/common.h"

typedef struct dv_options {
    const davy_option *list;
    uint32_t n;
} dv_options;

/* Every key is one of `known` (NULL-terminated) or begins with '?'; else DAVY_E_OPTION naming it. */
davy_result dv_options_check(dv_options options, const char *const *known, const char *where);
/* The last value given for a key; NULL: none. */
const char *dv_options_get(dv_options options, const char *key);
/* *found tells whether there was one; a value that is no finite number is DAVY_E_OPTION. The decimal sign is '.',
 * whatever the host's locale says. */
davy_result dv_options_get_number(dv_options options, const char *key, double *out, bool *found);
/* Whole numbers from text that came from an option or the environment; false: not one, or outside [lo, hi]. */
bool dv_parse_int(const char *text, int64_t lo, int64_t hi, int64_t *out);

#endif
