/* gpu_real.c - results on a real GPU, if the machine has one. A tensor in GPU memory, of any layout, gives the same result as in
 * host memory; also with alpha, moments and samples. Streams and jobs give the same result as blocking calls. All results are
 * close to the CPU's. */
#include "tests/hosts/gpu/gpu_host.h"

enum { SIDE = 40 };

static const davy_api *api;
static davy_context *ctx, *cpu;
static davy_model *model, *vae, *model_cpu, *kl, *kl_cpu; /* kl: encoders with a posterior */

static const view_format formats[] = {
    {"u8 HWC", DAVY_DTYPE_U8, DAVY_LAYOUT_HWC, DAVY_CHANNELS_RGB, DAVY_RANGE_FULL, 0, 0, 0},
    {"u8 BGR, gaps", DAVY_DTYPE_U8, DAVY_LAYOUT_HWC, DAVY_CHANNELS_BGR, DAVY_RANGE_FULL, 5, 0, 1},
    {"f32 CHW", DAVY_DTYPE_F32, DAVY_LAYOUT_CHW, DAVY_CHANNELS_RGB, DAVY_RANGE_UNIT, 0, 0, 0},
    {"f32 HWC, upside down", DAVY_DTYPE_F32, DAVY_LAYOUT_HWC, DAVY_CHANNELS_RGB, DAVY_RANGE_SIGNED_UNIT, 12, 1, 0},
    {"f16 NCHW", DAVY_DTYPE_F16, DAVY_LAYOUT_NCHW, DAVY_CHANNELS_RGB, DAVY_RANGE_UNIT, 0, 0, 0},
    {"bf16 NHWC", DAVY_DTYPE_BF16, DAVY_LAYOUT_NHWC, DAVY_CHANNELS_RGB, DAVY_RANGE_RAW, 0, 0, 0},
    {"u16 RGBA", DAVY_DTYPE_U16, DAVY_LAYOUT_HWC, DAVY_CHANNELS_RGBA, DAVY_RANGE_FULL, 6, 0, 0},
    {"f32 BGRA planes", DAVY_DTYPE_F32, DAVY_LAYOUT_CHW, DAVY_CHANNELS_BGRA, DAVY_RANGE_UNIT, 4, 0, 0},
    {"u8 GRAYA", DAVY_DTYPE_U8, DAVY_LAYOUT_HWC, DAVY_CHANNELS_GRAYA, DAVY_RANGE_FULL, 0, 0, 0},
};

static int64_t channels_of(const view_format *f) {
    return f->channels == DAVY_CHANNELS_GRAYA                                       ? 2
           : f->channels == DAVY_CHANNELS_RGBA || f->channels == DAVY_CHANNELS_BGRA ? 4
                                                                                    : 3;
}

/* A picture with constant alpha, or with a transparent hole. */
static picture make(const view_format *f, int constant_alpha) {
    picture p = picture_new(1, SIDE, SIDE + 8, channels_of(f));
    picture_fill_8bit(&p, 7);
    for (int64_t i = p.c - 1; p.c % 2 == 0 && i < picture_count(&p); i += p.c) {
        const int64_t x = i / p.c % p.w, y = i / p.c / p.w;
        const int hole = x > 6 && x < 32 && y > 5; /* transparent there */
        p.v[i] = constant_alpha ? 0.2f : hole ? 0.0f : p.v[i];
    }
    return p;
}

enum { AROUND = 2 * 64 }; /* at most the margins of view_new on both sides */

/* Copies the view and its margins to the device. */
static davy_tensor on_device(const view *v, device_block *block) {
    davy_tensor t = v->tensor;
    *block = device_take(api, ctx, v->memory, v->bytes + AROUND);
    t.data = v->tensor.data - (uint64_t)(uintptr_t)v->memory + block->address;
    t.memory = DAVY_MEMORY_CUDA;
    t.device = 0;
    return t;
}

