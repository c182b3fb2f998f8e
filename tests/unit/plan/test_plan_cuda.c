/* test_plan_cuda.c - plans for GPUs that need not be installed: the storage of values, the steps that convolutions
 * absorb, and a kernel for every step on every generation and in every precision. */
#include <string.h>

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "kernels/dtype.h"
#include "tests/lib/check.h"
#include "tests/lib/last_error.h"
#include "tests/lib/fake_convnets.h"
#include "tests/lib/fake_transformers.h"
#include "tests/lib/plan_gpus.h"

/* ---- storage of values ---- */

static bool is_stored(dvk_dtype t) {
    return t == DVK_F32 || t == DVK_F16 || t == DVK_BF16;
}

static void check_view(const char *name, const dv_plan *p, const dvk_view *v) {
    const uint64_t size = dvk_dtype_size(v->dtype);
    CHECKF(is_stored(v->dtype), "%s: dtype %d", name, (int)v->dtype);
    CHECKF(v->sw >= v->c && v->sh >= v->sw * v->w, "%s: strides", name);
    if (v->dtype != DVK_F32) {
        CHECKF(v->sw % 8 == 0 && v->sh % 8 == 0 && v->sn % 8 == 0, "%s: pixels of %lld elements", name,
               (long long)v->sw);
    }
    const uint64_t at = (uint64_t)(uintptr_t)v->data & ((1u << 30) - 1);
    const uint64_t last = at + (uint64_t)((v->h - 1) * v->sh + (v->w - 1) * v->sw + v->c) * size;
    CHECKF((uintptr_t)v->data >= 1u << 30 && last <= p->arena_bytes, "%s: outside the arena", name);
}

/* A pointwise step whose operand is a parameter. */
static bool reads_weights(const dv_plan *p, const dv_step *s) {
    for (int64_t i = s->first_bind; i < s->first_bind + s->n_binds; i++) {
        if (p->binds[i].kind == DV_BIND_WEIGHT && p->binds[i].field == offsetof(dvk_args, pointwise.x.data)) {
            return true;
        }
    }
    return false;
}

static void check_steps(const char *name, const dv_plan *p, const dvk_cuda_caps *caps) {
    for (int64_t i = 0; i < p->n_steps; i++) {
        const dv_step *s = &p->steps[i];
        const char *op = dv_kernel_op(s->kernel);
        CHECKF(s->kernel.cuda != NULL && s->kernel.cpu == NULL && s->kernel.cuda->sm_min <= caps->sm, "%s: %s", name,
               op);
        CHECKF(s->cost > 0.0 && s->cost < 1e12, "%s: %s costs %g", name, op, s->cost);
        if (strcmp(op, "conv2d") == 0) {
            check_view(name, p, &s->args.conv.x);
            check_view(name, p, &s->args.conv.y);
        } else if (strcmp(op, "pointwise") == 0) {
            if (!reads_weights(p, s)) {
                check_view(name, p, &s->args.pointwise.x);
            }
            check_view(name, p, &s->args.pointwise.y);
        } else if (strcmp(op, "group_norm_finish") == 0) {
            CHECKF(s->args.finish.chunks > 0, "%s: no chunks", name);
        } else if (strcmp(op, "group_norm_stats") == 0) {
            CHECKF(s->args.stats.chunks > 0 && s->args.stats.chunks <= s->args.stats.x.h, "%s: chunks", name);
        }
    }
    for (int64_t i = 0; i < p->n_binds; i++) {
        CHECKF(p->binds[i].kind != DV_BIND_ARENA || p->binds[i].at < p->arena_bytes, "%s: a bind outside", name);
    }
    CHECKF(p->input.dtype == DVK_F32 && p->output.dtype == DVK_F32, "%s: pictures are not f32", name);
    CHECKF(p->arena_bytes % 256 == 0 && p->scratch_bytes % 256 == 0, "%s: sizes", name);
}

