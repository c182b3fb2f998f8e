/* memory_time.c - where a clip's frames lie: side by side in each pixel, [h][w][frame][c], where a window in time reads them,
 * so that several of them are channels of one; else one behind the other, as pictures do. */
#include "core/plan/memory_priv.h"

#include "core/base/error.h"
#include "kernels/dtype.h"

enum { LEAST_CHANNELS = 8 }; /* a frame's in a pixel are a multiple: what CUDA's kernels ask of a view */

static bool may_be_strided(const dv_memory_plan *p, dv_value v) {
    return !p->by_rows[v];
}

/* Of `count` such frames, two or more. */
static int32_t add_side_by_side(dv_memory_plan *p, dvk_dtype dtype, dv_shape frame, int64_t count, int64_t k) {
    const dv_shape shape = {1, frame.h, frame.w, count * frame.c};
    const int32_t b = dv_place_add(p, dtype, shape, shape.c, k, k);
    if (b >= 0) {
        p->buffers[b].frame = frame.c;
    }
    return b;
}

/* So that, as in a concat (memory.c), a kernel does not take one frame's channels for all of a pixel. */
static int64_t room_of(const dv_memory_plan *p, int64_t part, int64_t all) {
    const int64_t octet = p->storage.channels;
    return octet > 1 && dv_div_up(part, octet) == dv_div_up(all, octet) ? all + octet : all;
}

static bool place_frames(dv_memory_plan *p, int64_t k) {
    const dv_node *node = &p->graph->nodes[k];
    const dv_value x = node->in[0];
    const dv_shape out = p->graph->values[node->out].shape;
    dv_shape in = p->graph->values[x].shape;
    in.h = out.h; /* of what is made of it */
    in.w = out.w;
    if (node->fused.band > 0) { /* and the rows above and below that its taps reach */
        in.h = dv_min(in.h, DVK_WINOGRAD_LINES * (node->fused.band + 2));
    }
    const bool side_by_side = in.c % LEAST_CHANNELS == 0;
    dv_place where = {.stride = side_by_side ? node->time.step : 1};
    where.buffer = side_by_side ? add_side_by_side(p, p->dtypes[node->out], in, node->time.lead + in.n, k)
                                : dv_place_add(p, p->dtypes[node->out], out, room_of(p, in.c, out.c), k, k);
    if (where.buffer < 0) {
        return false;
    }
    dv_place_put(p, node->out, where);
    if (side_by_side && node->fused.winograd == 0 && dv_place_can_move(p, x, p->dtypes[node->out]) &&
        may_be_strided(p, x)) {
        where.frame = node->time.lead;
        where.stride = 1;
        dv_place_put(p, x, where);
    }
    return true;
}

/* The parts of the operand's channels are frames where it lies among frames of so many channels. */
static bool place_to_frames(dv_memory_plan *p, int64_t k) {
    const dv_node *node = &p->graph->nodes[k];
    const dv_value x = node->in[0];
    const dv_shape out = p->graph->values[node->out].shape;
    if (p->places[node->out].buffer < 0) {
        if (out.c % LEAST_CHANNELS != 0 || !may_be_strided(p, node->out)) {
            return true;
        }
        dv_place where = {.stride = 1};
        where.buffer = add_side_by_side(p, p->dtypes[node->out], out, out.n, k);
        if (where.buffer < 0) {
            return false;
        }
        dv_place_put(p, node->out, where);
    }
    dv_place where = p->places[node->out];
    if (p->buffers[where.buffer].frame == out.c && where.channel == 0 && where.stride == 1 &&
        dv_place_can_move(p, x, p->dtypes[node->out]) && may_be_strided(p, x)) {
        where.stride = node->r;
        dv_place_put(p, x, where);
    }
    return true;
}

static bool place_join(dv_memory_plan *p, int64_t k) {
    const dv_node *node = &p->graph->nodes[k];
    const dv_shape shape = p->graph->values[node->out].shape;
    if (p->places[node->out].buffer < 0) {
        dv_place where = {.stride = 1};
        where.buffer = dv_place_add(p, p->dtypes[node->out], shape, shape.c, k, k);
        if (where.buffer < 0) {
            return false;
        }
        dv_place_put(p, node->out, where);
    }
    dv_place where = p->places[node->out];
    const bool strided = p->buffers[where.buffer].frame < p->buffers[where.buffer].pixel;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dv_value x = node->in[i];
        if (dv_place_can_move(p, x, p->dtypes[node->out]) && (!strided || may_be_strided(p, x))) {
            dv_place_put(p, x, where);
        }
        where.frame += p->graph->values[x].shape.n * where.stride;
    }
    return true;
}

