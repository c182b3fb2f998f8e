/* precision.c - chooses the numeric type of an engine, and calibrates INT8 engines. The calibration computes a test picture in 16
 * bits (on a CPU in 32). Then it tries eight bits in one layer after the other, and at last in all layers that tolerate them. The
 * log has the difference on that picture. If memory is short, the picture is smaller. */
#include "core/tiles/precision.h"

#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "core/cuda/gpu.h"
#include "core/tiles/pictures.h"

/* ---- types ---- */

/* The compute capability of the least capable GPU: all GPUs compute in the same type. */
static int32_t least_sm(const dv_engine *e) {
    int32_t sm = INT32_MAX;
    for (int32_t l = 0; l < e->n_lanes; l++) {
        sm = (int32_t)dv_min(sm, dv_gpu_caps(dv_engine_gpu(e, l))->sm);
    }
    return sm;
}

/* Eight bits are used in the products of convolutions. Values are stored as F16, or BF16 (INT8 only); on a CPU as F32. */
static davy_result set_8bit(dv_engine *e, dvk_dtype compute) {
    const uint32_t computes = compute == DVK_FP8 ? DVK_COMPUTES_FP8 : DVK_COMPUTES_INT8;
    const int32_t sm = least_sm(e);
    for (int32_t i = 0; i < dvk_cuda_kernel_count; i++) {
        const dvk_cuda_kernel *k = dvk_cuda_kernels[i];
        if (k->computes == computes && k->sm_min <= sm && (k->sm_max == 0 || sm <= k->sm_max)) {
            e->compute = compute;
            return DAVY_OK;
        }
    }
    return compute == DVK_FP8
               ? dv_fail(DAVY_E_UNSUPPORTED,
                         "precision fp8: compute capability %d.%d has no FP8; 8.9 or newer is needed", sm / 10, sm % 10)
               : dv_fail(DAVY_E_UNSUPPORTED, "precision int8: no kernels for compute capability %d.%d", sm / 10,
                         sm % 10);
}

/* A network whose values exceed the range of F16 is stored as BF16. */
static davy_result set_int8(dv_engine *e) {
    if (dv_engine_is_wide(e) && least_sm(e) < 80) {
        return dv_fail(DAVY_E_UNSUPPORTED, "precision int8: %s exceeds the range of fp16, and this GPU has no bf16",
                       e->arch->name);
    }
    return set_8bit(e, DVK_INT8);
}

static davy_result set_gpu_compute(dv_engine *e, davy_dtype compute, bool tf32) {
    const bool bf16 = least_sm(e) >= 80;
    switch (compute) {
    case DAVY_DTYPE_AUTO: /* most upscalers fit F16; VAEs overflow it and are rescaled if the GPU has no BF16 */
        if (dv_engine_is_wide(e)) {
            e->compute = bf16 ? DVK_BF16 : DVK_F32;
        } else {
            e->compute = e->arch->task == DAVY_TASK_UPSCALE || !bf16 ? DVK_F16 : DVK_BF16;
        }
        return DAVY_OK;
    case DAVY_DTYPE_F32:
        e->compute = tf32 && bf16 ? DVK_TF32 : DVK_F32;
        return DAVY_OK;
    case DAVY_DTYPE_F16:
        e->compute = DVK_F16;
        return DAVY_OK;
    case DAVY_DTYPE_BF16:
        e->compute = DVK_BF16;
        return bf16 ? DAVY_OK : dv_fail(DAVY_E_UNSUPPORTED, "precision bf16: this GPU has no bf16; use fp32 or fp16");
    case DAVY_DTYPE_FP8:
        return set_8bit(e, DVK_FP8);
    case DAVY_DTYPE_INT8:
        return set_int8(e);
    default:
        return dv_fail(DAVY_E_UNSUPPORTED, "precision int4: a GPU computes pictures in fp32, fp16, bf16, fp8 or int8");
    }
}

davy_result dv_engine_set_compute(dv_engine *e, davy_dtype compute, bool tf32) {
    if (e->services.n_gpus > 0) {
        return set_gpu_compute(e, compute, tf32);
    }
    if (compute == DAVY_DTYPE_F16 || compute == DAVY_DTYPE_FP8 || compute == DAVY_DTYPE_INT4) {
        return dv_fail(DAVY_E_UNSUPPORTED, "precision %s: a CPU computes in fp32, bf16 or int8",
                       compute == DAVY_DTYPE_F16   ? "fp16"
                       : compute == DAVY_DTYPE_FP8 ? "fp8"
                                                   : "int4");
    }
    e->compute = compute == DAVY_DTYPE_BF16 ? DVK_BF16 : compute == DAVY_DTYPE_INT8 ? DVK_INT8 : DVK_F32;
    return DAVY_OK;
}