/* Every norm has one finish step, fed by a statistics step or by a convolution. */
static void check_norms(const char *name, const dv_plan *p) {
    int64_t folded = 0;
    for (int64_t i = 0; i < p->n_steps; i++) {
        const dv_step *s = &p->steps[i];
        folded += strcmp(dv_kernel_op(s->kernel), "conv2d") == 0 && s->args.conv.epi.stats != NULL;
    }
    CHECKF(folded + count_op(p, "group_norm_stats") == count_op(p, "group_norm_finish"),
           "%s: %d folded, %d statistics, %d norms", name, (int)folded, (int)count_op(p, "group_norm_stats"),
           (int)count_op(p, "group_norm_finish"));
}

static void check_network(const network *n) {
    static const struct {
        const dvk_cuda_caps *caps;
        dvk_dtype compute;
    } ways[] = {{&turing, DVK_F32}, {&turing, DVK_F16},  {&ampere, DVK_F32}, {&ampere, DVK_F16},  {&ampere, DVK_BF16},
                {&hopper, DVK_F32}, {&hopper, DVK_TF32}, {&hopper, DVK_F16}, {&hopper, DVK_BF16}, {&hopper, DVK_FP8}};
    for (size_t i = 0; i < DV_ARRAY_LEN(ways); i++) {
        dv_plan *p = plan_of(n, ways[i].caps, ways[i].compute);
        if (p != NULL) {
            check_steps(n->name, p, ways[i].caps);
            check_norms(n->name, p);
        }
        dv_plan_release(p);
    }
    dv_tensors_release(n->tensors);
}

static void test_networks(void) {
    static const int64_t tokens[3] = {16, 128, 20}; /* window, tokens, channels of a query */
    const fake_kl_spec kl = {.names = 0, .z = 4, .quant = 1, .levels = 2, .enc = {64, 128}, .dec = {64, 128}};
    const fake_rrdb_spec rrdb = {.dialect = 1, .nf = 64, .gc = 32, .blocks = 1, .doublings = 2, .in = 3};
    const fake_rrdb_spec odd = {.dialect = 0, .nf = 12, .gc = 6, .blocks = 1, .doublings = 1, .in = 12};
    const fake_cugan_spec cugan = {.in = 3, .bottom = 3, .k = 4, .out = 3};
    const network networks[] = {{"compact", fake_compact(64, 3, 4), DV_STAGE_UPSCALE, 90, 160},
                                {"span", fake_span(48, 2, 1, 0), DV_STAGE_UPSCALE, 60, 50},
                                {"rrdb", fake_rrdb(rrdb), DV_STAGE_UPSCALE, 64, 48},
                                {"odd rrdb", fake_rrdb(odd), DV_STAGE_UPSCALE, 10, 14},
                                {"kl encoder", fake_kl(kl), DV_STAGE_ENCODE, 64, 80},
                                {"kl decoder", fake_kl(kl), DV_STAGE_DECODE, 32, 48},
                                {"srformer", fake_srformer(180, 6, 22), DV_STAGE_UPSCALE, 64, 90},
                                {"rgt", fake_rgt(180, 6), DV_STAGE_UPSCALE, 64, 90},
                                {"small rgt", fake_rgt(180, 6), DV_STAGE_UPSCALE, 16, 16},
                                {"atd", fake_atd(210, 6, tokens), DV_STAGE_UPSCALE, 64, 90},
                                {"tae encoder", fake_tae(4, 0, 0), DV_STAGE_ENCODE, 64, 40},
                                {"tae decoder", fake_tae(16, 0, 0), DV_STAGE_DECODE, 12, 9},
                                {"pooled tae", fake_tae(32, 0, 1), DV_STAGE_DECODE, 4, 4},
                                {"cugan", fake_cugan(cugan), DV_STAGE_UPSCALE, 64, 90}};
    for (size_t i = 0; i < DV_ARRAY_LEN(networks); i++) {
        check_network(&networks[i]);
    }
}

