/* memory.c - assigns values to buffers in two passes. The backward pass places concats: the last of a family [x], [x,
 * a], [x, a, b] is the widest, and its first channels hold all the others. Their producers write into slices, so
 * nothing is copied. The same pass places frames of a clip. If a window in time reads them, they are side by side in
 * each pixel, [h][w][frame][c]. Several frames then are the channels of one pixel. The forward pass places the rest: a
 * result overwrites an operand of an element-wise step that no later step reads, or gets a new buffer. */
#include "core/plan/memory.h"

#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "kernels/dtype.h"

static const dv_node *producer_of(const dv_memory_plan *p, dv_value v) {
    return &p->graph->nodes[p->producer[v]];
}

/* ---- uses: the producer and the last reader of each value ---- */

static void note_use(dv_memory_plan *p, dv_value v, int64_t node) {
    if (v != DV_NO_VALUE && p->last_use[v] < node) {
        p->last_use[v] = node;
    }
}

static bool reads_rows(dv_op op) {
    return op == DV_OP_LAYER_NORM || op == DV_OP_RMS_NORM;
}

static void find_uses(dv_memory_plan *p) {
    const dv_graph *g = p->graph;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        if (node->dead) {
            continue;
        }
        if (node->out != DV_NO_VALUE) {
            p->producer[node->out] = (int32_t)k;
        }
        if (dv_cuda_of(p, node)->also != DV_NO_VALUE) {
            p->producer[dv_cuda_of(p, node)->also] = (int32_t)k;
        }
        if (reads_rows(node->op)) {
            p->by_rows[node->in[0]] = p->by_rows[node->out] = true;
        }
        for (int32_t i = 0; i < node->n_in; i++) {
            note_use(p, node->in[i], k);
        }
        for (int32_t i = 0; i < node->fused.n_res; i++) {
            note_use(p, node->fused.res[i], k);
        }
        note_use(p, node->fused.norm_of, k);
        if (dv_frames_of_bands(p, node) != NULL) {
            note_use(p, dv_frames_of_bands(p, node)->in[0], k);
        }
        note_use(p, dv_cuda_of(p, node)->scale, k);
        note_use(p, dv_cuda_of(p, node)->res_scale, k);
    }
    note_use(p, g->output, g->n_nodes);
}

/* ---- types of stored values ---- */

/* Marks as f32 the values from the output back to the convolutions that compute it. 1x1 convolutions only mix
 * channels, so it continues through them. */
static void mark_output_f32(dv_memory_plan *p, dv_value v) {
    const dv_node *node = producer_of(p, v);
    if (p->dtypes[v] == DVK_F32 && v != p->graph->output) {
        return;
    }
    p->dtypes[v] = DVK_F32;
    if ((node->op == DV_OP_CONV2D && node->kh > 1) || node->op == DV_OP_ATTENTION || node->op == DV_OP_INPUT) {
        return;
    }
    const int32_t n_in = dv_op_infos[node->op].trait == DV_TRAIT_F32_FIRST ? 1 : node->n_in;
    for (int32_t i = 0; i < n_in; i++) {
        if (node->in[i] != DV_NO_VALUE) {
            mark_output_f32(p, node->in[i]);
        }
    }
    for (int32_t i = 0; i < node->fused.n_res; i++) {
        mark_output_f32(p, node->fused.res[i]);
    }
}

/* Marks the operands and results that ops require as f32. */
static void mark_traits_f32(dv_memory_plan *p) {
    for (int64_t k = 0; k < p->graph->n_nodes; k++) {
        const dv_node *node = &p->graph->nodes[k];
        const dv_trait trait = dv_op_infos[node->op].trait;
        if (node->dead) {
            continue;
        }
        if (trait == DV_TRAIT_F32_OUT || trait == DV_TRAIT_F32_ALL) {
            p->dtypes[node->out] = DVK_F32;
        }
        if (trait == DV_TRAIT_F32_ALL) {
            p->dtypes[node->in[0]] = DVK_F32;
        }
        if (trait == DV_TRAIT_F32_SECOND || trait == DV_TRAIT_F32_ALL) {
            p->dtypes[node->in[1]] = DVK_F32;
        }
    }
}

