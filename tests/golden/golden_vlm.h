/* golden_vlm.h - the captioning cases of the golden runner. */
#ifndef DV_TESTS_GOLDEN_VLM_H
#define DV_TESTS_GOLDEN_VLM_H

#include "core/base/json.h"
#include "core/vlm/session.h"

typedef struct vlm_run {
    const char *folder;  /* of the case */
    const char *weights; /* the model's folder */
    davy_dtype precision;
    dv_heap *heap;
    dv_pool *pool;
    dv_gpu *gpu; /* NULL: the CPU */
    uint32_t cpu;
} vlm_run;

/* From ids and random pixels to vectors, logits and greedy ids: case.json with task "vlm". */
void vlm_numbers(const vlm_run *run, const dv_json *json);
/* A trained model's pictures and chats: cases.json with a list "cases". */
void vlm_chats(const vlm_run *run, const dv_json *json);

/* ---- parts ---- */

typedef struct vlm_numbers_of { /* a tensor of any shape; f32, or i32 as numbers */
    float *p;
    int64_t n;
    int64_t shape[8];
    int32_t ndim;
} vlm_numbers_of;

dv_vlm_model *vlm_open(const vlm_run *run, bool tokenizer);
bool vlm_read(const char *folder, const char *file, const char *name, vlm_numbers_of *out);
int32_t *vlm_ids(const dv_json *object, const char *key, int64_t *n); /* free() */
void vlm_error(const char *what);
/* Returns the largest error. bound 0: only printed. */
double vlm_compare(const char *what, const float *got, const float *expected, int64_t n, double bound);
double vlm_bound(davy_dtype precision, double fp32);

typedef struct vlm_prompt {
    const int32_t *ids;
    int64_t n;
    const dv_session_picture *picture;
    int32_t n_pictures; /* 0, 1 */
} vlm_prompt;
/* On the CPU: several such questions at once, with token look-up. */
void vlm_together(const dv_vlm_model *m, const vlm_prompt *p);

double vlm_compare_vectors(const char *what, const dv_vlm_features *f, const vlm_numbers_of *expected, double bound);

#endif