/* ---- fusion ---- */

static void test_shuffle(void) {
    network n = {"compact", fake_compact(64, 3, 4), DV_STAGE_UPSCALE, 360, 640};
    dv_plan *p = plan_of(&n, &hopper, DVK_F16);
    if (p != NULL) {
        const dvk_conv2d_args *last = &p->steps[p->n_steps - 1].args.conv;
        const bool folded = count_op(p, "pixel_shuffle") == 0;
        CHECKF(folded == (last->epi.shuffle == 4), "the shuffle is neither a step nor folded");
        if (folded) {
            CHECK(last->y.h == 1440 && last->y.w == 2560 && last->y.c == 3 && last->epi.n_res == 1);
            CHECK(last->epi.res[0].h == 360 && last->epi.res[0].c == 3);
        }
        CHECK(p->flops == 2ull * 360 * 640 * 9 * (3 * 64 + 3 * 64 * 64 + 64 * 48));
    }
    dv_plan_release(p);
    dv_tensors_release(n.tensors);
}

/* Transposed convolutions and the additions behind them: one step each if a kernel supports it. */
static void check_additions(const dvk_cuda_caps *caps, dvk_dtype compute, int64_t expected) {
    network n = {"cugan", fake_cugan((fake_cugan_spec){.in = 3, .bottom = 3, .k = 4, .out = 3}), DV_STAGE_UPSCALE, 360,
                 640};
    dv_plan *p = plan_of(&n, caps, compute);
    int64_t behind = 0;
    for (int64_t i = 0; p != NULL && i < p->n_steps; i++) {
        const dvk_conv2d_args *a = &p->steps[i].args.conv;
        if (strcmp(dv_kernel_op(p->steps[i].kernel), "conv2d") == 0 && a->epi.shuffle == 2 && a->epi.n_res == 1) {
            behind++;
            CHECK(a->epi.res[0].h == a->y.h && a->epi.res[0].w == a->y.w && a->epi.res[0].c == a->y.c);
            CHECK(a->kh == 1 && a->epi.act == DVK_ACT_LRELU && !a->epi.act_last);
        }
    }
    if (p != NULL) {
        behind += count_op(p, "up_conv"); /* with the convolution behind it */
        CHECKF(behind == expected && count_op(p, "pointwise") == 3 - expected, "%d additions in convolutions, %d steps",
               (int)behind, (int)count_op(p, "pointwise"));
    }
    dv_plan_release(p);
    dv_tensors_release(n.tensors);
}

static void test_additions(void) {
    check_additions(&hopper, DVK_F16, 3);
    check_additions(&hopper, DVK_BF16, 3);
    check_additions(&ampere, DVK_F16, 3);
    check_additions(&hopper, DVK_F32, 0);
    check_additions(&turing, DVK_F16, 0);
}

/* Products that the kernel of a factor absorbs: 16-bit convolutions on Hopper, none in f32. `own`: convolutions
 * gated by a 1x1 convolution of their own result. */
static void check_products(const network *n, int64_t expected, int64_t own) {
    dv_plan *folded = plan_of(n, &hopper, DVK_F16);
    dv_plan *apart = plan_of(n, &hopper, DVK_F32);
    int64_t gates = 0, owners = 0;
    for (int64_t i = 0; folded != NULL && i < folded->n_steps; i++) {
        const dv_step *s = &folded->steps[i];
        const dvk_epilogue *e = &s->args.conv.epi;
        if (strcmp(dv_kernel_op(s->kernel), "conv2d") == 0 && e->gate >= 2) {
            gates++;
            owners += e->gate == 3;
            CHECKF((e->gate == 3) == (e->gate_w != NULL), "%s: weights of a gate", n->name);
            CHECKF(e->n_res >= 1 && e->res[0].c == s->args.conv.y.c && e->act != DVK_ACT_NONE, "%s: factors", n->name);
        }
    }
    if (folded != NULL && apart != NULL) {
        CHECKF(gates == expected && owners == own, "%s: %d products in convolutions, %d in their own", n->name,
               (int)gates, (int)owners);
        CHECK(count_op(apart, "conv2d") - count_op(folded, "conv2d") == own && folded->flops == apart->flops);
        CHECKF(count_op(apart, "multiply") - count_op(folded, "multiply") == expected, "%s: steps of products",
               n->name);
        check_steps(n->name, folded, &hopper);
    }
    dv_plan_release(folded);
    dv_plan_release(apart);
    dv_tensors_release(n->tensors);
}

