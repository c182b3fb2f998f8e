/* program.h - a list of kernels over rows that is put together once and run for any number of rows up to that: a block of
 * a transformer, a whole decoder, a vision tower. */
#ifndef DV_VLM_PROGRAM_H
#define DV_VLM_PROGRAM_H

#include "core/steps.h"
#include "core/vlm/weights.h"

typedef enum dv_prog_at {                 /* what dv_program_place changes of a step */
                          DV_AT_ROWS = 0, /* m */
                          DV_AT_LAST,     /* one row, the last of m; x begins there */
                          DV_AT_ONE,      /* one row */
                          DV_AT_PAST      /* m, and y begins at row `past`; attention: past and keys */
} dv_prog_at;

typedef struct dv_prog_item dv_prog_item;

typedef struct dv_program {
    dv_pool *pool;
    uint32_t cpu;
    bool plain;   /* matrices: see dv_vlm_weights */
    bool reduced; /* products in bf16 and in 8 bits where a processor does them faster; else all in f32 */
    int64_t rows; /* most that it is run with */
    dv_prog_item **items;
    int64_t n, room;
    int64_t *cuts; /* items that a run may be stopped before */
    int64_t n_cuts, cuts_room;
    dv_steps **steps; /* between the cuts */
    davy_result r;    /* of adding; the first failure */
} dv_program;

typedef struct dv_program_desc {
    dv_pool *pool;
    const dv_vlm_weights *weights;
    uint32_t cpu;
    dvk_dtype compute;
    int64_t rows;
} dv_program_desc;

void dv_program_start(dv_program *p, const dv_program_desc *desc);
davy_result dv_program_finish(dv_program *p); /* after the last step was added; the first failure of adding */
void dv_program_clear(dv_program *p);

/* A place where a run may be stopped. It costs as much as waking the threads. */
void dv_program_cut(dv_program *p);
/* For `rows` rows behind `past` others. */
void dv_program_place(dv_program *p, int64_t rows, int64_t past);
/* cancel (NULL: never) is asked at every cut; other than 0: DAVY_E_CANCELLED. */
davy_result dv_program_run(dv_program *p, int32_t (*cancel)(void *user), void *user);

/* The form in which a matrix wants its input. */
dvk_form dv_program_form(const dv_program *p, const dv_vlm_matrix *m);
/* Blocks of a row of k values. */
int64_t dv_form_pitch(dvk_form form, int64_t k);
uint64_t dv_form_bytes(dvk_form form, int64_t k);
dvk_rows dv_rows(void *data, dvk_form form, int64_t k);

typedef struct dv_prog_linear {
    const dv_vlm_matrix *w;
    dvk_rows x, y, res; /* res.data NULL: none */
    dvk_gate act;
    dv_prog_at at;
    int64_t divide; /* m = rows / divide: several rows of x are one here; 0: 1 */
} dv_prog_linear;
void dv_program_linear(dv_program *p, const dv_prog_linear *linear);

typedef struct dv_prog_norm {
    const dv_vlm_affine *w;
    dvk_rows x, y;
    int64_t heads, dim, divide;
    double eps;
    bool center;
    dv_prog_at at;
} dv_prog_norm;
void dv_program_norm(dv_program *p, const dv_prog_norm *norm);

/* y = x in y's form; nothing where they are one. */
void dv_program_convert(dv_program *p, dvk_rows x, dvk_rows y, int64_t dim);
void dv_program_rope_table(dv_program *p, const dvk_rope_table_args *a);
void dv_program_rope(dv_program *p, const dvk_rope_args *a, dv_prog_at at);
void dv_program_attention(dv_program *p, const dvk_attention_kv_args *a, dv_prog_at at);

/* y[i] = x[order[i]], of dim f32 values each. */
typedef struct dv_gather_args {
    const float *x;
    float *y;
    const int32_t *order;
    int64_t m, dim;
} dv_gather_args;
void dv_program_gather(dv_program *p, const dv_gather_args *a);

/* y[i] += sum over k of weight[i * taps + k] * x[row[i * taps + k]]; weight NULL: 1; a row below 0: nothing. */
typedef struct dv_add_rows_args {
    const float *x;
    float *y;
    const int32_t *row;
    const float *weight;
    int64_t m, dim, taps;
} dv_add_rows_args;
dv_prog_item *dv_program_add_rows(dv_program *p, const dv_add_rows_args *a); /* NULL: failed */
void dv_program_point(dv_prog_item *add_rows, const float *x);

dvk_gate dv_gate_of(dv_vlm_act act);

typedef struct dv_want { /* a part of a block of memory */
    void *to;            /* address of the pointer to it */
    uint64_t bytes;
} dv_want;

typedef struct dv_space {
    dv_heap *heap;
    void *memory;
    uint64_t bytes;
} dv_space;

/* One block of 64-byte aligned parts; `what` goes into the message of a failure. */
davy_result dv_space_take(dv_space *s, dv_heap *heap, const char *what, const dv_want *wants, size_t n);
void dv_space_release(dv_space *s);

/* For what a kernel writes that a matrix reads in the form `wanted`: kernels write f32 and bf16 themselves, 8 bits are a
 * step of their own. */
dvk_rows dv_program_written(dvk_form wanted, float *wide, int64_t k);
dvk_rows dv_program_input(dv_program *p, dvk_rows from, dvk_form wanted, void *to, int64_t k);

#endif
