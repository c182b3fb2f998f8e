/* plan.c - creates a plan: places the values, packs the arena, lowers node by node. Also writes a plan as text. */
#include "core/plan/plan.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/plan/choose.h"
#include "core/plan/fuse_cuda.h"
#include "core/plan/lower.h"
#include "core/plan/offload.h"
#include "kernels/dtype.h"

void dv_plan_release(dv_plan *p) {
    if (p == NULL) {
        return;
    }
    dv_graph_release(p->graph);
    dv_free(p->steps);
    dv_free(p->binds);
    dv_free(p->weights);
    dv_free(p->transfers);
    dv_free(p->syncs);
    dv_free(p->kept);
    dv_free(p->norms);
    dv_free(p->live);
    dv_free(p);
}

static davy_result lower_all(dv_lowering *l) {
    dv_plan *p = l->plan;
    int64_t *first_step = dv_calloc((uint64_t)p->graph->n_nodes + 1, sizeof *first_step);
    davy_result r = first_step != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
    for (int64_t k = 0; r == DAVY_OK && k < p->graph->n_nodes; k++) {
        first_step[k] = p->n_steps;
        r = p->graph->nodes[k].dead ? DAVY_OK : dv_lower_node(l, k);
        first_step[k + 1] = p->n_steps;
    }
    r = r < 0 ? r : dv_plan_rings(p, l->place, first_step);
    dv_free(first_step);
    return r;
}

static dv_storage storage_of(const dv_plan_options *options) {
    const dvk_dtype c = options->compute;
    if (options->caps == NULL) {
        return (dv_storage){.dtype = c == DVK_BF16 ? DVK_BF16 : DVK_F32,
                            .channels = 1,
                            .align = DV_ARENA_ALIGN,
                            .policy = &options->policy,
                            .tflops = 1.0,
                            .gbs = 10.0};
    }
    return (dv_storage){.policy = &options->policy,
                        .tflops = options->caps->tensor_tflops,
                        .gbs = options->caps->memory_gbs,
                        .dtype = dv_is_8bit(c)                   ? dv_plain_of_int8(options)
                                 : c == DVK_F16 || c == DVK_BF16 ? c
                                                                 : DVK_F32,
                        .channels = 8,
                        .align = 256};
}

/* ---- placement ---- */

/* Each node computes only its own op at first. */
static dv_cuda_node *make_cuda_nodes(const dv_graph *g) {
    dv_cuda_node *nodes = dv_calloc((uint64_t)g->n_nodes + 1, sizeof *nodes);
    for (int64_t k = 0; nodes != NULL && k < g->n_nodes; k++) {
        nodes[k].also = nodes[k].scale = nodes[k].res_scale = DV_NO_VALUE;
        nodes[k].gate_weight = nodes[k].gate_bias = DV_NO_PARAM;
    }
    return nodes;
}

/* Places the values, again if a pass has changed the graph. */
static davy_result place_values(dv_lowering *l, const dv_storage *storage, bool *changed) {
    if (!*changed) {
        return DAVY_OK;
    }
    *changed = false;
    dv_memory_plan_free(l->place);
    return dv_memory_plan_create(l->plan->graph, l->cuda, storage, l->place);
}

/* A pass offers kernels the types, strides and lifetimes of values, and finds the producer of an operand in
 * `producer`. An earlier pass makes both stale for the nodes it has merged. So values are placed once, and again after
 * each pass that changed something. For the shipped upscalers that is 1.8 times on average, 3 to 4 % of planning time.
 * The last placement is the plan's. */
static davy_result fuse_cuda(dv_lowering *l, const dv_storage *storage) {
    bool changed = false;
    davy_result r = dv_fuse_convs(l, &changed);
    r = r < 0 ? r : place_values(l, storage, &changed);
    if (r == DAVY_OK) {
        r = dv_fuse_se(l, &changed);
        dv_fuse_pairs(l, &changed);
        dv_fuse_swin(l, &changed);
    }
    r = r < 0 ? r : place_values(l, storage, &changed);
    if (r == DAVY_OK && l->options->policy.transform_frames) {
        r = dv_fuse_winograd(l, &changed);
    }
    return r < 0 ? r : place_values(l, storage, &changed);
}

/* Places everything that is not a value of the graph: means, statistics, scaled weights, norm coefficients. */
static davy_result place_others(dv_lowering *l) {
    const bool cuda = l->options->caps != NULL, given = l->options->given_means;
    davy_result r = given ? dv_place_given(l) : DAVY_OK;
    r = r == DAVY_OK && cuda && !given ? dv_fuse_statistics(l) : r;
    r = r == DAVY_OK && cuda ? dv_place_se(l) : r;
    return r < 0 ? r : dv_memory_plan_norms(l->place);
}

