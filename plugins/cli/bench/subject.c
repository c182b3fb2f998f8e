/* subject.c - see subject.h. */
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/bench/subject.h"
#include "plugins/cli/bench/cuda_host.h"
#include "plugins/cli/say.h"

static int open_model(bench_subject *s, const cli_args *a) {
    uint64_t bytes = 0;
    int r = cli_session_load(&s->session);
    if (r == CLI_OK) {
        r = cli_session_context(&s->session, a);
    }
    if (r != CLI_OK) {
        return r;
    }
    davy_source source = {.struct_size = sizeof source, .name = bench_shipped(s->c->arch)};
    if (source.name == NULL) {
        s->weights = bench_weights(s->c->arch, s->c->task == CLI_ENCODE, &bytes);
        if (s->weights == NULL) {
            return cli_fail(s->c->name, "out of memory");
        }
        source.name = "random.safetensors";
        source.data = s->weights;
        source.data_bytes = bytes;
    }
    davy_model_desc desc = {.struct_size = sizeof desc, .sources = &source, .n_sources = 1};
    cli_model_precision(s->c->precision, &desc);
    return cli_session_open_model(&s->session, &desc, s->c->name);
}

/* Noise on a gradient, so that no area is flat. */
static void fill_picture(cli_picture *p) {
    uint8_t *pixels = p->pixels;
    const size_t n = cli_picture_stride(p) * p->height;
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        pixels[i] = (uint8_t)((i / 3 % p->width * 160 / p->width) + (state >> 25));
    }
}

static void fill_latent(cli_array *a) {
    float *v = a->data;
    uint32_t state = 1;
    for (size_t i = 0; i < a->bytes / 4; i++) {
        state = state * 1664525u + 1013904223u;
        v[i] = (float)(state >> 8) * (2.0f / 16777216.0f) - 1.0f;
    }
}

/* Several pictures lie one below the other in memory. */
static davy_tensor picture_tensor(const bench_subject *s, const cli_picture *p) {
    davy_tensor t = cli_tensor_of_picture(p);
    if (s->c->pictures > 1) {
        const int64_t n = s->c->pictures;
        const int64_t shape[4] = {n, t.shape[0] / n, t.shape[1], t.shape[2]};
        t.layout = DAVY_LAYOUT_NHWC;
        t.ndim = 4;
        memcpy(t.shape, shape, sizeof shape);
    }
    return t;
}

static davy_tensor latent_tensor(const bench_subject *s) {
    return cli_tensor_of_array(&s->latent, DAVY_LAYOUT_HWC, DAVY_CHANNELS_LATENT);
}

/* Makes input and output, and queries the plan. */
static int prepare(bench_subject *s) {
    const davy_model_info *m = &s->session.info;
    const davy_op ops[] = {DAVY_OP_UPSCALE, DAVY_OP_VAE_ENCODE, DAVY_OP_VAE_DECODE};
    const int op = s->c->task == CLI_UPSCALE ? 0 : s->c->task == CLI_ENCODE ? 1 : 2;
    cli_picture p = {.width = s->c->width, .height = s->c->height * s->c->pictures, .channels = 3, .bits = 8};
    s->picture = p;
    s->result = p;
    if (op == 0) {
        s->result.width = p.width * (uint32_t)m->scale_num / (uint32_t)m->scale_den;
        s->result.height = p.height * (uint32_t)m->scale_num / (uint32_t)m->scale_den;
    } else {
        const cli_array a = {
            .ndim = 3,
            .shape = {m->latent_channels, (int64_t)p.height / m->spatial_factor, (int64_t)p.width / m->spatial_factor}};
        s->latent = a;
        if (cli_array_alloc_f32(&s->latent) != 0) {
            return cli_fail(s->c->name,
                            "the size is too small for the model, or memory is short; use a size such as 256");
        }
        fill_latent(&s->latent);
    }
    if (cli_picture_alloc(&s->picture) != 0 || cli_picture_alloc(&s->result) != 0) {
        return cli_fail(s->c->name, "out of memory");
    }
    fill_picture(&s->picture);
    const davy_tensor in = op == 2 ? latent_tensor(s) : picture_tensor(s, &s->picture);
    const davy_query query = {.struct_size = sizeof query, .op = ops[op], .input = &in, .run = &s->run};
    s->plan.struct_size = sizeof s->plan;
    const davy_result r = s->session.api->plan_query(s->session.model, &query, &s->plan);
    return r < 0 ? cli_session_fail(&s->session, s->c->name, r) : CLI_OK;
}

