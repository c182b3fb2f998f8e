/* cases_tokens.c - problems for argmax, candidates, next_token and patches. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/kcheck/cases_lm.h"

/* ---- argmax ---- */

static const int64_t vocabularies[] = {1, 5, 64, 1000, 16384, 49280, 151936};
enum { N_VOCABULARIES = (int)(sizeof vocabularies / sizeof vocabularies[0]), KINDS = 5 };

static int argmax_count(void) {
    return N_VOCABULARIES * KINDS;
}

/* Kinds: random; many equals; a NaN; no finite value; the largest excluded. */
static void argmax_build(kc_problem *p, int i) {
    const int64_t n = vocabularies[i % N_VOCABULARIES];
    const int kind = i / N_VOCABULARIES;
    const int64_t m = 1 + i % 3;
    dvk_argmax_args *a = &p->args.argmax;
    *a = (dvk_argmax_args){.m = m, .n = n};
    float *x = kc_floats(p, m * n, -1.0f, 1.0f);
    unsigned char *never = NULL;
    unsigned char *id = NULL;
    for (int64_t k = 0; k < m * n; k++) {
        x[k] = kind == 1 ? (float)(k % 7) : kind == 3 ? -INFINITY : x[k];
    }
    if (kind == 2) {
        x[kc_below(&p->rng, m * n)] = NAN;
    }
    kc_alloc(p, 3 * sizeof(int32_t), &never);
    const int32_t out[3] = {kind == 4 ? (int32_t)(n - 1) : -1, -1, kind == 4 ? 0 : -1};
    memcpy(never, out, sizeof out);
    if (kind == 4) {
        x[n - 1] = 2.0f;
    }
    kc_buffer *buffer = kc_alloc(p, (size_t)m * sizeof(int32_t), &id);
    a->x = (dvk_rows){.data = x, .form = DVK_ROWS_F32, .row = n};
    a->id = (int32_t *)(void *)id;
    a->never = (const int32_t *)(void *)never;
    a->n_never = 3;
    p->outputs[p->n_outputs++] = (kc_output){.buffer = buffer,
                                             .data = id,
                                             .dtype = DVK_U8,
                                             .size = {1, 1, 1, m * (int64_t)sizeof(int32_t)},
                                             .stride = {1, 1, 1, 1}};
    p->error_class = KC_EXACT;
    p->bytes = (double)(m * n) * 4.0;
    snprintf(p->text, sizeof p->text, "%lldx%lld kind %d", (long long)m, (long long)n, kind);
}

/* ---- candidates ---- */

static int candidates_count(void) {
    return N_VOCABULARIES * 4;
}

/* Kinds: random; many equals, more than fit; a NaN; steep, with infinities below. */
static void candidates_build(kc_problem *p, int i) {
    const int64_t n = vocabularies[i % N_VOCABULARIES];
    const int kind = i / N_VOCABULARIES;
    unsigned char *to = NULL;
    float *x = kc_floats(p, n + n % 2, -1.0f, 1.0f);
    for (int64_t k = 0; k < n; k++) {
        x[k] = kind == 1 ? (float)(k % 7) : kind == 3 ? (k % 5 == 0 ? -INFINITY : x[k] * x[k] * x[k] * 50.0f) : x[k];
    }
    if (kind == 2) {
        x[kc_below(&p->rng, n)] = NAN;
    }
    kc_buffer *buffer = kc_alloc(p, sizeof(dvk_candidates), &to);
    p->args.candidates =
        (dvk_candidates_args){.x = x, .to = (dvk_candidates *)(void *)to, .n = n, .least = i % 2 ? 128 : 1 + i % 40};
    p->outputs[p->n_outputs++] = (kc_output){.buffer = buffer,
                                             .data = to,
                                             .dtype = DVK_U8,
                                             .size = {1, 1, 1, (int64_t)sizeof(dvk_candidates)},
                                             .stride = {1, 1, 1, 1}};
    p->error_class = KC_EXACT;
    p->bytes = (double)n * 4.0;
    snprintf(p->text, sizeof p->text, "%lld kind %d", (long long)n, kind);
}

/* ---- next_token ---- */

enum { N_AXES = 3, TOLD_AT = 8, N_NEXT_TYPES = (int)(sizeof kc_wtypes / sizeof kc_wtypes[0]) };

static int next_count(void) {
    return 3 * N_NEXT_TYPES;
}

