/* row_program.c - builds a program: steps with arguments that change between runs. It places the steps for a number of rows and
 * runs them on a pool's threads. row_program_cuda.c runs them on a GPU. */
#include "core/vlm/row_program.h"

#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/vlm/row_program_priv.h"

static void dv_row_program_convert(dv_row_program *p, dvk_rows x, dvk_rows y, int64_t dim);

static void *moved(void *base, const dvk_rows *rows, int64_t by) {
    return dv_rows_at((dvk_rows){.data = base, .form = rows->form}, by * rows->row).data;
}

static void place_norm(dv_prog_item *item, int64_t m, int64_t rows, int64_t past) {
    item->a.norm.m = m;
    if (item->at == DV_AT_LAST) {
        item->a.norm.x.data = moved(item->base[0], &item->a.norm.x, rows - 1);
    } else if (item->at == DV_AT_PAST) {
        item->a.norm.y.data = moved(item->base[0], &item->a.norm.y, past);
    }
}

static void place_qkv(dv_prog_item *item, int64_t m, int64_t past) {
    dvk_rope_qkv_args *a = &item->a.qkv;
    a->m = m;
    if (item->at == DV_AT_PAST) {
        a->k_to.data = moved(item->base[0], &a->k_to, past);
        a->v_to.data = moved(item->base[1], &a->v_to, past);
    }
}

static void place_item(dv_prog_item *item, int64_t rows, int64_t past) {
    const int64_t m = item->at == DV_AT_LAST || item->at == DV_AT_ONE ? 1 : rows / item->divide;
    switch (item->kind) {
    case ITEM_LINEAR:
        item->a.linear.m = m;
        if (item->at == DV_AT_LAST) {
            item->a.linear.x.data = moved(item->base[0], &item->a.linear.x, rows - 1);
        }
        break;
    case ITEM_NORM:
        place_norm(item, m, rows, past);
        break;
    case ITEM_CONVERT:
        item->a.convert.m = m;
        break;
    case ITEM_TABLE:
        item->a.table.m = m;
        break;
    case ITEM_ROPE:
        item->a.rope.m = m;
        if (item->at == DV_AT_PAST) {
            item->a.rope.y.data = moved(item->base[0], &item->a.rope.y, past);
        }
        break;
    case ITEM_ROPE_QKV:
        place_qkv(item, m, past);
        break;
    case ITEM_ATTENTION:
        item->a.attention.m = m;
        if (item->a.attention.in.position == NULL) {
            item->a.attention.past = item->at == DV_AT_PAST ? past : 0;
            item->a.attention.keys = item->a.attention.past + m;
        } else if (item->at == DV_AT_PAST) {
            item->a.attention.keys = past + m;
        }
        break;
    case ITEM_ATTENTION_NEW:
        item->a.fresh.a.m = m;
        break;
    case ITEM_ADD:
        item->a.add.m = m;
        break;
    case ITEM_EMBED:
        item->a.embed.m = m;
        break;
    case ITEM_GATHER:
    case ITEM_ATTENTION_OUT:
    case ITEM_ARGMAX:
    case ITEM_NEXT_TOKEN:
    case ITEM_CANDIDATES:
    case ITEM_PATCHES:
        break;
    }
}

davy_result dv_row_program_place(dv_row_program *p, int64_t rows, int64_t past) {
    for (int64_t i = 0; i < p->n; i++) {
        place_item(p->items[i], rows, past);
    }
    return p->queue != NULL ? dv_prog_cuda_choose(p) : DAVY_OK;
}

/* ---- a run on the threads of a pool ---- */

static void dv_prog_cpu_choose(dv_row_program *p, dv_prog_item *item) {
    const char *op = dv_item_op(item);
    const dvk_dtype compute = p->compute == DVK_F32 ? DVK_F32 : DVK_BF16;
    const bool large = item->kind == ITEM_LINEAR || item->kind == ITEM_ATTENTION;
    const bool plain = item->kind == ITEM_LINEAR && p->plain;
    item->step = (dv_parallel_step){.kernel = plain ? dvk_find(op, "ref") : dvk_choose(op, &item->a, p->cpu, compute),
                                    .args = &item->a,
                                    .alone = p->rows == 1 && !large};
    if (item->step.kernel == NULL) {
        p->r = dv_fail(DAVY_E_INTERNAL, "captioning: there is no CPU kernel for \"%s\"", op);
    }
}

