/* plan_dump_plans.c - see plan_dump.h. */
#include <stdio.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/plan/plan.h"
#include "kernels/kernel.h"
#include "tests/golden/plan_dump.h"

/* A processor or GPU, and a precision, to plan a graph for. */
typedef struct target {
    const char *name;
    const dvk_cuda_caps *caps; /* NULL: a processor */
    uint32_t cpu;
    dvk_dtype compute;
} target;

static const target targets[] = {
    {"portable fp32", NULL, 0, DVK_F32},     {"avx2 fp32", NULL, AVX2, DVK_F32},
    {"avx512 fp32", NULL, AVX512, DVK_F32},  {"avx512 bf16", NULL, AVX512, DVK_BF16},
    {"amx bf16", NULL, WIDEST, DVK_BF16},    {"vnni int8", NULL, WIDEST, DVK_INT8},
    {"sm_75 fp32", &turing, 0, DVK_F32},     {"sm_75 fp16", &turing, 0, DVK_F16},
    {"sm_75 int8", &turing, 0, DVK_INT8},    {"sm_80 tf32", &ampere, 0, DVK_TF32},
    {"sm_80 bf16", &ampere, 0, DVK_BF16},    {"sm_89 fp16", &ada, 0, DVK_F16},
    {"sm_89 fp8", &ada, 0, DVK_FP8},         {"sm_90 fp32", &hopper, 0, DVK_F32},
    {"sm_90 tf32", &hopper, 0, DVK_TF32},    {"sm_90 fp16", &hopper, 0, DVK_F16},
    {"sm_90 bf16", &hopper, 0, DVK_BF16},    {"sm_90 fp8", &hopper, 0, DVK_FP8},
    {"sm_90 int8", &hopper, 0, DVK_INT8},    {"sm_120 bf16", &blackwell, 0, DVK_BF16},
    {"sm_120 fp16", &blackwell, 0, DVK_F16},
};

/* A slice of a clip; all zero: one picture. */
typedef struct slice {
    const char *name;
    int64_t steps; /* frames: a clip's smallest beginning plus this many steps; a later slice: only the steps */
    bool continues, second, keeps;
    bool by_frame; /* this and the next members: only for GPUs with 16 bits */
    bool winograd, bands, offload;
} slice;

static const slice slices[] = {
    {"first", 0, false, false, true, false, false, false, false},
    {"whole of 2 steps", 2, false, false, false, false, false, false, false},
    {"second", 1, true, true, true, false, false, false, false},
    {"later", 1, true, false, true, false, false, false, false},
    {"2 later", 2, true, false, true, false, false, false, false},
    {"2 later by frame", 2, true, false, true, true, false, false, false},
    {"2 later transformed", 2, true, false, true, true, true, false, false},
    {"2 later in bands", 2, true, false, true, false, true, true, false},
    {"2 later offloaded", 2, true, false, true, true, true, false, true},
};

/* ---- graphs and plans ---- */

static bool build_graph(const dump_model *m, dv_stage stage, int64_t h, int64_t w, const slice *s, dv_graph **out) {
    dv_clip_rule rule = {0};
    if (m->arch->clip != NULL) {
        m->arch->clip(m->cfg, stage, &rule);
    }
    dv_graph *g = NULL;
    davy_result r = dv_graph_create(m->tensors, &g);
    if (r == DAVY_OK && s != NULL) {
        g->pictures = (s->continues ? 0 : rule.first) + s->steps * rule.step;
        g->continues = s->continues;
        g->second = s->second;
        g->keeps = s->keeps;
    }
    r = r == DAVY_OK ? m->arch->build(m->cfg, stage, h, w, g) : r;
    r = r == DAVY_OK ? dv_graph_check(g) : r;
    if (r != DAVY_OK) {
        dump_result(r);
        dv_graph_release(g);
        return false;
    }
    *out = g;
    return true;
}

/* As the engine prepares a graph for this target. */
static davy_result fuse(dv_graph *g, const target *t, const slice *s, bool wide) {
    const bool short_range = t->compute == DVK_F16 || (dv_is_8bit(t->compute) && !wide);
    bool changed = false;
    davy_result r = t->caps != NULL && short_range ? dv_rescale(g) : DAVY_OK;
    if (r == DAVY_OK && s != NULL && s->by_frame) {
        r = dv_by_frame(g, &changed);
    }
    return r == DAVY_OK ? dv_fuse(g) : r;
}

