/* row_row_program_tokens.c - the steps of a program where rows begin and end: words, pictures, what is drawn. */
#include "core/vlm/row_program_priv.h"

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
