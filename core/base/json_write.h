/* json_write.h - JSON as text, written front to back. Commas are looked after here; strings from files are made valid
 * UTF-8. Out of memory is remembered and reported once, by dv_jw_finish. */
#ifndef DV_JSON_WRITE_H
#define DV_JSON_WRITE_H

#include "core/base/common.h"

typedef struct dv_jw {
    char *text;
    int64_t size, capacity;
    bool failed, comma;
} dv_jw;

/* key: NULL inside an array and for the root. */
void dv_jw_open(dv_jw *w, const char *key, char bracket); /* '{' or '[' */
void dv_jw_close(dv_jw *w, char bracket);                 /* '}' or ']' */
void dv_jw_string(dv_jw *w, const char *key, const char *value);
void dv_jw_bool(dv_jw *w, const char *key, bool value);
void dv_jw_int(dv_jw *w, const char *key, int64_t value);
void dv_jw_number(dv_jw *w, const char *key, double value); /* not finite: null */

/* The text (dv_free), or NULL when memory ran out. The writer is empty afterwards. */
char *dv_jw_finish(dv_jw *w);

#endif
