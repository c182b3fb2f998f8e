/* config_read.h - typed, range-checked reading of a model's JSON. *r keeps the first error. After it, calls only return their
 * fallback, so one check after a block of fields is enough. A null counts as an absent value. */
#ifndef DV_VLM_CONFIG_READ_H
#define DV_VLM_CONFIG_READ_H

#include "core/base/json.h"
#include "core/vlm/config.h"

#define DV_CFG_NEEDED INT64_MIN /* as fallback: the field must be there */

typedef struct dv_cfg {
    const dv_json *node; /* an object; NULL: absent, all fields return their fallback */
    const char *file;
    char path[64]; /* "text_config." in messages */
    davy_result *r;
} dv_cfg;

dv_cfg dv_cfg_object(const dv_cfg *c, const char *key); /* absent: node NULL */
bool dv_cfg_has(const dv_cfg *c, const char *key);
int64_t dv_cfg_int(const dv_cfg *c, const char *key, int64_t fallback, int64_t lo, int64_t hi);
double dv_cfg_real(const dv_cfg *c, const char *key, double fallback, double lo, double hi);
bool dv_cfg_bool(const dv_cfg *c, const char *key, bool fallback);
const char *dv_cfg_string(const dv_cfg *c, const char *key, const char *fallback);
/* Returns the number of elements written, at most max; more is an error. -1: absent. A single number is a list of one. */
int32_t dv_cfg_ints(const dv_cfg *c, const char *key, int64_t *out, int32_t max, int64_t lo, int64_t hi);
int32_t dv_cfg_reals(const dv_cfg *c, const char *key, double *out, int32_t max, double lo, double hi);
dv_vlm_act dv_cfg_act(const dv_cfg *c, const char *key, dv_vlm_act fallback);

/* Sets *c->r with "FILE: PATHkey: why". */
void dv_cfg_fail(const dv_cfg *c, davy_result code, const char *key, const char *why);

/* The parts. */
void dv_vlm_read_vision(const dv_cfg *root, dv_vlm_config *out);
void dv_vlm_read_generation(const dv_cfg *generation, dv_vlm_config *out);
void dv_vlm_picture_defaults(dv_vlm_config *out);
void dv_vlm_read_picture(const dv_cfg *preprocessor, dv_vlm_config *out);
void dv_vlm_read_video(const dv_cfg *video, dv_vlm_config *out);
/* Checks that the parts match, and computes derived fields (grid, tokens_per_tile, full). */
davy_result dv_vlm_config_finish(const char *file, dv_vlm_config *c);

#endif
