/* lower_operand.c - see lower_operand.h. */
#include "core/plan/lower_operand.h"

#include "kernels/dtype.h"

dv_operand dv_operand_of(const dv_lowering *l, dv_value v) {
    dv_operand o = {.kind = DV_BIND_ARENA};
    o.view = dv_view_of(l->place, v, &o.at);
    return o;
}

dv_operand dv_operand_frames(dv_operand o, int64_t t, int64_t count) {
    o.first += t * o.view.sn;
    o.view.n = count;
    return o;
}

dv_operand dv_operand_rows(dv_operand o, int64_t first, int64_t count) {
    o.first += first * o.view.sh;
    o.view.h = count;
    return o;
}

dv_operand dv_operand_channels(dv_operand o, int64_t c, int64_t count) {
    o.first += c;
    o.view.c = count;
    return o;
}

void dv_lower_operand(dv_lowering *l, dvk_view *out, const dv_operand *o) {
    *out = o->view;
    dv_lower_bind(l, o->kind, dv_lower_field(l, &out->data),
                  o->at + (uint64_t)o->first * dvk_dtype_size(o->view.dtype));
}

void dv_lower_copy(dv_lowering *l, const dv_operand *from, const dv_operand *to, float alpha) {
    dv_lower_begin(l);
    dvk_pointwise_args *a = &l->step.args.pointwise;
    a->epi.alpha = alpha;
    dv_lower_operand(l, &a->x, from);
    dv_lower_operand(l, &a->y, to);
    dv_lower_commit(l, "pointwise", &a->x, &a->y, 0);
}

dv_operand dv_operand_state(const dv_lowering *l, uint64_t at, dv_shape s, int64_t keep, bool side_by_side) {
    const int64_t pixel = (side_by_side ? keep : 1) * s.c;
    dv_operand o = {.kind = DV_BIND_STATE, .at = at};
    o.view = (dvk_view){.dtype = l->place->dtypes[dv_lower_now(l)->out], .n = keep, .h = s.h, .w = s.w, .c = s.c};
    o.view.sw =
        o.view.dtype == DVK_F32 ? pixel : dv_div_up(pixel, l->place->storage.channels) * l->place->storage.channels;
    o.view.sh = s.w * o.view.sw;
    o.view.sn = side_by_side ? s.c : s.h * o.view.sh;
    return o;
}

dv_operand dv_operand_kept(const dv_lowering *l, const dv_frame_ring *ring, bool leaves) {
    dv_operand o = dv_operand_state(l, ring->kept, ring->frame, ring->keep, true);
    if (ring->offloaded) {
        o.kind = DV_BIND_ARENA;
        o.at = l->place->blocks[leaves ? ring->out : ring->in].offset;
    }
    return o;
}

dv_operand dv_operand_joined(dv_operand o, int64_t count) {
    o.view.c *= count;
    o.view.n = 1;
    return o;
}

dv_operand dv_operand_ring(const dv_lowering *l, dv_value v, int64_t first, int64_t count) {
    const dv_node *node = dv_lower_now(l);
    const int64_t c = dv_lower_shape(l, node->out).c / (node->op == DV_OP_PAST ? node->time.lead : node->time.frames);
    dv_operand o = dv_operand_of(l, v);
    o.first += (first - dv_frame_ring_base(node)) * c;
    o.view.c = count * c;
    return o;
}
