/* golden_vlm.c - captioning models with random weights: vectors of a picture, logits after a prompt, greedy ids. */
#include "golden_vlm.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/os.h"
#include "core/vlm/session.h"

#include "golden_check.h"
#include "golden_io.h"

void vlm_error(const char *what) {
    davy_error_info info = {.struct_size = sizeof info};
    dv_error_get(&info);
    CHECKF(0, "%s: %s: %s", what, dv_result_name(info.code), info.message);
}

double vlm_bound(davy_dtype precision, double fp32) {
    return precision == DAVY_DTYPE_F32    ? fp32
           : precision == DAVY_DTYPE_BF16 ? 2e-2
           : precision == DAVY_DTYPE_F16  ? 5e-3
           : precision == DAVY_DTYPE_INT8 ? 5e-2
                                          : 0.0; /* int4: reported, not checked */
}

double vlm_compare(const char *what, const float *got, const float *expected, int64_t n, double bound) {
    double largest = 0.0;
    double difference = 0.0;
    double norm = 0.0;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)got[i] - (double)expected[i];
        largest = !(fabs(d) <= largest) ? fabs(d) : largest; /* keeps a NaN */
        difference += d * d;
        norm += (double)expected[i] * (double)expected[i];
    }
    const double relative = sqrt(difference / norm);
    printf("%s: largest error %.3g, relative %.3g (bound %.0e), hash %016" PRIx64 "\n", what, largest, relative,
           bound > 0 ? bound : 1.0, values_hash(got, (uint64_t)n * sizeof *got));
    CHECKF(bound <= 0 || relative <= bound, "%s: relative error %.3g exceeds %.0e", what, relative, bound);
    return largest;
}

static bool take(const dv_tensor_ref *ref, vlm_numbers_of *out) {
    vlm_numbers_of a = {.n = dv_tensor_elements(ref), .ndim = ref->ndim};
    memcpy(a.shape, ref->shape, sizeof a.shape);
    a.p = malloc((size_t)a.n * sizeof *a.p);
    const void *view = NULL;
    void *owned = NULL;
    bool ok = a.p != NULL;
    if (ok && ref->dtype == DV_STORED_I32) {
        ok = dv_source_view(ref->source, ref->offset, ref->bytes, &view, &owned) == DAVY_OK;
        for (int64_t i = 0; ok && i < a.n; i++) {
            int32_t v;
            memcpy(&v, (const char *)view + 4 * i, sizeof v);
            a.p[i] = (float)v;
        }
        dv_free(owned);
    } else if (ok) {
        ok = dv_tensor_read_f32(ref, a.p) == DAVY_OK;
    }
    if (!ok) {
        free(a.p);
        return false;
    }
    *out = a;
    return true;
}

bool vlm_read(const char *folder, const char *file, const char *name, vlm_numbers_of *out) {
    char *path = dv_path_join(folder, file);
    dv_tensors *t = NULL;
    bool ok = path != NULL && dv_tensors_open_path(path, true, NULL, &t) == DAVY_OK;
    if (!ok) {
        vlm_error(file);
    } else {
        const dv_tensor_ref *ref = dv_tensors_find(t, name);
        ok = CHECKF(ref != NULL && take(ref, out), "%s: no usable tensor %s", file, name);
    }
    dv_tensors_release(t);
    dv_free(path);
    return ok;
}

int32_t *vlm_ids(const dv_json *object, const char *key, int64_t *n) {
    const dv_json *list = dv_json_get(object, key);
    *n = list != NULL ? dv_json_size(list) : 0;
    int32_t *ids = calloc((size_t)(*n + 1), sizeof *ids);
    int64_t i = 0;
    for (const dv_json *v = list != NULL ? dv_json_first(list) : NULL; ids != NULL && v != NULL; v = dv_json_next(v)) {
        int64_t id = -1;
        dv_json_int(v, &id);
        ids[i++] = (int32_t)id;
    }
    return ids;
}

