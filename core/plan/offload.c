/* offload.c - the state of a clip's rings. It assigns their places, and offloads a part to host memory if the GPU has
 * no room for all. An offloaded ring is copied into its buffer before the ring is read and out of it after its last
 * window, concurrently with the steps. The ring's buffer lives longer for that, as far as there is room. Each
 * direction has a queue of its own; steps wait for transfers that are late. */
#include "core/plan/offload.h"

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/plan/plan.h"
#include "kernels/dtype.h"

/* ---- duration ---- */

static double node_ns(const dv_memory_plan *p, const dv_node *node) {
    if (node->dead || node->out == DV_NO_VALUE) {
        return 0.0;
    }
    const dv_shape y = p->graph->values[node->out].shape;
    const double out = (double)(y.n * y.h * y.w) * (double)y.c;
    if (node->op != DV_OP_CONV2D) {
        return out * 4.0 / p->storage.gbs;
    }
    const double taps = (double)(node->kh * node->kw) * (double)p->graph->values[node->in[0]].shape.c;
    const double products = dv_cuda_of(p, node)->winograd > 0 ? 0.5 : 1.0;
    return out * taps * products * 2.0 / (p->storage.tflops * 1e3) + out * 2.0 / p->storage.gbs;
}

static double transfer_ns(const dv_frame_ring *ring) {
    return (double)ring->bytes / DV_BUS_GBS;
}

typedef struct schedule {
    dv_memory_plan *p;
    double *at;     /* start of node k in ns; at[n_nodes] is the end */
    uint64_t *live; /* bytes of the buffers alive at node k */
    uint64_t *room; /* upper limit of `live` */
} schedule;

static void free_schedule(schedule *s) {
    dv_free(s->at);
    dv_free(s->live);
    dv_free(s->room);
}

static bool make_schedule(dv_memory_plan *p, schedule *s) {
    const uint64_t n = (uint64_t)p->graph->n_nodes + 1;
    *s = (schedule){.p = p,
                    .at = dv_calloc(n, sizeof *s->at),
                    .live = dv_calloc(n, sizeof *s->live),
                    .room = dv_calloc(n, sizeof *s->room)};
    if (s->at == NULL || s->live == NULL || s->room == NULL) {
        free_schedule(s);
        return false;
    }
    for (int64_t k = 0; k < p->graph->n_nodes; k++) {
        s->at[k + 1] = s->at[k] + node_ns(p, &p->graph->nodes[k]);
    }
    for (int64_t i = 0; i < p->n_buffers; i++) {
        for (int64_t k = dv_max(p->blocks[i].first, 0); k <= p->blocks[i].last && k < p->graph->n_nodes; k++) {
            s->live[k] += p->blocks[i].bytes;
        }
    }
    return true;
}

/* Limits the arena. `half`: only half of the free bytes, since write-backs need as much as fetches. */
static void set_room(schedule *s, bool half) {
    const uint64_t all = s->p->storage.policy->overlap_arena_bytes;
    for (int64_t k = 0; k <= s->p->graph->n_nodes; k++) {
        const uint64_t free_bytes = all > s->live[k] ? all - s->live[k] : 0;
        s->room[k] = s->live[k] + (half ? free_bytes / 2 : free_bytes);
    }
}

/* Whether the ring's buffer can be alive at node k, too; then counts it there. */
static bool extend(schedule *s, const dv_block *b, int64_t k) {
    const bool alive = k >= b->first && k <= b->last;
    const bool fits = alive || (s->live[k] <= s->room[k] && b->bytes <= s->room[k] - s->live[k]);
    s->live[k] += fits && !alive ? b->bytes : 0;
    return fits;
}

/* Schedules the fetches one after another, each as late as possible. */
static void plan_fetches(schedule *s) {
    double end = s->at[s->p->graph->n_nodes];
    for (int64_t i = s->p->n_rings - 1; i >= 0; i--) {
        dv_frame_ring *ring = &s->p->rings[i];
        if (ring->offloaded) {
            dv_block *block = &s->p->blocks[ring->in];
            end = (end < s->at[ring->begins] ? end : s->at[ring->begins]) - transfer_ns(ring);
            while (ring->from > 0 && s->at[ring->from] > end && extend(s, block, ring->from - 1)) {
                ring->from--;
                block->first = dv_min(block->first, ring->from);
            }
            end = end > s->at[ring->from] ? end : s->at[ring->from];
        }
    }
}

/* Schedules the write-backs one after another, each as early as possible. */
static void plan_write_backs(schedule *s) {
    double end = 0.0;
    for (int64_t i = 0; i < s->p->n_rings; i++) {
        dv_frame_ring *ring = &s->p->rings[i];
        if (ring->offloaded) {
            dv_block *block = &s->p->blocks[ring->out];
            const double ready = s->at[ring->ends + 1];
            end = (end > ready ? end : ready) + transfer_ns(ring);
            while (ring->by < s->p->graph->n_nodes && s->at[ring->by] < end && extend(s, block, ring->by)) {
                block->last = dv_max(block->last, ring->by);
                ring->by++;
            }
        }
    }
}