static void one_format(const view_format *f, int constant_alpha, const davy_run *run, davy_job **job) {
    picture p = make(f, constant_alpha);
    view in = view_new(f, 1, p.h, p.w, p.c), want = view_new(f, 1, 2 * p.h, 2 * p.w, p.c);
    view got = view_new(f, 1, 2 * p.h, 2 * p.w, p.c);
    device_block a, b;
    view_store(&in, &p);
    IS(api->upscale(model, &in.tensor, &want.tensor, NULL, NULL), DAVY_OK);
    const davy_tensor src = on_device(&in, &a);
    davy_tensor dst = on_device(&got, &b);
    IS(api->upscale(model, &src, &dst, run, job), DAVY_OK);
    if (job != NULL) {
        IS(api->job_wait(*job, UINT64_MAX), DAVY_OK);
        api->job_release(*job);
    }
    device_fetch(&b, got.memory, got.bytes + AROUND); /* the default stream runs after davy's stream */
    picture x = view_load(&want), y = view_load(&got);
    CHECKF(picture_max_error(&y, &x) == 0.0, "%s%s: differs by %g from the result in host memory", f->name,
           constant_alpha ? ", opaque" : "", picture_max_error(&y, &x));
    CHECKF(view_trampled(&got) == 0, "%s: %lld bytes outside the picture are overwritten", f->name,
           (long long)view_trampled(&got));
    for (int64_t i = y.c - 1; constant_alpha && y.c % 2 == 0 && i < picture_count(&y); i += y.c) {
        if (!CHECKF(y.v[i] > 0.1999f && y.v[i] < 0.2001f, "%s: alpha became %g", f->name, (double)y.v[i])) {
            break;
        }
    }
    device_give(api, &a);
    device_give(api, &b);
    picture_free(&x);
    picture_free(&y);
    picture_free(&p);
    view_free(&in);
    view_free(&want);
    view_free(&got);
}

static void every_format(void) {
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        one_format(&formats[i], 0, NULL, NULL);
        one_format(&formats[i], 1, NULL, NULL);
    }
}

static void streams(void) {
    davy_run run = {.struct_size = sizeof run, .stream = (void *)1};
    davy_job *job = NULL;
    one_format(&formats[0], 0, &run, NULL);
    one_format(&formats[7], 0, &run, NULL);
    one_format(&formats[3], 0, &run, &job);
    run.flags = DAVY_RUN_STREAM_ORDERED;
    for (size_t i = 0; i < 2 * sizeof formats / sizeof formats[0]; i++) {
        one_format(&formats[i / 2], i % 2 != 0, &run, NULL);
    }
}

/* ---- the VAE ---- */

/* If the flags include STREAM_ORDERED, input and result are in device memory. */
static picture encode(davy_model *m, const picture *p, uint32_t flags, int device) {
    davy_tensor in = host_tensor(p);
    davy_run run = {.struct_size = sizeof run, .flags = flags, .seed = 42};
    davy_tensor out = {.struct_size = sizeof out, .memory = device ? DAVY_MEMORY_CUDA : DAVY_MEMORY_HOST};
    device_block given = {0};
    picture got = {0};
    if ((flags & DAVY_RUN_STREAM_ORDERED) != 0) {
        const uint64_t bytes = (uint64_t)picture_count(p) * sizeof(float);
        given = device_take(api, ctx, p->v, bytes);
        in.data = given.address;
        in.memory = DAVY_MEMORY_CUDA;
        run.stream = (void *)1;
    }
    const davy_result r = api->vae_encode(m, &in, &out, &run, NULL);
    CHECKF(r == DAVY_OK, "flags %u: %s", (unsigned)flags, host_error(api));
    if (r == DAVY_OK) {
        got = picture_new(out.shape[0], out.shape[1], out.shape[2], out.shape[3]);
        if (device) {
            const device_block b = {.address = out.data};
            device_fetch(&b, got.v, (uint64_t)picture_count(&got) * sizeof(float));
        } else {
            memcpy(got.v, (const void *)(uintptr_t)out.data, (size_t)picture_count(&got) * sizeof(float));
        }
        api->buffer_release(out.buffer);
    }
    if (given.address != 0) {
        device_give(api, &given);
    }
    return got;
}