/* ---- eight-bit integers ---- */

enum { MOST_TRIES = 128, LEAST_TRIES = 8, SIDE = 128, LATENT_SIDE = 16, HALVINGS = 3, OCTAVES = 5 };

#define CPU_FLOPS 1.5e12 /* approximate limit for all tries of a stage together */

typedef struct trial {
    dv_engine *e;
    dv_stage stage;
    dvk_image in, out;
    float *reference;
    int64_t count; /* values in the result */
    double range;  /* of the reference's values, squared */
    double flops;  /* of one try */
} trial;

/* ---- the test picture ---- */

static float noise(uint32_t octave, int64_t c, int64_t y, int64_t x) {
    uint32_t h =
        octave * 0x9e3779b9u ^ (uint32_t)c * 0x85ebca6bu ^ (uint32_t)y * 0xc2b2ae35u ^ (uint32_t)x * 0x27d4eb2fu;
    h = (h ^ h >> 15) * 0x2c1b3c6du;
    h = (h ^ h >> 12) * 0x297a2d39u;
    return (float)((h ^ h >> 15) >> 8) / 8388608.0f - 1.0f;
}

/* Noise with the spectrum of a photograph: each octave has half the amplitude of the coarser one. From -1 to 1, mostly near 0. */
static float sample(int64_t side, int64_t c, int64_t y, int64_t x) {
    float sum = 0.0f, weight = 0.5f;
    for (uint32_t octave = 0; octave < OCTAVES; octave++, weight *= 0.5f) {
        const float step = (float)(side >> (octave + 1) > 1 ? side >> (octave + 1) : 1);
        const float fy = (float)y / step, fx = (float)x / step;
        const int64_t iy = (int64_t)fy, ix = (int64_t)fx;
        const float ty = fy - (float)iy, tx = fx - (float)ix;
        const float top = noise(octave, c, iy, ix) * (1.0f - tx) + noise(octave, c, iy, ix + 1) * tx;
        const float bottom = noise(octave, c, iy + 1, ix) * (1.0f - tx) + noise(octave, c, iy + 1, ix + 1) * tx;
        sum += weight * (top * (1.0f - ty) + bottom * ty);
    }
    return sum;
}

/* Paints the test picture: pixels from 0 to 1 for an upscaler, from -1 to 1 for an encoder; for a decoder, latents from -3 to 3. */
static void paint(const dvk_image *in, dv_stage stage) {
    const float scale = stage == DV_STAGE_UPSCALE ? 0.5f : stage == DV_STAGE_ENCODE ? 1.0f : 3.0f;
    const float middle = stage == DV_STAGE_UPSCALE ? 0.5f : 0.0f;
    float *at = in->data;
    for (int64_t y = 0; y < in->h; y++) {
        for (int64_t x = 0; x < in->w; x++) {
            for (int64_t c = 0; c < in->channels; c++) {
                const float v = sample(in->h, c, y, x) * 1.6f;
                *at++ = middle + scale * (v < -1.0f ? -1.0f : v > 1.0f ? 1.0f : v);
            }
        }
    }
}

/* ---- trials ---- */

static davy_result make_image(int64_t h, int64_t w, int64_t c, dvk_image *out) {
    const int64_t pixel = c * (int64_t)sizeof(float);
    *out = (dvk_image){.dtype = DVK_F32,
                       .channels = (int32_t)c,
                       .n = 1,
                       .h = h,
                       .w = w,
                       .sn = h * w * pixel,
                       .sh = w * pixel,
                       .sw = pixel,
                       .sc = (int64_t)sizeof(float),
                       .identity_map = 1};
    out->data = dv_calloc((uint64_t)(h * w * c), sizeof(float));
    return out->data != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "precision int8: out of memory for a test picture");
}

static bool on_cpu(const dv_engine *e) {
    return e->services.n_gpus == 0;
}

/* Plans a stage for a picture of `side`, or of half that side while the tries would take a CPU too long. Sets *side. */
static davy_result plan_trial(trial *t, int64_t *side, davy_plan_info *info) {
    const int64_t align = t->e->reach[t->stage].align;
    const dv_tiling whole = {.width = -1};
    for (;; *side /= 2) {
        const int64_t rounded = dv_max((int64_t)dv_align_up((uint64_t)*side, 8) / align * align, align);
        const davy_result r = dv_engine_plan(
            t->e, &(dv_batch_desc){.stage = t->stage, .h = rounded, .w = rounded, .tiling = &whole}, info);
        t->flops = (double)info->flops;
        if (r < 0 || !on_cpu(t->e) || t->flops * 2 * LEAST_TRIES <= CPU_FLOPS || *side <= SIDE / 2) {
            *side = rounded;
            return r;
        }
    }
}