/* The id, the numbers of `advance` and `told` are in one buffer of 32-bit numbers. */
static void next_build(kc_problem *p, int i) {
    static const int64_t ks[] = {576, 33, 2048};
    dvk_next_token_args *a = &p->args.next_token;
    const int64_t n = 70 + 300 * (i % 5);
    unsigned char *data = NULL;
    float *x = kc_floats(p, n, -1.0f, 1.0f);
    x[kc_below(&p->rng, n)] = i % 7 == 6 ? NAN : 2.0f;
    kc_buffer *buffer = kc_alloc(p, (TOLD_AT + 2 * DVK_COMPLETION_SLOTS) * sizeof(int32_t), &data);
    const int32_t first[TOLD_AT] = {-1, 1000 + i, 77, 100 + i, 5, 9, -1, -1}; /* id, count, place, positions, never */
    memset(data, 0, (TOLD_AT + 2 * DVK_COMPLETION_SLOTS) * sizeof(int32_t));
    memcpy(data, first, sizeof first);
    int32_t *numbers = (int32_t *)(void *)data;
    a->draw = (dvk_argmax_args){.x = {.data = x, .form = DVK_ROWS_F32, .row = n},
                                .id = numbers,
                                .never = numbers + 6,
                                .advance = numbers + 1,
                                .m = 1,
                                .n = n,
                                .n_never = 2,
                                .n_advance = 2 + N_AXES};
    a->embed = (dvk_embed_args){
        .ids = numbers, .m = 1, .n = n, .k = ks[i / N_NEXT_TYPES], .type = kc_wtypes[i % N_NEXT_TYPES]};
    const dvk_view y = kc_rows(p, &a->embed.y, DVK_F32, (kc_rows_shape){1, 1, a->embed.k}, 0, KC_UNIFORM);
    a->table = (dvk_rope_table_args){
        .pos = numbers + 3, .freq = kc_floats(p, 32, 0.001f, 1.0f), .m = 1, .pairs = 32, .axes = N_AXES};
    unsigned char *axis = NULL;
    kc_alloc(p, 32, &axis);
    for (int k = 0; k < 32; k++) {
        axis[k] = (unsigned char)(k % N_AXES);
    }
    a->table.axis = axis;
    a->table.cs = kc_floats(p, 64, -1.0f, 1.0f);
    a->told = (uint64_t *)(void *)(numbers + TOLD_AT);
    p->w_source = kc_weights(p, a->embed.type, n, a->embed.k);
    p->w_slot = &a->embed.w;
    p->outputs[p->n_outputs++] =
        (kc_output){.buffer = buffer,
                    .data = data,
                    .dtype = DVK_U8,
                    .size = {1, 1, 1, (TOLD_AT + 2 * DVK_COMPLETION_SLOTS) * (int64_t)sizeof(int32_t)},
                    .stride = {1, 1, 1, 1}};
    kc_output_view(p, &y);
    kc_output_floats(p, a->table.cs, 64, 1);
    p->error_class = KC_SUMS;
    p->bytes = (double)n * 4.0;
    snprintf(p->text, sizeof p->text, "of %lld, %lld values %s", (long long)n, (long long)a->embed.k,
             kc_wtype_name(a->embed.type));
}

/* ---- patches ---- */

static const int64_t sizes[][2] = {/* patches, values of each */
                                   {1, 3}, {5, 768}, {17, 33}, {64, 588}, {300, 1176}, {1024, 768}};
enum { N_SIZES = (int)(sizeof sizes / sizeof sizes[0]) };

static int patches_count(void) {
    return N_SIZES * 6;
}

static void patches_build(kc_problem *p, int i) {
    static const dvk_dtype types[] = {DVK_F32, DVK_F16, DVK_BF16};
    const int64_t *s = sizes[i % N_SIZES];
    const dvk_dtype type = types[i / N_SIZES % 3];
    const int ordered = i / N_SIZES / 3;
    unsigned char *x = NULL;
    unsigned char *order = NULL;
    dvk_patches_args *a = &p->args.patches;
    *a = (dvk_patches_args){.m = s[0], .values = s[1]};
    kc_alloc(p, (size_t)(s[0] * s[1]), &x);
    for (int64_t k = 0; k < s[0] * s[1]; k++) {
        x[k] = (unsigned char)kc_below(&p->rng, 256);
    }
    if (ordered) {
        kc_alloc(p, (size_t)s[0] * sizeof(int32_t), &order);
        for (int64_t k = 0; k < s[0]; k++) {
            const int32_t row = (int32_t)(s[0] - 1 - k);
            memcpy(order + k * (int64_t)sizeof row, &row, sizeof row);
        }
    }
    a->x = x;
    a->order = (const int32_t *)(void *)order;
    a->table = kc_floats(p, 3 * 256, -2.0f, 2.0f);
    const dvk_view v = kc_rows(p, &a->y, type, (kc_rows_shape){s[0], 1, s[1]}, i % 2, KC_UNIFORM);
    kc_output_view(p, &v);
    p->error_class = KC_EXACT;
    p->bytes = (double)(s[0] * s[1]) * (1.0 + (type == DVK_F32 ? 4.0 : 2.0));
    snprintf(p->text, sizeof p->text, "%lldx%lld type %d ordered %d", (long long)s[0], (long long)s[1], (int)type,
             ordered);
}

const kc_suite kc_suite_candidates = {
    "candidates", candidates_count, candidates_build, candidates_count, candidates_build, 1, 29};
const kc_suite kc_suite_next_token = {"next_token", next_count, next_build, next_count, next_build, 0, 62};
const kc_suite kc_suite_argmax = {"argmax", argmax_count, argmax_build, argmax_count, argmax_build, 0, 28};
const kc_suite kc_suite_patches = {"patches", patches_count, patches_build, patches_count, patches_build, 0, 30};
