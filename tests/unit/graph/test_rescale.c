/* test_rescale.c - rescale.c does not change results. It keeps the sums of an autoencoder with large weights within
 * the range of F16. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "tests/lib/check.h"
#include "tests/lib/fake_networks.h"
#include "tests/lib/interpret.h"

static double largest(const float *a, size_t n) {
    double top = 0.0;
    for (size_t i = 0; i < n; i++) {
        top = fabs((double)a[i]) > top ? fabs((double)a[i]) : top;
    }
    return top;
}

static double distance(const float *a, const float *b, size_t n) {
    double d = 0.0;
    for (size_t i = 0; i < n; i++) {
        d = fabs((double)a[i] - (double)b[i]) > d ? fabs((double)a[i] - (double)b[i]) : d;
    }
    return d / (1.0 + largest(b, n));
}

static float *result_of(const dv_graph *g, const float *x) {
    float *out = malloc(in_count(dv_shape_of(g, g->output)) * sizeof *out);
    CHECK(interpret(g, x, out));
    return out;
}

/* The largest absolute value of any node's result before fusion. */
static double peak_of(const dv_graph *g, const float *x) {
    interpreter it;
    double top = 0.0;
    const int ok = CHECK(in_run(&it, g, x));
    for (int64_t k = 0; ok && k < g->n_nodes; k++) {
        const dv_value v = g->nodes[k].out;
        if (CHECK(it.values[v] != NULL)) {
            const double here = largest(it.values[v], in_count(dv_shape_of(g, v)));
            top = here > top ? here : top;
        }
    }
    in_release(&it);
    return top;
}

static int64_t rescaled_params(const dv_graph *g) {
    int64_t n = 0;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        n += node->weight != DV_NO_PARAM && g->params[node->weight].exponent != 0;
        n += node->bias != DV_NO_PARAM && g->params[node->bias].exponent != 0;
    }
    return n;
}

/* Scales the weights so that the blocks' sums become larger. */
static void enlarge(dv_tensors *t, float *data, float factor) {
    for (int64_t i = 0; i < t->count; i++) {
        const dv_tensor_ref *ref = &t->refs[i];
        const char *name = ref->name;
        if (strstr(name, "conv_in.") != NULL || strstr(name, "conv2.") != NULL || strstr(name, "proj_out.") != NULL) {
            for (uint64_t k = 0; k < ref->bytes / 4; k++) {
                data[ref->offset / 4 + k] *= factor;
            }
        }
    }
}

static void test_network(const char *name, dv_tensors *t, dv_stage stage, int64_t h, int64_t w, float factor,
                         int touched) {
    float *data = NULL;
    CHECK(fake_fill(t, &data));
    enlarge(t, data, factor);
    dv_graph *g = fake_build(t, NULL, stage, h, w);
    if (CHECKF(g != NULL, "%s", name)) {
        const size_t n_in = in_count(dv_shape_of(g, g->input));
        const size_t n_out = in_count(dv_shape_of(g, g->output));
        float *x = malloc(n_in * sizeof *x);
        for (size_t i = 0; i < n_in; i++) {
            x[i] = (float)(i * 7919 % 1001) / 500.0f - 1.0f;
        }
        float *plain = result_of(g, x);
        const double before = peak_of(g, x);
        CHECK(dv_rescale(g) == DAVY_OK);
        CHECKF((rescaled_params(g) > 0) == touched, "%s: %d parameters", name, (int)rescaled_params(g));
        float *scaled = result_of(g, x);
        const double after = peak_of(g, x);
        const double d = distance(scaled, plain, n_out);
        CHECKF(d < 1e-5, "%s differs by %g", name, d);
        CHECKF(factor < 100.0f || (before > 65504.0 && after < 65504.0 / 2), "%s: %g, rescaled %g", name, before,
               after);
        CHECK(dv_fuse(g) == DAVY_OK);
        float *fused = result_of(g, x);
        const double e = distance(fused, plain, n_out);
        CHECKF(e < 2e-5, "%s differs by %g after fusing", name, e);
        free(fused);
        free(scaled);
        free(plain);
        free(x);
    }
    dv_graph_release(g);
    dv_tensors_release(t);
    free(data);
}