/* Places all buffers and packs the arena; on CUDA the fusing passes run first. */
static davy_result place_all(dv_lowering *l) {
    const dv_storage storage = storage_of(l->options);
    dv_memory_plan *place = l->place;
    bool changed = true;
    davy_result r = place_values(l, &storage, &changed);
    r = r == DAVY_OK && l->options->caps != NULL ? fuse_cuda(l, &storage) : r;
    r = r < 0 ? r : place_others(l);
    r = r < 0 ? r : dv_memory_plan_rings(place);
    r = r == DAVY_OK && l->options->direct && l->options->caps != NULL ? dv_fuse_store(l) : r;
    const uint64_t room = l->options->policy.overlap_arena_bytes;
    const uint64_t enough = place->offloaded_bytes > 0 && room > 0 ? room : UINT64_MAX;
    return r < 0 ? r : dv_arena_pack(place->blocks, place->n_buffers, enough, &l->plan->arena_bytes);
}

/* ---- convolutions that scan their picture backwards ----
 * A layer of a chain reads the result of the layer before. If that is larger than the GPU's cache, only its end is
 * still cached. */

/* The bind of a step's picture; NULL: not in the arena. */
static const dv_bind *place_of(const dv_plan *p, const dv_step *s, uint32_t field) {
    const dv_bind *found = NULL;
    for (int64_t i = s->first_bind; i < s->first_bind + s->n_binds; i++) {
        const dv_bind *b = &p->binds[i];
        found = b->field == field && b->kind == DV_BIND_ARENA ? b : found;
    }
    return found;
}

static bool is_conv(const dv_step *s) {
    return strcmp(dv_kernel_op(s->kernel), "conv2d") == 0;
}

/* Whether the step reads the whole result of the step before it. */
static bool follows(const dv_plan *p, const dv_step *s) {
    const dv_bind *x = place_of(p, s, (uint32_t)offsetof(dvk_args, conv.x.data));
    const dv_bind *y = place_of(p, s - 1, (uint32_t)offsetof(dvk_args, conv.y.data));
    return is_conv(s - 1) && x != NULL && y != NULL && x->at == y->at && s->args.conv.x.h == (s - 1)->args.conv.y.h;
}

static void reverse_scan(dv_plan *p, const dvk_cuda_caps *caps) {
    for (int64_t k = 1; caps != NULL && k < p->n_steps; k++) {
        dv_step *s = &p->steps[k];
        if (is_conv(s) && s->kernel.cuda->turns && follows(p, s)) {
            const dvk_view *x = &s->args.conv.x;
            const int64_t bytes = x->n * x->h * x->w * x->c * (int64_t)dvk_dtype_size(x->dtype);
            s->args.conv.backwards = bytes > caps->l2_bytes / 2 && !s[-1].args.conv.backwards;
        }
    }
}

/* ---- all of it ---- */

