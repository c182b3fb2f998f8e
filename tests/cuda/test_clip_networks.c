/* test_clip_networks.c - the video autoencoders on the mock driver with reference kernels. GPU plans give the CPU's numbers, and a clip
 * has the same bits whole and in slices. The names are those of the golden cases. */
#include <math.h>

#include "core/clip/stream_priv.h" /* first, because later headers define variables with the names of its parameters */

#include "tests/cuda/reference_kernels.h"
#include "tests/lib/fake_clips.h"
#include "tests/lib/manifest_names.h"
#include "tests/lib/distance.h"

enum { STEPS = 3, SIDE = 2 }; /* steps of a clip; side of its latents */

typedef struct network {
    const char *name;
    int64_t factor, z;
} network;

typedef struct bench {
    dv_services services;
    dv_gpu *gpu;
    dv_engine *engine;
    float *data;
    dv_log log;
} bench;

/* Reduces the channels of TAEHV, whose list has the real widths, to an eighth. */
static dv_tensors *narrow(const char *name) {
    dv_tensors *t = strcmp(name, "seedvr2") == 0 ? fake_seedvr2() : names_of(name);
    for (int64_t i = 0; t != NULL && strncmp(name, "tae", 3) == 0 && i < t->count; i++) {
        dv_tensor_ref *ref = &t->refs[i];
        int64_t stride = 1;
        for (int32_t d = ref->ndim - 1; d >= 0; d--) {
            ref->shape[d] /= ref->shape[d] >= 64 ? 8 : 1;
            ref->stride[d] = stride;
            stride *= ref->shape[d];
        }
        ref->bytes = (uint64_t)stride * 4;
    }
    return t;
}

static bool bench_open(bench *b, const network *n, davy_dtype compute, bool gpu) {
    *b = (bench){0};
    dv_tensors *t = narrow(n->name);
    const dv_gpu_desc of_gpu = {.heap = heap, .log = &b->log};
    if (t == NULL || (gpu && !CHECKF(dv_gpu_open(&of_gpu, &b->gpu) == DAVY_OK, "%s", last_error()))) {
        return false;
    }
    b->services = (dv_services){.heap = heap, .log = &b->log, .gpus = &b->gpu, .n_gpus = gpu};
    const dv_engine_desc desc = {.services = &b->services, .tensors = t, .file_name = n->name, .compute = compute};
    return CHECK(fake_fill(t, &b->data)) && CHECK(dv_pool_create(2, &b->services.pool) == DAVY_OK) &&
           CHECKF(dv_engine_create(&desc, &b->engine) == DAVY_OK, "%s", last_error());
}

static void bench_close(bench *b) {
    dv_engine_release(b->engine);
    dv_pool_release(b->services.pool);
    dv_gpu_release(b->gpu);
    free(b->data);
}

typedef struct clip {
    float *data;
    int64_t t, c, h, w;
} clip;

static int64_t count_of(const clip *c) {
    return c->t * c->c * c->h * c->w;
}

/* The choice with the other's transformed frames, so that both use kernels of the same kind. */
static void transform_like(dv_clip_stream *s, const dv_slice_choice *like) {
    dv_slice_choice c = s->choice;
    c.policy.transform_frames = like->policy.transform_frames;
    c.policy.plain_rings = like->policy.plain_rings;
    CHECKF(dv_clip_stream_measure(s, &c) == DAVY_OK, "%s", last_error());
    s->choice = c;
    dv_slice_plans_drop(&s->plans);
}

/* Computes a clip whole or in the shortest slices. *choice: the choice for the whole clip. */
static clip run(bench *b, dv_stage stage, const clip *in, bool whole, dv_slice_choice *choice) {
    dv_clip_rule rule = {0};
    dv_clip_stream *s = NULL;
    dv_clip_stream_info info;
    clip out = {0};
    CHECK(dv_engine_clip(b->engine, stage, &rule));
    if (!CHECKF(dv_clip_stream_open(b->engine,
                                    &(dv_clip_stream_desc){.stage = stage,
                                                           .h = in->h,
                                                           .w = in->w,
                                                           .frames = whole ? in->t : 0,
                                                           .slice = whole ? in->t : rule.first},
                                    &s) == DAVY_OK,
                "%s", last_error())) {
        return out;
    }
    if (whole) {
        *choice = s->choice;
    } else {
        transform_like(s, choice);
    }
    dv_clip_stream_info_get(s, &info);
    out = (clip){.t = rule.first_out + (in->t - rule.first) / rule.step * rule.step_out,
                 .c = info.out_c,
                 .h = info.out_h,
                 .w = info.out_w};
    out.data = calloc((size_t)count_of(&out), sizeof(float));
    const dv_work work = {.stage = stage,
                          .in = frames_image(in->data, in->t, in->c, in->h, in->w),
                          .out = frames_image(out.data, out.t, out.c, out.h, out.w),
                          .in_mul = 1.0f,
                          .out_mul = 1.0f};
    CHECKF(dv_clip_stream_run(s, &work) == DAVY_OK, "%s", last_error());
    dv_clip_stream_release(s);
    return out;
}