static davy_result dv_prog_cpu_finish(dv_row_program *p) {
    dv_parallel_step *list = dv_calloc((uint64_t)dv_max(1, p->n), sizeof *list);
    p->steps = list != NULL ? dv_calloc((uint64_t)p->n_cuts + 1, sizeof(dv_steps *)) : NULL;
    davy_result r = p->steps != NULL ? DAVY_OK : dv_row_program_no_memory();
    int64_t from = 0;
    for (int64_t i = 0; r == DAVY_OK && i <= p->n_cuts; i++) {
        const int64_t to = i < p->n_cuts ? p->cuts[i] : p->n;
        for (int64_t k = from; k < to; k++) {
            list[k - from] = p->items[k]->step;
        }
        r = dv_steps_create(p->pool, list, to - from, &p->steps[i]);
        from = to;
    }
    dv_free(list);
    return r;
}

/* Runs the program; its arguments must be set. */
static davy_result dv_prog_cpu_run(dv_row_program *p, int32_t (*cancel)(void *user), void *user) {
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i <= p->n_cuts; i++) {
        const bool stop = i > 0 && cancel != NULL && cancel(user) != 0;
        r = stop ? dv_fail(DAVY_E_CANCELLED, "cancelled") : dv_steps_run(p->steps[i]);
    }
    return r;
}

static void dv_prog_cpu_clear(dv_row_program *p) {
    for (int64_t i = 0; p->steps != NULL && i <= p->n_cuts; i++) {
        dv_steps_release(p->steps[i]);
    }
    dv_free(p->steps);
    p->steps = NULL;
}

enum { ALIGN = 64, DEVICE_ALIGN = 256 };

/* ---- forms ---- */

dvk_gate dv_gate_of(dv_vlm_act act) {
    switch (act) {
    case DV_VLM_SILU:
        return DVK_GATE_SILU;
    case DV_VLM_GELU:
        return DVK_GATE_GELU;
    case DV_VLM_GELU_TANH:
        return DVK_GATE_GELU_TANH;
    case DV_VLM_GELU_QUICK:
        return DVK_GATE_GELU_QUICK;
    case DV_VLM_RELU2:
        return DVK_GATE_RELU2;
    }
    return DVK_GATE_NONE;
}

static int64_t dv_form_pitch(dvk_form form, int64_t k) {
    return form == DVK_ROWS_Q8 ? dv_div_up(k, DVK_Q8_ELEMENTS) : k;
}

static uint64_t element_bytes(dvk_form form) {
    return form == DVK_ROWS_Q8 ? sizeof(dvk_q8) : form == DVK_ROWS_F32 ? 4 : 2;
}

uint64_t dv_form_bytes(dvk_form form, int64_t k) {
    return (uint64_t)dv_form_pitch(form, k) * element_bytes(form);
}

dvk_rows dv_rows(void *data, dvk_form form, int64_t k) {
    return (dvk_rows){.data = data, .form = form, .row = dv_form_pitch(form, k)};
}

dvk_rows dv_rows_at(dvk_rows rows, int64_t column) {
    rows.data = (unsigned char *)rows.data + (uint64_t)column * element_bytes(rows.form);
    return rows;
}

/* True if the product itself converts a few f32 rows to q8. */
static bool rounds(const dv_row_program *p, const dv_vlm_matrix *m) {
    return p->queue != NULL && p->rows <= DV_PROGRAM_FEW && p->compute != DVK_F32 && dvk_block_elements(m->type) > 1 &&
           m->k % 4 == 0;
}

static dvk_form cuda_form(const dv_row_program *p, const dv_vlm_matrix *m) {
    if (p->rows <= DV_PROGRAM_FEW) {
        return dvk_block_elements(m->type) > 1 && !rounds(p, m) ? DVK_ROWS_Q8 : DVK_ROWS_F32;
    }
    return m->type == DVK_W_F32 ? DVK_ROWS_F32 : m->type == DVK_W_F16 ? DVK_ROWS_F16 : DVK_ROWS_BF16;
}

dvk_form dv_row_program_form(const dv_row_program *p, const dv_vlm_matrix *m) {
    if (p->compute == DVK_F32 || (p->plain && p->queue == NULL)) {
        return DVK_ROWS_F32;
    }
    if (p->queue != NULL) {
        return cuda_form(p, m);
    }
    if (dvk_block_elements(m->type) > 1) {
        return DVK_ROWS_Q8;
    }
    return p->rows > 1 && !p->alike && (p->cpu & DVK_CPU_AVX512BF16) != 0 ? DVK_ROWS_BF16 : DVK_ROWS_F32;
}

