/* plan_means.c - means that are given: of plans for tiles, which share those of their picture. What a mean is of stays where
 * the step before has left it, for the engine to look at; the mean comes from a place in the arena that nothing else has. */
#include "core/error.h"
#include "core/lower.h"
#include "core/place_priv.h"

davy_result dv_place_means(const dv_plan *plan, dv_placement *place) {
    const dv_graph *g = plan->graph;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        if (g->nodes[k].dead || g->nodes[k].op != DV_OP_MEAN) {
            continue;
        }
        dv_norm_place *at = &place->norms[k];
        const int64_t c = dv_shape_of(g, g->nodes[k].in[0]).c;
        at->chunks = 1;
        at->partial = dv_place_add(place, DVK_F32, (dv_shape){1, 1, 1, c}, c, 0, g->n_nodes);
        if (at->partial < 0) {
            return dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
        }
    }
    return DAVY_OK;
}

void dv_lower_note_mean(dv_lowering *l) {
    dv_plan *p = l->plan;
    const dv_node *node = dv_lower_now(l);
    if (p->n_means == DV_MEANS) {
        l->result = dv_fail(DAVY_E_INTERNAL, "%s: more than %d means cannot be given", node->label, (int)DV_MEANS);
        return;
    }
    dv_plan_mean *m = &p->means[p->n_means++];
    m->step = p->n_steps;
    m->flops = p->flops;
    m->cost = p->cost;
    m->given_at = l->place->blocks[l->place->norms[l->node].partial].offset;
    m->x = dv_view_of(l->place, node->in[0], &m->x_at);
    dv_step s = {.label = node->label};
    dvk_pool_args *a = &s.args.pool;
    a->x = dv_view_planned(l->place, node->in[0]);
    a->x.n = 1;
    a->y = (dvk_view){.data = a->x.data, .dtype = DVK_F32, .n = 1, .h = 1, .w = 1, .c = a->x.c};
    a->y.sn = a->y.sh = a->y.sw = a->x.c;
    m->kernel = s.kernel = dv_choose_kernel(l->options, "mean", &s.args);
    if (dv_kernel_none(s.kernel)) {
        l->result = dv_choose_failed(l->options, "mean", node->label, &a->x, &a->y);
        return;
    }
    uint64_t scratch = 0;
    dv_step_measure(&s, l->options, &scratch);
    p->scratch_bytes = scratch > p->scratch_bytes ? scratch : p->scratch_bytes;
}

/* The mean of one pixel that all pictures have. */
void dv_lower_given_mean(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    const int64_t c = dv_lower_shape(l, node->in[0]).c;
    dv_lower_begin(l);
    dvk_pool_args *a = &l->step.args.pool;
    dv_lower_view(l, &a->y, node->out);
    a->x = (dvk_view){.dtype = DVK_F32, .n = a->y.n, .h = 1, .w = 1, .c = c, .sh = c, .sw = c};
    dv_lower_bind(l, DV_BIND_ARENA, dv_lower_field(l, &a->x.data),
                  l->place->blocks[l->place->norms[l->node].partial].offset);
    dv_lower_commit(l, "mean", &a->x, &a->y, 0);
}