/* The number of input channels of a stage. */
static davy_result channels_of(const dv_engine *e, dv_stage stage, int64_t *out) {
    const dv_request q = {.stage = stage};
    const int64_t side = stage == DV_STAGE_DECODE ? DV_PROBE_LATENTS : DV_PROBE_PIXELS;
    dv_graph *g = NULL;
    const davy_result r = dv_engine_build_graph(e, &q, side, side, &g);
    if (r == DAVY_OK) {
        *out = dv_shape_of(g, g->input).c;
        dv_graph_release(g);
    }
    return r;
}

static davy_result open_trial(trial *t, int64_t *side) {
    davy_plan_info info = {.struct_size = sizeof info};
    int64_t channels = 0;
    davy_result r = channels_of(t->e, t->stage, &channels);
    r = r < 0 ? r : plan_trial(t, side, &info);
    r = r < 0 ? r : make_image(*side, *side, channels, &t->in);
    r = r < 0 ? r : make_image(info.shape[0], info.shape[1], info.shape[2], &t->out);
    if (r == DAVY_OK) {
        paint(&t->in, t->stage);
        t->count = info.shape[0] * info.shape[1] * info.shape[2];
    }
    return r;
}

static void close_trial(trial *t) {
    dv_free(t->in.data);
    dv_free(t->out.data);
    dv_free(t->reference);
}

/* Computes the test picture with the layers that use eight bits now. */
static davy_result run(trial *t) {
    const dv_work work = {
        .stage = t->stage, .in = t->in, .out = t->out, .in_mul = 1.0f, .out_mul = 1.0f, .tiling = {.width = -1}};
    dv_tile_plans_drop(t->e);
    return dv_engine_run(t->e, &work);
}

static davy_result run_reference(trial *t) {
    const davy_result r = run(t);
    float low = INFINITY, high = -INFINITY;
    t->reference = dv_calloc((uint64_t)t->count, sizeof(float));
    if (r < 0 || t->reference == NULL) {
        return r < 0 ? r : dv_fail(DAVY_E_NOMEM_HOST, "precision int8: out of memory for a test picture");
    }
    memcpy(t->reference, t->out.data, (size_t)t->count * sizeof(float));
    for (int64_t i = 0; i < t->count; i++) {
        low = fminf(low, t->reference[i]);
        high = fmaxf(high, t->reference[i]);
    }
    t->range = ((double)high - (double)low) * ((double)high - (double)low);
    return DAVY_OK;
}

/* *error: the mean square error, divided by the squared range. */
static davy_result try(trial *t, double *error) {
    const davy_result r = run(t);
    const float *out = t->out.data;
    double sum = 0.0;
    for (int64_t i = 0; i < t->count; i++) {
        const double d = (double)out[i] - (double)t->reference[i];
        sum += d * d;
    }
    *error = t->range > 0.0 ? sum / (double)t->count / t->range : sum;
    return r;
}

/* ---- the choice ---- */

/* Lists the layers of a stage that are faster with eight bits, at the size for which weights are loaded. */
static davy_result list_layers(dv_engine *e, dv_stage stage) {
    const dv_request q = {.stage = stage};
    const int64_t side = (stage == DV_STAGE_DECODE ? DV_PROBE_LATENTS : DV_PROBE_PIXELS) * 8;
    dv_plan *plan = NULL;
    e->int8_open = true;
    davy_result r = dv_engine_make_plan(e, &q, &(dv_plan_desc){.h = side, .w = side}, &plan);
    e->int8_open = false;
    for (int64_t i = 0; r == DAVY_OK && i < plan->n_steps; i++) {
        const dv_step *s = &plan->steps[i];
        if (dv_kernel_is_int8(s->kernel)) {
            r = dv_int8_add(&e->int8, s->label, (double)s->flops);
        }
    }
    dv_plan_release(plan);
    return r;
}

/* The most tries for a stage. A CPU takes seconds for a large network, so it tries several consecutive layers at a time. */
static int64_t most_tries(const trial *t) {
    const double tries = !on_cpu(t->e) || t->flops <= 0.0 ? MOST_TRIES : CPU_FLOPS / t->flops;
    return tries >= MOST_TRIES ? MOST_TRIES : dv_max((int64_t)tries, LEAST_TRIES);
}