dvk_form dv_row_program_attended(const dv_row_program *p) {
    return p->queue == NULL ? DVK_ROWS_F32 : (dvk_form)p->compute;
}

/* Tensor cores need rows of 16-bit values to start at multiples of 16 bytes. */
dvk_rows dv_row_program_written(dvk_form form, float *wide, int64_t k) {
    dvk_rows rows = dv_rows(wide, form == DVK_ROWS_Q8 ? DVK_ROWS_F32 : form, k);
    if (rows.form != DVK_ROWS_F32 && k >= 8) {
        rows.row = dv_div_up(k, 8) * 8;
    }
    return rows;
}

dvk_rows dv_row_program_input(dv_row_program *p, dvk_rows from, dvk_form form, void *to, int64_t k) {
    if (form == from.form) {
        return from;
    }
    const dvk_rows y = dv_rows(to, form, k);
    dv_row_program_convert(p, from, y, k);
    return y;
}

/* ---- memory ---- */

davy_result dv_space_take(dv_space *s, const char *what, const dv_space_part *parts, size_t n) {
    const uint64_t align = s->gpu != NULL ? DEVICE_ALIGN : ALIGN;
    for (size_t i = 0; i < n; i++) {
        s->bytes += dv_align_up(parts[i].bytes, align);
    }
    const davy_result r = s->gpu != NULL ? dv_gpu_alloc(s->gpu, DV_MEM_WORKSPACE, s->bytes, what, &s->memory)
                                         : dv_heap_alloc(s->heap, DV_MEM_WORKSPACE, s->bytes, what, &s->memory);
    unsigned char *at = s->memory;
    for (size_t i = 0; r == DAVY_OK && i < n; i++) {
        memcpy(parts[i].to, &at, sizeof at);
        at += dv_align_up(parts[i].bytes, align);
    }
    return r;
}

void dv_space_release(dv_space *s) {
    if (s->memory != NULL && s->gpu != NULL) {
        dv_gpu_free(s->gpu, DV_MEM_WORKSPACE, s->memory, s->bytes);
    } else if (s->memory != NULL) {
        dv_heap_free(s->heap, DV_MEM_WORKSPACE, s->memory, s->bytes);
    }
    *s = (dv_space){0};
}

/* ---- the list ---- */

void dv_row_program_start(dv_row_program *p, const dv_row_program_desc *desc) {
    *p = (dv_row_program){.pool = desc->pool,
                          .queue = desc->queue,
                          .cpu = desc->cpu,
                          .plain = desc->weights->plain,
                          .compute = desc->compute,
                          .rows = desc->rows,
                          .alike = desc->alike,
                          .r = DAVY_OK};
    if (p->queue != NULL) {
        p->r = dv_prog_cuda_start(p);
    }
}

void dv_row_program_clear(dv_row_program *p) {
    if (p->cuda != NULL) {
        dv_prog_cuda_clear(p);
    }
    dv_prog_cpu_clear(p);
    for (int64_t i = 0; i < p->n; i++) {
        dv_free(p->items[i]);
    }
    dv_free(p->cuts);
    dv_free(p->items);
    *p = (dv_row_program){0};
}

void dv_row_program_cut(dv_row_program *p) {
    int64_t *cuts = p->r == DAVY_OK ? dv_grow(p->cuts, p->n_cuts + 1, &p->cuts_room, sizeof *cuts) : NULL;
    if (cuts != NULL) {
        p->cuts = cuts;
        cuts[p->n_cuts++] = p->n;
    } else if (p->r == DAVY_OK) {
        p->r = dv_row_program_no_memory();
    }
}

davy_result dv_row_program_finish(dv_row_program *p) {
    return p->r < 0 ? p->r : p->queue != NULL ? dv_prog_cuda_finish(p) : dv_prog_cpu_finish(p);
}

davy_result dv_row_program_run(dv_row_program *p, int32_t (*cancel)(void *user), void *user) {
    return p->queue != NULL ? dv_prog_cuda_run(p, cancel, user) : dv_prog_cpu_run(p, cancel, user);
}

/* Returns NULL after an error. */
static dv_prog_item *dv_prog_add(dv_row_program *p, dv_item_kind kind) {
    dv_prog_item **items = p->r == DAVY_OK ? dv_grow(p->items, p->n + 1, &p->room, sizeof(dv_prog_item *)) : NULL;
    p->items = items != NULL ? items : p->items;
    dv_prog_item *item = items != NULL ? dv_calloc(1, sizeof *item) : NULL;
    if (item == NULL) {
        p->r = p->r < 0 ? p->r : dv_row_program_no_memory();
        return NULL;
    }
    item->kind = kind;
    item->divide = 1;
    p->items[p->n++] = item;
    return item;
}

