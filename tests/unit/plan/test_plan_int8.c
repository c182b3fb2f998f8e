/* test_plan_int8.c - the layers that compute in 8 bits: FP8 on Hopper, INT8 on cards where it is faster, the listed
 * layers of a model, none otherwise. */
#include "core/plan/int8.h"
#include "kernels/dtype.h"
#include "tests/lib/fake_convnets.h"
#include "tests/lib/fake_transformers.h"
#include "tests/lib/plan_gpus.h"

/* 8 bits only on request and in f16 pictures, and never in the first and the last layer. */
static void check_int8(const network *n, const dvk_cuda_caps *caps, dvk_dtype compute, int64_t at_least) {
    const uint32_t bit = compute == DVK_FP8 ? DVK_COMPUTES_FP8 : DVK_COMPUTES_INT8;
    const int64_t channels = compute == DVK_FP8 ? 32 : 16;
    dv_plan *asked = plan_of(n, caps, compute);
    dv_plan *usual = plan_of(n, caps, DVK_F16);
    int64_t convs = 0, first = -1, last = -1, eight = 0;
    for (int64_t i = 0; asked != NULL && i < asked->n_steps; i++) {
        if (strcmp(dv_kernel_op(asked->steps[i].kernel), "conv2d") == 0) {
            first = convs++ == 0 ? i : first;
            last = i;
        }
    }
    for (int64_t i = 0; asked != NULL && i < asked->n_steps; i++) {
        const dv_step *s = &asked->steps[i];
        if (s->kernel.cuda->computes == bit) {
            const dvk_conv2d_args *a = &s->args.conv;
            eight++;
            CHECKF(i != first && i != last, "%s: %s at an end", n->name, s->kernel.cuda->variant);
            CHECKF(a->compute == compute && a->x.dtype == DVK_F16 && a->y.dtype == DVK_F16 && a->x.c % channels == 0 &&
                       a->y.c % channels == 0,
                   "%s: %s for %lld to %lld channels", n->name, s->kernel.cuda->variant, (long long)a->x.c,
                   (long long)a->y.c);
        } else if (strcmp(dv_kernel_op(s->kernel), "conv2d") == 0) {
            CHECKF(s->args.conv.compute != compute, "%s: %s computes in eight bits", n->name, s->kernel.cuda->variant);
        }
    }
    CHECKF(eight >= at_least, "%s: %d of %d convolutions in eight bits", n->name, (int)eight, (int)convs);
    for (int64_t i = 0; usual != NULL && i < usual->n_steps; i++) {
        CHECKF((usual->steps[i].kernel.cuda->computes & bit) == 0 ||
                   usual->steps[i].kernel.cuda->computes == DVK_COMPUTES_ANY,
               "%s: eight bits were not requested", n->name);
    }
    dv_plan_release(asked);
    dv_plan_release(usual);
}

/* A transformer whose values exceed the range of f16: its linear layers, with bf16 operands. */
static void check_wide(const dvk_cuda_caps *caps, bool gains) {
    const network n = {"hat", fake_hat(180, 6, 16, 60), DV_STAGE_UPSCALE, 256, 256};
    dv_graph *g = fake_build(n.tensors, NULL, n.stage, n.h, n.w);
    const dv_plan_options options = {.caps = caps, .compute = DVK_INT8, .wide = true};
    dv_plan *p = NULL;
    int64_t eight = 0;
    CHECK(dv_fuse(g) == DAVY_OK);
    CHECK(dv_plan_create(g, &options, &p) == DAVY_OK);
    for (int64_t i = 0; p != NULL && i < p->n_steps; i++) {
        const dv_step *s = &p->steps[i];
        if (s->kernel.cuda->computes == DVK_COMPUTES_INT8) {
            const dvk_conv2d_args *a = &s->args.conv;
            eight++;
            CHECKF(a->compute == DVK_INT8 && a->x.dtype == DVK_BF16 && a->y.dtype == DVK_BF16, "%s: not of bf16",
                   s->label);
        } else if (strcmp(dv_kernel_op(s->kernel), "conv2d") == 0) {
            CHECKF(s->args.conv.compute != DVK_INT8 && s->args.conv.x.dtype != DVK_F16, "%s: f16", s->label);
        }
    }
    CHECKF((eight > 0) == gains, "%s: %d layers in eight bits", n.name, (int)eight);
    dv_plan_release(p);
    dv_tensors_release(n.tensors);
}

/* Exactly the layers in `eight`. */
static void check_chosen(const network *n, const dvk_cuda_caps *caps) {
    dv_int8 eight = {0};
    dv_plan *all = plan_of(n, caps, DVK_INT8);
    for (int64_t i = 0; all != NULL && i < all->n_steps; i++) {
        if (all->steps[i].kernel.cuda->computes == DVK_COMPUTES_INT8) {
            CHECK(dv_int8_add(&eight, all->steps[i].label, 1.0) == DAVY_OK);
        }
    }
    if (CHECK(eight.n > 2)) {
        dv_int8_set(&eight, 1, 3, true);
        dv_graph *g = fake_build(n->tensors, NULL, n->stage, n->h, n->w);
        const dv_plan_options options = {.caps = caps, .compute = DVK_INT8, .int8 = &eight};
        dv_plan *some = NULL;
        CHECK(dv_fuse(g) == DAVY_OK);
        CHECK(dv_plan_create(g, &options, &some) == DAVY_OK);
        for (int64_t i = 0; some != NULL && i < some->n_steps; i++) {
            CHECKF((some->steps[i].kernel.cuda->computes == DVK_COMPUTES_INT8) ==
                       dv_int8_has(&eight, some->steps[i].label),
                   "%s: %s", n->name, some->steps[i].label);
        }
        dv_plan_release(some);
    }
    dv_plan_release(all);
    dv_int8_clear(&eight);
}

/* Similar to a GeForce of compute capability 8.6: f16 products summed in f32 at half the rate. */
static const dvk_cuda_caps geforce = {.sm = 86,
                                      .processors = 82,
                                      .shared_bytes = 99 << 10,
                                      .l2_bytes = 6 << 20,
                                      .memory_gbs = 936,
                                      .tensor_tflops = 71,
                                      .simt_tflops = 35};

int main(void) {
    const network compact = {"compact", fake_compact(64, 6, 4), DV_STAGE_UPSCALE, 720, 1280};
    const network decoder = {"sdxl decoder", fake_usual_kl(0, 4, 1, 128), DV_STAGE_DECODE, 128, 128};
    const network narrow = {"span", fake_span(48, 2, 1, 0), DV_STAGE_UPSCALE, 60, 50};
    const network span = {"span", fake_span(48, 2, 1, 0), DV_STAGE_UPSCALE, 1080, 1920};
    check_int8(&compact, &hopper, DVK_FP8, 0);
    check_int8(&decoder, &hopper, DVK_FP8, 20);
    check_int8(&narrow, &hopper, DVK_FP8, 0);
    check_int8(&compact, &geforce, DVK_INT8, 6);
    check_int8(&compact, &turing, DVK_INT8, 0);
    check_int8(&decoder, &geforce, DVK_INT8, 10);
    check_int8(&span, &geforce, DVK_INT8, 6);
    check_chosen(&compact, &geforce);
    check_wide(&geforce, true);
    check_wide(&hopper, false);
    dv_tensors_release(compact.tensors);
    dv_tensors_release(decoder.tensors);
    dv_tensors_release(narrow.tensors);
    dv_tensors_release(span.tensors);
    return check_done();
}
