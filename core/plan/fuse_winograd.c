/* fuse_winograd.c - convolutions over time that read frames after Winograd's input transform along the width
 * ("conv2d_winograd"). That halves the products and takes 1.5 times the memory of frames. The node of frames applies
 * the preceding norm or activation as it transforms. The decisions depend on nothing that differs between slices of a
 * clip. Between slices the state of transformed frames is f16 and plain (untransformed).
 *
 * The largest pictures may be transformed in bands of rows, between the steps of the convolution that reads them. Then
 * the transformed picture, 1.5 times as large, never exists as a whole. The results are bit-identical, since a band
 * consists of the same tiles. The state has the same layout, so slices with and without bands may follow each other. */
#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/plan/choose.h"
#include "core/plan/fuse_cuda.h"
#include "core/plan/lower.h"
#include "kernels/dtype.h"

enum { FEWEST_BANDS = 6, MOST_BANDS = 16 };
#define WORTH_LESS_MEMORY 1.03 /* most relative cost of a smaller band */

typedef struct candidate {
    int64_t node;     /* node of frames, or the first window of a ring */
    double gain;      /* ns saved; 0: none, or not possible */
    uint64_t more;    /* bytes that transformed frames take in addition */
    uint64_t weights; /* bytes that the convolution's transformed weights take in addition */
    /* ns to transform the frames before the slice, which the previous slice has transformed already */
    double before;
    int64_t first, last; /* nodes between which the frames are alive */
    bool seen, taken;
    int64_t band;          /* rows per band; 0: no bands */
    uint64_t less, longer; /* bytes saved by bands; bytes of the operand that lives longer for them */
} candidate;

typedef struct candidates {
    dv_lowering *l;
    candidate *list; /* room for one per node */
    int64_t count;
    uint64_t *live;   /* bytes alive at each node */
    uint64_t weights; /* additional bytes of weights of the candidates taken */
} candidates;

enum { DV_UNREAD = -1, DV_OTHERS = -2 };

static bool is_conv(const dv_memory_plan *place, const dv_node *node) {
    const dv_graph *g = place->graph;
    const dv_cuda_node *cuda = dv_cuda_of(place, node);
    if (node->dead || node->op != DV_OP_CONV2D) {
        return false;
    }
    const dv_shape x = dv_shape_of(g, node->in[0]), y = dv_shape_of(g, node->out);
    return node->kh == 3 && node->kw == 3 && node->stride <= 1 && node->pad_top == 1 && node->pad_left == 1 &&
           x.h == y.h && x.w == y.w && !node->phased && cuda->lower == NULL && node->fused.upsample <= 1 &&
           cuda->shuffle <= 1 && cuda->winograd == 0 && dv_begins_plain(node);
}

/* A norm or an activation without anything that a prologue cannot do. */
static bool is_prologue(const dv_node *node) {
    const dvk_act act = node->fused.act.kind;
    const bool known = act == DVK_ACT_NONE || act == DVK_ACT_RELU || act == DVK_ACT_SILU;
    const bool norm = node->op == DV_OP_GROUP_NORM && node->fused.pro_act.kind == DVK_ACT_NONE;
    return !node->dead && (norm || (node->op == DV_OP_ACT && dv_begins_plain(node))) && known &&
           node->fused.n_res == 0 && !node->fused.gate && dv_is_one(node->fused.alpha);
}

static dv_shape transformed(dv_shape s) {
    s.h *= DVK_WINOGRAD_LINES;
    s.w = dv_div_up(s.w, DVK_WINOGRAD_PIXELS);
    return s;
}

/* ---- costs ---- */

/* The view of one contiguous frame: costs then are the same for every slice. */
static void make_alone(dvk_view *v) {
    const int64_t octet = v->dtype == DVK_F32 ? 1 : 8;
    v->n = 1;
    v->sw = dv_div_up(v->c, octet) * octet;
    v->sh = v->w * v->sw;
    v->sn = v->h * v->sh;
}

