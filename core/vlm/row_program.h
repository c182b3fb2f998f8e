/* row_program.h - a list of kernels over rows: a transformer block, a whole decoder or a vision tower. It is built once for a
 * largest number of rows, and runs with any smaller number. It runs on the CPU's threads, or on a GPU with all data in the
 * GPU's memory. */
#ifndef DV_VLM_ROW_PROGRAM_H
#define DV_VLM_ROW_PROGRAM_H

#include "core/cuda/gpu.h"
#include "core/exec/steps.h"
#include "core/vlm/weights.h"

typedef enum dv_prog_at {                 /* the arguments of a step that dv_row_program_place sets */
                          DV_AT_ROWS = 0, /* m */
                          DV_AT_LAST,     /* one row, the last of m; x starts there */
                          DV_AT_ONE,      /* one row */
                          DV_AT_PAST      /* m, and y starts at row `past`; attention: past and keys */
} dv_prog_at;

enum { DV_PROGRAM_FEW = 8 }; /* up to this many rows a GPU multiplies without tensor cores */

typedef struct dv_prog_item dv_prog_item;
typedef struct dv_prog_cuda dv_prog_cuda;

typedef struct dv_row_program {
    dv_pool *pool;
    dv_gpu_queue *queue; /* NULL: the CPU computes */
    uint32_t cpu;
    bool plain;        /* matrices: see dv_vlm_weights */
    dvk_dtype compute; /* DVK_F32: all products in f32; DVK_BF16, on a GPU DVK_F16: in 16 or 8 bits if that is faster */
    int64_t rows;      /* largest number of rows */
    bool alike;        /* see dv_row_program_desc */
    dv_prog_item **items;
    int64_t n, room;
    int64_t *cuts; /* a run can stop before these items */
    int64_t n_cuts, cuts_room;
    dv_steps **steps;   /* CPU: steps between the cuts */
    dv_prog_cuda *cuda; /* GPU: internals */
    davy_result r;      /* the first error of adding steps */
} dv_row_program;

typedef struct dv_row_program_desc {
    dv_pool *pool;
    dv_gpu_queue *queue; /* NULL: the CPU. One thread at a time uses it */
    const dv_vlm_weights *weights;
    uint32_t cpu;
    dvk_dtype compute;
    int64_t rows;
    bool alike; /* CPU, at most DVK_FEW rows: each row gets the same bits as in a program of one row */
} dv_row_program_desc;

void dv_row_program_start(dv_row_program *p, const dv_row_program_desc *desc);
davy_result dv_row_program_finish(dv_row_program *p); /* after the last step; returns the first error of adding */
void dv_row_program_clear(dv_row_program *p);         /* waits for a GPU */

/* Adds a place where a run can stop. It costs as much as waking the threads. */
void dv_row_program_cut(dv_row_program *p);
/* Sets up the next runs for `rows` rows after `past` others. On a GPU it may allocate memory. */
davy_result dv_row_program_place(dv_row_program *p, int64_t rows, int64_t past);
/* Runs the program. cancel (NULL: never) is called at every cut; not 0: DAVY_E_CANCELLED. On a GPU it returns before the end
 * of the work. */
davy_result dv_row_program_run(dv_row_program *p, int32_t (*cancel)(void *user), void *user);
/* On a GPU, for a program without dv_row_program_place: the second call records a graph, later calls enqueue the graph. */
davy_result dv_row_program_repeat(dv_row_program *p);
/* Sets the largest number of keys for attention with positions in device memory. From the next run on, kernels are chosen for
 * that number. */
davy_result dv_row_program_limit(dv_row_program *p, int64_t keys);

/* ---- memory of a program's data ---- */

/* Makes a host table readable for the program: *out is valid while the program and the host table exist. */
davy_result dv_row_program_table(dv_row_program *p, const void *host, uint64_t bytes, const void **out);
davy_result dv_row_program_put(dv_row_program *p, void *to, const void *host, uint64_t bytes);
davy_result dv_row_program_move(dv_row_program *p, void *to, const void *from,
                                uint64_t bytes); /* both in the program's memory */
davy_result dv_row_program_wait(dv_row_program *p, int32_t (*cancel)(void *user),
                                void *user); /* waits until a GPU has finished */

/* The input form that a matrix needs; on a GPU it depends on p->rows. */
dvk_form dv_row_program_form(const dv_row_program *p, const dv_vlm_matrix *m);
/* The form of queries, keys and values outside a cache. */
dvk_form dv_row_program_attended(const dv_row_program *p);
/* Bytes of a row of k values in this form. */
uint64_t dv_form_bytes(dvk_form form, int64_t k);
dvk_rows dv_rows(void *data, dvk_form form, int64_t k);
dvk_rows dv_rows_at(dvk_rows rows, int64_t column); /* no Q8 */