static void test_products(void) {
    const fake_plksr_spec plksr = {.real = 1, .blocks = 2, .gates = 1, .nf = 64, .scale = 4, .k = 17};
    const network gated = {"realplksr", fake_plksr(plksr), DV_STAGE_UPSCALE, 256, 256};
    const network summed = {"spanf3", fake_spanf3(64, 3, 2, 4, 0), DV_STAGE_UPSCALE, 360, 640};
    check_products(&gated, 2, 0);
    check_products(&summed, 3, 3);
}

/* Norm, 1x1, depthwise and the ops behind them in one step, for 16-bit kernels. */
static void test_depthwise(void) {
    network n = {"omnisr", fake_omnisr(64, 2, 8, 4), DV_STAGE_UPSCALE, 128, 128};
    dv_plan *together = plan_of(&n, &hopper, DVK_BF16);
    dv_plan *apart = plan_of(&n, &hopper, DVK_F32);
    if (together != NULL && apart != NULL) {
        const int64_t steps = count_op(together, "norm_depthwise");
        /* the first convolutions, four feed-forward layers and two attentions of each group */
        CHECKF(steps == 14, "%d steps", (int)steps);
        CHECK(count_op(apart, "norm_depthwise") == 0 && count_op(apart, "depthwise") == 14);
        CHECK(count_op(together, "depthwise") == 0);
        CHECK(together->flops == apart->flops);
    }
    dv_plan_release(together);
    dv_plan_release(apart);
    dv_tensors_release(n.tensors);
}

/* Each half of a transformer block in one step. */
static void test_swin(void) {
    network n = {"swinir", fake_swinir(180, 6, 8, 0), DV_STAGE_UPSCALE, 128, 128};
    dv_plan *together = plan_of(&n, &hopper, DVK_BF16);
    dv_plan *apart = plan_of(&n, &hopper, DVK_F32);
    if (together != NULL && apart != NULL) {
        const int64_t blocks = count_op(apart, "window_attention");
        CHECK(blocks > 0 && count_op(apart, "norm_window") == 0 && count_op(apart, "norm_mlp") == 0);
        CHECK(count_op(together, "norm_window") == blocks && count_op(together, "norm_mlp") == blocks);
        CHECK(count_op(together, "window_attention") == 0);
        CHECK(count_op(apart, "row_norm") - count_op(together, "row_norm") == 2 * blocks);
        CHECK(together->flops == apart->flops);
    }
    dv_plan_release(together);
    dv_plan_release(apart);
    dv_tensors_release(n.tensors);
}

/* A last convolution that stores the picture itself needs no buffer for its result. Only a plan with options.direct
 * may do so. */
static void check_direct(const network *n, dvk_dtype compute, bool expected) {
    dv_plan *plans[2] = {NULL, NULL};
    for (int k = 0; k < 2; k++) {
        dv_graph *g = fake_build(n->tensors, NULL, n->stage, n->h, n->w);
        const dv_plan_options options = {.caps = &hopper, .compute = compute, .direct = k == 1};
        CHECK(g != NULL && dv_fuse(g) == DAVY_OK && dv_plan_create(g, &options, &plans[k]) == DAVY_OK);
    }
    if (plans[0] != NULL && plans[1] != NULL) {
        CHECKF(!plans[0]->direct && plans[1]->direct == expected, "%s: direct is %d", n->name, plans[1]->direct);
        CHECKF(plans[1]->arena_bytes <= plans[0]->arena_bytes, "%s: arena %llu, was %llu", n->name,
               (unsigned long long)plans[1]->arena_bytes, (unsigned long long)plans[0]->arena_bytes);
        CHECK(plans[0]->n_steps == plans[1]->n_steps && plans[0]->weight_bytes == plans[1]->weight_bytes);
    }
    dv_plan_release(plans[0]);
    dv_plan_release(plans[1]);
    dv_tensors_release(n->tensors);
}