static dvk_view view_alone(const dv_memory_plan *place, dv_value v) {
    dvk_view view = dv_view_planned(place, v);
    make_alone(&view);
    return view;
}

static dvk_view view_transformed(dvk_view v) {
    v.dtype = DVK_F16;
    v.h *= DVK_WINOGRAD_LINES;
    v.w = dv_div_up(v.w, DVK_WINOGRAD_PIXELS);
    make_alone(&v);
    return v;
}

static double cost_of(const dv_lowering *l, const char *op, dvk_args *args) {
    const dvk_cuda_kernel *k = dv_choose_kernel(l->options, op, args).cuda;
    return k == NULL || k->cost == NULL ? 1e30 : k->cost(args, l->options->caps);
}

/* The cost of the convolution and of the norm or activation on `raw` that leads to a frame. */
static double plain_cost(const dv_lowering *l, const dvk_conv2d_args *conv, dv_value raw) {
    dvk_args args = {.conv = *conv};
    dvk_args apply = {.pointwise = {.epi.alpha = 1.0f, .pro.act = DVK_ACT_SILU}};
    apply.pointwise.x = view_alone(l->place, raw);
    apply.pointwise.y = apply.pointwise.x;
    return cost_of(l, "conv2d", &args) + cost_of(l, "pointwise", &apply);
}

static double input_cost(const dv_lowering *l, dv_value raw) {
    dvk_args args = {.winograd_input = {.pro.act = DVK_ACT_SILU}};
    args.winograd_input.x = view_alone(l->place, raw);
    args.winograd_input.y = view_transformed(args.winograd_input.x);
    return cost_of(l, "winograd_input", &args);
}

static double winograd_cost(const dv_lowering *l, const dvk_conv2d_args *conv, dv_value raw) {
    dvk_args args = {.conv = *conv};
    args.conv.x = view_transformed(args.conv.x);
    return cost_of(l, "conv2d_winograd", &args) + input_cost(l, raw);
}

static uint64_t packed_bytes(const dv_lowering *l, const char *op, const dvk_conv2d_args *conv) {
    dvk_args args = {.conv = *conv};
    const dvk_cuda_kernel *k = dv_choose_kernel(l->options, op, &args).cuda;
    return k != NULL ? k->packed_bytes(&args) : 0;
}

/* Sets gain, before and weights of a candidate, per frame. */
static davy_result set_gain(dv_lowering *l, int64_t conv, dv_value raw, candidate *c) {
    const davy_result r = dv_lower_try_conv(l, conv);
    if (r < 0 || l->step.args.conv.x.dtype == DVK_F32) {
        return r;
    }
    dvk_conv2d_args a = l->step.args.conv;
    make_alone(&a.x);
    make_alone(&a.y);
    for (int32_t i = 0; i < a.epi.n_res; i++) {
        make_alone(&a.epi.res[i]);
    }
    c->gain = plain_cost(l, &a, raw) - winograd_cost(l, &a, raw);
    if (c->gain > 0.0) {
        c->before = (double)l->plan->graph->nodes[c->node].time.lead * input_cost(l, raw);
        const uint64_t plain = packed_bytes(l, "conv2d", &a);
        a.x = view_transformed(a.x);
        const uint64_t bytes = packed_bytes(l, "conv2d_winograd", &a);
        c->weights = bytes > plain ? bytes - plain : 0;
    }
    return r;
}

/* ---- frames ---- */

/* The next window of the same ring from node k on, or for FRAMES the node itself; n_nodes: none. */
static int64_t next_window(const dv_graph *g, const dv_node *of, int64_t k) {
    for (; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        if (node == of ||
            (!node->dead && node->op == DV_OP_WINDOW && of->op == DV_OP_WINDOW && node->time.ring == of->time.ring)) {
            return k;
        }
    }
    return k;
}

/* The convolution that is the only reader of these frames, apart from the ring's next PAST. DV_UNREAD: no reader;
 * DV_OTHERS: other readers. */