/* Scratch of "load" and "store". Their kernels are chosen per run; their scratch depends only on the channels. */
static uint64_t convert_scratch(const dv_plan_options *options, const char *op, const dvk_view *view) {
    const dvk_convert_args args = {.view = *view};
    uint64_t most = 0;
    for (int32_t i = 0; options->caps == NULL && i < dvk_kernel_count; i++) {
        const dvk_kernel *k = dvk_kernels[i];
        if (strcmp(k->op, op) == 0 && (k->cpu & ~options->cpu) == 0 && k->scratch_bytes != NULL) {
            const uint64_t bytes = dv_align_up(k->scratch_bytes(&args), 64);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

/* Sets the views that "load" writes and "store" reads, and the scratch that they need. */
static void set_pictures(dv_plan *p, const dv_memory_plan *place, const dv_plan_options *options) {
    p->input = dv_view_of(place, p->graph->input, &p->input_at);
    p->output = dv_view_of(place, p->graph->output, &p->output_at);
    const uint64_t load = convert_scratch(options, "load", &p->input);
    const uint64_t store = convert_scratch(options, "store", &p->output);
    p->scratch_bytes = load > p->scratch_bytes ? load : p->scratch_bytes;
    p->scratch_bytes = store > p->scratch_bytes ? store : p->scratch_bytes;
}

davy_result dv_plan_create(dv_graph *graph, const dv_plan_options *options, dv_plan **out) {
    dv_memory_plan place = {0};
    dv_plan *p = dv_calloc(1, sizeof *p);
    dv_lowering l = {.plan = p, .cuda = make_cuda_nodes(graph), .place = &place, .options = options};
    if (p == NULL || l.cuda == NULL) {
        dv_graph_release(graph);
        dv_free(p);
        dv_free(l.cuda);
        return dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
    }
    p->graph = graph;
    davy_result r = place_all(&l);
    r = r < 0 ? r : lower_all(&l);
    if (r == DAVY_OK) {
        reverse_scan(p, options->caps);
        set_pictures(p, &place, options);
        *out = p;
    } else {
        dv_plan_release(p);
    }
    dv_memory_plan_free(&place);
    dv_free(l.cuda);
    return r;
}

/* ---- text ---- */

typedef struct text {
    char *data;
    int64_t length, capacity;
    bool failed;
} text;

static void append(text *t, const char *fmt, ...) DV_PRINTF(2, 3);

static void append(text *t, const char *fmt, ...) {
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    const int64_t length = dv_min(n > 0 ? n : 0, (int64_t)sizeof line - 1);
    char *data = t->failed ? NULL : dv_grow(t->data, t->length + length + 1, &t->capacity, 1);
    if (data == NULL) {
        t->failed = true;
        return;
    }
    t->data = data;
    memcpy(data + t->length, line, (size_t)length + 1);
    t->length += length;
}

/* The bind of a pointer of the step; NULL: none, or a weight. */
static const dv_bind *bound_at(const dv_plan *p, const dv_step *s, const void *member) {
    const uint32_t field = (uint32_t)((const char *)member - (const char *)&s->args);
    for (int64_t i = s->first_bind; i < s->first_bind + s->n_binds; i++) {
        if (p->binds[i].field == field && p->binds[i].kind != DV_BIND_WEIGHT) {
            return &p->binds[i];
        }
    }
    return NULL;
}

static void append_view(text *t, const dv_plan *p, const dv_step *s, const char *before, const dvk_view *v) {
    const dv_bind *at = bound_at(p, s, &v->data);
    if (at != NULL) {
        append(t, "%s[", before);
        if (v->n > 1) {
            append(t, "%lld x ", (long long)v->n);
        }
        append(t, "%lld,%lld,%lld", (long long)v->h, (long long)v->w, (long long)v->c);
        if (v->sw != v->c) {
            append(t, "/%lld", (long long)v->sw);
        }
        append(t, "] %s %s%llu", dv_dtype_name(v->dtype), at->kind == DV_BIND_STATE ? "state " : "@",
               (unsigned long long)at->at);
    }
}

static void append_epilogue(text *t, const dv_plan *p, const dv_step *s, const dvk_epilogue *e) {
    for (int32_t i = 0; i < e->n_res; i++) {
        append_view(t, p, s, " + ", &e->res[i]);
    }
}

static void append_operands(text *t, const dv_plan *p, const dv_step *s, const char *name) {
    const dvk_op *op = dvk_op_find(name);
    for (int32_t k = 0; op != NULL && op->n_in > 0 && k <= op->n_in; k++) {
        const size_t at = k < op->n_in ? op->in[k] : op->out;
        append_view(t, p, s,
                    k == op->n_in ? " -> "
                    : k > 0       ? ", "
                                  : " ",
                    (const dvk_view *)(const void *)((const char *)&s->args + at));
    }
}

static void append_step(text *t, const dv_plan *p, const dv_step *s) {
    const char *op = dv_kernel_op(s->kernel);
    append(t, "%s %s %s", op, dv_kernel_variant(s->kernel), s->label);
    if (strncmp(op, "conv2d", strlen("conv2d")) == 0) {
        const dvk_conv2d_args *a = &s->args.conv;
        append(t, " %dx%d", (int)a->kh, (int)a->kw);
        append_view(t, p, s, " ", &a->x);
        append_epilogue(t, p, s, &a->epi);
        append_view(t, p, s, " -> ", &a->y);
        append(t, "%s%s%s%s%s", a->epi.stats != NULL ? " with statistics" : "", a->epi.sums != NULL ? " with sums" : "",
               a->scaled ? " scaled" : "", a->epi.shuffle > 1 ? " shuffled" : "",
               p->direct && s == &p->steps[p->n_steps - 1] ? " stored" : "");
    } else if (strcmp(op, "pointwise") == 0) {
        append_view(t, p, s, " ", &s->args.pointwise.x);
        append_epilogue(t, p, s, &s->args.pointwise.epi);
        append_view(t, p, s, " -> ", &s->args.pointwise.y);
    } else if (strcmp(op, "group_norm_stats") == 0) {
        append_view(t, p, s, " ", &s->args.stats.x);
    } else if (strcmp(op, "row_norm") == 0) {
        append(t, " [%lld,%lld]", (long long)s->args.row_norm.m, (long long)s->args.row_norm.dim);
    } else {
        append_operands(t, p, s, op);
    }
    append(t, "\n");
}

char *dv_plan_dump(const dv_plan *p) {
    text t = {0};
    for (int64_t i = 0; i < p->n_steps; i++) {
        append_step(&t, p, &p->steps[i]);
    }
    if (p->state_bytes > 0) {
        append(&t, "state %llu, ", (unsigned long long)p->state_bytes);
    }
    append(&t, "arena %llu, scratch %llu a thread, weights %llu, %llu flops\n", (unsigned long long)p->arena_bytes,
           (unsigned long long)p->scratch_bytes, (unsigned long long)p->weight_bytes, (unsigned long long)p->flops);
    if (t.failed) {
        dv_free(t.data);
        return NULL;
    }
    return t.data;
}
