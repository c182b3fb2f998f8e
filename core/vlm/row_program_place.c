/* row_row_program_place.c - for how many rows a program runs, and behind how many others. */
#include "core/vlm/row_program_priv.h"

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