static int64_t reader_of(const dv_memory_plan *place, const dv_node *frames) {
    const dv_graph *g = place->graph;
    int64_t conv = DV_UNREAD;
    int32_t uses = g->values[frames->out].uses;
    for (int64_t k = frames - g->nodes + 1; uses > 0 && k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        const bool reads = !node->dead && node->n_in > 0 && node->in[0] == frames->out;
        if (reads && node->op == DV_OP_PAST) {
            uses--;
        } else if (reads && is_conv(place, node)) {
            conv = k;
            uses--;
        }
    }
    return uses == 0 ? conv : DV_OTHERS;
}

/* Whether a prologue can replace the node that computes the frames, and the frames are its only reader. */
static bool made_by_prologue(const dv_memory_plan *place, const dv_node *frames) {
    const dv_graph *g = place->graph;
    const dv_value x = frames->in[0];
    const int64_t k = place->producer[x];
    return k >= 0 && g->values[x].uses == 1 && x != g->output && is_prologue(&g->nodes[k]) &&
           place->dtypes[x] != DVK_F32 && place->dtypes[g->nodes[k].in[0]] != DVK_F32;
}

static bool suits(const dv_memory_plan *place, const dv_node *frames) {
    const dv_time *t = &frames->time;
    return t->step == 1 && t->frames > 1 && t->lead == t->frames - 1 && (t->keep == 0 || t->keep == t->lead) &&
           dv_shape_of(place->graph, frames->in[0]).c % 8 == 0 && made_by_prologue(place, frames) &&
           reader_of(place, frames) != DV_OTHERS;
}

/* ---- rewriting ---- */

static void take_prologue(dv_graph *g, dv_node *frames, dv_node *maker) {
    const bool norm = maker->op == DV_OP_GROUP_NORM;
    char *label = frames->label; /* profiles show the step under the label of the norm or activation */
    frames->label = maker->label;
    maker->label = label;
    g->values[frames->in[0]].uses = 0;
    frames->in[0] = maker->in[0];
    frames->fused.norm = maker->fused.norm;
    frames->fused.norm_of = maker->fused.norm_of;
    frames->fused.pro_act = maker->fused.act;
    if (norm) { /* its coefficients are still computed at its place */
        g->values[maker->in[0]].uses++;
    } else {
        maker->dead = true;
        maker->n_in = 0;
        maker->out = DV_NO_VALUE;
    }
}

static void mark(dv_lowering *l, int64_t k, int64_t width) {
    dv_graph *g = l->plan->graph;
    const dv_node *node = &g->nodes[k];
    l->cuda[k].winograd = width;
    g->values[node->out].shape = transformed(g->values[node->out].shape);
}

static void rewrite(dv_lowering *l, int64_t k) {
    dv_graph *g = l->plan->graph;
    const dv_memory_plan *place = l->place;
    dv_node *frames = &g->nodes[k];
    const int64_t conv = reader_of(place, frames), width = dv_shape_of(g, frames->out).w;
    take_prologue(g, frames, &g->nodes[place->producer[frames->in[0]]]);
    mark(l, k, width);
    if (frames->op == DV_OP_WINDOW) {
        mark(l, place->producer[frames->in[1]], width);
    }
    if (conv >= 0) {
        l->cuda[conv].winograd = width;
    }
}

/* ---- selection ---- */

