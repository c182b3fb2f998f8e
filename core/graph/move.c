/* move.c - builders of the ops that only move pixels: resampling, concatenation, padding, cropping. */
#include "core/graph/graph_priv.h"

#include "core/base/error.h"

static bool ready(dv_graph *g, const char *label, dv_value x, int64_t r) {
    if (!dv_graph_ok(g)) {
        return false;
    }
    if (x < 0 || x >= g->n_values || r < 1 || r > 64) {
        dv_graph_fail(g, dv_fail(DAVY_E_INTERNAL, "%s: operand %d does not exist or factor %d is not 1 to 64", label,
                                 (int)x, (int)r));
        return false;
    }
    return true;
}

static dv_value with_factor(dv_node *node, int64_t r) {
    if (node == NULL) {
        return DV_NO_VALUE;
    }
    node->r = r;
    return node->out;
}

dv_value dv_upsample(dv_graph *g, dv_value x, int64_t r) {
    if (!ready(g, "upsample", x, r)) {
        return DV_NO_VALUE;
    }
    dv_shape shape = dv_shape_of(g, x);
    shape.h *= r;
    shape.w *= r;
    return with_factor(dv_graph_append(g, DV_OP_UPSAMPLE, "upsample", &x, 1, shape), r);
}

dv_value dv_pixel_shuffle(dv_graph *g, dv_value x, int64_t r, dv_value nearest_skip) {
    if (!ready(g, "pixel_shuffle", x, r)) {
        return DV_NO_VALUE;
    }
    const dv_shape in = dv_shape_of(g, x);
    const dv_shape shape = {in.n, in.h * r, in.w * r, in.c / (r * r)};
    const dv_shape skip = {in.n, in.h, in.w, shape.c};
    if (in.c % (r * r) != 0) {
        return dv_graph_fail(
            g, dv_fail(DAVY_E_SHAPE, "pixel_shuffle: %d channels do not divide by %d x %d", (int)in.c, (int)r, (int)r));
    }
    if (nearest_skip != DV_NO_VALUE && !dv_shape_equal(skip, dv_shape_of(g, nearest_skip))) {
        return dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "pixel_shuffle: the picture added has %d channels, expected %d",
                                        (int)dv_shape_of(g, nearest_skip).c, (int)skip.c));
    }
    const dv_value both[2] = {x, nearest_skip};
    const int32_t n_in = nearest_skip != DV_NO_VALUE ? 2 : 1;
    return with_factor(dv_graph_append(g, DV_OP_PIXEL_SHUFFLE, "pixel_shuffle", both, n_in, shape), r);
}

dv_value dv_pixel_unshuffle(dv_graph *g, dv_value x, int64_t r) {
    if (!ready(g, "pixel_unshuffle", x, r)) {
        return DV_NO_VALUE;
    }
    const dv_shape in = dv_shape_of(g, x);
    if (in.h % r != 0 || in.w % r != 0) {
        return dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "pixel_unshuffle: %d x %d pixels do not divide by %d", (int)in.w,
                                        (int)in.h, (int)r));
    }
    const dv_shape shape = {in.n, in.h / r, in.w / r, in.c * r * r};
    return with_factor(dv_graph_append(g, DV_OP_PIXEL_UNSHUFFLE, "pixel_unshuffle", &x, 1, shape), r);
}

static dv_value with_fold(dv_node *node, int64_t r, int64_t before, int64_t heads) {
    if (node != NULL) {
        node->pad_top = node->pad_left = (int32_t)before;
        node->heads = heads;
    }
    return with_factor(node, r);
}

dv_value dv_fold(dv_graph *g, dv_value x, int64_t r, int64_t before, int64_t heads, int64_t padded) {
    if (!ready(g, "fold", x, r)) {
        return DV_NO_VALUE;
    }
    const dv_shape in = dv_shape_of(g, x);
    const int64_t all = in.c * r * r;
    if (in.h % r != 0 || in.w % r != 0 || before < 0 || before >= r || heads < 1 || all % heads != 0 ||
        padded < all / heads || padded > INT32_MAX / heads) {
        return dv_graph_fail(g, dv_fail(DAVY_E_SHAPE,
                                        "fold: %d x %d pixels of %d channels do not fold by %d into %d heads",
                                        (int)in.w, (int)in.h, (int)in.c, (int)r, (int)heads));
    }
    const dv_shape shape = {in.n, in.h / r, in.w / r, heads * padded};
    return with_fold(dv_graph_append(g, DV_OP_FOLD, "fold", &x, 1, shape), r, before, heads);
}

dv_value dv_unfold(dv_graph *g, dv_value x, int64_t r, int64_t before) {
    if (!ready(g, "unfold", x, r)) {
        return DV_NO_VALUE;
    }
    const dv_shape in = dv_shape_of(g, x);
    if (in.c % (r * r) != 0 || before < 0 || before >= r) {
        return dv_graph_fail(
            g, dv_fail(DAVY_E_SHAPE, "unfold: %d channels do not divide by %d x %d", (int)in.c, (int)r, (int)r));
    }
    const dv_shape shape = {in.n, in.h * r, in.w * r, in.c / (r * r)};
    return with_fold(dv_graph_append(g, DV_OP_UNFOLD, "unfold", &x, 1, shape), r, before, 1);
}

