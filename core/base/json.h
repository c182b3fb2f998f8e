/* json.h - typed access over cJSON with checks of length, depth and ranges, and a writer of JSON text.
 * A parse error names the file and the byte. A double cannot hold every integer above 2^53: dv_json_int refuses them. */
#ifndef DV_BASE_JSON_H
#define DV_BASE_JSON_H

#include "core/base/common.h"

typedef struct cJSON dv_json; /* a node; belongs to its root */

/* Parses exactly `bytes` bytes (no NUL needed). `where` names the file in messages. Text nested deeper than 64 levels is
 * refused before cJSON parses it. */
davy_result dv_json_parse(const char *text, uint64_t bytes, const char *where, dv_json **out);
void dv_json_release(dv_json *root);

const dv_json *dv_json_get(const dv_json *object, const char *key); /* NULL: absent */
bool dv_json_is_object(const dv_json *v);
bool dv_json_is_array(const dv_json *v);
bool dv_json_is_string(const dv_json *v);
int64_t dv_json_size(const dv_json *v);         /* of an array or object */
const dv_json *dv_json_first(const dv_json *v); /* child list of array or object */
const dv_json *dv_json_next(const dv_json *v);
const char *dv_json_key(const dv_json *v);        /* of a child of an object */
const char *dv_json_string(const dv_json *v);     /* NULL: not a string */
bool dv_json_int(const dv_json *v, int64_t *out); /* false: not an integer within ±2^53 */
bool dv_json_double(const dv_json *v, double *out);
bool dv_json_bool(const dv_json *v, bool *out);
bool dv_json_is_null(const dv_json *v);

/* ---- a writer of JSON text, from front to back. It adds the commas and replaces invalid UTF-8 in strings. If memory
 * runs out, only dv_jw_finish reports it. ---- */

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
