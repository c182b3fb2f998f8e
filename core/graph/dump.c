/* dump.c - a graph as text, one line per node, for people and for the golden files of tests. Ops that fuse.c moved
 * into a node appear in in{...} (prologue) and out{...} (epilogue), in the order in which they are computed. */
#include "core/graph/graph_priv.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/mem.h"

typedef struct dv_dump {
    char *text;
    int64_t size, capacity;
    bool failed;
} dv_dump;

static void put(dv_dump *d, const char *fmt, ...) DV_PRINTF(2, 3);
static void put(dv_dump *d, const char *fmt, ...) {
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    const int64_t len = n < 0 ? 0 : dv_min(n, (int64_t)sizeof line - 1);
    char *text = d->failed ? NULL : dv_grow(d->text, d->size + len + 1, &d->capacity, 1);
    if (text == NULL) {
        d->failed = true;
        return;
    }
    d->text = text;
    memcpy(text + d->size, line, (size_t)len);
    d->size += len;
    text[d->size] = '\0';
}

const char *dv_act_name(dvk_act act) {
    static const char *const names[] = {"none",   "relu", "lrelu",   "prelu", "silu",
                                        "clamp3", "gelu", "sigmoid", "tanh",  "mish"};
    return (size_t)act < DV_ARRAY_LEN(names) ? names[act] : "?";
}

static void put_act(dv_dump *d, const dv_graph *g, const dv_act *act) {
    put(d, "%s", dv_act_name(act->kind));
    if (act->kind == DVK_ACT_LRELU) {
        put(d, " %g", (double)act->slope);
    }
    if (act->slopes != DV_NO_PARAM) {
        char name[128];
        dv_param_base_name(g, act->slopes, name, sizeof name);
        put(d, " %s", name);
    }
}

static void put_prologue(dv_dump *d, const dv_graph *g, const dv_node *node) {
    const char *next = " in{";
    if (node->fused.norm >= 0) {
        put(d, "%snorm %s", next, g->nodes[node->fused.norm].label);
        next = ", ";
    }
    if (node->fused.pro_scale != DV_NO_PARAM) {
        put(d, "%s%s", next, g->params[node->fused.pro_scale].label);
        next = ", ";
    }
    if (node->fused.pro_act.kind != DVK_ACT_NONE) {
        put(d, "%s", next);
        put_act(d, g, &node->fused.pro_act);
        next = ", ";
    }
    if (node->fused.upsample > 1) {
        put(d, "%supsample %d", next, (int)node->fused.upsample);
        next = ", ";
    }
    if (next[0] == ',') {
        put(d, "}");
    }
}

static void put_epilogue(dv_dump *d, const dv_graph *g, const dv_node *node) {
    const char *next = " out{";
    const bool acts = node->fused.act.kind != DVK_ACT_NONE;
    if (node->fused.gate) {
        put(d, "%sgate %%%d", next, (int)node->fused.res[0]);
        next = ", ";
    }
    if (acts && !node->fused.act_last) {
        put(d, "%s", next);
        put_act(d, g, &node->fused.act);
        next = ", ";
    }
    if (node->fused.alpha < 1.0f || node->fused.alpha > 1.0f) {
        put(d, "%s* %g", next, (double)node->fused.alpha);
        next = ", ";
    }
    for (int32_t i = 0; i < node->fused.n_res && !node->fused.gate; i++) {
        put(d, "%s+ %g * %%%d", next, (double)node->fused.beta[i], (int)node->fused.res[i]);
        next = ", ";
    }
    if (acts && node->fused.act_last) {
        put(d, "%s", next);
        put_act(d, g, &node->fused.act);
        next = ", ";
    }
    if (next[0] == ',') {
        put(d, "}");
    }
}

/* ---- attributes: show_<...> of ops.def ---- */

static void show_nothing(dv_dump *d, const dv_graph *g, const dv_node *node) {
    (void)d;
    (void)g;
    (void)node;
}

