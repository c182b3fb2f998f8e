/* given_statistics.c - plans for tiles of a picture that share its means or norm statistics. These are given to the
 * plan. The operand of a mean stays where the previous step left it, for the engine to sum. The plan reads the mean
 * from a place in the arena that nothing else uses. */
#include "core/base/error.h"
#include "core/plan/choose.h"
#include "core/plan/lower.h"
#include "core/base/mem.h"

davy_result dv_place_given(dv_lowering *l) {
    const dv_graph *g = l->plan->graph;
    dv_memory_plan *place = l->place;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        if (node->dead || (node->op != DV_OP_MEAN && node->op != DV_OP_GROUP_NORM)) {
            continue;
        }
        dv_norm_place *at = &place->norms[k];
        const dv_shape x = dv_shape_of(g, node->in[0]);
        const bool norm = node->op == DV_OP_GROUP_NORM;
        const dv_shape given = {norm ? x.n : 1, 1, norm ? node->groups : 1, norm ? 3 : x.c};
        at->chunks = 1;
        const dv_buffer_spec spec = {DVK_F32, given, .first = 0, .last = g->n_nodes};
        at->partial = dv_memory_plan_add(place, &spec);
        if (at->partial < 0) {
            return dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
        }
    }
    return DAVY_OK;
}

/* Reserves scratch for the steps that sum a mean's or norm's operand. The engine runs them; they are not in the
 * plan. */
static void take_scratch(dv_lowering *l, dv_step *s) {
    uint64_t scratch = 0;
    dv_step_measure(s, l->options, &scratch);
    l->plan->scratch_bytes = scratch > l->plan->scratch_bytes ? scratch : l->plan->scratch_bytes;
}

static void note_mean(dv_lowering *l) {
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
    take_scratch(l, &s);
}

static bool is_given(const dv_memory_plan *place, const dv_graph *g, int64_t buffer) {
    for (int64_t k = 0; k < g->n_nodes; k++) {
        if (!g->nodes[k].dead && g->nodes[k].op == DV_OP_GROUP_NORM && place->norms[k].partial == buffer) {
            return true;
        }
    }
    return false;
}

/* Lists the pieces of the arena that earlier nodes have written and that this node or a later one reads. */
static void note_live(dv_lowering *l, dv_plan_norm *m) {
    dv_plan *p = l->plan;
    uint64_t bytes = 0;
    m->first_live = p->n_live;
    for (int64_t b = 0; b < l->place->n_buffers; b++) {
        const dv_block *block = &l->place->blocks[b];
        if (block->bytes == 0 || block->first >= l->node || block->last < l->node || is_given(l->place, p->graph, b)) {
            continue;
        }
        dv_live *live = dv_grow(p->live, p->n_live + 1, &p->cap_live, sizeof *live);
        if (live == NULL) {
            l->result = dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
            return;
        }
        p->live = live;
        live[p->n_live++] = (dv_live){.at = block->offset, .bytes = block->bytes};
        bytes += block->bytes;
    }
    m->end_live = p->n_live;
    p->live_bytes = bytes > p->live_bytes ? bytes : p->live_bytes;
}

static void note_norm(dv_lowering *l) {
    dv_plan *p = l->plan;
    const dv_node *node = dv_lower_now(l);
    dv_plan_norm *norms = dv_grow(p->norms, p->n_norms + 1, &p->cap_norms, sizeof *norms);
    if (norms == NULL) {
        l->result = dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
        return;
    }
    p->norms = norms;
    dv_plan_norm *m = &norms[p->n_norms++];
    *m = (dv_plan_norm){.step = p->n_steps, .groups = node->groups};
    m->given_at = l->place->blocks[l->place->norms[l->node].partial].offset;
    m->x = dv_view_of(l->place, node->in[0], &m->x_at);
    note_live(l, m);
    dv_step s = {.label = node->label};
    dvk_group_norm_stats_args *a = &s.args.stats;
    *a = (dvk_group_norm_stats_args){.x = dv_view_planned(l->place, node->in[0]), .groups = node->groups};
    a->x.n = 1;
    m->kernel = s.kernel = dv_choose_kernel(l->options, "group_norm_stats", &s.args);
    if (dv_kernel_none(s.kernel)) {
        l->result = dv_choose_failed(l->options, "group_norm_stats", node->label, &a->x, &a->x);
        return;
    }
    take_scratch(l, &s);
}

void dv_lower_note_given(dv_lowering *l) {
    dv_lower_now(l)->op == DV_OP_MEAN ? note_mean(l) : note_norm(l);
}

/* Emits the "mean" of a single pixel that all pictures share. */
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