static void print_graph(const dump_model *m, dv_stage stage, int64_t h, int64_t w, const slice *s,
                        const target *fused) {
    dv_graph *g = NULL;
    if (!build_graph(m, stage, h, w, s, &g)) {
        return;
    }
    const davy_result r = fused != NULL ? fuse(g, fused, s, false) : DAVY_OK;
    char *text = r == DAVY_OK ? dv_graph_dump(g) : NULL;
    printf("%s", text != NULL ? text : "");
    if (text == NULL) {
        dump_result(r);
    }
    dv_free(text);
    dv_graph_release(g);
}

static void print_plan(const dump_model *m, dv_stage stage, int64_t h, int64_t w, const slice *s, const target *t) {
    const bool wide = m->arch->wide != NULL && m->arch->wide(m->cfg);
    dv_graph *g = NULL;
    if (!build_graph(m, stage, h, w, s, &g)) {
        return;
    }
    davy_result r = fuse(g, t, s, wide);
    if (r != DAVY_OK) {
        dump_result(r);
        dv_graph_release(g);
        return;
    }
    const dv_plan_options options = {.caps = t->caps,
                                     .cpu = t->cpu,
                                     .compute = t->compute,
                                     .direct = s == NULL,
                                     .wide = t->compute == DVK_INT8 && wide,
                                     .policy = {.offload_state = s != NULL && s->offload,
                                                .transform_frames = s != NULL && s->winograd,
                                                .transform_bands = s != NULL && s->bands}};
    dv_plan *plan = NULL;
    r = dv_plan_create(g, &options, &plan);
    if (r != DAVY_OK) {
        dump_result(r);
        return;
    }
    char *text = dv_plan_dump(plan);
    printf("%sinput at %llu, output at %llu, offloaded %llu, %lld transfers, cost %.9g ns, duration %.9g ns\n",
           text != NULL ? text : "", (unsigned long long)plan->input_at, (unsigned long long)plan->output_at,
           (unsigned long long)plan->offloaded_bytes, (long long)plan->n_transfers, plan->cost, plan->duration);
    dv_free(text);
    dv_plan_release(plan);
}

static void print_slices(const dump_model *m, dv_stage stage, int64_t h, int64_t w, const dv_clip_rule *rule) {
    for (size_t i = 0; i < sizeof slices / sizeof slices[0]; i++) {
        const slice *s = &slices[i];
        if (s->second && !rule->second) {
            continue;
        }
        printf("== graph of %s %lldx%lld, %s\n", dump_stage_name(stage), (long long)w, (long long)h, s->name);
        print_graph(m, stage, h, w, s, NULL);
        for (size_t k = 0; k < sizeof targets / sizeof targets[0]; k++) {
            const target *t = &targets[k];
            const bool is_16bit = t->compute == DVK_F16 || t->compute == DVK_BF16;
            if (s->by_frame || s->winograd ? t->caps == NULL || !is_16bit : dv_is_8bit(t->compute)) {
                continue;
            }
            printf("== plan of %s %lldx%lld, %s, %s\n", dump_stage_name(stage), (long long)w, (long long)h, s->name,
                   t->name);
            print_plan(m, stage, h, w, s, t);
        }
    }
}

void dump_plans(const dump_model *m, dv_stage stage) {
    static const int64_t any[][2] = {{64, 64}, {75, 93}, {270, 480}};
    static const int64_t pixels[][2] = {{64, 64}, {96, 160}, {272, 480}};
    static const int64_t latents[][2] = {{8, 8}, {12, 20}, {64, 96}};
    const int64_t(*sizes)[2] = stage == DV_STAGE_DECODE ? latents : stage == DV_STAGE_ENCODE ? pixels : any;
    dv_clip_rule rule = {0};
    if (m->arch->clip != NULL) {
        m->arch->clip(m->cfg, stage, &rule);
    }
    for (int i = 0; i < 3; i++) {
        const int64_t h = sizes[i][0];
        const int64_t w = sizes[i][1];
        printf("== graph of %s %lldx%lld\n", dump_stage_name(stage), (long long)w, (long long)h);
        print_graph(m, stage, h, w, NULL, NULL);
        printf("== fused graph of %s %lldx%lld\n", dump_stage_name(stage), (long long)w, (long long)h);
        print_graph(m, stage, h, w, NULL, &targets[0]);
        for (size_t k = 0; i > 0 && k < sizeof targets / sizeof targets[0]; k++) {
            printf("== plan of %s %lldx%lld, %s\n", dump_stage_name(stage), (long long)w, (long long)h,
                   targets[k].name);
            print_plan(m, stage, h, w, NULL, &targets[k]);
        }
    }
    if (rule.first > 0) {
        print_slices(m, stage, sizes[1][0], sizes[1][1], &rule);
    }
}