static void show_label(dv_dump *d, const dv_graph *g, const dv_node *node) {
    (void)g;
    put(d, " %s", node->label);
}

/* Shows padding other than (k - 1) / 2 on all sides. */
static void put_padding(dv_dump *d, const dv_graph *g, const dv_node *node) {
    if (node->pad_top > 0 || node->kh == 1) {
        return;
    }
    const int64_t up = node->fused.upsample > 1 ? node->fused.upsample : 1;
    const int64_t inside = (dv_shape_of(g, node->in[0]).h * up - node->kh) / node->stride + 1;
    put(d, "%s", dv_shape_of(g, node->out).h > inside ? " pad bottom right" : " valid");
}

static void show_conv(dv_dump *d, const dv_graph *g, const dv_node *node) {
    put(d, " %s %dx%d %" PRId64 "->%" PRId64, node->label, (int)node->kh, (int)node->kw, dv_shape_of(g, node->in[0]).c,
        dv_shape_of(g, node->out).c);
    if (node->stride != 1) {
        put(d, " stride %d", (int)node->stride);
    }
    put_padding(d, g, node);
    put(d, "%s%s", node->phased ? " of each parity" : "", node->bias == DV_NO_PARAM ? " no bias" : "");
}

static void show_depthwise(dv_dump *d, const dv_graph *g, const dv_node *node) {
    put(d, " %s %dx%d%s", node->label, (int)node->kh, (int)node->kw, node->bias == DV_NO_PARAM ? " no bias" : "");
    put_padding(d, g, node);
}

static void show_pool(dv_dump *d, const dv_graph *g, const dv_node *node) {
    (void)g;
    put(d, " %dx%d stride %d", (int)node->kh, (int)node->kw, (int)node->stride);
}

/* Fusion moves some attributes into `fused`. They are shown only before it. */
static void show_act(dv_dump *d, const dv_graph *g, const dv_node *node) {
    if (!g->fused) {
        put(d, " ");
        put_act(d, g, &node->act);
    }
}

static void show_sum(dv_dump *d, const dv_graph *g, const dv_node *node) {
    if (!g->fused) {
        put(d, " * %g, * %g", (double)node->alpha, (double)node->beta);
    }
}

static void show_product(dv_dump *d, const dv_graph *g, const dv_node *node) {
    (void)g;
    if (node->act.kind != DVK_ACT_NONE) {
        put(d, " by %s", dv_act_name(node->act.kind));
    }
}

static void show_group_norm(dv_dump *d, const dv_graph *g, const dv_node *node) {
    (void)g;
    put(d, " %s %" PRId64 " groups eps %g", node->label, node->groups, (double)node->eps);
}

static void show_row_norm(dv_dump *d, const dv_graph *g, const dv_node *node) {
    (void)g;
    put(d, " %s eps %g", node->label, (double)node->eps);
}

static void show_attention(dv_dump *d, const dv_graph *g, const dv_node *node) {
    (void)g;
    put(d, " %" PRId64 " heads scale %g", node->heads, (double)node->scale);
}

static void show_window(dv_dump *d, const dv_graph *g, const dv_node *node) {
    const dv_window *w = &node->window;
    const dv_shape s = dv_shape_of(g, node->out);
    const bool shifts = w->shift_y > 0 || w->shift_x > 0;
    put(d, " %" PRId64 " heads", node->heads);
    if (node->op == DV_OP_WINDOW_ATTENTION) {
        put(d, " scale %g", (double)node->scale);
    }
    if (w->h > 0) {
        put(d, " %s %dx%d", w->grid ? "grid" : "window", (int)w->h, (int)w->w);
    }
    if (w->keys_h > w->h || w->keys_w > w->w) {
        put(d, " keys %dx%d", (int)w->keys_h, (int)w->keys_w);
    }
    if (w->padded_h > s.h || w->padded_w > s.w) {
        put(d, " of %" PRId64 "x%" PRId64, w->padded_h, w->padded_w);
    }
    if (shifts) {
        put(d, " shift %d,%d", (int)w->shift_y, (int)w->shift_x);
    }
    if (w->cut_y > 0 || w->cut_x > 0) {
        put(d, " cut %d,%d", (int)w->cut_y, (int)w->cut_x);
    }
}