/* On a GPU, placing the program chooses all kernels at once, for its number of rows. */
static void dv_prog_choose(dv_row_program *p, dv_prog_item *item) {
    if (p->queue == NULL) {
        dv_prog_cpu_choose(p, item);
    }
}

static int64_t rows_at(const dv_row_program *p, dv_prog_at at, int64_t divide) {
    return at == DV_AT_LAST || at == DV_AT_ONE ? 1 : p->rows / divide;
}

void dv_row_program_linear(dv_row_program *p, const dv_prog_linear *l) {
    dv_prog_item *item = dv_prog_add(p, ITEM_LINEAR);
    if (item != NULL) {
        item->at = l->at;
        item->divide = dv_max(1, l->divide);
        item->base[0] = l->x.data;
        item->a.linear = (dvk_linear_args){.x = l->x,
                                           .y = l->y,
                                           .res = l->res,
                                           .w = l->w->data,
                                           .bias = l->w->bias,
                                           .m = rows_at(p, l->at, item->divide),
                                           .n = l->w->n,
                                           .k = l->w->k,
                                           .type = l->w->type,
                                           .act = l->act,
                                           .glu = l->w->glu,
                                           .rounded = l->x.form == DVK_ROWS_F32 && rounds(p, l->w),
                                           .norm = l->norm != NULL ? l->norm->w : NULL,
                                           .norm_eps = (float)l->eps,
                                           .n_more = l->n_more,
                                           .more = l->more,
                                           .sum = l->sum};
        dv_prog_choose(p, item);
    }
}

bool dv_row_program_normalises(const dv_row_program *p, const dv_vlm_matrix *m, const dv_vlm_affine *norm) {
    const int64_t most = 4096;
    return p->queue != NULL && p->rows <= DV_PROGRAM_FEW && dv_row_program_form(p, m) == DVK_ROWS_F32 &&
           m->k % 4 == 0 && m->k <= most && norm->w != NULL && norm->b == NULL &&
           (p->compute != DVK_F32 || dvk_block_elements(m->type) == 1);
}

void dv_row_program_norm(dv_row_program *p, const dv_prog_norm *n) {
    dv_prog_item *item = dv_prog_add(p, ITEM_NORM);
    if (item != NULL) {
        item->at = n->at;
        item->divide = dv_max(1, n->divide);
        item->base[0] = n->at == DV_AT_LAST ? n->x.data : n->y.data;
        item->a.norm = (dvk_row_norm_args){.x = n->x,
                                           .y = n->y,
                                           .w = n->w->w,
                                           .b = n->w->b,
                                           .m = rows_at(p, n->at, item->divide),
                                           .heads = n->heads,
                                           .dim = n->dim,
                                           .eps = (float)n->eps,
                                           .center = n->center};
        dv_prog_choose(p, item);
    }
}

static void dv_row_program_convert(dv_row_program *p, dvk_rows x, dvk_rows y, int64_t dim) {
    dv_prog_item *item = x.data != y.data ? dv_prog_add(p, ITEM_CONVERT) : NULL;
    if (item != NULL) {
        item->a.convert = (dvk_row_convert_args){.x = x, .y = y, .m = p->rows, .heads = 1, .dim = dim};
        dv_prog_choose(p, item);
    }
}

void dv_row_program_rope_table(dv_row_program *p, const dvk_rope_table_args *a) {
    dv_prog_item *item = dv_prog_add(p, ITEM_TABLE);
    if (item != NULL) {
        item->a.table = *a;
        item->a.table.m = p->rows;
        dv_prog_choose(p, item);
    }
}

void dv_row_program_rope(dv_row_program *p, const dvk_rope_args *a, dv_prog_at at) {
    dv_prog_item *item = dv_prog_add(p, ITEM_ROPE);
    if (item != NULL) {
        item->at = at;
        item->base[0] = a->y.data;
        item->a.rope = *a;
        item->a.rope.m = p->rows;
        dv_prog_choose(p, item);
    }
}

void dv_row_program_rope_qkv(dv_row_program *p, const dvk_rope_qkv_args *a, dv_prog_at at) {
    dv_prog_item *item = dv_prog_add(p, ITEM_ROPE_QKV);
    if (item != NULL) {
        item->at = at;
        item->base[0] = a->k_to.data;
        item->base[1] = a->v_to.data;
        item->a.qkv = *a;
        item->a.qkv.m = p->rows;
        dv_prog_choose(p, item);
    }
}