/* ---- steps ---- */

typedef struct dv_prog_linear {
    const dv_vlm_matrix *w;
    dvk_rows x, y, res; /* res.data NULL: none */
    dvk_gate act;
    dv_prog_at at;
    int64_t divide;            /* m = rows / divide: `divide` rows of x form one row here; 0: 1 */
    const dv_vlm_affine *norm; /* RMS norm of x, if dv_row_program_normalises; NULL: none */
    double eps;
    const float *more; /* see dvk_linear_args; NULL: nothing */
    float *sum;
    int32_t n_more;
} dv_prog_linear;
void dv_row_program_linear(dv_row_program *p, const dv_prog_linear *linear);
/* True if the product with m can also normalise its f32 input rows. */
bool dv_row_program_normalises(const dv_row_program *p, const dv_vlm_matrix *m, const dv_vlm_affine *norm);

typedef struct dv_prog_norm {
    const dv_vlm_affine *w;
    dvk_rows x, y;
    int64_t heads, dim, divide;
    double eps;
    bool center;
    dv_prog_at at;
} dv_prog_norm;
void dv_row_program_norm(dv_row_program *p, const dv_prog_norm *norm);

/* y = x in y's form; adds no step if both are the same. */
void dv_row_program_rope_table(dv_row_program *p, const dvk_rope_table_args *a);
void dv_row_program_rope(dv_row_program *p, const dvk_rope_args *a, dv_prog_at at);
/* GPU only. DV_AT_PAST: k_to and v_to start at row `past`. */
void dv_row_program_rope_qkv(dv_row_program *p, const dvk_rope_qkv_args *a, dv_prog_at at);
void dv_row_program_attention(dv_row_program *p, const dvk_attention_kv_args *a, dv_prog_at at);
/* Attention of one token, including rotation and cache store. Returns false and adds nothing if there is no such kernel. */
bool dv_row_program_attention_new(dv_row_program *p, const dvk_attention_new_args *a);
/* The same, followed by the product with the output matrix w, which has no bias. */
bool dv_row_program_attention_out(dv_row_program *p, const dvk_attention_new_args *a, const dv_vlm_matrix *w,
                                  float *parts);
void dv_row_program_embed(dv_row_program *p, const dv_vlm_matrix *w, const int32_t *ids, dvk_rows y);
void dv_row_program_argmax(dv_row_program *p, const dvk_argmax_args *a); /* GPU only, like the next ones */
void dv_row_program_next_token(dv_row_program *p, const dvk_next_token_args *a, const dv_vlm_matrix *embed);
void dv_row_program_patches(dv_row_program *p, const dvk_patches_args *a);
bool dv_row_program_candidates(dv_row_program *p,
                               const dvk_candidates_args *a); /* false: see dv_row_program_attention_new */

typedef dvk_gather_rows_args dv_gather_args;
void dv_row_program_gather(dv_row_program *p, const dv_gather_args *a);

typedef dvk_add_rows_args dv_add_rows_args;
dv_prog_item *dv_row_program_add_rows(dv_row_program *p, const dv_add_rows_args *a); /* NULL: failed */
void dv_row_program_point(dv_prog_item *add_rows, const float *x);

dvk_gate dv_gate_of(dv_vlm_act act);

/* ---- memory ---- */

typedef struct dv_space_part { /* a part of a block of memory */
    void *to;                  /* address of the pointer to set */
    uint64_t bytes;
} dv_space_part;

typedef struct dv_space {
    dv_heap *heap;
    dv_gpu *gpu; /* NULL: memory of the heap */
    void *memory;
    uint64_t bytes;
} dv_space;

/* Allocates one block of aligned parts from the heap or the GPU set in *s. An error message names `what`. */
davy_result dv_space_take(dv_space *s, const char *what, const dv_space_part *parts, size_t n);
void dv_space_release(dv_space *s); /* no enqueued work may still use it */

/* Rows between a kernel and a matrix with input form `form`. Kernels write f32 and 16 bits directly; 8 bits need a separate
 * conversion step (dv_row_program_input). */
dvk_rows dv_row_program_written(dvk_form form, float *wide, int64_t k);
dvk_rows dv_row_program_input(dv_row_program *p, dvk_rows from, dvk_form form, void *to, int64_t k);

#endif
