/* row_program.h - a list of kernels over rows that is put together once and run for any number of rows up to that: a block of
 * a transformer, a whole decoder, a vision tower. On the CPU's threads, or on a GPU, where all that it works on lies in the
 * GPU's memory. */
#ifndef DV_VLM_PROGRAM_H
#define DV_VLM_PROGRAM_H

#include "core/cuda/gpu.h"
#include "core/exec/steps.h"
#include "core/vlm/weights.h"

typedef enum dv_prog_at {                 /* what dv_row_program_place changes of a step */
                          DV_AT_ROWS = 0, /* m */
                          DV_AT_LAST,     /* one row, the last of m; x begins there */
                          DV_AT_ONE,      /* one row */
                          DV_AT_PAST      /* m, and y begins at row `past`; attention: past and keys */
} dv_prog_at;

enum { DV_PROGRAM_FEW = 8 }; /* rows that a GPU multiplies without its tensor cores */

typedef struct dv_prog_item dv_prog_item;
typedef struct dv_prog_cuda dv_prog_cuda;

typedef struct dv_row_program {
    dv_pool *pool;
    dv_gpu_queue *queue; /* of a GPU; NULL: the CPU computes */
    uint32_t cpu;
    bool plain; /* matrices: see dv_vlm_weights */
    dvk_dtype
        compute; /* DVK_F32: all products in f32; DVK_BF16, on a GPU DVK_F16: in 16 and in 8 bits where that is faster */
    int64_t rows; /* most that it is run with */
    bool alike;   /* see dv_row_program_desc */
    dv_prog_item **items;
    int64_t n, room;
    int64_t *cuts; /* items that a run may be stopped before */
    int64_t n_cuts, cuts_room;
    dv_steps **steps;   /* the CPU's, between the cuts */
    dv_prog_cuda *cuda; /* the GPU's */
    davy_result r;      /* of adding; the first failure */
} dv_row_program;

typedef struct dv_row_program_desc {
    dv_pool *pool;
    dv_gpu_queue *queue; /* NULL: the CPU; one thread at a time uses it */
    const dv_vlm_weights *weights;
    uint32_t cpu;
    dvk_dtype compute;
    int64_t rows;
    bool alike; /* on the CPU, at most DVK_FEW rows: each gives the bits that it gives in a program of one row */
} dv_row_program_desc;

void dv_row_program_start(dv_row_program *p, const dv_row_program_desc *desc);
davy_result dv_row_program_finish(dv_row_program *p); /* after the last step was added; the first failure of adding */
void dv_row_program_clear(dv_row_program *p);         /* waits for a GPU */

/* A place where a run may be stopped. It costs as much as waking the threads. */
void dv_row_program_cut(dv_row_program *p);
/* For `rows` rows behind `past` others. On a GPU it may need more memory. */
davy_result dv_row_program_place(dv_row_program *p, int64_t rows, int64_t past);
/* cancel (NULL: never) is asked at every cut; other than 0: DAVY_E_CANCELLED. On a GPU the end is only enqueued. */
davy_result dv_row_program_run(dv_row_program *p, int32_t (*cancel)(void *user), void *user);
/* On a GPU, of a program that is never placed: recorded at the second call, and from then on enqueued as a whole. */
davy_result dv_row_program_repeat(dv_row_program *p);
/* How many keys attention whose positions lie in device memory may see from the next run on: kernels are chosen for that. */
davy_result dv_row_program_limit(dv_row_program *p, int64_t keys);

/* ---- where a program's numbers lie ---- */

/* A table that was made on the host, where the program reads it, as long as both live. */
davy_result dv_row_program_table(dv_row_program *p, const void *host, uint64_t bytes, const void **out);
davy_result dv_row_program_put(dv_row_program *p, void *to, const void *host, uint64_t bytes);
davy_result dv_row_program_move(dv_row_program *p, void *to, const void *from,
                                uint64_t bytes); /* both are the program's */
davy_result dv_row_program_wait(dv_row_program *p, int32_t (*cancel)(void *user),
                                void *user); /* until a GPU has done it all */