/* Transformed frames are always f16, independent of the other values' type. */
static void mark_winograd_f16(dv_memory_plan *p) {
    for (int64_t k = 0; k < p->graph->n_nodes; k++) {
        const dv_node *node = &p->graph->nodes[k];
        if (!node->dead && dv_cuda_of(p, node)->winograd > 0 && node->op != DV_OP_CONV2D) {
            p->dtypes[node->out] = DVK_F16;
        }
    }
}

static void find_types(dv_memory_plan *p) {
    const dv_graph *g = p->graph;
    for (int64_t v = 0; v < g->n_values; v++) {
        const dv_shape s = g->values[v].shape;
        /* a mean and values computed from it: few numbers */
        p->dtypes[v] = s.h * s.w == 1 ? DVK_F32 : p->storage.dtype;
    }
    p->dtypes[g->input] = DVK_F32;
    find_uses(p);
    mark_traits_f32(p);
    mark_output_f32(p, g->output);
    mark_winograd_f16(p);
}

/* ---- buffers ---- */

static void put_at(dv_memory_plan *p, dv_value v, dv_place where) {
    p->places[v] = where;
    p->blocks[where.buffer].last = dv_max(p->blocks[where.buffer].last, p->last_use[v]);
}

static void put(dv_memory_plan *p, dv_value v, int32_t buffer) {
    put_at(p, v, (dv_place){.buffer = buffer, .stride = 1});
}

static uint64_t bytes_of(const dv_plan_buffer *b) {
    uint64_t bytes = dvk_dtype_size(b->dtype);
    const int64_t sides[4] = {b->shape.n, b->shape.h, b->shape.w, b->pixel};
    for (int i = 0; i < 4; i++) {
        if (sides[i] < 0 || !dv_mul_u64(bytes, (uint64_t)sides[i], &bytes)) {
            return UINT64_MAX; /* dv_arena_pack reports the error */
        }
    }
    return bytes;
}

int32_t dv_memory_plan_add(dv_memory_plan *p, const dv_buffer_spec *spec) {
    dv_plan_buffer *buffers = dv_grow(p->buffers, p->n_buffers + 1, &p->cap_buffers, sizeof *buffers);
    if (buffers == NULL) {
        return -1;
    }
    p->buffers = buffers;
    dv_block *blocks = dv_grow(p->blocks, p->n_buffers + 1, &p->cap_blocks, sizeof *blocks);
    if (blocks == NULL) {
        return -1;
    }
    p->blocks = blocks;
    const int64_t step = spec->dtype == DVK_F32 ? 1 : p->storage.channels;
    const int64_t room = spec->room > 0 ? spec->room : spec->shape.c;
    dv_plan_buffer *b = &p->buffers[p->n_buffers];
    *b = (dv_plan_buffer){.dtype = spec->dtype, .shape = spec->shape, .pixel = dv_div_up(room, step) * step};
    b->frame = spec->shape.h * spec->shape.w * b->pixel;
    uint64_t bytes = bytes_of(b);
    if (p->storage.align > DV_ARENA_ALIGN && bytes <= INT64_MAX) { /* keeps every offset aligned */
        bytes = dv_align_up(bytes, p->storage.align);
    }
    p->blocks[p->n_buffers] = (dv_block){.bytes = bytes, .first = spec->first, .last = spec->last};
    return (int32_t)p->n_buffers++;
}

/* A buffer for a result of node k; its last reader is found later. */
static int32_t add_buffer(dv_memory_plan *p, dvk_dtype dtype, dv_shape shape, int64_t k) {
    return dv_memory_plan_add(p, &(dv_buffer_spec){.dtype = dtype, .shape = shape, .first = k, .last = k});
}

static bool is_view(dv_op op) {
    return op == DV_OP_CROP || op == DV_OP_SLICE || op == DV_OP_TAKE_FRAMES;
}

static bool can_move(const dv_memory_plan *p, dv_value v, dvk_dtype dtype) {
    const dv_op op = producer_of(p, v)->op;
    return p->places[v].buffer < 0 && p->dtypes[v] == dtype && !is_view(op) && op != DV_OP_FRAMES && op != DV_OP_PAST &&
           op != DV_OP_WINDOW;
}

/* ---- a clip's frames ---- */

/* side by side, a frame's channels are a multiple of this, as CUDA kernels require of a view */
enum { LEAST_CHANNELS = 8 };

static bool may_be_strided(const dv_memory_plan *p, dv_value v) {
    return !p->by_rows[v];
}

