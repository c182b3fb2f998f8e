/* row_program_priv.h - shared by row_program.c (builds programs, runs them on the CPU) and row_program_cuda.c. */
#ifndef DV_VLM_ROW_PROGRAM_PRIV_H
#define DV_VLM_ROW_PROGRAM_PRIV_H

#include "core/base/error.h"
#include "core/vlm/row_program.h"

typedef enum dv_item_kind {
    ITEM_LINEAR,
    ITEM_NORM,
    ITEM_CONVERT,
    ITEM_TABLE,
    ITEM_ROPE,
    ITEM_ROPE_QKV,
    ITEM_ATTENTION,
    ITEM_ATTENTION_NEW,
    ITEM_ATTENTION_OUT,
    ITEM_GATHER,
    ITEM_ADD,
    ITEM_EMBED,
    ITEM_ARGMAX,
    ITEM_NEXT_TOKEN,
    ITEM_CANDIDATES,
    ITEM_PATCHES
} dv_item_kind;

struct dv_prog_item {
    dv_parallel_step step;       /* on the CPU; its args point to `a` */
    const dvk_cuda_kernel *cuda; /* on a GPU */
    dv_prog_at at;
    dv_item_kind kind;
    int64_t divide;
    void *base[2]; /* start addresses of the pointers that dv_row_program_place moves */
    union {
        dvk_linear_args linear;
        dvk_row_norm_args norm;
        dvk_row_convert_args convert;
        dvk_rope_table_args table;
        dvk_rope_args rope;
        dvk_rope_qkv_args qkv;
        dvk_attention_kv_args attention;
        dvk_attention_new_args fresh;
        dvk_attention_out_args out;
        dvk_gather_rows_args gather;
        dvk_add_rows_args add;
        dvk_embed_args embed;
        dvk_argmax_args argmax;
        dvk_next_token_args next;
        dvk_candidates_args candidates;
        dvk_patches_args patches;
    } a;
};

static inline const char *dv_item_op(const dv_prog_item *item) {
    static const char *const names[] = {[ITEM_LINEAR] = "linear",
                                        [ITEM_NORM] = "row_norm",
                                        [ITEM_CONVERT] = "row_convert",
                                        [ITEM_TABLE] = "rope_table",
                                        [ITEM_ROPE] = "rope",
                                        [ITEM_ROPE_QKV] = "rope_qkv",
                                        [ITEM_GATHER] = "gather_rows",
                                        [ITEM_ADD] = "add_rows",
                                        [ITEM_ATTENTION] = "attention_kv",
                                        [ITEM_ATTENTION_NEW] = "attention_new",
                                        [ITEM_ATTENTION_OUT] = "attention_out",
                                        [ITEM_CANDIDATES] = "candidates",
                                        [ITEM_EMBED] = "embed",
                                        [ITEM_ARGMAX] = "argmax",
                                        [ITEM_NEXT_TOKEN] = "next_token",
                                        [ITEM_PATCHES] = "patches"};
    return names[item->kind];
}

static inline davy_result dv_row_program_no_memory(void) {
    return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
}

davy_result dv_prog_cuda_start(dv_row_program *p);
bool dv_prog_cuda_has(const dv_row_program *p, const char *op, const void *args);
/* Chooses kernels for the current arguments, and allocates their scratch memory. */
davy_result dv_prog_cuda_choose(dv_row_program *p);
davy_result dv_prog_cuda_finish(dv_row_program *p);
davy_result dv_prog_cuda_run(dv_row_program *p, int32_t (*cancel)(void *user), void *user);
void dv_prog_cuda_clear(dv_row_program *p);

#endif