static davy_tensor input_of(const bench_subject *s) {
    return s->c->task == CLI_DECODE ? latent_tensor(s) : picture_tensor(s, &s->picture);
}

static davy_tensor output_of(const bench_subject *s) {
    return s->c->task == CLI_ENCODE ? latent_tensor(s) : picture_tensor(s, &s->result);
}

static davy_result run_on(const bench_subject *s, const davy_tensor *in, davy_tensor *out, const davy_run *run) {
    const davy_api *api = s->session.api;
    switch (s->c->task) {
    case CLI_UPSCALE:
        return api->upscale(s->session.model, in, out, run, NULL);
    case CLI_ENCODE:
        return api->vae_encode(s->session.model, in, out, run, NULL);
    default:
        return api->vae_decode(s->session.model, in, out, run, NULL);
    }
}

davy_result bench_run_in_host(const bench_subject *s) {
    const davy_tensor in = input_of(s);
    davy_tensor out = output_of(s);
    return run_on(s, &in, &out, &s->run);
}

static davy_tensor in_device(davy_tensor t, davy_buffer *buffer) {
    t.memory = DAVY_MEMORY_CUDA;
    t.buffer = buffer;
    t.data = 0;
    return t;
}

static davy_result run_in_device(const bench_subject *s, const davy_run *run) {
    const davy_tensor in = in_device(input_of(s), s->in_device);
    davy_tensor out = in_device(output_of(s), s->out_device);
    return run_on(s, &in, &out, run);
}

/* Enqueues the work on the host's stream, as GPU hosts do, and waits for the stream. */
davy_result bench_run_ordered(const bench_subject *s) {
    davy_run run = s->run;
    run.stream = CLI_CUDA_STREAM;
    run.flags |= DAVY_RUN_STREAM_ORDERED;
    const davy_result r = run_in_device(s, &run);
    return r >= 0 && cli_cuda_finish(s->device) != 0 ? DAVY_E_DEVICE : r;
}

davy_result bench_run(const bench_subject *s) {
    return s->in_device != NULL ? run_in_device(s, &s->run) : bench_run_in_host(s);
}

static uint64_t bytes_of(const davy_tensor *t) {
    uint64_t n = t->dtype == DAVY_DTYPE_U8 ? 1 : 4;
    for (int32_t i = 0; i < t->ndim; i++) {
        n *= (uint64_t)t->shape[i];
    }
    return n;
}

/* Allocates input and result in GPU memory and copies the input there. */
static int prepare_device(bench_subject *s) {
    const davy_api *api = s->session.api;
    const davy_tensor in = input_of(s);
    const davy_tensor out = output_of(s);
    davy_tensor t = {.struct_size = sizeof t};
    if (!s->session.on_gpu) {
        return CLI_OK;
    }
    davy_result r = api->buffer_alloc(s->session.context, DAVY_MEMORY_CUDA, bytes_of(&in), &s->in_device);
    if (r >= 0) {
        r = api->buffer_alloc(s->session.context, DAVY_MEMORY_CUDA, bytes_of(&out), &s->out_device);
    }
    if (r >= 0) {
        r = api->buffer_tensor(s->in_device, &t);
    }
    if (r < 0) {
        return cli_session_fail(&s->session, s->c->name, r);
    }
    const void *from = (const void *)(uintptr_t)in.data;
    s->device = t.device;
    return cli_cuda_upload(t.device, t.data, from, bytes_of(&in)) == 0
               ? CLI_OK
               : cli_fail(s->c->name, "the input cannot be copied to the GPU");
}

int bench_open(bench_subject *s, const cli_args *a) {
    int r = open_model(s, a);
    if (r == CLI_OK) {
        r = prepare(s);
    }
    return r == CLI_OK ? prepare_device(s) : r;
}

void bench_close(bench_subject *s) {
    if (s->session.api != NULL) {
        s->session.api->buffer_release(s->in_device);
        s->session.api->buffer_release(s->out_device);
    }
    cli_session_close(&s->session);
    cli_picture_free(&s->picture);
    cli_picture_free(&s->result);
    cli_array_free(&s->latent);
    free(s->weights);
}