/* Buffer for `count` frames side by side, at least two. */
static int32_t add_side_by_side(dv_memory_plan *p, dvk_dtype dtype, dv_shape frame, int64_t count, int64_t k) {
    const dv_shape shape = {1, frame.h, frame.w, count * frame.c};
    const int32_t b = add_buffer(p, dtype, shape, k);
    if (b >= 0) {
        p->buffers[b].frame = frame.c;
    }
    return b;
}

/* As in a concat: a kernel must not mistake one frame's channels for the whole pixel. */
static int64_t room_beside(const dv_memory_plan *p, int64_t part, int64_t all) {
    const int64_t octet = p->storage.channels;
    return octet > 1 && dv_div_up(part, octet) == dv_div_up(all, octet) ? all + octet : all;
}

static bool place_frames(dv_memory_plan *p, int64_t k) {
    const dv_node *node = &p->graph->nodes[k];
    const dv_value x = node->in[0];
    const dv_shape out = p->graph->values[node->out].shape;
    dv_shape in = p->graph->values[x].shape;
    in.h = out.h; /* size of the result, which a transform changes */
    in.w = out.w;
    if (dv_cuda_of(p, node)->band > 0) { /* plus the rows above and below that the taps reach */
        in.h = dv_min(in.h, DVK_WINOGRAD_LINES * (dv_cuda_of(p, node)->band + 2));
    }
    const bool side_by_side = in.c % LEAST_CHANNELS == 0;
    dv_place where = {.stride = side_by_side ? node->time.step : 1};
    const dv_buffer_spec spec = {p->dtypes[node->out], out, .room = room_beside(p, in.c, out.c), .first = k, .last = k};
    where.buffer = side_by_side ? add_side_by_side(p, p->dtypes[node->out], in, node->time.lead + in.n, k)
                                : dv_memory_plan_add(p, &spec);
    if (where.buffer < 0) {
        return false;
    }
    put_at(p, node->out, where);
    if (side_by_side && dv_cuda_of(p, node)->winograd == 0 && can_move(p, x, p->dtypes[node->out]) &&
        may_be_strided(p, x)) {
        where.frame = node->time.lead;
        where.stride = 1;
        put_at(p, x, where);
    }
    return true;
}

/* If the operand is placed among frames of so many channels, the parts of its channels are these frames. */
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
        put_at(p, node->out, where);
    }
    dv_place where = p->places[node->out];
    if (p->buffers[where.buffer].frame == out.c && where.channel == 0 && where.stride == 1 &&
        can_move(p, x, p->dtypes[node->out]) && may_be_strided(p, x)) {
        where.stride = node->r;
        put_at(p, x, where);
    }
    return true;
}

static bool place_join(dv_memory_plan *p, int64_t k) {
    const dv_node *node = &p->graph->nodes[k];
    const dv_shape shape = p->graph->values[node->out].shape;
    if (p->places[node->out].buffer < 0) {
        dv_place where = {.stride = 1};
        where.buffer = add_buffer(p, p->dtypes[node->out], shape, k);
        if (where.buffer < 0) {
            return false;
        }
        put_at(p, node->out, where);
    }
    dv_place where = p->places[node->out];
    const bool strided = p->buffers[where.buffer].frame < p->buffers[where.buffer].pixel;
    for (int32_t i = 0; i < node->n_in; i++) {
        const dv_value x = node->in[i];
        if (can_move(p, x, p->dtypes[node->out]) && (!strided || may_be_strided(p, x))) {
            put_at(p, x, where);
        }
        where.frame += p->graph->values[x].shape.n * where.stride;
    }
    return true;
}

/* ---- rings ---- */

/* Places all windows of a ring and their pasts, starting at the last window. A pixel has room for the frames of one
 * window, and each frame is one slot behind its predecessor. So the frame behind a window occupies the slot of the
 * oldest frame in the next pixel, which no later window reads. The buffer has a few more pixels at its end for this. */
static bool place_ring(dv_memory_plan *p, int64_t k) {
    const dv_node *node = &p->graph->nodes[k];
    const dv_shape shape = p->graph->values[node->out].shape;
    const int64_t c = shape.c / node->time.frames;
    const int32_t buffer = add_buffer(p, p->dtypes[node->out], shape, k);
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
        put_at(p, node->out, where);
        put_at(p, past, where);
        more = producer_of(p, past)->n_in > 0;
        node = more ? producer_of(p, producer_of(p, past)->in[0]) : node;
    }
    return true;
}