dv_value dv_concat(dv_graph *g, const dv_value *xs, int32_t count) {
    if (dv_graph_ok(g) && (count < 1 || count > DV_MAX_INPUTS)) {
        return dv_graph_fail(g, dv_fail(DAVY_E_INTERNAL, "concat: %d operands given, at most %d are possible",
                                        (int)count, DV_MAX_INPUTS));
    }
    dv_shape shape = {0, 0, 0, 0};
    for (int32_t i = 0; i < count; i++) {
        if (!ready(g, "concat", xs[i], 1)) {
            return DV_NO_VALUE;
        }
        const dv_shape s = dv_shape_of(g, xs[i]);
        if (i > 0 && (s.n != shape.n || s.h != shape.h || s.w != shape.w)) {
            return dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "concat: operand %d has %d x %d pixels, expected %d x %d",
                                            (int)i, (int)s.w, (int)s.h, (int)shape.w, (int)shape.h));
        }
        const int64_t channels = shape.c + s.c;
        shape = s;
        shape.c = channels;
    }
    const dv_node *node = dv_graph_append(g, DV_OP_CONCAT, "concat", xs, count, shape);
    return dv_node_out(node);
}

/* Whether `small` samples from `first` on lie within `large`. `first` must fit an int32_t. */
static bool within(int64_t first, int64_t small, int64_t large) {
    return first >= 0 && first <= INT32_MAX && small >= 1 && first <= large - small;
}

static dv_node *append_at(dv_graph *g, dv_op op, dv_value x, dv_rect at) {
    const dv_shape in = dv_shape_of(g, x), shape = {in.n, at.h, at.w, in.c};
    dv_node *node = dv_graph_append(g, op, dv_op_name(op), &x, 1, shape);
    if (node != NULL) {
        node->pad_top = (int32_t)at.top;
        node->pad_left = (int32_t)at.left;
    }
    return node;
}

dv_value dv_pad(dv_graph *g, dv_value x, dv_rect to, dvk_pad_mode mode) {
    if (!ready(g, "pad", x, 1)) {
        return DV_NO_VALUE;
    }
    const dv_shape in = dv_shape_of(g, x);
    if (!within(to.top, in.h, to.h) || !within(to.left, in.w, to.w)) {
        return dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "pad: %d x %d is smaller than %d x %d", (int)to.w, (int)to.h,
                                        (int)in.w, (int)in.h));
    }
    if (in.h == to.h && in.w == to.w) {
        return x;
    }
    dv_node *node = append_at(g, DV_OP_PAD, x, to);
    if (node == NULL) {
        return DV_NO_VALUE;
    }
    node->pad_mode = mode;
    return node->out;
}

dv_value dv_pad_to(dv_graph *g, dv_value x, int64_t h, int64_t w, dvk_pad_mode mode) {
    return dv_pad(g, x, (dv_rect){.h = h, .w = w}, mode);
}

dv_value dv_crop(dv_graph *g, dv_value x, dv_rect of) {
    if (!ready(g, "crop", x, 1)) {
        return DV_NO_VALUE;
    }
    const dv_shape in = dv_shape_of(g, x);
    if (!within(of.top, of.h, in.h) || !within(of.left, of.w, in.w)) {
        return dv_graph_fail(g, dv_fail(DAVY_E_SHAPE, "crop: %d x %d is larger than %d x %d", (int)of.w, (int)of.h,
                                        (int)in.w, (int)in.h));
    }
    if (in.h == of.h && in.w == of.w) {
        return x;
    }
    return dv_node_out(append_at(g, DV_OP_CROP, x, of));
}

dv_value dv_crop_to(dv_graph *g, dv_value x, int64_t h, int64_t w) {
    return dv_crop(g, x, (dv_rect){.h = h, .w = w});
}

dv_value dv_slice(dv_graph *g, dv_value x, int64_t first, int64_t count) {
    if (!ready(g, "slice", x, 1)) {
        return DV_NO_VALUE;
    }
    dv_shape shape = dv_shape_of(g, x);
    if (!within(first, count, shape.c)) {
        return dv_graph_fail(g, dv_fail(DAVY_E_SHAPE,
                                        "slice: %d channels from channel %d on are not possible; the operand has %d",
                                        (int)count, (int)first, (int)shape.c));
    }
    if (count == shape.c) {
        return x;
    }
    shape.c = count;
    dv_node *node = dv_graph_append(g, DV_OP_SLICE, "slice", &x, 1, shape);
    if (node == NULL) {
        return DV_NO_VALUE;
    }
    node->first = first;
    return node->out;
}