/* A ring is alive from its first PAST until its last window has been copied. If there is room, it lives longer. */
static bool plan_transfers(dv_memory_plan *p) {
    schedule s;
    if (!make_schedule(p, &s)) {
        return false;
    }
    for (int64_t i = 0; i < p->n_rings; i++) {
        p->rings[i].from = p->rings[i].begins;
        p->rings[i].by = p->rings[i].ends + 1;
    }
    set_room(&s, p->graph->keeps);
    if (p->graph->continues) {
        plan_fetches(&s);
    }
    set_room(&s, false);
    if (p->graph->keeps) {
        plan_write_backs(&s);
    }
    if (p->graph->continues) {
        plan_fetches(&s);
    }
    free_schedule(&s);
    return true;
}

/* ---- selection ---- */

static bool keep_resident(dv_memory_plan *p, dv_frame_ring *ring, uint64_t *left) {
    const bool fits = ring->bytes <= *left;
    if (fits) {
        *left -= ring->bytes;
        ring->offloaded = false;
        ring->kept = p->state_bytes;
        p->state_bytes += ring->bytes;
    }
    return fits;
}

/* Rings at both ends of the slice stay resident first. Steps would have to wait for the rings read first and those
 * written last. */
static void divide(dv_memory_plan *p) {
    const dv_exec_policy *policy = p->storage.policy;
    uint64_t left = policy->offload_state ? policy->resident_bytes : UINT64_MAX;
    int64_t first = 0, end = p->n_rings;
    for (bool more = true; more && first < end;) {
        more = keep_resident(p, &p->rings[first], &left);
        first += more;
        if (first < end && keep_resident(p, &p->rings[end - 1], &left)) {
            end--;
            more = true;
        }
    }
    for (int64_t i = first; i < end; i++) {
        p->rings[i].offloaded = true;
        p->rings[i].kept = p->offloaded_bytes;
        p->offloaded_bytes += p->rings[i].bytes;
    }
}

/* ---- transformed frames ---- */

/* The window node whose frame has number `first`. */
static int64_t find_window(const dv_memory_plan *p, const dv_frame_ring *ring, int64_t first) {
    const dv_graph *g = p->graph;
    int64_t k = ring->begins;
    while (k < ring->ends && (g->nodes[k].dead || g->nodes[k].op != DV_OP_WINDOW ||
                              g->nodes[k].time.ring != ring->number || g->nodes[k].first != first)) {
        k++;
    }
    return k;
}

/* The kept frames of a transformed ring are plain and have buffers of their own. The buffer `in` is read until the
 * ring's first window. The buffer `out` is written from the window that adds the first of the last `keep` frames. */
static bool place_apart(dv_memory_plan *p, dv_frame_ring *ring) {
    const dv_node *last = &p->graph->nodes[ring->ends];
    if (dv_cuda_of(p, last)->winograd == 0) {
        return true;
    }
    dv_shape s = ring->frame;
    s.c *= ring->keep;
    const bool windows = last->op == DV_OP_WINDOW;
    const int64_t made = windows ? dv_max(last->first + 1 - ring->keep, 0) : 0;
    const int64_t read = windows ? find_window(p, ring, 0) : ring->ends;
    const dv_buffer_spec in = {DVK_F16, s, .first = ring->begins, .last = p->graph->continues ? read : -1};
    const dv_buffer_spec out = {DVK_F16, s, .first = windows ? find_window(p, ring, made) : ring->begins,
                                .last = ring->ends};
    ring->in = dv_memory_plan_add(p, &in);
    ring->out = dv_memory_plan_add(p, &out);
    return ring->in >= 0 && ring->out >= 0;
}

/* ---- rings ---- */

/* The shape of kept frames: that of the pictures before the transform. */
static dv_shape kept_shape(const dv_memory_plan *p, const dv_node *node, dv_shape pictures) {
    const int64_t width = dv_cuda_of(p, node)->winograd;
    if (width > 0) {
        pictures.h /= DVK_WINOGRAD_LINES;
        pictures.w = width;
    }
    return pictures;
}

/* A first PAST has no operand, so its own shape gives the frame's. */
static dv_frame_ring ring_of(const dv_memory_plan *p, int64_t k) {
    const dv_node *node = &p->graph->nodes[k];
    dv_shape s = kept_shape(p, node, p->graph->values[node->out].shape);
    s.n = 1;
    s.c /= node->op == DV_OP_FRAMES ? node->time.frames : node->time.lead;
    const dvk_dtype dtype = p->dtypes[node->out];
    const int64_t octet = dtype == DVK_F32 ? 1 : p->storage.channels;
    const int64_t pixel = dv_div_up(s.c * node->time.keep, octet) * octet;
    const uint64_t bytes = (uint64_t)(s.h * s.w * pixel) * dvk_dtype_size(dtype);
    return (dv_frame_ring){.number = node->time.ring,
                           .buffer = p->places[node->out].buffer,
                           .in = p->places[node->out].buffer,
                           .out = p->places[node->out].buffer,
                           .begins = k,
                           .ends = k,
                           .frame = s,
                           .keep = node->time.keep,
                           .bytes = dv_align_up(bytes, p->storage.align)};
}