static void show_factor(dv_dump *d, const dv_graph *g, const dv_node *node) {
    (void)g;
    put(d, " by %" PRId64, node->r);
}

static void show_dysample(dv_dump *d, const dv_graph *g, const dv_node *node) {
    (void)g;
    put(d, " by %" PRId64 " %" PRId64 " groups", node->r, node->groups);
}

static void show_fold(dv_dump *d, const dv_graph *g, const dv_node *node) {
    (void)g;
    put(d, " by %" PRId64 " before %d, %" PRId64 " heads", node->r, (int)node->pad_top, node->heads);
}

static void show_origin(dv_dump *d, const dv_graph *g, const dv_node *node) {
    (void)g;
    if (node->pad_top > 0 || node->pad_left > 0) {
        put(d, " at %d,%d", (int)node->pad_top, (int)node->pad_left);
    }
}

static void show_pad(dv_dump *d, const dv_graph *g, const dv_node *node) {
    put(d, " %s", node->pad_mode == DVK_PAD_REFLECT ? "reflect" : node->pad_mode == DVK_PAD_EDGE ? "edge" : "zero");
    show_origin(d, g, node);
}

static void show_first(dv_dump *d, const dv_graph *g, const dv_node *node) {
    (void)g;
    put(d, " from %" PRId64, node->first);
}

static void show_frame(dv_dump *d, const dv_graph *g, const dv_node *node) {
    (void)g;
    put(d, " of %" PRId64, node->first);
}

static void show_time(dv_dump *d, const dv_graph *g, const dv_node *node) {
    const dv_time *t = &node->time;
    (void)g;
    put(d, " %d", (int)t->frames);
    if (t->step > 1) {
        put(d, " every %d", (int)t->step);
    }
    if (t->lead > 0) {
        put(d, " %d %s", (int)t->lead, t->before == DV_BEFORE_ZERO ? "before or zero" : "before or first");
    }
}

static void put_attributes(dv_dump *d, const dv_graph *g, const dv_node *node) {
    static void (*const show[])(dv_dump *, const dv_graph *, const dv_node *) = {
        show_nothing,
#define DV_OP(NAME, name, REACH, TRAIT, flops, show, lower) show_##show,
#include "core/graph/ops.def"
    };
    show[node->op](d, g, node);
}

char *dv_graph_dump(const dv_graph *g) {
    dv_dump d = {NULL, 0, 0, false};
    put(&d, "%s", "");
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const dv_node *node = &g->nodes[i];
        if (node->dead) {
            continue;
        }
        const dv_shape s = dv_shape_of(g, node->out);
        const bool coefficients = g->fused && node->op == DV_OP_GROUP_NORM && g->values[node->out].uses == 0;
        if (coefficients) {
            put(&d, "coefficients");
        } else {
            put(&d, "%%%d", (int)node->out);
        }
        put(&d, " = %s", dv_op_name(node->op));
        for (int32_t k = 0; k < node->n_in; k++) {
            put(&d, " %%%d", (int)node->in[k]);
        }
        put_attributes(&d, g, node);
        if (!coefficients) {
            put_prologue(&d, g, node);
            put_epilogue(&d, g, node);
            put(&d, " [%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 "]%s", s.n, s.h, s.w, s.c,
                node->out == g->output ? " output" : "");
        }
        put(&d, "\n");
    }
    if (d.failed) {
        dv_free(d.text);
        return NULL;
    }
    return d.text;
}
