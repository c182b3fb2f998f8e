/* lower_conv.c - lowers convolutions. A convolution to twice the size with weights for each parity is one step on
 * CUDA. On the CPU it is four 2 x 2 convolutions, each to every second pixel of every second row. */
#include <stddef.h>

#include "core/plan/choose.h"
#include "core/plan/lower.h"
#include "kernels/dtype.h"

#define FIELD(member) ((uint32_t)offsetof(dvk_args, member))

static int64_t conv_channels(const dvk_conv2d_args *a) {
    return a->y.c * dv_max(a->epi.shuffle * a->epi.shuffle, 1);
}

/* Fills in all arguments but the weights and the statistics. */
static void fill_conv(dv_lowering *l) {
    const dv_node *node = dv_lower_now(l);
    dv_lower_begin(l);
    dvk_conv2d_args *a = &l->step.args.conv;
    a->kh = node->kh;
    a->kw = node->kw;
    a->stride = node->stride > 0 ? node->stride : 1;
    a->pad_top = node->pad_top;
    a->pad_left = node->pad_left;
    a->upsample = node->fused.upsample > 1 ? node->fused.upsample : 1;
    a->phased = node->phased;
    a->epi.shuffle = dv_lower_cuda(l)->shuffle;
    dv_lower_view(l, &a->x, node->in[0]);
    dv_lower_view(l, &a->y, node->out);
    dv_lower_vector(l, dv_lower_field(l, &a->epi.bias), node->bias, conv_channels(a));
    dv_lower_fused(l, &a->pro, &a->epi);
    if (node->fused.gate == 3) {
        dv_lower_vector(l, dv_lower_field(l, &a->epi.gate_w), dv_lower_cuda(l)->gate_weight, a->y.c * a->y.c);
        dv_lower_vector(l, dv_lower_field(l, &a->epi.gate_bias), dv_lower_cuda(l)->gate_bias, a->y.c);
    }
}

davy_result dv_lower_try_conv(dv_lowering *l, int64_t k) {
    dv_plan *p = l->plan;
    const int64_t n_binds = p->n_binds;
    const int64_t n_weights = p->n_weights;
    const uint64_t weight_bytes = p->weight_bytes;
    l->node = k;
    fill_conv(l);
    p->n_binds = n_binds;
    p->n_weights = n_weights;
    p->weight_bytes = weight_bytes;
    return l->result;
}

dv_kernel dv_lower_choose_conv(const dv_lowering *l, dvk_args *args) {
    dv_plan_options options = *l->options;
    if (dv_lower_cuda(l)->winograd > 0) {
        return dv_choose_kernel(&options, "conv2d_winograd", args);
    }
    if (options.int8 != NULL && !dv_int8_has(options.int8, dv_lower_now(l)->label)) {
        options.compute = dv_plain_of_int8(&options);
    }
    return dv_choose_kernel(&options, "conv2d", args);
}

static void bind_stats(dv_lowering *l) {
    int32_t left = l->place->norms[l->node].writes;
    for (int64_t k = l->node + 1; left > 0 && k < l->plan->graph->n_nodes; k++) {
        const dv_norm_place *norm = &l->place->norms[k];
        left -= norm->conv == l->node;
        if (norm->conv == l->node && l->plan->graph->nodes[k].op == DV_OP_MEAN) {
            dv_lower_bind(l, DV_BIND_ARENA, FIELD(conv.epi.sums), l->place->blocks[norm->partial].offset);
        } else if (norm->conv == l->node) {
            l->step.args.conv.epi.stats_groups = l->plan->graph->nodes[k].groups;
            dv_lower_bind(l, DV_BIND_ARENA, FIELD(conv.epi.stats), l->place->blocks[norm->partial].offset);
        }
    }
}

/* ---- steps ---- */

static uint64_t flops_of(const dvk_conv2d_args *a) {
    const int64_t gate = a->epi.gate == 3 ? a->y.c : 0;
    const uint64_t terms = (uint64_t)(a->x.c * a->kh * a->kw + gate);
    return 2 * (uint64_t)(a->y.n * a->y.h * a->y.w * a->y.c) * terms;
}

/* Chooses the kernel of the current step and adds its weight; `parts`: weights for each parity, or 0. */
static void choose(dv_lowering *l, int32_t parts) {
    dvk_conv2d_args *a = &l->step.args.conv;
    const dv_kernel k = dv_lower_choose_conv(l, &l->step.args);
    if (!dv_kernel_none(k)) {
        const uint64_t bytes = dv_kernel_packed_bytes(k, a);
        dv_weight w = {.param = dv_lower_now(l)->weight,
                       .kernel = k,
                       .conv = *a,
                       .bytes = parts > 1 ? dv_align_up(bytes, 64) * (uint64_t)parts : bytes,
                       .parts = parts};
        w.conv.w = NULL;
        dv_lower_weight(l, &w);
        l->step.kernel = k;
    }
}

/* Binds the results of "excite": scaled weights, the factors of a residual. */
static void bind_scaled(dv_lowering *l) {
    const dv_cuda_node *cuda = dv_lower_cuda(l);
    if (cuda->scale != DV_NO_VALUE) {
        const dv_norm_place *from = &l->place->norms[l->place->producer[cuda->scale]];
        l->step.args.conv.scaled = 1;
        dv_lower_bind(l, DV_BIND_ARENA, FIELD(conv.w), l->place->blocks[from->coefficients].offset);
    }
    if (cuda->res_scale != DV_NO_VALUE) {
        uint64_t at = 0;
        dv_view_of(l->place, cuda->res_scale, &at);
        dv_lower_bind(l, DV_BIND_ARENA, FIELD(conv.epi.res_scale), at);
    }
}