static bool add_ring(dv_memory_plan *p, int64_t k) {
    dv_frame_ring *rings = dv_grow(p->rings, p->n_rings + 1, &p->cap_rings, sizeof *rings);
    if (rings == NULL) {
        return false;
    }
    p->rings = rings;
    const dv_frame_ring ring = ring_of(p, k);
    int64_t at = p->n_rings++;
    for (; at > 0 && rings[at - 1].number > ring.number; at--) {
        rings[at] = rings[at - 1];
    }
    rings[at] = ring;
    return true;
}

static dv_frame_ring *find_ring(const dv_memory_plan *p, int64_t k) {
    const int32_t number = p->graph->nodes[k].time.ring;
    for (int64_t i = 0; i < p->n_rings; i++) {
        if (p->rings[i].number == number) {
            return &p->rings[i];
        }
    }
    return NULL;
}

const dv_frame_ring *dv_frame_ring_of(const dv_memory_plan *p, int64_t k) {
    return find_ring(p, k);
}

static bool begins_ring(const dv_memory_plan *p, const dv_node *node) {
    const dv_graph *g = p->graph;
    if (node->dead || node->time.keep == 0 || !(g->continues || g->keeps)) {
        return false;
    }
    if (node->op == DV_OP_FRAMES) {
        const dv_plan_buffer *b = &p->buffers[p->places[node->out].buffer];
        return b->frame < b->pixel;
    }
    return node->op == DV_OP_PAST && node->n_in == 0;
}

static bool list_rings(dv_memory_plan *p) {
    const dv_graph *g = p->graph;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        if (begins_ring(p, &g->nodes[k]) && !add_ring(p, k)) {
            return false;
        }
    }
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k], *frames = node->dead ? NULL : dv_frames_of_bands(p, node);
        if (!node->dead && node->op == DV_OP_WINDOW && node->time.keep > 0) {
            find_ring(p, k)->ends = k;
        } else if (frames != NULL && frames->time.keep > 0 && find_ring(p, frames - g->nodes) != NULL) {
            find_ring(p, frames - g->nodes)->ends = k;
        }
    }
    return true;
}

davy_result dv_memory_plan_rings(dv_memory_plan *p) {
    bool ok = list_rings(p);
    if (ok && p->n_rings > 0) {
        divide(p);
    }
    for (int64_t i = 0; ok && i < p->n_rings; i++) {
        ok = !p->rings[i].offloaded || place_apart(p, &p->rings[i]);
    }
    ok = ok && (p->offloaded_bytes == 0 || plan_transfers(p));
    return ok ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
}

/* ---- the plan's transfers ---- */

/* The transfer of the kept frames, which begin at `slot` of the buffer. */
static dv_transfer frames_at(const dv_memory_plan *place, const dv_frame_ring *ring, int32_t buffer, int64_t slot) {
    const dv_plan_buffer *b = &place->buffers[buffer];
    const uint64_t size = dvk_dtype_size(b->dtype);
    return (dv_transfer){.at = place->blocks[buffer].offset + (uint64_t)(slot * ring->frame.c) * size,
                         .pitch = (uint64_t)b->pixel * size,
                         .host_at = ring->kept,
                         .row_bytes = (uint64_t)(ring->keep * ring->frame.c) * size,
                         .rows = (uint64_t)(ring->frame.h * ring->frame.w)};
}

/* The slot of the first frame that the slice leaves to the next. */
static int64_t last_slot(const dv_graph *g, const dv_frame_ring *ring) {
    const dv_node *node = &g->nodes[ring->ends];
    return ring->out != ring->buffer  ? 0
           : node->op == DV_OP_FRAMES ? node->time.lead + g->values[node->in[0]].shape.n - ring->keep
                                      : dv_frame_ring_base(node) + 1;
}

/* order at one node: buffers are released before others are claimed */
typedef enum order { WRITTEN_BACK, MAY_FETCH, FETCHED, MAY_WRITE_BACK } order;

typedef struct builder {
    dv_plan *plan;
    const int64_t *first_step;
    int64_t *keys; /* sort keys of syncs: node and order */
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

/* A ring's kept frames are complete at its last window, node `ends`; so they may be written back before node ends +
 * 1. */
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

/* Estimates the end of each transfer, and the duration of the plan. */
static void guess_duration(dv_plan *p) {
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
    if (ok) {
        guess_duration(p);
    }
    return ok ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
}
