/* test_plan_unet.c - plans of Real-CUGAN and waifu2x for GPUs that need not be installed. Squeeze and excitation
 * needs no pass over its picture, two convolutions run in one step, and the first network's result is added in its
 * last convolution. */
#include <string.h>

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "tests/lib/check.h"
#include "tests/lib/fake_convnets.h"
#include "tests/lib/fake_transformers.h"
#include "tests/lib/gpus.h"

static const fake_cugan_spec cugan_x2 = {.in = 3, .bottom = 3, .k = 4, .out = 3};

static dv_plan *plan_with(const dv_tensors *weights, const dv_plan_options *options, int64_t h, int64_t w) {
    dv_graph *g = fake_build(weights, NULL, DV_STAGE_UPSCALE, h, w);
    dv_plan *plan = NULL;
    if (!CHECK(g != NULL && dv_fuse(g) == DAVY_OK)) {
        dv_graph_release(g);
        return NULL;
    }
    CHECK(dv_plan_create(g, options, &plan) == DAVY_OK);
    return plan;
}

static dv_plan *plan_of(const dv_tensors *weights, const dvk_cuda_caps *caps, dvk_dtype compute, int64_t h, int64_t w) {
    const dv_plan_options options = {.caps = caps, .compute = compute};
    return plan_with(weights, &options, h, w);
}

static bool is_op(const dv_step *s, const char *op) {
    return strcmp(dv_kernel_op(s->kernel), op) == 0;
}

static int64_t count_op(const dv_plan *p, const char *op) {
    int64_t n = 0;
    for (int64_t i = 0; i < p->n_steps; i++) {
        n += is_op(&p->steps[i], op);
    }
    return n;
}

/* The bind of the pointer at `field` of a step; NULL: none. */
static const dv_bind *bind_of(const dv_plan *p, const dv_step *s, size_t field) {
    for (int64_t i = s->first_bind; i < s->first_bind + s->n_binds; i++) {
        if (p->binds[i].field == field) {
            return &p->binds[i];
        }
    }
    return NULL;
}

static bool same_place(const dv_bind *a, const dv_bind *b) {
    return a != NULL && b != NULL && a->kind == DV_BIND_ARENA && b->kind == DV_BIND_ARENA && a->at == b->at;
}

/* The step whose weights step s scales, or that gets the scales for its own weights; NULL: none. */
static const dv_step *reader_of(const dv_plan *p, const dv_step *s) {
    const dv_bind *scaled = bind_of(p, s, offsetof(dvk_args, excite.scaled));
    const dv_bind *scale = bind_of(p, s, offsetof(dvk_args, excite.scale));
    for (const dv_step *later = s + 1; later < p->steps + p->n_steps; later++) {
        if (is_op(later, "conv2d") && same_place(scaled, bind_of(p, later, offsetof(dvk_args, conv.w)))) {
            CHECK(later->args.conv.scaled && later->args.conv.x.c == s->args.excite.c);
            CHECK((int64_t)later->kernel.cuda->packed_bytes(&later->args) == 2 * s->args.excite.count);
            return later;
        }
        if (is_op(later, "up_conv") && same_place(scale, bind_of(p, later, offsetof(dvk_args, up_conv.scale)))) {
            CHECK(scaled == NULL && s->args.excite.count == 0 && later->args.up_conv.x.c == s->args.excite.c);
            return later;
        }
    }
    return NULL;
}

/* A later convolution with a residual whose factors step s computes; NULL: none. */
static const dv_step *adder_of(const dv_plan *p, const dv_step *s) {
    const dv_bind *scale = bind_of(p, s, offsetof(dvk_args, excite.scale));
    for (const dv_step *later = s + 1; later < p->steps + p->n_steps; later++) {
        if (is_op(later, "conv2d") && same_place(scale, bind_of(p, later, offsetof(dvk_args, conv.epi.res_scale)))) {
            return later;
        }
    }
    return NULL;
}

