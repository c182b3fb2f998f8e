/* plan_gpus.c - see plan_gpus.h. */
#include "tests/lib/plan_gpus.h"

dv_plan *plan_of(const network *n, const dvk_cuda_caps *caps, dvk_dtype compute) {
    dv_graph *g = fake_build(n->tensors, NULL, n->stage, n->h, n->w);
    const dv_plan_options options = {.caps = caps, .compute = compute};
    dv_plan *plan = NULL;
    if (!CHECKF(g != NULL && dv_fuse(g) == DAVY_OK, "%s: %s", n->name, last_error())) {
        dv_graph_release(g);
        return NULL;
    }
    const davy_result r = dv_plan_create(g, &options, &plan);
    CHECKF(r == DAVY_OK, "%s on sm_%d: %s", n->name, (int)caps->sm, last_error());
    if (plan != NULL && getenv("DAVY_SHOW_PLANS") != NULL) {
        char *text = dv_plan_dump(plan);
        printf("---- %s %lldx%lld sm_%d compute %d\n%s%.3f ms\n", n->name, (long long)n->h, (long long)n->w,
               (int)caps->sm, (int)compute, text, plan->cost * 1e-6);
        dv_free(text);
    }
    return plan;
}

int64_t count_op(const dv_plan *p, const char *op) {
    int64_t n = 0;
    for (int64_t i = 0; i < p->n_steps; i++) {
        n += strcmp(dv_kernel_op(p->steps[i].kernel), op) == 0;
    }
    return n;
}