static const dv_param_info *param_called(const dv_graph *g, const char *label) {
    for (int64_t i = 0; i < g->n_params; i++) {
        if (strcmp(g->params[i].label, label) == 0) {
            return &g->params[i];
        }
    }
    return NULL;
}

/* Which parameters are scaled: down for the input and for values that are only normalised; also biases of sums, and
 * eps behind them. */
static void test_marks(void) {
    const fake_kl_spec kl = {.names = 0, .z = 4, .quant = 1, .levels = 2, .enc = {32, 64}, .dec = {32, 64}};
    dv_tensors *t = fake_kl(kl);
    dv_graph *g = fake_build(t, NULL, DV_STAGE_DECODE, 3, 4);
    CHECK(g != NULL && dv_rescale(g) == DAVY_OK);
    const dv_param_info *p = param_called(g, "decoder.conv_in.weight * 2^-6");
    CHECK(p != NULL && p->exponent == -6 && p->ref != NULL);
    CHECK(param_called(g, "decoder.conv_in.bias * 2^-6") != NULL);
    CHECK(param_called(g, "decoder.mid.block_1.conv1.weight * 2^-4") != NULL);
    CHECK(param_called(g, "decoder.mid.block_1.conv2.weight * 2^-6") != NULL);
    CHECK(param_called(g, "decoder.mid.attn_1.proj_out.bias * 2^-6") != NULL);
    CHECK(param_called(g, "decoder.mid.attn_1.q.weight * 2^-6") == NULL);
    /* reads and computes sums: only the bias */
    CHECK(param_called(g, "decoder.up.1.upsample.conv.bias * 2^-6") != NULL);
    CHECK(param_called(g, "decoder.up.1.upsample.conv.weight * 2^-6") == NULL);
    CHECK(param_called(g, "decoder.conv_out.weight * 2^-6") == NULL);
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        if (node->op == DV_OP_GROUP_NORM) {
            const int single = strstr(node->label, "norm2") != NULL;
            const double eps = single ? 1e-6 / 256.0 : 1e-6 / 4096.0;
            CHECKF(fabs((double)node->eps / eps - 1.0) < 1e-6, "%s has eps %g", node->label, (double)node->eps);
        }
    }
    dv_graph_release(g);
    dv_tensors_release(t);
}

int main(void) {
    const fake_kl_spec kl = {.names = 0, .z = 4, .quant = 1, .levels = 2, .enc = {32, 64}, .dec = {32, 64}};
    const fake_kl_spec plain = {.names = 1, .z = 4, .quant = 0, .levels = 3, .enc = {32, 64, 64}, .dec = {32, 32, 64}};
    test_network("kl decoder", fake_kl(kl), DV_STAGE_DECODE, 3, 4, 1.0f, 1);
    test_network("kl encoder", fake_kl(kl), DV_STAGE_ENCODE, 6, 8, 1.0f, 1);
    test_network("large kl decoder", fake_kl(kl), DV_STAGE_DECODE, 3, 4, 100000.0f, 1);
    test_network("large kl encoder", fake_kl(kl), DV_STAGE_ENCODE, 6, 8, 100000.0f, 1);
    test_network("diffusers names", fake_kl(plain), DV_STAGE_DECODE, 2, 3, 1.0f, 1);
    test_network("tae with norms", fake_tae(32, 0, 1), DV_STAGE_DECODE, 2, 2, 1.0f, 1);
    test_network("tae", fake_tae(4, 0, 0), DV_STAGE_DECODE, 2, 1, 1.0f, 0);
    test_network("span", fake_span(8, 2, 1, 0), DV_STAGE_UPSCALE, 6, 5, 1.0f, 0);
    test_marks();
    return check_done();
}
