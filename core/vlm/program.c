/* program.c - steps with their arguments, kept where they can be changed between runs. */
#include "core/vlm/program.h"

#include <string.h>

#include "core/error.h"
#include "core/mem.h"
#include "core/vlm/program_rows.h"

enum { ALIGN = 64 };

struct dv_prog_item {
    dv_step step;
    dv_prog_at at;
    int64_t divide;
    void *base; /* of what moves */
    enum { ITEM_LINEAR, ITEM_NORM, ITEM_CONVERT, ITEM_TABLE, ITEM_ROPE, ITEM_ATTENTION, ITEM_GATHER, ITEM_ADD } kind;
    union {
        dvk_linear_args linear;
        dvk_row_norm_args norm;
        dvk_row_convert_args convert;
        dvk_rope_table_args table;
        dvk_rope_args rope;
        dvk_attention_kv_args attention;
        dv_gather_args gather;
        dv_add_rows_args add;
    } a;
};

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

int64_t dv_form_pitch(dvk_form form, int64_t k) {
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

dvk_form dv_program_form(const dv_program *p, const dv_vlm_matrix *m) {
    if (!p->reduced || p->plain) {
        return DVK_ROWS_F32;
    }
    if (dvk_block_elements(m->type) > 1) {
        return DVK_ROWS_Q8;
    }
    return p->rows > 1 && (p->cpu & DVK_CPU_AVX512BF16) != 0 ? DVK_ROWS_BF16 : DVK_ROWS_F32;
}

davy_result dv_space_take(dv_space *s, dv_heap *heap, const char *what, const dv_want *wants, size_t n) {
    *s = (dv_space){.heap = heap};
    for (size_t i = 0; i < n; i++) {
        s->bytes += dv_align_up(wants[i].bytes, ALIGN);
    }
    const davy_result r = dv_heap_alloc(heap, DV_MEM_WORKSPACE, s->bytes, what, &s->memory);
    unsigned char *at = s->memory;
    for (size_t i = 0; r == DAVY_OK && i < n; i++) {
        memcpy(wants[i].to, &at, sizeof at);
        at += dv_align_up(wants[i].bytes, ALIGN);
    }
    return r;
}

void dv_space_release(dv_space *s) {
    if (s->memory != NULL) {
        dv_heap_free(s->heap, DV_MEM_WORKSPACE, s->memory, s->bytes);
    }
    *s = (dv_space){0};
}

dvk_rows dv_program_written(dvk_form wanted, float *wide, int64_t k) {
    return dv_rows(wide, wanted == DVK_ROWS_BF16 ? DVK_ROWS_BF16 : DVK_ROWS_F32, k);
}

dvk_rows dv_program_input(dv_program *p, dvk_rows from, dvk_form wanted, void *to, int64_t k) {
    if (wanted == from.form) {
        return from;
    }
    const dvk_rows y = dv_rows(to, wanted, k);
    dv_program_convert(p, from, y, k);
    return y;
}

void dv_program_start(dv_program *p, const dv_program_desc *desc) {
    *p = (dv_program){.pool = desc->pool,
                      .cpu = desc->cpu,
                      .plain = desc->weights->plain,
                      .reduced = desc->compute == DVK_BF16,
                      .rows = desc->rows,
                      .r = DAVY_OK};
}

void dv_program_clear(dv_program *p) {
    for (int64_t i = 0; p->steps != NULL && i <= p->n_cuts; i++) {
        dv_steps_release(p->steps[i]);
    }
    for (int64_t i = 0; i < p->n; i++) {
        dv_free(p->items[i]);
    }
    dv_free(p->steps);
    dv_free(p->cuts);
    dv_free(p->items);
    *p = (dv_program){0};
}

void dv_program_cut(dv_program *p) {
    int64_t *cuts = p->r == DAVY_OK ? dv_grow(p->cuts, p->n_cuts + 1, &p->cuts_room, sizeof *cuts) : NULL;
    if (cuts != NULL) {
        p->cuts = cuts;
        cuts[p->n_cuts++] = p->n;
    } else if (p->r == DAVY_OK) {
        p->r = dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
}

davy_result dv_program_finish(dv_program *p) {
    if (p->r < 0) {
        return p->r;
    }
    dv_step *list = dv_calloc((uint64_t)dv_max(1, p->n), sizeof *list);
    p->steps = list != NULL ? dv_calloc((uint64_t)p->n_cuts + 1, sizeof(dv_steps *)) : NULL;
    davy_result r = p->steps != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
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

davy_result dv_program_run(dv_program *p, int32_t (*cancel)(void *user), void *user) {
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i <= p->n_cuts; i++) {
        const bool stop = i > 0 && cancel != NULL && cancel(user) != 0;
        r = stop ? dv_fail(DAVY_E_CANCELLED, "cancelled") : dv_steps_run(p->steps[i]);
    }
    return r;
}

static dv_prog_item *add(dv_program *p, int kind) {
    dv_prog_item **items = p->r == DAVY_OK ? dv_grow(p->items, p->n + 1, &p->room, sizeof(dv_prog_item *)) : NULL;
    p->items = items != NULL ? items : p->items;
    dv_prog_item *item = items != NULL ? dv_calloc(1, sizeof *item) : NULL;
    if (item == NULL) {
        p->r = p->r < 0 ? p->r : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
        return NULL;
    }
    item->kind = kind;
    item->divide = 1;
    p->items[p->n++] = item;
    return item;
}

/* After the arguments are in place. */
static void choose(dv_program *p, dv_prog_item *item, const char *op) {
    const dvk_dtype compute = p->reduced ? DVK_BF16 : DVK_F32;
    item->step = (dv_step){.kernel = dvk_choose(op, &item->a, p->cpu, compute),
                           .args = &item->a,
                           .alone = p->rows == 1 && item->kind != ITEM_LINEAR && item->kind != ITEM_ATTENTION};
}

void dv_program_linear(dv_program *p, const dv_prog_linear *l) {
    dv_prog_item *item = add(p, ITEM_LINEAR);
    if (item != NULL) {
        item->at = l->at;
        item->divide = dv_max(1, l->divide);
        item->base = l->x.data;
        item->a.linear = (dvk_linear_args){.x = l->x,
                                           .y = l->y,
                                           .res = l->res,
                                           .w = l->w->data,
                                           .bias = l->w->bias,
                                           .m = l->at == DV_AT_LAST || l->at == DV_AT_ONE ? 1 : p->rows / item->divide,
                                           .n = l->w->n,
                                           .k = l->w->k,
                                           .type = l->w->type,
                                           .act = l->act,
                                           .glu = l->w->glu};
        choose(p, item, "linear");
        if (p->plain) {
            item->step.kernel = dvk_find("linear", "ref");
        }
    }
}

void dv_program_norm(dv_program *p, const dv_prog_norm *n) {
    dv_prog_item *item = add(p, ITEM_NORM);
    if (item != NULL) {
        item->at = n->at;
        item->divide = dv_max(1, n->divide);
        item->base = n->at == DV_AT_LAST ? n->x.data : n->y.data;
        item->a.norm = (dvk_row_norm_args){.x = n->x,
                                           .y = n->y,
                                           .w = n->w->w,
                                           .b = n->w->b,
                                           .m = n->at == DV_AT_LAST ? 1 : p->rows / item->divide,
                                           .heads = n->heads,
                                           .dim = n->dim,
                                           .eps = (float)n->eps,
                                           .center = n->center};
        choose(p, item, "row_norm");
    }
}

void dv_program_convert(dv_program *p, dvk_rows x, dvk_rows y, int64_t dim) {
    dv_prog_item *item = x.data != y.data ? add(p, ITEM_CONVERT) : NULL;
    if (item != NULL) {
        item->a.convert = (dvk_row_convert_args){.x = x, .y = y, .m = p->rows, .heads = 1, .dim = dim};
        choose(p, item, "row_convert");
    }
}

void dv_program_rope_table(dv_program *p, const dvk_rope_table_args *a) {
    dv_prog_item *item = add(p, ITEM_TABLE);
    if (item != NULL) {
        item->a.table = *a;
        item->a.table.m = p->rows;
        choose(p, item, "rope_table");
    }
}

void dv_program_rope(dv_program *p, const dvk_rope_args *a, dv_prog_at at) {
    dv_prog_item *item = add(p, ITEM_ROPE);
    if (item != NULL) {
        item->at = at;
        item->base = a->y.data;
        item->a.rope = *a;
        item->a.rope.m = p->rows;
        choose(p, item, "rope");
    }
}

void dv_program_attention(dv_program *p, const dvk_attention_kv_args *a, dv_prog_at at) {
    dv_prog_item *item = add(p, ITEM_ATTENTION);
    if (item != NULL) {
        item->at = at;
        item->a.attention = *a;
        item->a.attention.m = p->rows;
        item->a.attention.keys = p->rows;
        choose(p, item, "attention_kv");
    }
}

void dv_program_gather(dv_program *p, const dv_gather_args *a) {
    dv_prog_item *item = add(p, ITEM_GATHER);
    if (item != NULL) {
        item->a.gather = *a;
        item->step = (dv_step){.kernel = &dv_gather_rows, .args = &item->a};
    }
}

dv_prog_item *dv_program_add_rows(dv_program *p, const dv_add_rows_args *a) {
    dv_prog_item *item = add(p, ITEM_ADD);
    if (item != NULL) {
        item->a.add = *a;
        item->a.add.m = p->rows;
        item->step = (dv_step){.kernel = &dv_add_rows, .args = &item->a};
    }
    return item;
}

void dv_program_point(dv_prog_item *add_rows, const float *x) {
    add_rows->a.add.x = x;
}

static void *moved(void *base, const dvk_rows *rows, int64_t by) {
    return (unsigned char *)base + (uint64_t)(by * rows->row) * element_bytes(rows->form);
}

void dv_program_place(dv_program *p, int64_t rows, int64_t past) {
    for (int64_t i = 0; i < p->n; i++) {
        dv_prog_item *item = p->items[i];
        const int64_t m = item->at == DV_AT_LAST || item->at == DV_AT_ONE ? 1 : rows / item->divide;
        switch (item->kind) {
        case ITEM_LINEAR:
            item->a.linear.m = m;
            if (item->at == DV_AT_LAST) {
                item->a.linear.x.data = moved(item->base, &item->a.linear.x, rows - 1);
            }
            break;
        case ITEM_NORM:
            item->a.norm.m = m;
            if (item->at == DV_AT_LAST) {
                item->a.norm.x.data = moved(item->base, &item->a.norm.x, rows - 1);
            } else if (item->at == DV_AT_PAST) {
                item->a.norm.y.data = moved(item->base, &item->a.norm.y, past);
            }
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
                item->a.rope.y.data = moved(item->base, &item->a.rope.y, past);
            }
            break;
        case ITEM_ATTENTION:
            item->a.attention.m = m;
            item->a.attention.past = item->at == DV_AT_PAST ? past : 0;
            item->a.attention.keys = item->a.attention.past + m;
            break;
        case ITEM_GATHER:
            break;
        case ITEM_ADD:
            item->a.add.m = m;
            break;
        }
    }
}
