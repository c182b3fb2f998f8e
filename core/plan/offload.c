/* offload.c - copies between a clip's rings and the part of its state that is in the host's memory: a queue of its own for
 * each way, and steps that wait for what has not come in time. */
#include "core/base/error.h"
#include "core/plan/lower.h"
#include "core/base/mem.h"
#include "kernels/dtype.h"

/* Of the kept frames, which lie in a buffer from `slot` on. */
static dv_transfer frames_at(const dv_memory_plan *place, const dv_frame_ring *ring, int32_t buffer, int64_t slot) {
    const dv_plan_buffer *b = &place->buffers[buffer];
    const uint64_t size = dvk_dtype_size(b->dtype);
    return (dv_transfer){.at = place->blocks[buffer].offset + (uint64_t)(slot * ring->frame.c) * size,
                         .pitch = (uint64_t)b->pixel * size,
                         .host_at = ring->kept,
                         .row_bytes = (uint64_t)(ring->keep * ring->frame.c) * size,
                         .rows = (uint64_t)(ring->frame.h * ring->frame.w)};
}

/* Where the last frames of a slice lie. */
static int64_t last_slot(const dv_graph *g, const dv_frame_ring *ring) {
    const dv_node *node = &g->nodes[ring->ends];
    return ring->out != ring->buffer  ? 0
           : node->op == DV_OP_FRAMES ? node->time.lead + g->values[node->in[0]].shape.n - ring->keep
                                      : dv_frame_ring_base(node) + 1;
}

typedef enum order { WRITTEN_BACK, MAY_FETCH, FETCHED, MAY_WRITE_BACK } order; /* at a node: room is made, then taken */

typedef struct builder {
    dv_plan *plan;
    const int64_t *first_step;
    int64_t *keys; /* of syncs: node and order */
} builder;

static void add_sync(builder *b, int64_t node, order what, bool begins) {
    const int64_t key = node * 4 + (int64_t)what;
    int64_t at = 2 * (b->plan->n_transfers - 1) + !begins;
    for (; at > 0 && b->keys[at - 1] > key; at--) {
        b->keys[at] = b->keys[at - 1];
        b->plan->syncs[at] = b->plan->syncs[at - 1];
    }
    b->keys[at] = key;
    b->plan->syncs[at] = (dv_sync){b->first_step[node + (what == MAY_WRITE_BACK)], b->plan->n_transfers - 1, begins};
}

/* What is kept of a ring is there when its last window is, at node `ends`: before node ends + 1. */
static void add_transfers(builder *b, const dv_memory_plan *place, const dv_frame_ring *ring) {
    const dv_graph *g = place->graph;
    if (g->continues) {
        b->plan->transfers[b->plan->n_transfers++] = frames_at(place, ring, ring->in, 0);
        add_sync(b, ring->from, MAY_FETCH, true);
        add_sync(b, ring->begins, FETCHED, false);
    }
    if (g->keeps) {
        dv_transfer *t = &b->plan->transfers[b->plan->n_transfers++];
        *t = frames_at(place, ring, ring->out, last_slot(g, ring));
        t->to_host = true;
        add_sync(b, ring->ends, MAY_WRITE_BACK, true);
        add_sync(b, ring->by, WRITTEN_BACK, false);
    }
}

davy_result dv_plan_rings(dv_plan *p, const dv_memory_plan *place, const int64_t *first_step) {
    const uint64_t most = 2 * (uint64_t)place->n_rings + 1;
    p->kept = dv_calloc((uint64_t)place->n_rings + 1, sizeof *p->kept);
    p->transfers = dv_calloc(most, sizeof *p->transfers);
    p->syncs = dv_calloc(2 * most, sizeof *p->syncs);
    builder b = {p, first_step, dv_calloc(2 * most, sizeof *b.keys)};
    const bool ok = p->kept != NULL && p->transfers != NULL && p->syncs != NULL && b.keys != NULL;
    for (int64_t i = 0; ok && i < place->n_rings; i++) {
        const dv_frame_ring *ring = &place->rings[i];
        p->kept[p->n_kept++] = (dv_kept){ring->kept, ring->bytes, ring->offloaded};
        if (ring->offloaded) {
            add_transfers(&b, place, ring);
        }
    }
    dv_free(b.keys);
    p->state_bytes += place->state_bytes;
    p->offloaded_bytes = place->offloaded_bytes;
    return ok ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
}

void dv_plan_time(dv_plan *p) {
    double now = 0.0, busy[2] = {0.0, 0.0};
    const dv_sync *m = p->syncs, *end = m + 2 * p->n_transfers;
    for (int64_t k = 0; k <= p->n_steps; k++) {
        for (; m != end && m->step == k; m++) {
            dv_transfer *t = &p->transfers[m->transfer];
            double *way = &busy[t->to_host];
            if (m->begins) {
                *way = (*way > now ? *way : now) + (double)(t->row_bytes * t->rows) / DV_BUS_GBS;
                t->done = *way;
            } else if (t->done > now) {
                now = t->done;
            }
        }
        now += k < p->n_steps ? p->steps[k].cost : 0.0;
    }
    p->duration = now;
}
