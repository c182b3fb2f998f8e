/* vision_vit.c - SigLIP and CLIP: tiles of one size, one after the other; behind them Idefics3's connector (pixel shuffle,
 * then a linear layer) or LLaVA's projector (two linear layers). */
#include <string.h>

#include "core/error.h"
#include "core/vlm/vision.h"

/* s x s neighbours become one row, theirs one behind the other. */
static void shuffle_order(const dv_vlm_vision *v, int32_t *order) {
    const int64_t s = v->shuffle;
    const int64_t side = v->grid / s;
    for (int64_t i = 0; i < v->grid * v->grid; i++) {
        const int64_t cell = i / (s * s);
        const int64_t y = cell / side * s + i % (s * s) / s;
        const int64_t x = cell % side * s + i % s;
        order[i] = (int32_t)(y * v->grid + x);
    }
}

static void add_connector(dv_tower *t, int32_t *order) {
    const dv_vlm_vision *v = &t->desc->config->vision;
    const dv_vlm_matrix *w = &t->desc->weights->merger.first;
    dv_program *p = &t->program;
    const dvk_rows x = dv_rows(t->x, DVK_ROWS_F32, v->hidden);
    const int64_t wide = v->hidden * v->shuffle * v->shuffle;
    dv_tower_norm(t, &t->desc->weights->post_norm, x);
    shuffle_order(v, order);
    dv_program_gather(
        p, &(dv_gather_args){.x = t->x, .y = t->grouped, .order = order, .m = v->grid * v->grid, .dim = v->hidden});
    p->rows = v->tokens_per_tile;
    const dvk_rows in =
        dv_program_input(p, dv_rows(t->grouped, DVK_ROWS_F32, wide), dv_program_form(p, w), t->grouped_in, wide);
    dv_program_linear(p, &(dv_prog_linear){.w = w, .x = in, .y = dv_rows(t->out, DVK_ROWS_F32, v->out_hidden)});
}

static void add_projector(dv_tower *t) {
    const dv_vlm_vision *v = &t->desc->config->vision;
    const dv_vlm_merger *m = &t->desc->weights->merger;
    dv_program *p = &t->program;
    const int64_t skip = t->rows - v->tokens_per_tile; /* the class token */
    p->rows = v->tokens_per_tile;
    dvk_rows in = dv_program_input(p, dv_rows(t->x + skip * v->hidden, DVK_ROWS_F32, v->hidden),
                                   dv_program_form(p, &m->first), t->grouped_in, v->hidden);
    const dvk_form form = dv_program_form(p, &m->second);
    const dvk_rows between = dv_program_written(form, t->projected, v->out_hidden);
    dv_program_linear(p, &(dv_prog_linear){.w = &m->first, .x = in, .y = between, .act = dv_gate_of(v->projector_act)});
    in = dv_program_input(p, between, form, t->projected_in, v->out_hidden);
    dv_program_linear(p,
                      &(dv_prog_linear){.w = &m->second, .x = in, .y = dv_rows(t->out, DVK_ROWS_F32, v->out_hidden)});
}

static davy_result run_tiles(dv_tower *t, const float *patches, dv_vlm_features *out) {
    const dv_vlm_vision *v = &t->desc->config->vision;
    const int64_t values = t->inputs * t->plan->patch_values;
    const int64_t numbers = v->tokens_per_tile * v->out_hidden;
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < t->plan->tiles; i++) {
        if (t->desc->cancel != NULL && t->desc->cancel(t->desc->user) != 0) {
            return dv_fail(DAVY_E_CANCELLED, "cancelled");
        }
        memcpy(t->in, patches + i * values, (size_t)values * sizeof *t->in);
        if (t->desc->weights->class_row != NULL) {
            memcpy(t->x, t->desc->weights->class_row, (size_t)v->hidden * sizeof *t->x);
        }
        r = dv_program_run(&t->program, t->desc->cancel, t->desc->user);
        memcpy(out->vectors + i * numbers, t->out, (size_t)numbers * sizeof *t->out);
    }
    return r;
}

davy_result dv_vision_vit(dv_tower *t, const float *patches, dv_vlm_features *out) {
    const dv_vlm_vision *v = &t->desc->config->vision;
    const dv_vlm_weights *w = t->desc->weights;
    const int64_t inputs = v->grid * v->grid;
    const int64_t class_rows = w->class_row != NULL ? 1 : 0;
    const int64_t wide = v->shuffle > 0 ? v->hidden * v->shuffle * v->shuffle : v->hidden;
    if (t->plan->patches != t->plan->tiles * inputs || t->plan->tokens != t->plan->tiles * v->tokens_per_tile) {
        return dv_fail(DAVY_E_INTERNAL, "captioning: tiles that are not the vision tower's");
    }
    davy_result r = dv_tower_start(t, inputs + class_rows, inputs, wide, v->tokens_per_tile);
    int32_t *order = dv_calloc((uint64_t)inputs, sizeof *order);
    if (r == DAVY_OK && order == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    if (r == DAVY_OK) {
        dv_tower_patches(t, t->x + class_rows * v->hidden, w->positions);
        if (w->pre_norm.w != NULL) {
            dv_tower_norm(t, &w->pre_norm, dv_rows(t->x, DVK_ROWS_F32, v->hidden));
        }
        for (int64_t i = 0; i < v->run_layers; i++) {
            dv_program_cut(&t->program);
            dv_tower_block(t, &w->blocks[i], true);
        }
        if (v->shuffle > 0) {
            add_connector(t, order);
        } else {
            add_projector(t);
        }
        r = dv_program_finish(&t->program);
        r = r < 0 ? r : run_tiles(t, patches, out);
    }
    dv_free(order);
    return r;
}