void dv_row_program_attention(dv_row_program *p, const dvk_attention_kv_args *a, dv_prog_at at) {
    dv_prog_item *item = dv_prog_add(p, ITEM_ATTENTION);
    if (item != NULL) {
        item->at = at;
        item->a.attention = *a;
        item->a.attention.m = p->rows;
        item->a.attention.keys = a->keys > 0 ? a->keys : p->rows;
        dv_prog_choose(p, item);
    }
}

bool dv_row_program_attention_new(dv_row_program *p, const dvk_attention_new_args *a) {
    dvk_attention_new_args placed = *a;
    placed.a.m = p->rows;
    if (p->queue == NULL || p->r < 0 || !dv_prog_cuda_has(p, "attention_new", &placed)) {
        return false;
    }
    dv_prog_item *item = dv_prog_add(p, ITEM_ATTENTION_NEW);
    if (item != NULL) {
        item->a.fresh = placed;
    }
    return true;
}

bool dv_row_program_attention_out(dv_row_program *p, const dvk_attention_new_args *a, const dv_vlm_matrix *w,
                                  float *parts) {
    dvk_attention_out_args out = {.of = *a, .w = w->data, .parts = parts, .n = w->n, .type = w->type};
    out.of.a.m = p->rows;
    if (p->queue == NULL || p->r < 0 || !dv_prog_cuda_has(p, "attention_out", &out)) {
        return false;
    }
    dv_prog_item *item = dv_prog_add(p, ITEM_ATTENTION_OUT);
    if (item != NULL) {
        item->a.out = out;
    }
    return true;
}

void dv_row_program_gather(dv_row_program *p, const dv_gather_args *a) {
    dv_prog_item *item = dv_prog_add(p, ITEM_GATHER);
    if (item != NULL) {
        item->a.gather = *a;
        dv_prog_choose(p, item);
    }
}

dv_prog_item *dv_row_program_add_rows(dv_row_program *p, const dv_add_rows_args *a) {
    dv_prog_item *item = dv_prog_add(p, ITEM_ADD);
    if (item != NULL) {
        item->a.add = *a;
        item->a.add.m = p->rows;
        dv_prog_choose(p, item);
    }
    return item;
}

void dv_row_program_point(dv_prog_item *add_rows, const float *x) {
    add_rows->a.add.x = x;
}

/* ---- the first and last steps of a program: ids, pictures, drawn ids ---- */

bool dv_row_program_candidates(dv_row_program *p, const dvk_candidates_args *a) {
    if (p->queue == NULL || p->r < 0 || !dv_prog_cuda_has(p, "candidates", a)) {
        return false;
    }
    dv_prog_item *item = dv_prog_add(p, ITEM_CANDIDATES);
    if (item != NULL) {
        item->a.candidates = *a;
    }
    return true;
}

static dvk_embed_args embed_of(const dv_row_program *p, const dv_vlm_matrix *w, const int32_t *ids, dvk_rows y) {
    return (dvk_embed_args){.y = y, .ids = ids, .w = w->data, .m = p->rows, .n = w->n, .k = w->k, .type = w->type};
}

void dv_row_program_embed(dv_row_program *p, const dv_vlm_matrix *w, const int32_t *ids, dvk_rows y) {
    dv_prog_item *item = dv_prog_add(p, ITEM_EMBED);
    if (item != NULL) {
        item->a.embed = embed_of(p, w, ids, y);
        dv_prog_choose(p, item);
    }
}

void dv_row_program_next_token(dv_row_program *p, const dvk_next_token_args *a, const dv_vlm_matrix *embed) {
    dv_prog_item *item = dv_prog_add(p, ITEM_NEXT_TOKEN);
    if (item != NULL) {
        item->a.next = *a;
        item->a.next.embed = embed_of(p, embed, a->draw.id, a->embed.y);
        dv_prog_choose(p, item);
    }
}

void dv_row_program_argmax(dv_row_program *p, const dvk_argmax_args *a) {
    dv_prog_item *item = dv_prog_add(p, ITEM_ARGMAX);
    if (item != NULL) {
        item->a.argmax = *a;
        dv_prog_choose(p, item);
    }
}

void dv_row_program_patches(dv_row_program *p, const dvk_patches_args *a) {
    dv_prog_item *item = dv_prog_add(p, ITEM_PATCHES);
    if (item != NULL) {
        item->a.patches = *a;
        dv_prog_choose(p, item);
    }
}