/* The form in which a matrix wants its input; on a GPU it depends on p->rows. */
dvk_form dv_row_program_form(const dv_row_program *p, const dv_vlm_matrix *m);
/* That of queries, keys and values that are no cache. */
dvk_form dv_row_program_attended(const dv_row_program *p);
/* Blocks of a row of k values. */
uint64_t dv_form_bytes(dvk_form form, int64_t k);
dvk_rows dv_rows(void *data, dvk_form form, int64_t k);
dvk_rows dv_rows_at(dvk_rows rows, int64_t column); /* no Q8 */

/* ---- steps ---- */

typedef struct dv_prog_linear {
    const dv_vlm_matrix *w;
    dvk_rows x, y, res; /* res.data NULL: none */
    dvk_gate act;
    dv_prog_at at;
    int64_t divide;            /* m = rows / divide: several rows of x are one here; 0: 1 */
    const dv_vlm_affine *norm; /* of x by its root mean square, where dv_row_program_normalises; NULL: none */
    double eps;
    const float *more; /* see dvk_linear_args; NULL: nothing */
    float *sum;
    int32_t n_more;
} dv_prog_linear;
void dv_row_program_linear(dv_row_program *p, const dv_prog_linear *linear);
/* Whether the product with m can normalise its rows (of f32) itself. */
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

/* y = x in y's form; nothing where they are one. */
void dv_row_program_rope_table(dv_row_program *p, const dvk_rope_table_args *a);
void dv_row_program_rope(dv_row_program *p, const dvk_rope_args *a, dv_prog_at at);
/* On a GPU alone. DV_AT_PAST: k_to and v_to begin at row `past`. */
void dv_row_program_rope_qkv(dv_row_program *p, const dvk_rope_qkv_args *a, dv_prog_at at);
void dv_row_program_attention(dv_row_program *p, const dvk_attention_kv_args *a, dv_prog_at at);
/* A token of a sequence, with the rotation and the store ahead; false, and nothing is added: there is no such kernel. */
bool dv_row_program_attention_new(dv_row_program *p, const dvk_attention_new_args *a);
/* The same with the output matrix behind it; w has no bias. */
bool dv_row_program_attention_out(dv_row_program *p, const dvk_attention_new_args *a, const dv_vlm_matrix *w,
                                  float *parts);
void dv_row_program_embed(dv_row_program *p, const dv_vlm_matrix *w, const int32_t *ids, dvk_rows y);
void dv_row_program_argmax(dv_row_program *p, const dvk_argmax_args *a); /* on a GPU alone, as the next ones */
void dv_row_program_next_token(dv_row_program *p, const dvk_next_token_args *a, const dv_vlm_matrix *embed);
void dv_row_program_patches(dv_row_program *p, const dvk_patches_args *a);
bool dv_row_program_candidates(dv_row_program *p, const dvk_candidates_args *a); /* as dv_row_program_attention_new */

typedef dvk_gather_rows_args dv_gather_args;
void dv_row_program_gather(dv_row_program *p, const dv_gather_args *a);

typedef dvk_add_rows_args dv_add_rows_args;
dv_prog_item *dv_row_program_add_rows(dv_row_program *p, const dv_add_rows_args *a); /* NULL: failed */
void dv_row_program_point(dv_prog_item *add_rows, const float *x);

dvk_gate dv_gate_of(dv_vlm_act act);

/* ---- memory ---- */

typedef struct dv_space_part { /* a part of a block of memory */
    void *to;            /* address of the pointer to it */
    uint64_t bytes;
} dv_space_part;

typedef struct dv_space {
    dv_heap *heap;
    dv_gpu *gpu; /* NULL: the heap's */
    void *memory;
    uint64_t bytes;
} dv_space;

/* One block of aligned parts, of the heap or the GPU that the caller has set in *s; `what` goes into the message of a
 * failure. */
davy_result dv_space_take(dv_space *s, const char *what, const dv_space_part *parts, size_t n);
void dv_space_release(dv_space *s); /* nothing enqueued may use it any more */

/* For what a kernel writes that a matrix reads in that form: kernels write f32 and 16 bits themselves, 8 bits are
 * a step of their own. */
dvk_rows dv_row_program_written(dvk_form form, float *wide, int64_t k);
dvk_rows dv_row_program_input(dv_row_program *p, dvk_rows from, dvk_form form, void *to, int64_t k);

#endif