static void test_direct(void) {
    const fake_rrdb_spec rrdb = {.dialect = 1, .nf = 64, .gc = 32, .blocks = 1, .doublings = 2, .in = 3};
    const network compact = {"compact", fake_compact(64, 3, 4), DV_STAGE_UPSCALE, 360, 640};
    const network span = {"span", fake_span(48, 2, 1, 0), DV_STAGE_UPSCALE, 360, 640};
    const network dense = {"rrdb", fake_rrdb(rrdb), DV_STAGE_UPSCALE, 64, 48};
    const network decoder = {"sdxl decoder", fake_usual_kl(0, 4, 1, 128), DV_STAGE_DECODE, 128, 128};
    const network encoder = {"sdxl encoder", fake_usual_kl(0, 4, 1, 128), DV_STAGE_ENCODE, 128, 128};
    const network precise = {"compact", fake_compact(64, 3, 4), DV_STAGE_UPSCALE, 90, 64};
    check_direct(&compact, DVK_F16, true);
    check_direct(&span, DVK_F16, true);
    check_direct(&dense, DVK_F16, true);
    check_direct(&decoder, DVK_BF16, true);
    check_direct(&encoder, DVK_BF16, false); /* a further convolution follows the moments */
    check_direct(&precise, DVK_F32, false);
}

static void test_large(void) {
    network n = {"sdxl decoder", fake_usual_kl(0, 4, 1, 128), DV_STAGE_DECODE, 128, 128};
    dv_plan *p = plan_of(&n, &hopper, DVK_BF16);
    if (p != NULL) {
        check_steps(n.name, p, &hopper);
        check_norms(n.name, p);
        /* At the second resolution: two values [1024,1024,256], the operand and the result of a convolution. */
        CHECKF(p->arena_bytes + p->scratch_bytes < 1088ull << 20, "arena %llu, scratch %llu",
               (unsigned long long)p->arena_bytes, (unsigned long long)p->scratch_bytes);
    }
    dv_plan_release(p);
    dv_tensors_release(n.tensors);
}

/* ---- layers that scan their picture backwards ---- */

static void check_turns(int64_t h, int64_t w, const dvk_cuda_caps *caps, int64_t expected) {
    network n = {"compact", fake_compact(64, 6, 4), DV_STAGE_UPSCALE, h, w};
    dv_plan *p = plan_of(&n, caps, DVK_F16);
    int64_t turned = 0;
    bool before = false;
    for (int64_t i = 0; p != NULL && i < p->n_steps; i++) {
        const dv_step *s = &p->steps[i];
        const bool turns = strcmp(dv_kernel_op(s->kernel), "conv2d") == 0 && s->args.conv.backwards;
        CHECKF(!turns || (s->kernel.cuda->turns && !before), "%s turns", s->label);
        turned += turns;
        before = turns;
    }
    CHECKF(turned == expected, "%lldx%lld: %lld layers turn", (long long)w, (long long)h, (long long)turned);
    dv_plan_release(p);
    dv_tensors_release(n.tensors);
}

int main(void) {
    test_networks();
    test_shuffle();
    test_additions();
    check_turns(1080, 1920, &hopper, 3);
    check_turns(90, 160, &hopper, 0); /* the picture fits the cache */
    check_turns(1080, 1920, &ampere, 0);
    test_products();
    test_depthwise();
    test_swin();
    test_direct();
    test_large();
    return check_done();
}
