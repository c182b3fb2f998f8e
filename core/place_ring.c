/* place_ring.c - what a clip's rings hold from slice to slice: where it lies in the state, and, where there is no room for all
 * of it, which of it is far away. That comes and goes beside the steps, by way of buffers that live as long as the way is
 * guessed to take: it is late then at worst, and waited for. */
#include "core/place_priv.h"

#include "core/error.h"
#include "core/mem.h"
#include "core/plan.h"
#include "kernels/dtype.h"

/* ---- how long ---- */

static double node_ns(const dv_placement *p, const dv_node *node) {
    if (node->dead || node->out == DV_NO_VALUE) {
        return 0.0;
    }
    const dv_shape y = p->graph->values[node->out].shape;
    const double out = (double)(y.n * y.h * y.w) * (double)y.c;
    if (node->op != DV_OP_CONV2D) {
        return out * 4.0 / p->storage.gbs;
    }
    const double taps = (double)(node->kh * node->kw) * (double)p->graph->values[node->in[0]].shape.c;
    return out * taps * 2.0 / (p->storage.tflops * 1e3) + out * 2.0 / p->storage.gbs;
}

static double move_ns(const dv_ring *ring) {
    return (double)ring->bytes / DV_BUS_GBS;
}

/* When node k begins; k may be their number. */
static double *begin_times(const dv_placement *p) {
    double *at = dv_calloc((uint64_t)p->graph->n_nodes + 1, sizeof *at);
    for (int64_t k = 0; at != NULL && k < p->graph->n_nodes; k++) {
        at[k + 1] = at[k] + node_ns(p, &p->graph->nodes[k]);
    }
    return at;
}

/* One comes after the other, as late as it may. */
static void plan_landings(dv_placement *p, const double *at) {
    double end = at[p->graph->n_nodes];
    for (int64_t i = p->n_rings - 1; i >= 0; i--) {
        dv_ring *ring = &p->rings[i];
        if (ring->away) {
            end = (end < at[ring->begins] ? end : at[ring->begins]) - move_ns(ring);
            const double earliest = at[ring->begins] - p->storage.ahead;
            ring->from = ring->begins;
            while (ring->from > 0 && at[ring->from] > end && at[ring->from] > earliest) {
                ring->from--;
            }
        }
    }
}

/* One after the other, as soon as it is there. */
static void plan_leavings(dv_placement *p, const double *at) {
    double end = 0.0;
    for (int64_t i = 0; i < p->n_rings; i++) {
        dv_ring *ring = &p->rings[i];
        if (ring->away) {
            const double ready = at[ring->ends + 1];
            end = (end > ready ? end : ready) + move_ns(ring);
            ring->by = ring->ends + 1;
            while (ring->by < p->graph->n_nodes && at[ring->by] < end && at[ring->by] < ready + p->storage.ahead) {
                ring->by++;
            }
        }
    }
}

/* ---- which ---- */

static bool keep_near(dv_placement *p, dv_ring *ring, uint64_t *left) {
    const bool fits = ring->bytes <= *left;
    if (fits) {
        *left -= ring->bytes;
        ring->away = false;
        ring->kept = p->state_bytes;
        p->state_bytes += ring->bytes;
    }
    return fits;
}

/* From both ends of the slice: what is wanted at once, and what is made last, would be waited for. */
static void divide(dv_placement *p) {
    uint64_t left = p->storage.away ? p->storage.near : UINT64_MAX;
    int64_t first = 0, end = p->n_rings;
    for (bool more = true; more && first < end;) {
        more = keep_near(p, &p->rings[first], &left);
        first += more;
        if (first < end && keep_near(p, &p->rings[end - 1], &left)) {
            end--;
            more = true;
        }
    }
    for (int64_t i = first; i < end; i++) {
        p->rings[i].away = true;
        p->rings[i].kept = p->away_bytes;
        p->away_bytes += p->rings[i].bytes;
    }
}

/* ---- rings ---- */

/* The operand of a first past is not there; what it is about is its own shape. */
static uint64_t bytes_of(const dv_placement *p, const dv_node *past) {
    const dv_shape s = p->graph->values[past->out].shape;
    const dvk_dtype dtype = p->dtypes[past->out];
    const int64_t octet = dtype == DVK_F32 ? 1 : p->storage.channels;
    const int64_t pixel = dv_div_up(s.c, octet) * octet;
    return dv_align_up((uint64_t)(s.h * s.w * pixel) * dvk_dtype_size(dtype), p->storage.align);
}

static bool add_ring(dv_placement *p, int64_t k) {
    dv_ring *rings = dv_grow(p->rings, p->n_rings + 1, &p->cap_rings, sizeof *rings);
    if (rings == NULL) {
        return false;
    }
    p->rings = rings;
    const dv_node *past = &p->graph->nodes[k];
    const dv_ring ring = {.number = past->time.ring,
                          .buffer = p->places[past->out].buffer,
                          .begins = k,
                          .bytes = bytes_of(p, past),
                          .landing = -1,
                          .leaving = -1};
    int64_t at = p->n_rings++;
    for (; at > 0 && rings[at - 1].number > ring.number; at--) {
        rings[at] = rings[at - 1];
    }
    rings[at] = ring;
    return true;
}

static dv_ring *find_ring(const dv_placement *p, int64_t k) {
    const int32_t number = p->graph->nodes[k].time.ring;
    for (int64_t i = 0; i < p->n_rings; i++) {
        if (p->rings[i].number == number) {
            return &p->rings[i];
        }
    }
    return NULL;
}

const dv_ring *dv_ring_of(const dv_placement *p, int64_t k) {
    return find_ring(p, k);
}

static bool list_rings(dv_placement *p) {
    const dv_graph *g = p->graph;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        if (!node->dead && node->op == DV_OP_PAST && node->n_in == 0 && node->time.keep > 0 && !add_ring(p, k)) {
            return false;
        }
    }
    for (int64_t k = 0; k < g->n_nodes; k++) {
        if (!g->nodes[k].dead && g->nodes[k].op == DV_OP_WINDOW && g->nodes[k].time.keep > 0) {
            find_ring(p, k)->ends = k;
        }
    }
    return true;
}

/* As the past lies, but with nothing beside it. */
static bool add_ways(dv_placement *p, dv_ring *ring) {
    const dv_value past = p->graph->nodes[ring->begins].out;
    const dv_shape shape = p->graph->values[past].shape;
    if (p->graph->continues) {
        ring->landing = dv_place_add(p, p->dtypes[past], shape, shape.c, ring->from, ring->begins);
    }
    if (p->graph->keeps) {
        ring->leaving = dv_place_add(p, p->dtypes[past], shape, shape.c, ring->ends, ring->by - 1);
    }
    return (!p->graph->continues || ring->landing >= 0) && (!p->graph->keeps || ring->leaving >= 0);
}

davy_result dv_place_rings(dv_placement *p) {
    bool ok = list_rings(p);
    if (ok && p->n_rings > 0) {
        divide(p);
    }
    if (ok && p->away_bytes > 0) {
        double *at = begin_times(p);
        ok = at != NULL;
        if (ok) {
            plan_landings(p, at);
            plan_leavings(p, at);
        }
        dv_free(at);
    }
    for (int64_t i = 0; ok && i < p->n_rings; i++) {
        ok = !p->rings[i].away || add_ways(p, &p->rings[i]);
    }
    return ok ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
}