/* Step k is "excite". The step before it computes the sums of a picture of that size. A later step reads the same
 * picture with scaled weights. If `adds`, another one adds the picture. */
static void check_excite(const dv_plan *p, int64_t k, bool adds) {
    const dv_step *s = &p->steps[k], *before = &p->steps[k - 1], *reader = reader_of(p, s), *adder = adder_of(p, s);
    const dvk_excite_args *a = &s->args.excite;
    const dvk_conv2d_args *c = &before->args.conv;
    CHECK(is_op(before, "conv2d") && a->c == c->y.c && a->pixels == c->y.h * c->y.w && a->rows > 0 &&
          a->hidden == a->c / 8);
    CHECK(same_place(bind_of(p, s, offsetof(dvk_args, excite.sums)),
                     bind_of(p, before, offsetof(dvk_args, conv.epi.sums))));
    if (CHECK(reader != NULL)) {
        const size_t x = is_op(reader, "conv2d") ? offsetof(dvk_args, conv.x.data) : offsetof(dvk_args, up_conv.x.data);
        CHECK(same_place(bind_of(p, before, offsetof(dvk_args, conv.y.data)), bind_of(p, reader, x)));
    }
    CHECK((adder != NULL) == adds);
    CHECK(adder == NULL || (adder->args.conv.epi.n_res == 1 && adder->args.conv.y.c == a->c));
}

/* Two convolutions in one step: a result that is kept, and a second one of half its size that the next step reads. */
static void check_down(const dv_plan *p, const dv_step *s) {
    const dvk_conv_down_args *a = &s->args.conv_down;
    const dv_bind *kept = bind_of(p, s, offsetof(dvk_args, conv_down.y.data));
    const dv_bind *half = bind_of(p, s, offsetof(dvk_args, conv_down.z.data));
    CHECK(a->x.c == 32 && a->y.h == a->x.h - 2 && a->z.h == a->y.h / 2 && a->z.w == a->y.w / 2);
    CHECK(!same_place(kept, half) && is_op(s + 1, "conv2d") &&
          same_place(half, bind_of(p, s + 1, offsetof(dvk_args, conv.x.data))));
}

/* The second of four squeezed pictures is also added, later and cropped. */
static void check_squeezes(dvk_dtype compute) {
    dv_tensors *weights = fake_cugan(cugan_x2);
    dv_plan *p = plan_of(weights, &hopper, compute, 360, 640), *plain = plan_of(weights, &hopper, DVK_F32, 360, 640);
    if (p != NULL && plain != NULL) {
        int64_t number = 0;
        for (int64_t i = 0; i < p->n_steps; i++) {
            if (is_op(&p->steps[i], "excite")) {
                check_excite(p, i, number++ == 1);
            }
            if (is_op(&p->steps[i], "conv_down")) {
                check_down(p, &p->steps[i]);
            }
        }
        CHECK(number == 4 && count_op(p, "mean") == 0 && count_op(p, "multiply") == 0);
        CHECK(count_op(p, "up_conv") == 2 && count_op(p, "conv_down") == 2 && count_op(p, "pixel_shuffle") == 0);
        CHECK(count_op(plain, "excite") == 0 && count_op(plain, "mean") == 4 && count_op(plain, "multiply") == 4);
        CHECK(p->flops == plain->flops);
    }
    dv_plan_release(p);
    dv_plan_release(plain);
    dv_tensors_release(weights);
}

/* Plans of a tile, whose means are given: no step computes sums, and each mean's operand is complete after the
 * steps before it. */