dv_vlm_model *vlm_open(const vlm_run *run, bool tokenizer) {
    char *gguf = dv_path_join(run->weights, "text.gguf"); /* of gguf_pair.py */
    const bool is_gguf = gguf != NULL && dv_path_stat(gguf) == DV_PATH_FILE;
    const dv_vlm_open open = {.path = is_gguf ? gguf : run->weights,
                              .format = run->precision == DAVY_DTYPE_INT8                       ? DV_VLM_INT8
                                        : run->precision == DAVY_DTYPE_INT4                     ? DV_VLM_INT4
                                        : run->precision == DAVY_DTYPE_F16                      ? DV_VLM_F16
                                        : run->precision == DAVY_DTYPE_BF16 && run->gpu != NULL ? DV_VLM_NARROW
                                                                                                : DV_VLM_AS_STORED,
                              .compute = run->precision == DAVY_DTYPE_F32   ? DVK_F32
                                         : run->precision == DAVY_DTYPE_F16 ? DVK_F16
                                                                            : DVK_BF16,
                              .no_tokenizer = !tokenizer,
                              .heap = run->heap,
                              .pool = run->pool,
                              .gpu = run->gpu,
                              .cpu = run->cpu};
    dv_vlm_model *m = NULL;
    if (dv_vlm_model_open(&open, &m) != DAVY_OK) {
        vlm_error(run->weights);
    }
    dv_free(gguf);
    return m;
}

double vlm_compare_vectors(const char *what, const dv_vlm_features *f, const vlm_numbers_of *expected, double bound) {
    float *got = malloc((size_t)expected->n * sizeof *got);
    double largest = 0.0;
    if (got == NULL || dv_vision_read(f, f->vectors, expected->n, got) != DAVY_OK) {
        vlm_error(what);
    } else {
        largest = vlm_compare(what, got, expected->p, expected->n, bound);
    }
    free(got);
    return largest;
}

/* ---- the case's pixels as the tower's patches ---- */

/* Converts pictures [1][n][3][side][side] or [n][3][side][side] to patches, row by row. Qwen's pixels are patches already. */
static float *patches_of(const dv_vlm_config *c, const dv_json *json, const vlm_numbers_of *pixels,
                         dv_picture_plan *plan) {
    const dv_vlm_vision *v = &c->vision;
    plan->patch_values = 3 * v->temporal * v->patch * v->patch;
    float *out = calloc((size_t)pixels->n, sizeof *out);
    if (out == NULL || v->grid == 0) {
        int64_t n = 0;
        int32_t *thw =
            vlm_ids(json, dv_json_get(json, "video_grid_thw") != NULL ? "video_grid_thw" : "image_grid_thw", &n);
        plan->tiles = 1;
        plan->grid_t = n == 3 ? thw[0] : 0;
        plan->grid_h = n == 3 ? thw[1] : 0;
        plan->grid_w = n == 3 ? thw[2] : 0;
        plan->patches = plan->grid_t * plan->grid_h * plan->grid_w;
        plan->tokens = plan->patches / (v->merge * v->merge);
        memcpy(out, pixels->p, (size_t)pixels->n * sizeof *out);
        free(thw);
        return out;
    }
    const int64_t side = pixels->shape[pixels->ndim - 1];
    plan->tiles = pixels->n / (3 * side * side);
    plan->patches = plan->tiles * v->grid * v->grid;
    plan->tokens = plan->tiles * v->tokens_per_tile;
    float *to = out;
    for (int64_t i = 0; i < plan->patches; i++) {
        const float *tile = pixels->p + i / (v->grid * v->grid) * 3 * side * side;
        const int64_t y0 = i % (v->grid * v->grid) / v->grid * v->patch;
        const int64_t x0 = i % v->grid * v->patch;
        for (int64_t k = 0; k < plan->patch_values; k++) {
            const int64_t area = v->patch * v->patch;
            *to++ = tile[(k / area * side + y0 + k % area / v->patch) * side + x0 + k % v->patch];
        }
    }
    return out;
}

/* ---- greedy ids ---- */

typedef struct greedy {
    const float *ids, *gap;
    int64_t at, n;
    uint64_t hash; /* of the ids so far */
    double logit_error;
    bool apart; /* after a step without a clear margin the two sequences may differ */
} greedy;

static int32_t check_token(void *user, int32_t id) {
    greedy *g = user;
    if (g->at < g->n && !g->apart && id != (int32_t)g->ids[g->at]) {
        CHECKF(g->gap[g->at] <= 10 * g->logit_error, "greedy id %lld is %d, expected %d with a margin of %.3g",
               (long long)g->at, (int)id, (int)g->ids[g->at], (double)g->gap[g->at]);
        g->apart = true;
    }
    g->at++;
    g->hash = g->hash * 1099511628211ull + (uint32_t)id;
    return 0;
}