const dv_node *dv_frames_of_bands(const dv_memory_plan *p, const dv_node *node) {
    const bool bands = node->op == DV_OP_CONV2D && node->fused.band > 0;
    return bands ? &p->graph->nodes[p->producer[node->in[0]]] : NULL;
}

/* ---- rings ---- */

int64_t dv_frame_ring_base(const dv_node *node) {
    return node->first;
}

dv_shape dv_kept_shape(const dv_node *node, dv_shape pictures) {
    if (node->fused.winograd > 0) {
        pictures.h /= DVK_WINOGRAD_LINES;
        pictures.w = node->fused.winograd;
    }
    return pictures;
}

static const dv_node *maker_of(const dv_memory_plan *p, dv_value v) {
    return &p->graph->nodes[p->producer[v]];
}

/* The windows of a ring and what they are made of, from the last of them on. A pixel has room for the frames of one window;
 * every frame lies one behind the frame before it, and so, after those of a window, where the first's next pixel was:
 * nobody wants that any more. At the end some pixels more are wanted. */
static bool place_ring(dv_memory_plan *p, int64_t k) {
    const dv_node *node = &p->graph->nodes[k];
    const dv_shape shape = p->graph->values[node->out].shape;
    const int64_t c = shape.c / node->time.frames;
    const int32_t buffer = dv_place_add(p, p->dtypes[node->out], shape, shape.c, k, k);
    if (buffer < 0) {
        return false;
    }
    dv_plan_buffer *b = &p->buffers[buffer];
    const uint64_t behind = (uint64_t)(dv_div_up(node->first, node->time.frames) * b->pixel) * dvk_dtype_size(b->dtype);
    p->blocks[buffer].bytes += dv_align_up(behind, p->storage.align);
    b->ring = true;
    for (bool more = true; more;) {
        const dv_value past = node->in[1];
        const dv_place where = {.buffer = buffer, .channel = (int32_t)(dv_frame_ring_base(node) * c), .stride = 1};
        dv_place_put(p, node->out, where);
        dv_place_put(p, past, where);
        more = maker_of(p, past)->n_in > 0;
        node = more ? maker_of(p, maker_of(p, past)->in[0]) : node;
    }
    return true;
}

/* What an element-wise step reads last may lie where its result shall, once there is room. */
static bool may_be_raw(const dv_memory_plan *p, const dv_node *node, dv_value v, int32_t past) {
    const bool pointwise = node->op == DV_OP_GROUP_NORM || node->op == DV_OP_ACT || node->op == DV_OP_AFFINE;
    const dv_value raw = node->in[0];
    return pointwise && node->fused.n_res == 0 && p->last_use[raw] == p->producer[v] && p->producer[raw] > past &&
           dv_place_can_move(p, raw, p->dtypes[v]) && may_be_strided(p, raw);
}

static bool place_window(dv_memory_plan *p, int64_t k) {
    const dv_node *node = &p->graph->nodes[k];
    if (p->places[node->out].buffer < 0 && !place_ring(p, k)) {
        return false;
    }
    const dv_value x = node->in[0];
    dv_place where = p->places[node->out];
    where.channel += (int32_t)(p->graph->values[x].shape.c * node->time.lead);
    if (node->fused.winograd == 0 && p->producer[x] > p->producer[node->in[1]] &&
        dv_place_can_move(p, x, p->dtypes[node->out]) && may_be_strided(p, x)) {
        dv_place_put(p, x, where);
        if (may_be_raw(p, maker_of(p, x), x, p->producer[node->in[1]])) {
            dv_place_put(p, maker_of(p, x)->in[0], where);
        }
    }
    return true;
}

bool dv_place_clip(dv_memory_plan *p, int64_t k) {
    switch (p->graph->nodes[k].op) {
    case DV_OP_WINDOW:
        return place_window(p, k);
    case DV_OP_FRAMES:
        return place_frames(p, k);
    case DV_OP_TO_FRAMES:
        return place_to_frames(p, k);
    case DV_OP_JOIN_FRAMES:
        return place_join(p, k);
    default:
        return true;
    }
}