/* Whether the operand of an element-wise step may share the place of its result in the ring. It must have no later
 * reader, and the ring must have room by then. */
static bool may_be_raw(const dv_memory_plan *p, const dv_node *node, dv_value v, int32_t past) {
    const bool pointwise = node->op == DV_OP_GROUP_NORM || node->op == DV_OP_ACT || node->op == DV_OP_AFFINE;
    const dv_value raw = node->in[0];
    return pointwise && node->fused.n_res == 0 && p->last_use[raw] == p->producer[v] && p->producer[raw] > past &&
           can_move(p, raw, p->dtypes[v]) && may_be_strided(p, raw);
}

static bool place_window(dv_memory_plan *p, int64_t k) {
    const dv_node *node = &p->graph->nodes[k];
    if (p->places[node->out].buffer < 0 && !place_ring(p, k)) {
        return false;
    }
    const dv_value x = node->in[0];
    dv_place where = p->places[node->out];
    where.channel += (int32_t)(p->graph->values[x].shape.c * node->time.lead);
    if (dv_cuda_of(p, node)->winograd == 0 && p->producer[x] > p->producer[node->in[1]] &&
        can_move(p, x, p->dtypes[node->out]) && may_be_strided(p, x)) {
        put_at(p, x, where);
        if (may_be_raw(p, producer_of(p, x), x, p->producer[node->in[1]])) {
            put_at(p, producer_of(p, x)->in[0], where);
        }
    }
    return true;
}

