/* memory.c - decides in two passes. Backwards over the concats, because the last of a family [x], [x, a], [x, a, b] is
 * the widest and can hold all the others as its first channels; their producers then write into slices and nothing is
 * copied. Forwards over the rest: a result takes the place of an operand of an element-wise step that ends there, or a
 * new buffer. */
#include "core/plan/memory_priv.h"

#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "kernels/dtype.h"

static bool follows(dv_place a, dv_place first, int64_t channel) {
    return a.buffer == first.buffer && a.channel == channel && a.frame == first.frame && a.stride == first.stride;
}

void dv_place_put(dv_memory_plan *p, dv_value v, dv_place where) {
    p->places[v] = where;
    p->blocks[where.buffer].last = dv_max(p->blocks[where.buffer].last, p->last_use[v]);
}

static void put(dv_memory_plan *p, dv_value v, int32_t buffer) {
    dv_place_put(p, v, (dv_place){.buffer = buffer, .stride = 1});
}

static uint64_t bytes_of(const dv_plan_buffer *b) {
    uint64_t bytes = dvk_dtype_size(b->dtype);
    const int64_t sides[4] = {b->shape.n, b->shape.h, b->shape.w, b->pixel};
    for (int i = 0; i < 4; i++) {
        if (sides[i] < 0 || !dv_mul_u64(bytes, (uint64_t)sides[i], &bytes)) {
            return UINT64_MAX; /* refused when the arena is packed */
        }
    }
    return bytes;
}

int32_t dv_place_add(dv_memory_plan *p, dvk_dtype dtype, dv_shape shape, int64_t room, int64_t first, int64_t last) {
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
    const int64_t step = dtype == DVK_F32 ? 1 : p->storage.channels;
    dv_plan_buffer *b = &p->buffers[p->n_buffers];
    *b = (dv_plan_buffer){.dtype = dtype, .shape = shape, .pixel = dv_div_up(room, step) * step};
    b->frame = shape.h * shape.w * b->pixel;
    uint64_t bytes = bytes_of(b);
    if (p->storage.align > DV_ARENA_ALIGN && bytes <= INT64_MAX) { /* sizes that keep every offset aligned */
        bytes = dv_align_up(bytes, p->storage.align);
    }
    p->blocks[p->n_buffers] = (dv_block){.bytes = bytes, .first = first, .last = last};
    return (int32_t)p->n_buffers++;
}

static int32_t add_buffer(dv_memory_plan *p, dvk_dtype dtype, dv_shape shape, int64_t first, int64_t last) {
    return dv_place_add(p, dtype, shape, shape.c, first, last);
}

static bool is_view(dv_op op) {
    return op == DV_OP_CROP || op == DV_OP_SLICE || op == DV_OP_TAKE_FRAMES;
}

bool dv_place_can_move(const dv_memory_plan *p, dv_value v, dvk_dtype dtype) {
    const dv_op op = dv_place_producer(p, v)->op;
    return p->places[v].buffer < 0 && p->dtypes[v] == dtype && !is_view(op) && op != DV_OP_FRAMES && op != DV_OP_PAST &&
           op != DV_OP_WINDOW;
}

/* The inputs already lie one behind the other in one buffer: the concat is a view of them. */
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

/* A CUDA kernel may write whole octets of channels where its result seems to have the pixel for itself (cuda.h), so the
 * pixel of a slice that leaves less than an octet to the others is made larger. */
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
            where.buffer = dv_place_add(p, p->dtypes[node->out], shape, room_of(p, node), k, k);
        }
        if (where.buffer < 0) {
            return false;
        }
        dv_place_put(p, node->out, where);
    }
    dv_place where = p->places[node->out];
    for (int32_t i = 0; i < node->n_in; i++) {
        if (!p->buffers[where.buffer].ring && dv_place_can_move(p, node->in[i], p->dtypes[node->out])) {
            dv_place_put(p, node->in[i], where);
        }
        where.channel += (int32_t)p->graph->values[node->in[i]].shape.c;
    }
    return true;
}