static void check_given(dvk_dtype compute, bool folds) {
    dv_tensors *weights = fake_cugan(cugan_x2);
    const dv_plan_options options = {.caps = &hopper, .compute = compute, .given_means = true};
    dv_plan *p = plan_with(weights, &options, 360, 640);
    if (p != NULL && CHECK(p->n_means == 4)) {
        CHECK(count_op(p, folds ? "excite" : "mean") == 4 && count_op(p, folds ? "mean" : "excite") == 0);
        for (int64_t i = 0; i < p->n_steps; i++) {
            const dv_step *s = &p->steps[i];
            CHECK(!is_op(s, "conv2d") || bind_of(p, s, offsetof(dvk_args, conv.epi.sums)) == NULL);
        }
        for (int32_t k = 0; k < p->n_means; k++) {
            const dv_plan_mean *m = &p->means[k];
            const dv_step *s = &p->steps[m->step], *before = s - 1;
            const dv_bind *given =
                bind_of(p, s, folds ? offsetof(dvk_args, excite.sums) : offsetof(dvk_args, pool.x.data));
            const dv_bind *x = bind_of(p, before, offsetof(dvk_args, conv.y.data));
            CHECK(is_op(s, folds ? "excite" : "mean") && is_op(before, "conv2d"));
            CHECK(given != NULL && given->at == m->given_at && x != NULL && x->at == m->x_at);
            CHECK(!folds || (s->args.excite.rows == 1 && s->args.excite.pixels == 1));
            CHECK(folds || s->args.pool.x.h * s->args.pool.x.w == 1);
            CHECK(k == 0 || (m->cost > m[-1].cost && m->flops > m[-1].flops));
            for (int64_t i = 0; i < p->n_binds; i++) { /* nothing else is ever placed there */
                const uint64_t at = p->binds[i].kind == DV_BIND_ARENA ? p->binds[i].at : UINT64_MAX;
                CHECK(&p->binds[i] == given || at < m->given_at || at >= m->given_at + (uint64_t)m->x.c * 4);
            }
        }
    }
    dv_plan_release(p);
    dv_tensors_release(weights);
}

/* If no convolution kernel computes sums, nothing is fused. The same holds if another op reads the product. */
static void check_left(dv_tensors *weights, const dvk_cuda_caps *caps, dvk_dtype compute) {
    dv_plan *p = plan_of(weights, caps, compute, 64, 72);
    if (p != NULL) {
        CHECK(count_op(p, "excite") == 0 && count_op(p, "mean") > 0 && count_op(p, "multiply") > 0);
    }
    dv_plan_release(p);
    dv_tensors_release(weights);
}

/* Every kind of the family, and the smallest sizes. */
static void check_family(fake_cugan_spec spec, int64_t h, int64_t w) {
    static const dvk_dtype precisions[] = {DVK_F16, DVK_BF16, DVK_F32, DVK_FP8, DVK_INT8};
    dv_tensors *weights = fake_cugan(spec);
    for (size_t i = 0; i < DV_ARRAY_LEN(precisions); i++) {
        dv_plan *p = plan_of(weights, &hopper, precisions[i], h, w);
        CHECK(p == NULL || count_op(p, "mean") + count_op(p, "excite") == 4);
        dv_plan_release(p);
    }
    dv_tensors_release(weights);
}

int main(void) {
    check_squeezes(DVK_F16);
    check_squeezes(DVK_BF16);
    check_given(DVK_F16, true);
    check_given(DVK_BF16, true);
    check_given(DVK_F32, false);
    check_left(fake_cugan(cugan_x2), &ampere, DVK_F16);
    check_left(fake_cugan(cugan_x2), &turing, DVK_F16);
    check_left(fake_hat(24, 2, 8, 12), &hopper, DVK_F16);
    check_family(cugan_x2, 1, 1);
    check_family(cugan_x2, 65, 33);
    check_family((fake_cugan_spec){3, 3, 5, 3, 0, 1}, 50, 61);
    check_family((fake_cugan_spec){3, 64, 4, 64, 12, 0}, 48, 48);
    check_family((fake_cugan_spec){12, 64, 4, 64, 12, 0}, 48, 50);
    check_family((fake_cugan_spec){3, 3, 3, 3, 0, 0}, 33, 70);
    return check_done();
}