static void lower_whole(dv_lowering *l) {
    fill_conv(l);
    dvk_conv2d_args *a = &l->step.args.conv;
    if (dv_lower_cuda(l)->scale != DV_NO_VALUE) {
        l->step.kernel = dv_lower_choose_conv(l, &l->step.args);
    } else {
        dv_lower_bind(l, DV_BIND_WEIGHT, FIELD(conv.w), (uint64_t)l->plan->n_weights);
        if (l->result < 0) {
            return;
        }
        choose(l, 0);
    }
    if (!dv_kernel_none(l->step.kernel) && l->result == DAVY_OK) {
        l->step.bytes += dv_kernel_packed_bytes(l->step.kernel, a);
        bind_stats(l);
        bind_scaled(l);
    }
    dv_lower_commit(l, dv_lower_cuda(l)->winograd > 0 ? "conv2d_winograd" : "conv2d", &a->x, &a->y, flops_of(a));
}

/* Restricts the view to every second pixel of every second row, beginning at those of `phase`. */
static void thin(dv_lowering *l, dvk_view *v, int32_t phase) {
    const int64_t first = (phase >> 1) * v->sh + (phase & 1) * v->sw;
    const uint32_t field = dv_lower_field(l, &v->data);
    for (int64_t i = l->step.first_bind; i < l->plan->n_binds; i++) {
        if (l->plan->binds[i].field == field) {
            l->plan->binds[i].at += (uint64_t)first * dvk_dtype_size(v->dtype);
        }
    }
    v->h /= 2;
    v->w /= 2;
    v->sh *= 2;
    v->sw *= 2;
}

/* Emits the step of one parity of rows and columns. The first step chooses the kernel and adds the weight of all four;
 * each step reads its part. */
static void lower_phase(dv_lowering *l, int32_t phase, int64_t *weight) {
    fill_conv(l);
    dvk_conv2d_args *a = &l->step.args.conv;
    *weight = phase == 0 ? l->plan->n_weights : *weight;
    dv_lower_bind(l, DV_BIND_WEIGHT, FIELD(conv.w), (uint64_t)*weight);
    if (l->result < 0) {
        return;
    }
    a->phased = 0;
    a->upsample = 1;
    a->pad_top = 1 - (phase >> 1);
    a->pad_left = 1 - (phase & 1);
    thin(l, &a->y, phase);
    for (int32_t i = 0; i < a->epi.n_res; i++) {
        thin(l, &a->epi.res[i], phase);
    }
    if (phase == 0) {
        choose(l, 4);
    } else {
        l->step.kernel = l->plan->steps[l->plan->n_steps - 1].kernel;
    }
    if (!dv_kernel_none(l->step.kernel) && l->result == DAVY_OK) {
        const uint64_t each = l->plan->weights[*weight].bytes / 4;
        l->plan->binds[l->plan->n_binds - 1].within = (uint64_t)phase * each;
        l->step.bytes += each;
    }
    dv_lower_commit(l, "conv2d", &a->x, &a->y, flops_of(a));
}

/* ---- bands ---- */

/* Emits a band of the step that lower_whole would emit. The first band adds the weight of all. */
static void lower_band(dv_lowering *l, int64_t first, int64_t rows, int64_t *weight) {
    fill_conv(l);
    dvk_winograd_band_args *b = &l->step.args.band;
    *weight = first == 0 ? l->plan->n_weights : *weight;
    dv_lower_bind(l, DV_BIND_WEIGHT, FIELD(conv.w), (uint64_t)*weight);
    if (l->result < 0) {
        return;
    }
    if (first == 0) {
        choose(l, 0);
    }
    bind_stats(l);
    b->first = first;
    b->rows = rows;
    b->conv.x.h = DVK_WINOGRAD_LINES * (dvk_band_to(b) - dvk_band_from(b));
    l->step.kernel = dv_choose_kernel(l->options, "conv2d_winograd_band", &l->step.args);
    dvk_view y = b->conv.y;
    y.h = rows;
    const uint64_t flops = flops_of(&b->conv) / (uint64_t)b->conv.y.h * (uint64_t)rows;
    dv_lower_commit(l, "conv2d_winograd_band", &b->conv.x, &y, flops);
}

/* For each band of rows: transforms its frames, then convolves them. */
static void lower_bands(dv_lowering *l) {
    const int64_t conv = l->node, rows = dv_lower_cuda(l)->band;
    const int64_t frames = l->place->producer[dv_lower_now(l)->in[0]];
    const int64_t h = dv_lower_shape(l, dv_lower_now(l)->out).h;
    int64_t weight = 0;
    for (int64_t first = 0; first < h && l->result == DAVY_OK; first += rows) {
        const dvk_winograd_band_args b = {.conv.y.h = h, .first = first, .rows = dv_min(rows, h - first)};
        const int64_t end = b.first + b.rows;
        l->node = frames;
        dv_lower_frames_band(l, &(dv_transform_rows){dvk_band_from(&b), end < h ? end - 1 : h, dvk_band_to(&b)});
        l->node = conv;
        lower_band(l, b.first, b.rows, &weight);
    }
}

void dv_lower_conv(dv_lowering *l) {
    if (dv_lower_cuda(l)->band > 0) {
        lower_bands(l);
        return;
    }
    if (!dv_lower_now(l)->phased || l->options->caps != NULL) {
        lower_whole(l);
        return;
    }
    int64_t weight = 0;
    for (int32_t phase = 0; phase < 4 && l->result == DAVY_OK; phase++) {
        lower_phase(l, phase, &weight);
    }
}