static void check_greedy(const vlm_run *run, dv_session *d, double logit_error) {
    vlm_numbers_of ids = {0};
    vlm_numbers_of gap = {0};
    if (vlm_read(run->folder, "expected.safetensors", "generated_ids", &ids) &&
        vlm_read(run->folder, "expected.safetensors", "top2_gap", &gap)) {
        greedy g = {.ids = ids.p, .gap = gap.p, .n = ids.n, .logit_error = logit_error};
        const int32_t none = 0;
        const dv_generate generate = {.sample = {.top_p = 1, .repetition_penalty = 1, .never = &none},
                                      .max_tokens = ids.n,
                                      .ignore_stops = true,
                                      .token = check_token,
                                      .user = &g};
        int64_t n = 0;
        dv_session_end end;
        if (dv_session_generate(d, &generate, &n, &end) != DAVY_OK) {
            vlm_error("generate");
        }
        printf("generated_ids: %lld of %lld equal, hash %016" PRIx64 "\n", (long long)(g.apart ? -1 : g.at),
               (long long)ids.n, g.hash);
        CHECK(g.at == ids.n);
    }
    free(ids.p);
    free(gap.p);
}

/* The most frequent id: the placeholder of a GGUF pair, which has no tokenizer to name it. */
static int32_t most_frequent(const int32_t *ids, int64_t n) {
    int64_t most = 0;
    int32_t id = -1;
    for (int64_t i = 0; i < n; i++) {
        int64_t count = 0;
        for (int64_t k = 0; k < n; k++) {
            count += ids[k] == ids[i];
        }
        if (count > most) {
            most = count;
            id = ids[i];
        }
    }
    return id;
}

/* f NULL: a text without pictures. */
static void compare_all(const vlm_run *run, dv_vlm_model *m, const dv_json *json, const dv_vlm_features *f) {
    vlm_numbers_of vectors = {0};
    vlm_numbers_of logits = {0};
    dv_session *d = NULL;
    dv_session_picture picture = {.features = f};
    int64_t n = 0;
    dv_json_double(dv_json_get(json, "second_per_grid"), &picture.seconds);
    int32_t *ids = vlm_ids(json, "input_ids", &n);
    m->image_id = m->image_id >= 0 || f == NULL ? m->image_id : most_frequent(ids, n);
    if (f != NULL && vlm_read(run->folder, "expected.safetensors", "image_features", &vectors) &&
        CHECK(vectors.n == f->tokens * m->config.text.hidden)) {
        vlm_compare_vectors("image_features", f, &vectors, vlm_bound(run->precision, 1e-4));
    }
    if (dv_session_open(m, NULL, &d) != DAVY_OK || dv_session_feed(d, ids, n, &picture, f != NULL ? 1 : 0) != DAVY_OK) {
        vlm_error("dialogue");
    } else if (vlm_read(run->folder, "expected.safetensors", "first_logits", &logits) &&
               CHECK(logits.n == m->config.text.vocab)) {
        const double bound = vlm_bound(run->precision, 1e-3);
        check_greedy(run, d, vlm_compare("first_logits", dv_session_logits(d), logits.p, logits.n, bound));
    }
    dv_session_release(d);
    if (run->gpu == NULL && n > 8) {
        vlm_together(m, &(vlm_prompt){ids, n, &picture, f != NULL ? 1 : 0});
    }
    free(vectors.p);
    free(logits.p);
    free(ids);
}

void vlm_numbers(const vlm_run *run, const dv_json *json) {
    vlm_numbers_of pixels = {0};
    dv_vlm_model *m = vlm_open(run, false);
    if (m != NULL && dv_json_get(json, "inputs") == NULL) {
        compare_all(run, m, json, NULL);
    } else if (m != NULL && vlm_read(run->weights, "inputs.safetensors", "pixel_values", &pixels)) {
        dv_picture_plan plan = {0};
        float *patches = patches_of(&m->config, json, &pixels, &plan);
        const dv_vision_desc desc = {.config = &m->config,
                                     .weights = m->weights,
                                     .heap = run->heap,
                                     .pool = run->pool,
                                     .gpu = run->gpu,
                                     .cpu = run->cpu,
                                     .compute = m->compute};
        dv_vlm_features f = {0};
        if (dv_vision_run(&desc, &plan, &(dv_patches){.numbers = patches}, &f) != DAVY_OK) {
            vlm_error("vision tower");
        } else {
            compare_all(run, m, json, &f);
        }
        dv_vision_free(&f);
        free(patches);
    }
    free(pixels.p);
    dv_vlm_model_release(m);
}