/* The gain if a node of frames, or all windows of a ring, are transformed; c->node is the first. */
static davy_result judge(dv_lowering *l, candidate *c) {
    const dv_graph *g = l->plan->graph;
    const int64_t k = c->node;
    const dv_node *frames = &g->nodes[k];
    bool yes = true;
    int64_t conv = DV_UNREAD, readers = 0;
    dv_value raw = DV_NO_VALUE;
    for (int64_t i = k; yes && i < g->n_nodes; i = next_window(g, frames, i + 1)) {
        yes = suits(l->place, &g->nodes[i]);
        const int64_t reader = yes ? reader_of(l->place, &g->nodes[i]) : DV_UNREAD;
        readers += reader >= 0 ? dv_shape_of(g, g->nodes[i].out).n : 0;
        if (yes && conv < 0) {
            conv = reader;
            raw = g->nodes[l->place->producer[g->nodes[i].in[0]]].in[0];
        }
    }
    const davy_result r = yes && conv >= 0 ? set_gain(l, conv, raw, c) : DAVY_OK;
    c->gain *= (double)readers;
    return r;
}

static uint64_t value_bytes(const dv_memory_plan *place, dv_value v) {
    const dv_shape s = place->graph->values[v].shape;
    return (uint64_t)(s.n * s.h * s.w * s.c) * dvk_dtype_size(place->dtypes[v]);
}

static void add_live(candidates *s, int64_t first, int64_t last, uint64_t bytes) {
    for (int64_t k = dv_max(first, 0); k <= dv_min(last, s->l->place->graph->n_nodes - 1); k++) {
        s->live[k] += bytes; /* the complement (0 - bytes) subtracts */
    }
}

/* The frames grow, and the windows' operands no longer share their buffer. */
static void add_candidate(candidates *s, const candidate *c, bool adds) {
    const dv_memory_plan *place = s->l->place;
    const dv_graph *g = place->graph;
    const dv_node *frames = &g->nodes[c->node];
    add_live(s, c->first, c->last, adds ? c->more : 0 - c->more);
    for (int64_t i = c->node; i < g->n_nodes; i = next_window(g, frames, i + 1)) {
        const dv_value raw = g->nodes[place->producer[g->nodes[i].in[0]]].in[0];
        if (place->places[raw].buffer == place->places[frames->out].buffer) {
            add_live(s, place->producer[raw], i, adds ? value_bytes(place, raw) : 0 - value_bytes(place, raw));
        }
    }
}

static davy_result list_candidates(candidates *s) {
    dv_lowering *l = s->l;
    const dv_graph *g = l->plan->graph;
    davy_result r = DAVY_OK;
    for (int64_t k = 0; r == DAVY_OK && k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        const bool first = node->op == DV_OP_FRAMES || (node->op == DV_OP_WINDOW && node->first == 0);
        candidate c = {.node = k};
        r = !node->dead && first && l->cuda[k].winograd == 0 ? judge(l, &c) : DAVY_OK;
        if (r == DAVY_OK && c.gain > 0.0) {
            const dv_block *block = &l->place->blocks[l->place->places[node->out].buffer];
            const dv_shape plain = dv_shape_of(g, node->out), grown = transformed(plain);
            const uint64_t pixel = block->bytes / (uint64_t)(plain.h * plain.w);
            c.more = pixel * (uint64_t)(grown.h * grown.w - plain.h * plain.w);
            if (l->options->policy.offload_state) { /* the kept frames are copied through a plain buffer */
                c.more += value_bytes(l->place, node->in[0]) / (uint64_t)dv_shape_of(g, node->in[0]).n *
                          (uint64_t)node->time.lead;
            }
            c.first = block->first;
            c.last = block->last;
            s->list[s->count++] = c;
        }
    }
    return r;
}

/* The unseen candidate with the largest gain per byte; NULL: none is left. */
static candidate *next_best(candidates *s) {
    const bool weights = s->l->options->policy.transform_max_total > 0; /* weights are the scarce bytes */
    candidate *best = NULL;
    double most = 0.0;
    for (int64_t i = 0; i < s->count; i++) {
        candidate *c = &s->list[i];
        const double rate = c->gain / (double)(1 + (weights ? c->weights : c->more));
        if (!c->seen && (best == NULL || rate > most)) {
            best = c;
            most = rate;
        }
    }
    return best;
}