static bool same_shape(dv_shape a, dv_shape b) {
    return a.n == b.n && a.h == b.h && a.w == b.w && a.c == b.c;
}

/* v ends at node k, alone in its buffer and filling it: the result may take its place. */
static bool ends_here(const dv_memory_plan *p, dv_value v, const dv_node *node, int64_t k) {
    const int32_t b = p->places[v].buffer;
    return b >= 0 && p->dtypes[v] == p->dtypes[node->out] && p->blocks[b].last <= k &&
           same_shape(p->buffers[b].shape, p->graph->values[node->out].shape);
}

/* Of a convolution: of what lies there. Of bands, which are transformed between its steps, too. */
static bool reads_neighbours(const dv_memory_plan *p, const dv_node *conv, int32_t buffer) {
    const dv_node *frames = dv_frames_of_bands(p, conv);
    return p->places[conv->in[0]].buffer == buffer || (frames != NULL && p->places[frames->in[0]].buffer == buffer);
}

/* Buffer whose memory the result of an element-wise step may overwrite; -1: none. A convolution reads neighbours of its
 * input, so only its residuals count. */
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
    dv_place_put(p, node->out, where);
}

/* v, which node k makes, in that buffer, or in a new one (-1), unless it has its place. */
static bool place_result(dv_memory_plan *p, dv_value v, int64_t k, int32_t buffer) {
    if (p->places[v].buffer < 0) {
        buffer = buffer < 0 ? add_buffer(p, p->dtypes[v], p->graph->values[v].shape, k, k) : buffer;
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
           (node->fused.also == DV_NO_VALUE || place_result(p, node->fused.also, k, -1));
}

static bool place_all(dv_memory_plan *p) {
    const dv_graph *g = p->graph;
    for (int64_t k = g->n_nodes - 1; k >= 0; k--) {
        const dv_node *node = &g->nodes[k];
        if (!node->dead && !(node->op == DV_OP_CONCAT ? place_concat(p, k) : dv_place_clip(p, k))) {
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

int64_t dv_norm_stride(const dv_graph *g, int32_t norm) {
    const dv_shape s = dv_shape_of(g, g->nodes[norm].in[0]);
    return dv_div_up(s.n * s.c, 16) * 16; /* keeps shift as aligned as scale */
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
    if (norm->partial < 0) { /* else it is given (given_statistics.c) */
        norm->partial = add_buffer(p, DVK_F32, partial, norm->conv >= 0 ? norm->conv : k, k);
    }
    norm->coefficients = add_buffer(p, DVK_F32, coefficients, k, k);
    return norm->partial >= 0 && norm->coefficients >= 0;
}

davy_result dv_place_norms(dv_memory_plan *p) {
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

davy_result dv_place_values(const dv_graph *g, const dv_storage *storage, dv_memory_plan *out) {
    dv_memory_plan p = {.graph = g, .storage = *storage};
    const uint64_t n = (uint64_t)g->n_values;
    p.places = dv_calloc(n, sizeof *p.places);
    p.dtypes = dv_calloc(n, sizeof *p.dtypes);
    p.last_use = dv_calloc(n, sizeof *p.last_use);
    p.by_rows = dv_calloc(n, sizeof *p.by_rows);
    p.producer = dv_calloc(n, sizeof *p.producer);
    p.norms = dv_calloc((uint64_t)g->n_nodes, sizeof *p.norms);
    if (p.places == NULL || p.dtypes == NULL || p.last_use == NULL || p.by_rows == NULL || p.producer == NULL ||
        p.norms == NULL) {
        goto no_memory;
    }
    for (int64_t v = 0; v < g->n_values; v++) {
        p.places[v].buffer = -1;
        p.last_use[v] = -1;
        p.producer[v] = -1;
    }
    for (int64_t k = 0; k < g->n_nodes; k++) {
        p.norms[k] = (dv_norm_place){.partial = -1, .coefficients = -1, .conv = -1};
    }
    dv_place_types(&p);
    if (!place_all(&p)) {
        goto no_memory;
    }
    *out = p;
    return DAVY_OK;
no_memory:
    dv_memory_plan_free(&p);
    return dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
}