static bool place_clip(dv_memory_plan *p, int64_t k) {
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

/* ---- pictures ---- */

static bool follows(dv_place a, dv_place first, int64_t channel) {
    return a.buffer == first.buffer && a.channel == channel && a.frame == first.frame && a.stride == first.stride;
}

/* Whether the inputs are adjacent in one buffer already: the concat is a view of them. */
static bool lies_together(const dv_memory_plan *p, const dv_node *node) {
    const dv_place first = p->places[node->in[0]];
    int64_t channel = first.channel;
    for (int32_t i = 0; i < node->n_in; i++) {
        if (first.buffer < 0 || !follows(p->places[node->in[i]], first, channel) ||
            p->dtypes[node->in[i]] != p->dtypes[node->out]) {
            return false;
        }
        channel += p->graph->values[node->in[i]].shape.c;
    }
    return true;
}

/* A CUDA kernel may write whole groups of 8 channels if its result seems to fill the pixel (cuda.h). If a slice leaves
 * fewer than 8 channels to the others, the pixel gets more room. */
static int64_t room_of(const dv_memory_plan *p, const dv_node *node) {
    const dv_value_info *values = p->graph->values;
    const int64_t total = values[node->out].shape.c;
    int64_t room = total;
    for (int32_t i = 0; i < node->n_in; i++) {
        if (total - values[node->in[i]].shape.c < p->storage.channels) {
            room = total + p->storage.channels;
        }
    }
    return p->storage.channels > 1 ? room : total;
}

static bool place_concat(dv_memory_plan *p, int64_t k) {
    const dv_node *node = &p->graph->nodes[k];
    if (p->places[node->out].buffer < 0) {
        dv_place where = p->places[node->in[0]];
        if (!lies_together(p, node)) {
            const dv_shape shape = p->graph->values[node->out].shape;
            where = (dv_place){.stride = 1};
            const dv_buffer_spec spec = {p->dtypes[node->out], shape, .room = room_of(p, node), .first = k, .last = k};
            where.buffer = dv_memory_plan_add(p, &spec);
        }
        if (where.buffer < 0) {
            return false;
        }
        put_at(p, node->out, where);
    }
    dv_place where = p->places[node->out];
    for (int32_t i = 0; i < node->n_in; i++) {
        if (!p->buffers[where.buffer].ring && can_move(p, node->in[i], p->dtypes[node->out])) {
            put_at(p, node->in[i], where);
        }
        where.channel += (int32_t)p->graph->values[node->in[i]].shape.c;
    }
    return true;
}

static bool same_shape(dv_shape a, dv_shape b) {
    return a.n == b.n && a.h == b.h && a.w == b.w && a.c == b.c;
}

/* Node k is v's last reader, and v fills its buffer: the result may overwrite it. */
static bool ends_here(const dv_memory_plan *p, dv_value v, const dv_node *node, int64_t k) {
    const int32_t b = p->places[v].buffer;
    return b >= 0 && p->dtypes[v] == p->dtypes[node->out] && p->blocks[b].last <= k &&
           same_shape(p->buffers[b].shape, p->graph->values[node->out].shape);
}

/* Whether a convolution reads neighbouring pixels from this buffer. With bands, that includes the operand of the
 * frames, which is transformed between the convolution's steps. */
static bool reads_neighbours(const dv_memory_plan *p, const dv_node *conv, int32_t buffer) {
    const dv_node *frames = dv_frames_of_bands(p, conv);
    return p->places[conv->in[0]].buffer == buffer || (frames != NULL && p->places[frames->in[0]].buffer == buffer);
}

/* The buffer that the result of an element-wise step may overwrite; -1: none. A convolution reads neighbours of its
 * input, so only its residuals qualify. */
static int32_t in_place_buffer(const dv_memory_plan *p, const dv_node *node, int64_t k) {
    const bool conv = node->op == DV_OP_CONV2D || node->op == DV_OP_DEPTHWISE;
    const bool product = node->op == DV_OP_MULTIPLY;
    const bool pointwise = node->op == DV_OP_ACT || node->op == DV_OP_ADD || node->op == DV_OP_GATE ||
                           node->op == DV_OP_AFFINE || node->op == DV_OP_GROUP_NORM || product;
    if (!conv && !pointwise) {
        return -1;
    }
    if (product && ends_here(p, node->in[1], node, k)) {
        return p->places[node->in[1]].buffer;
    }
    for (int32_t i = 0; i < node->fused.n_res; i++) {
        const dv_value r = node->fused.res[i];
        if (ends_here(p, r, node, k) && (!conv || !reads_neighbours(p, node, p->places[r].buffer))) {
            return p->places[r].buffer;
        }
    }
    return pointwise && ends_here(p, node->in[0], node, k) ? p->places[node->in[0]].buffer : -1;
}

static bool applies_itself(const dv_graph *g, const dv_node *norm) {
    return norm->out != DV_NO_VALUE && g->values[norm->out].uses > 0;
}

static void place_view(dv_memory_plan *p, const dv_node *node) {
    dv_place where = p->places[node->in[0]];
    if (node->op == DV_OP_CROP) {
        where.y += node->pad_top;
        where.x += node->pad_left;
    } else if (node->op == DV_OP_SLICE) {
        where.channel += (int32_t)node->first;
    } else {
        where.frame += node->first * where.stride;
    }
    p->dtypes[node->out] = p->dtypes[node->in[0]];
    put_at(p, node->out, where);
}

/* Places v, a result of node k, in that buffer (-1: a new one) unless it has a place already. */
static bool place_result(dv_memory_plan *p, dv_value v, int64_t k, int32_t buffer) {
    if (p->places[v].buffer < 0) {
        buffer = buffer < 0 ? add_buffer(p, p->dtypes[v], p->graph->values[v].shape, k) : buffer;
        if (buffer < 0) {
            return false;
        }
        put(p, v, buffer);
    }
    dv_block *block = &p->blocks[p->places[v].buffer];
    block->first = dv_min(block->first, k);
    block->last = dv_max(block->last, k);
    return true;
}

static bool place_node(dv_memory_plan *p, int64_t k) {
    const dv_node *node = &p->graph->nodes[k];
    if (node->op == DV_OP_GROUP_NORM && !applies_itself(p->graph, node)) {
        return true;
    }
    if (is_view(node->op)) {
        place_view(p, node);
        return true;
    }
    const bool placed = p->places[node->out].buffer >= 0;
    return place_result(p, node->out, k, placed ? -1 : in_place_buffer(p, node, k)) &&
           (dv_cuda_of(p, node)->also == DV_NO_VALUE || place_result(p, dv_cuda_of(p, node)->also, k, -1));
}

static bool place_all(dv_memory_plan *p) {
    const dv_graph *g = p->graph;
    for (int64_t k = g->n_nodes - 1; k >= 0; k--) {
        const dv_node *node = &g->nodes[k];
        if (!node->dead && !(node->op == DV_OP_CONCAT ? place_concat(p, k) : place_clip(p, k))) {
            return false;
        }
    }
    for (int64_t k = 0; k < g->n_nodes; k++) {
        if (!g->nodes[k].dead && !place_node(p, k)) {
            return false;
        }
    }
    return true;
}

int32_t dv_norm_used(const dv_graph *g, int64_t k) {
    const dv_node *node = &g->nodes[k];
    if (node->op == DV_OP_GROUP_NORM) {
        return applies_itself(g, node) ? (int32_t)k : -1;
    }
    return node->fused.norm;
}

static bool place_norm(dv_memory_plan *p, int64_t k) {
    const dv_node *node = &p->graph->nodes[k];
    dv_norm_place *norm = &p->norms[k];
    const dv_shape s = dv_shape_of(p->graph, node->in[0]);
    const dv_shape coefficients = {1, 1, 2, dv_norm_stride(p->graph, (int32_t)k)};
    dv_shape partial = {s.n, dv_div_up(s.h, DVK_NORM_CHUNK_ROWS), node->groups, 2};
    if (norm->chunks > 0) {
        partial.h = norm->chunks;
        partial.c = 3;
    }
    if (norm->partial < 0) { /* otherwise it is given (given_statistics.c) */
        const dv_buffer_spec spec = {DVK_F32, partial, .first = norm->conv >= 0 ? norm->conv : k, .last = k};
        norm->partial = dv_memory_plan_add(p, &spec);
    }
    norm->coefficients = add_buffer(p, DVK_F32, coefficients, k);
    return norm->partial >= 0 && norm->coefficients >= 0;
}

davy_result dv_memory_plan_norms(dv_memory_plan *p) {
    const dv_graph *g = p->graph;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        if (!g->nodes[k].dead && g->nodes[k].op == DV_OP_GROUP_NORM && !place_norm(p, k)) {
            return dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
        }
        const dv_node *node = &g->nodes[k], *frames = node->dead ? NULL : dv_frames_of_bands(p, node);
        const int32_t norm = node->dead ? -1 : dv_norm_used(g, frames != NULL ? frames - g->nodes : k);
        if (norm >= 0) {
            p->blocks[p->norms[norm].coefficients].last = k;
        }
    }
    return DAVY_OK;
}

