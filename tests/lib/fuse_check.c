/* fuse_check.c - see fuse_check.h. */
#include "tests/lib/fuse_check.h"

void check_consistent(const dv_graph *g, const char *what) {
    int32_t *uses = calloc((size_t)g->n_values, sizeof *uses);
    int32_t *made = calloc((size_t)g->n_values, sizeof *made);
    for (int64_t i = 0; i < g->n_nodes; i++) {
        const dv_node *node = &g->nodes[i];
        if (node->dead) {
            continue;
        }
        for (int32_t k = 0; k < node->n_in; k++) {
            uses[node->in[k]]++;
            CHECKF(made[node->in[k]] == 1, "%s: %s reads %%%d before it is made", what, node->label, (int)node->in[k]);
        }
        for (int32_t k = 0; k < node->fused.n_res; k++) {
            uses[node->fused.res[k]]++;
            CHECKF(made[node->fused.res[k]] == 1, "%s: %s adds %%%d before it is made", what, node->label,
                   (int)node->fused.res[k]);
        }
        made[node->out]++;
        CHECKF(g->values[node->out].producer == i, "%s: producer of %%%d", what, (int)node->out);
        const int32_t norm = node->fused.norm;
        CHECKF(norm < 0 || (norm <= i && !g->nodes[norm].dead && g->nodes[norm].op == DV_OP_GROUP_NORM &&
                            g->nodes[norm].in[0] == node->in[0] && node->fused.norm_of == node->in[0]),
               "%s: norm of %s", what, node->label);
    }
    uses[g->output]++;
    for (int64_t v = 0; v < g->n_values; v++) {
        CHECKF(g->values[v].uses == uses[v] && made[v] <= 1, "%s: %%%d has %d uses, counted %d", what, (int)v,
               (int)g->values[v].uses, (int)uses[v]);
    }
    free(uses);
    free(made);
}

uint32_t random_state;

uint32_t pick(uint32_t n) {
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

dv_tensors *random_weights(void) {
    dv_tensors *t = fake_new();
    for (int i = 0; i < 4; i++) {
        fake_conv(t, fake_name("three%d", i), CHANNELS, CHANNELS, 3, i % 2);
        fake_conv(t, fake_name("one%d", i), CHANNELS, CHANNELS, 1, i % 2);
        fake_norm(t, fake_name("norm%d", i), CHANNELS);
    }
    fake_conv(t, "wide", 4 * CHANNELS, CHANNELS, 3, 1);
    fake_conv(t, "join", CHANNELS, 2 * CHANNELS, 1, 1);
    fake_conv(t, "deep", CHANNELS, 1, 3, 1);
    fake_vector(t, "slopes.weight", CHANNELS);
    fake_done(t);
    return t;
}