static double distance(const clip *a, const clip *b) {
    return relative_distance(a->data, b->data, count_of(b));
}

/* Attention with generated weights is sharp. With smooth frames, whose latents are almost equal, its result is arbitrary. */
static void add_grain(const clip *c) {
    uint32_t r = 1;
    for (int64_t i = 0; i < count_of(c); i++) {
        r = r * 1664525u + 1013904223u;
        c->data[i] += (float)(r >> 16) / 65536.0f - 0.5f;
    }
}

static void test_stage(const network *n, dv_stage stage, bench *cpu, bench *gpu, double bound) {
    dv_clip_rule rule = {0};
    const bool encoder = stage == DV_STAGE_ENCODE;
    CHECK(dv_engine_clip(cpu->engine, stage, &rule));
    clip in = {.t = rule.first + (STEPS - 1) * rule.step,
               .c = encoder ? 3 : n->z,
               .h = encoder ? SIDE * n->factor : SIDE,
               .w = encoder ? SIDE * n->factor : SIDE};
    in.data = made_up_frames(in.t, in.c, in.h, in.w);
    add_grain(&in);
    dv_slice_choice choice;
    clip expected = run(cpu, stage, &in, true, &choice);
    clip whole = run(gpu, stage, &in, true, &choice);
    clip slices = run(gpu, stage, &in, false, &choice);
    if (CHECK(expected.data != NULL && whole.data != NULL && slices.data != NULL) &&
        CHECK(count_of(&whole) == count_of(&expected) && count_of(&slices) == count_of(&expected))) {
        const double d = distance(&whole, &expected);
        CHECKF(d < bound, "%s, stage %d: distance %g", n->name, (int)stage, d);
        CHECKF(memcmp(whole.data, slices.data, (size_t)count_of(&whole) * sizeof(float)) == 0,
               "%s, stage %d: other bits in slices, distance %g", n->name, (int)stage, distance(&slices, &whole));
    }
    free(in.data);
    free(expected.data);
    free(whole.data);
    free(slices.data);
}

static void test_network(const network *n, davy_dtype compute, double bound) {
    bench cpu, gpu;
    if (bench_open(&cpu, n, DAVY_DTYPE_F32, false) && bench_open(&gpu, n, compute, true)) {
        test_stage(n, DV_STAGE_ENCODE, &cpu, &gpu, bound);
        test_stage(n, DV_STAGE_DECODE, &cpu, &gpu, bound);
        bench_close(&gpu);
    }
    bench_close(&cpu);
}

static bool was_called(const char *op) {
    const call *c = calls;
    for (; c != NULL && strcmp(c->op, op) != 0; c = c->next) {
    }
    return c != NULL;
}

int main(void) {
    static const network networks[] = {{"wan2_1", 8, 4},          {"wan2_2_diffusers", 16, 6}, {"taehv", 8, 16},
                                       {"taew2_2_super", 16, 48}, {"taeltx_2", 32, 16},        {"taeh3", 16, 24},
                                       {"seedvr2", 4, 4}};
    reference_begin();
    for (size_t i = 0; i < sizeof networks / sizeof networks[0]; i++) {
        test_network(&networks[i], DAVY_DTYPE_F32, 1e-5);
        test_network(&networks[i], DAVY_DTYPE_BF16, strcmp(networks[i].name, "seedvr2") == 0 ? 2e-2 : 1e-2);
        test_network(&networks[i], DAVY_DTYPE_F16, 1e-2);
    }
    CHECK(was_called("conv2d_winograd") && was_called("winograd_input"));
    return reference_end();
}