void dv_memory_plan_free(dv_memory_plan *p) {
    dv_free(p->places);
    dv_free(p->dtypes);
    dv_free(p->last_use);
    dv_free(p->by_rows);
    dv_free(p->producer);
    dv_free(p->norms);
    dv_free(p->rings);
    dv_free(p->buffers);
    dv_free(p->blocks);
    memset(p, 0, sizeof *p);
}

/* Tables per value and per node; nothing is placed yet. */
static bool make_tables(dv_memory_plan *p) {
    const dv_graph *g = p->graph;
    const uint64_t n = (uint64_t)g->n_values;
    p->places = dv_calloc(n, sizeof *p->places);
    p->dtypes = dv_calloc(n, sizeof *p->dtypes);
    p->last_use = dv_calloc(n, sizeof *p->last_use);
    p->by_rows = dv_calloc(n, sizeof *p->by_rows);
    p->producer = dv_calloc(n, sizeof *p->producer);
    p->norms = dv_calloc((uint64_t)g->n_nodes, sizeof *p->norms);
    if (p->places == NULL || p->dtypes == NULL || p->last_use == NULL || p->by_rows == NULL || p->producer == NULL ||
        p->norms == NULL) {
        return false;
    }
    for (int64_t v = 0; v < g->n_values; v++) {
        p->places[v].buffer = -1;
        p->last_use[v] = -1;
        p->producer[v] = -1;
    }
    for (int64_t k = 0; k < g->n_nodes; k++) {
        p->norms[k] = (dv_norm_place){.partial = -1, .coefficients = -1, .conv = -1};
    }
    return true;
}

davy_result dv_memory_plan_create(const dv_graph *g, const dv_cuda_node *cuda, const dv_storage *storage,
                                  dv_memory_plan *out) {
    dv_memory_plan p = {.graph = g, .cuda = cuda, .storage = *storage};
    bool placed = make_tables(&p);
    if (placed) {
        find_types(&p);
        placed = place_all(&p);
    }
    if (!placed) {
        dv_memory_plan_free(&p);
        return dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
    }
    *out = p;
    return DAVY_OK;
}