static uint64_t most_live(const candidates *s, int64_t first, int64_t last) {
    uint64_t most = 0;
    for (int64_t k = dv_max(first, 0); k <= dv_min(last, s->l->place->graph->n_nodes - 1); k++) {
        most = s->live[k] > most ? s->live[k] : most;
    }
    return most;
}

static bool fits(const candidates *s, const candidate *c) {
    const dv_plan_options *o = s->l->options;
    const uint64_t room = o->policy.transform_max_arena, with = o->policy.transform_max_total;
    return (room == 0 || most_live(s, c->first, c->last) <= room) &&
           (with == 0 || most_live(s, 0, s->l->place->graph->n_nodes) + s->weights <= with);
}

/* The gain differs between slices. The search sets transform_min_gain for one of a clip's plans, and uses that plan's
 * plain_rings for all others. */
static bool is_worth_it(const candidates *s, const candidate *c) {
    const double worth = s->l->options->policy.transform_min_gain;
    return worth <= 0.0 || c->gain - c->before >= worth * (double)c->weights;
}

/* Takes candidates by gain per byte. A candidate that exceeds a limit is skipped. */
static void take_candidates(candidates *s) {
    const dv_memory_plan *place = s->l->place;
    for (int64_t i = 0; i < place->n_buffers; i++) {
        add_live(s, place->blocks[i].first, place->blocks[i].last, place->blocks[i].bytes);
    }
    for (candidate *c = NULL; (c = next_best(s)) != NULL;) {
        const int32_t ring = place->graph->nodes[c->node].time.ring;
        c->seen = true;
        add_candidate(s, c, true);
        s->weights += c->weights;
        c->taken = ring < DV_RINGS && !dv_rings_have(&s->l->options->policy.plain_rings, ring) && is_worth_it(s, c) &&
                   fits(s, c);
        if (!c->taken) {
            add_candidate(s, c, false);
            s->weights -= c->weights;
            dv_rings_add(&s->l->plan->plain_rings, ring);
        }
    }
}

/* ---- bands ---- */

/* The cost of the convolution in bands of `rows` rows; 0: not possible. */
static double bands_cost(const dv_lowering *l, const dvk_conv2d_args *conv, int64_t rows) {
    double cost = 0.0;
    for (int64_t first = 0; first < conv->y.h; first += rows) {
        dvk_args args = {.band = {.conv = *conv, .first = first, .rows = dv_min(rows, conv->y.h - first)}};
        args.band.conv.x.h = DVK_WINOGRAD_LINES * (dvk_band_to(&args.band) - dvk_band_from(&args.band));
        const dvk_cuda_kernel *k = dv_choose_kernel(l->options, "conv2d_winograd_band", &args).cuda;
        if (k == NULL || k->cost == NULL) {
            return 0.0;
        }
        cost += k->cost(&args, l->options->caps);
    }
    return cost;
}

/* Whether the picture has at least a quarter of the largest one's pixels. Bands of smaller ones would save little. */
static bool is_large(const dv_graph *g, dv_shape s) {
    int64_t most = 0;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        const bool counts = !node->dead && node->op == DV_OP_CONV2D;
        const dv_shape y = counts ? dv_shape_of(g, node->out) : (dv_shape){0};
        most = dv_max(most, y.h * y.w);
    }
    return 4 * s.h * s.w >= most;
}

/* The smallest number of rows whose cost is at most WORTH_LESS_MEMORY times the lowest cost; 0: no bands. */
static int64_t best_band(const dv_lowering *l, const dvk_conv2d_args *conv) {
    const int64_t least = dv_max(conv->y.h / MOST_BANDS, 1), most = conv->y.h / FEWEST_BANDS;
    double best = 0.0;
    for (int64_t n = least; n <= most; n++) {
        const double cost = bands_cost(l, conv, n);
        best = cost > 0.0 && (best <= 0.0 || cost < best) ? cost : best;
    }
    for (int64_t n = least; n <= most; n++) {
        const double cost = bands_cost(l, conv, n);
        if (cost > 0.0 && cost <= WORTH_LESS_MEMORY * best) {
            return n;
        }
    }
    return 0;
}