static void equal(picture *want, picture *got, const char *what, uint32_t flags) {
    CHECKF(want->v != NULL && got->v != NULL && picture_max_error(got, want) == 0.0, "latent, flags %u: %s differs",
           (unsigned)flags, what);
    picture_free(got);
}

/* Moments and samples in host or device memory, blocking or stream-ordered. They are close to the CPU's, which uses the same
 * random numbers. */
static void posteriors(void) {
    picture p = picture_new(1, 64, 48, 3);
    picture_fill(&p, 3);
    for (uint32_t flags = 0; flags <= DAVY_RUN_SAMPLE; flags += 2) {
        picture want = encode(kl, &p, flags, 0), got = encode(kl, &p, flags, 1);
        equal(&want, &got, "the device's", flags);
        for (int again = 0; again < 3; again++) {
            got = encode(kl, &p, flags | DAVY_RUN_STREAM_ORDERED, 1);
            equal(&want, &got, "the stream-ordered one", flags);
        }
        got = encode(kl_cpu, &p, flags, 0);
        CHECKF(got.v != NULL && want.v != NULL && picture_l2_error(&want, &got) < 2e-2,
               "latent, flags %u: %g from the CPU's", (unsigned)flags, picture_l2_error(&want, &got));
        picture_free(&got);
        picture_free(&want);
    }
    picture_free(&p);
}

static void latents(void) {
    davy_model_info info = {.struct_size = sizeof info};
    picture p = picture_new(1, 64, 48, 3);
    picture_fill(&p, 3);
    IS(api->model_info(vae, &info), DAVY_OK);
    const int moments = (info.features & DAVY_MODEL_MOMENTS) != 0;
    for (uint32_t flags = 0; flags <= DAVY_RUN_SAMPLE; flags += 2) {
        if (flags != 0 && !moments) {
            continue;
        }
        picture want = encode(vae, &p, flags, 0), got = encode(vae, &p, flags, 1);
        equal(&want, &got, "the device's", flags);
        picture_free(&want);
    }
    picture_free(&p);
}

/* ---- against the CPU ---- */

static void same_as_cpu(void) {
    picture p = picture_new(2, 50, 70, 3), a = {0}, b = {0};
    picture_fill(&p, 11);
    IS(host_upscale(api, model, &p, NULL, &a), DAVY_OK);
    IS(host_upscale(api, model_cpu, &p, NULL, &b), DAVY_OK);
    if (a.v != NULL && b.v != NULL) {
        CHECKF(picture_l2_error(&a, &b) < 5e-3, "fp16 on the GPU: relative error %g", picture_l2_error(&a, &b));
    }
    picture_free(&p);
    picture_free(&a);
    picture_free(&b);
}

static davy_result open_on(const char *device, davy_context **out) {
    const davy_context_desc d = {
        .struct_size = sizeof d, .abi_version = DAVY_ABI_VERSION, .device = device, .n_threads = 2};
    return api->context_create(&d, out);
}

int main(void) {
    api = host_load();
    if (open_on("cuda:0", &ctx) != DAVY_OK) {
        check_skip(host_error(api));
        return check_done();
    }
    const synth_file half[2] = {synth_taesd(0, 5), synth_taesd(1, 6)};
    const synth_file posterior = synth_kl_encoder(7);
    IS(open_on("cpu", &cpu), DAVY_OK);
    IS(host_open_small(api, ctx, &model), DAVY_OK);
    IS(host_open_small(api, cpu, &model_cpu), DAVY_OK);
    const char *given = getenv("DAVY_TEST_VAE"); /* a VAE with a posterior */
    IS(given != NULL ? host_open_path(api, ctx, given, &vae) : host_open_files(api, ctx, half, 2, &vae), DAVY_OK);
    IS(host_open_files(api, ctx, &posterior, 1, &kl), DAVY_OK);
    IS(host_open_files(api, cpu, &posterior, 1, &kl_cpu), DAVY_OK);
    every_format();
    streams();
    latents();
    posteriors();
    same_as_cpu();
    api->model_release(model);
    api->model_release(vae);
    api->model_release(kl);
    api->model_release(kl_cpu);
    api->model_release(model_cpu);
    api->context_release(ctx);
    api->context_release(cpu);
    return check_done();
}