static davy_result try_layers(trial *t, int64_t first) {
    dv_int8 *layers = &t->e->int8;
    const int64_t each = dv_max(dv_div_up(layers->n - first, most_tries(t)), 1);
    davy_result r = DAVY_OK;
    for (int64_t i = first; r == DAVY_OK && i < layers->n; i += each) {
        const int64_t last = dv_min(i + each, layers->n);
        double error = 0.0;
        dv_int8_set(layers, i, last, true);
        r = try(t, &error);
        dv_int8_set(layers, i, last, false);
        for (int64_t k = i; k < last; k++) {
            layers->layers[k].error = error / (double)(last - i);
        }
    }
    return r;
}

static davy_result choose(trial *t, int64_t first, double *error) {
    dv_int8 *layers = &t->e->int8;
    dv_int8_pick(layers, first, DV_INT8_ERROR * DV_INT8_MARGIN);
    davy_result r = try(t, error);
    while (r == DAVY_OK && !(*error <= DV_INT8_ERROR) && dv_int8_drop(layers, first)) {
        r = try(t, error);
    }
    return r;
}

static const char *plain_name(const dv_engine *e) {
    return on_cpu(e) ? "fp32" : dv_engine_is_wide(e) ? "bf16" : "fp16";
}

static davy_result try_side(dv_engine *e, dv_stage stage, int64_t first, int64_t *side, double *error) {
    trial t = {.e = e, .stage = stage};
    davy_result r = open_trial(&t, side);
    r = r < 0 ? r : run_reference(&t);
    r = r < 0 ? r : try_layers(&t, first);
    r = r < 0 ? r : choose(&t, first, error);
    close_trial(&t);
    return r;
}

/* Tries smaller pictures if memory is short: the caller's own pictures may be small, too. */
static davy_result try_sides(dv_engine *e, dv_stage stage, int64_t first, double *error) {
    const int64_t whole = stage == DV_STAGE_DECODE ? LATENT_SIDE : SIDE;
    int64_t side = whole;
    davy_result r = try_side(e, stage, first, &side, error);
    for (int i = 1; i <= HALVINGS && dv_is_short(r); i++) {
        dv_int8_set(&e->int8, first, e->int8.n, false);
        r = dv_engine_unload(e);
        side = whole >> i;
        r = r < 0 ? r : try_side(e, stage, first, &side, error);
        if (r == DAVY_OK) {
            dv_logf(e->services.log, DAVY_LOG_WARN,
                    "%s: memory is short; int8 was calibrated on a picture of only %lld x %lld", e->file_name,
                    (long long)side, (long long)side);
        }
    }
    return dv_is_short(r)
               ? dv_fail_prefix("precision int8, a test picture of %lld x %lld", (long long)side, (long long)side)
               : r;
}

static davy_result calibrate_stage(dv_engine *e, dv_stage stage) {
    const int64_t first = e->int8.n, before = dv_int8_count(&e->int8);
    double error = 0.0;
    davy_result r = list_layers(e, stage);
    if (r < 0 || e->int8.n == first) {
        return r;
    }
    r = try_sides(e, stage, first, &error);
    if (r == DAVY_OK) {
        const int64_t on = dv_int8_count(&e->int8) - before;
        dv_logf(e->services.log, DAVY_LOG_INFO,
                "%s: %s with int8 in %lld of %lld convolutions that gain from it, %.1f dB from %s", e->file_name,
                dv_stage_name(stage), (long long)on, (long long)(e->int8.n - first),
                on > 0 ? -10.0 * log10(error > 1e-12 ? error : 1e-12) : INFINITY, plain_name(e));
    }
    return r;
}

davy_result dv_engine_calibrate(dv_engine *e) {
    davy_result r = DAVY_OK;
    e->int8_always = true;
    for (dv_stage stage = DV_STAGE_UPSCALE; r == DAVY_OK && stage <= DV_STAGE_DECODE; stage++) {
        r = e->has_stage[stage] ? calibrate_stage(e, stage) : DAVY_OK;
    }
    e->int8_always = false;
    if (r == DAVY_OK && dv_int8_count(&e->int8) == 0) {
        dv_logf(e->services.log, DAVY_LOG_WARN,
                "%s: int8 is not used: no convolution is faster with it and close to %s; %s is used", e->file_name,
                plain_name(e), plain_name(e));
        e->compute = on_cpu(e) ? DVK_F32 : dv_engine_is_wide(e) ? DVK_BF16 : DVK_F16;
    }
    return r == DAVY_OK && e->int8.n > 0 ? dv_engine_unload(e) : r;
}
