/* config_gguf.h - typed, range-checked reading of GGUF metadata, as config_read.h does it for JSON. */
#ifndef DV_VLM_CONFIG_GGUF_H
#define DV_VLM_CONFIG_GGUF_H

#include "core/vlm/config_read.h"

typedef struct dv_gmeta {
    const dv_tensors *t;
    const char *file;
    const char *prefix; /* in front of every key: "llama.", "clip.vision." */
    davy_result *r;
} dv_gmeta;

int64_t dv_gmeta_int(const dv_gmeta *m, const char *key, int64_t fallback, int64_t lo, int64_t hi);
double dv_gmeta_real(const dv_gmeta *m, const char *key, double fallback, double lo, double hi);
bool dv_gmeta_bool(const dv_gmeta *m, const char *key, bool fallback);
/* Elements of an array of numbers or bools, at most max; -1: absent. */
int32_t dv_gmeta_list(const dv_gmeta *m, const char *key, double *out, int32_t max);
void dv_gmeta_fail(const dv_gmeta *m, davy_result code, const char *key, const char *why);

void dv_vlm_gguf_vision(const dv_gmeta *clip, dv_vlm_config *c); /* config_gguf_vision.c */

#endif