static davy_result find_band(candidates *s, candidate *c) {
    const dv_memory_plan *place = s->l->place;
    const dv_graph *g = place->graph;
    const int64_t conv = reader_of(s->l->place, &g->nodes[c->node]);
    if (g->nodes[c->node].op != DV_OP_FRAMES || conv < 0 || !is_large(g, dv_shape_of(g, g->nodes[conv].out))) {
        return DAVY_OK;
    }
    const davy_result r = dv_lower_try_conv(s->l, conv);
    if (r == DAVY_OK) {
        dvk_conv2d_args a = s->l->step.args.conv;
        a.x = view_transformed(a.x);
        a.x.n = a.y.n;
        c->band = best_band(s->l, &a);
    }
    if (c->band > 0) {
        const dv_block *block = &place->blocks[place->places[g->nodes[c->node].out].buffer];
        const int64_t h = dv_shape_of(g, g->nodes[conv].out).h;
        c->less = (block->bytes + c->more) / (uint64_t)h * (uint64_t)dv_max(h - c->band - 2, 0);
        const dv_value raw = g->nodes[place->producer[g->nodes[c->node].in[0]]].in[0];
        c->longer = place->blocks[place->places[raw].buffer].last < conv ? value_bytes(place, raw) : 0;
    }
    return r;
}

/* With bands the frames shrink, and their operand lives as long as they do. */
static void add_band(candidates *s, const candidate *c, bool adds) {
    add_live(s, c->first, c->last, adds ? 0 - c->less : c->less);
    add_live(s, c->last, c->last, adds ? c->longer : 0 - c->longer);
}

/* Gives bands only to the candidates whose bands the smallest possible workspace needs. */
static davy_result set_bands(candidates *s) {
    const int64_t n = s->l->place->graph->n_nodes;
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < s->count; i++) {
        candidate *c = &s->list[i];
        r = c->taken ? find_band(s, c) : DAVY_OK;
        add_band(s, c, true);
    }
    const uint64_t least = most_live(s, 0, n);
    for (int64_t i = 0; i < s->count; i++) {
        candidate *c = &s->list[i];
        add_band(s, c, false);
        if (most_live(s, 0, n) > least) {
            add_band(s, c, true);
        } else {
            c->band = 0;
        }
    }
    return r;
}

/* ---- all of it ---- */

static void rewrite_taken(candidates *s) {
    dv_graph *g = s->l->plan->graph;
    for (int64_t i = 0; i < s->count; i++) {
        const candidate *c = &s->list[i];
        if (c->taken && c->band > 0) {
            const int64_t conv = reader_of(s->l->place, &g->nodes[c->node]);
            s->l->cuda[c->node].band = s->l->cuda[conv].band = c->band;
        }
        for (int64_t k = c->node; c->taken && k < g->n_nodes; k = next_window(g, &g->nodes[c->node], k + 1)) {
            rewrite(s->l, k);
        }
    }
}

davy_result dv_fuse_winograd(dv_lowering *l, bool *changed) {
    const dv_plan_options *options = l->options;
    const uint64_t n = (uint64_t)l->plan->graph->n_nodes;
    if (options->compute != DVK_F16 && options->compute != DVK_BF16) {
        return DAVY_OK;
    }
    candidates s = {.l = l, .list = dv_calloc(n + 1, sizeof *s.list), .live = dv_calloc(n + 1, sizeof *s.live)};
    davy_result r = s.list != NULL && s.live != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
    r = r < 0 ? r : list_candidates(&s);
    if (r == DAVY_OK) {
        take_candidates(&s);
        r = options->policy.transform_bands ? set_bands(&s) : r;
        rewrite_taken(&s);
        for (int64_t i = 0; i < s.count; i++) {
            *changed = *changed || s.list[i].taken;
        }
    }
    dv_free(s.list);
    dv_free(s.live);
    return r;
}
