/* test_arch.c - which network a file is, and that the graph built for it has the parameters, costs, reach and names
 * that are published for it. Numbers of real files come from lists of names and shapes (DAVY_SHARED, where it is
 * there). */
#include <math.h>
#include <string.h>

#include "core/error.h"
#include "tests/check.h"
#include "tests/unit/fake_networks.h"
#include "tests/unit/interpret.h"

static const char *message(void) {
    static davy_error_info info;
    info.struct_size = sizeof info;
    dv_error_get(&info);
    return info.message;
}

typedef struct described {
    const dv_arch *arch;
    davy_model_info info;
    davy_result result;
} described;

static described describe(const dv_tensors *t, const dv_json *config, const char *file_name) {
    const dv_probe probe = {t, config, file_name};
    described d = {0};
    int64_t cfg[DV_ARCH_CONFIG_BYTES / sizeof(int64_t)] = {0};
    d.result = dv_arch_detect(&probe, NULL, &d.arch);
    d.result = d.result == DAVY_OK ? d.arch->config(&probe, cfg) : d.result;
    if (d.result == DAVY_OK) {
        d.arch->info(cfg, &d.info);
    }
    return d;
}

/* ---- published numbers ---- */

typedef struct published {
    const char *name;
    dv_tensors *t;
    dv_stage stage;
    int64_t side;
    double gflop, million; /* 0: not published */
    int64_t halo;          /* -1: not published, or global */
} published;

/* The published numbers are rounded to three digits or more. */
static void check_near(const char *name, const char *what, double got, double expected) {
    const double tolerance = fmax(expected * 1.5e-3, 0.006);
    CHECKF(expected <= 0.0 || fabs(got - expected) <= tolerance, "%s: %s is %.4f, published %.4f", name, what, got,
           expected);
}

static void check_published(const published *p) {
    dv_graph *g = fake_build(p->t, NULL, p->stage, p->side, p->side);
    dv_reach reach;
    if (CHECKF(g != NULL, "%s: %s", p->name, message()) && CHECK(dv_graph_reach(g, &reach) == DAVY_OK)) {
        check_near(p->name, "GFLOP", (double)dv_graph_flops(g) / 1e9, p->gflop);
        check_near(p->name, "M parameters", (double)dv_graph_parameters(g) / 1e6, p->million);
        CHECKF(p->halo < 0 || reach.halo == p->halo, "%s: halo %d, published %d", p->name, (int)reach.halo,
               (int)p->halo);
        CHECKF(reach.global == (p->halo == -2), "%s: global", p->name);
        const uint64_t flops = dv_graph_flops(g);
        CHECKF(dv_fuse(g) == DAVY_OK && dv_graph_flops(g) == flops, "%s: costs after fusing", p->name);
        dv_reach fused;
        CHECKF(dv_graph_reach(g, &fused) == DAVY_OK && fused.halo == reach.halo && fused.align == reach.align,
               "%s: reach after fusing", p->name);
    }
    dv_graph_release(g);
    dv_tensors_release(p->t);
}

static dv_tensors *rrdb(int dialect, int64_t nf, int blocks, int doublings, int64_t in) {
    const fake_rrdb_spec s = {
        .dialect = dialect, .nf = nf, .gc = 32, .blocks = blocks, .doublings = doublings, .in = in};
    return fake_rrdb(s);
}

/* Halos: "~93" and "~348" stand in the table; an output pixel at the edge of its source pixel needs one more. */
static void test_upscalers(void) {
    const published all[] = {
        {"RRDB 23 x4", rrdb(1, 64, 23, 2, 3), DV_STAGE_UPSCALE, 64, 146.9, 16.698, 349},
        {"RRDB 6 x4", rrdb(2, 64, 6, 2, 3), DV_STAGE_UPSCALE, 64, 46.7, 4.468, 94},
        {"RRDB 23 x2 unshuffle 2", rrdb(1, 64, 23, 2, 12), DV_STAGE_UPSCALE, 64, 36.7, 16.703, -1},
        {"RRDB 23 x1 unshuffle 4", rrdb(1, 64, 23, 2, 48), DV_STAGE_UPSCALE, 64, 9.19, 16.724, -1},
        {"RRDB 23 old x2", rrdb(0, 64, 23, 1, 3), DV_STAGE_UPSCALE, 64, 138.2, 16.66, -1},
        {"RRDB 23 old x1", rrdb(0, 64, 23, 0, 3), DV_STAGE_UPSCALE, 64, 136.1, 16.62, -1},
        {"RRDB Lite x2", rrdb(0, 32, 12, 1, 3), DV_STAGE_UPSCALE, 64, 41.5, 5.01, -1},
        {"RRDB Lite x4", rrdb(0, 32, 12, 2, 3), DV_STAGE_UPSCALE, 64, 43.7, 5.02, -1},
        {"Compact 64/16 x4", fake_compact(64, 16, 4), DV_STAGE_UPSCALE, 64, 5.07, 0.621, 18},
        {"Compact 64/32 x4", fake_compact(64, 32, 4), DV_STAGE_UPSCALE, 64, 9.90, 1.213, 34},
        {"Compact 64/16 x2", fake_compact(64, 16, 2), DV_STAGE_UPSCALE, 64, 4.90, 0.601, 18},
        {"Compact 64/16 x1", fake_compact(64, 16, 1), DV_STAGE_UPSCALE, 64, 4.86, 0.595, 18},
        {"Compact 64/8 x2", fake_compact(64, 8, 2), DV_STAGE_UPSCALE, 64, 2.49, 0.305, 10},
        {"Compact 24/8 x2", fake_compact(24, 8, 2), DV_STAGE_UPSCALE, 64, 0.366, 0.045, 10},
        /* The published GFLOP of SPAN count the folding of its weights; here two per weight and pixel. */
        {"SPAN 48 x4", fake_span(48, 4, 1, 0), DV_STAGE_UPSCALE, 64, 2e-9 * 425232 * 4096, 0.426, 21},
        {"SPAN 48 x2", fake_span(48, 2, 0, 0), DV_STAGE_UPSCALE, 64, 2e-9 * 409680 * 4096, 0.411, 21},
        {"SPAN 64 x2", fake_span(64, 2, 0, 1), DV_STAGE_UPSCALE, 64, 2e-9 * 725440 * 4096, 0.727, 21},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        check_published(&all[i]);
    }
}

static dv_tensors *kl(int names, int64_t z, int quant, int64_t width) {
    const fake_kl_spec s = {.names = names,
                            .z = z,
                            .quant = quant,
                            .levels = 4,
                            .enc = {128, 256, 512, 512},
                            .dec = {width, 2 * width, 4 * width, 4 * width}};
    return fake_kl(s);
}

static void test_autoencoders(void) {
    const published all[] = {
        {"SD decode 512", kl(0, 4, 1, 128), DV_STAGE_DECODE, 64, 2514.5, 49.49, -2},
        {"SDXL decode 1024", kl(1, 4, 1, 128), DV_STAGE_DECODE, 128, 10470.4, 49.49, -2},
        {"SD encode 512", kl(2, 4, 1, 128), DV_STAGE_ENCODE, 512, 1116.7, 34.16, -2},
        {"SDXL encode 1024", kl(1, 4, 1, 128), DV_STAGE_ENCODE, 1024, 4879.0, 34.16, -2},
        {"FLUX.1 decode 1024", kl(0, 16, 0, 128), DV_STAGE_DECODE, 128, 10472.2, 49.55, -2},
        {"SD 3 encode 1024", kl(1, 16, 0, 128), DV_STAGE_ENCODE, 1024, 4882.6, 34.27, -2},
        {"FLUX.2 decode 1024", kl(1, 32, 1, 128), DV_STAGE_DECODE, 128, 10474.7, 49.62, -2},
        {"FLUX.2 encode 1024", kl(1, 32, 1, 128), DV_STAGE_ENCODE, 1024, 4887.5, 34.43, -2},
        {"FLUX.2 small decode 1024", kl(1, 32, 1, 96), DV_STAGE_DECODE, 128, 5997.4, 27.95, -2},
        {"taesd decode 512", fake_tae(4, 0, 0), DV_STAGE_DECODE, 64, 141.4, 1.22, -1},
        {"taesd decode 1024", fake_tae(4, 0, 0), DV_STAGE_DECODE, 128, 565.4, 1.22, -1},
        {"taesd encode 1024", fake_tae(4, 0, 0), DV_STAGE_ENCODE, 1024, 489.3, 1.22, -1},
        {"taef1 decode 1024", fake_tae(16, 0, 0), DV_STAGE_DECODE, 128, 565.6, 1.23, -1},
        {"taef1 encode 1024", fake_tae(16, 0, 0), DV_STAGE_ENCODE, 1024, 489.5, 1.23, -1},
        {"taef2 decode 1024", fake_tae(32, 0, 1), DV_STAGE_DECODE, 128, 569.2, 1.34, -2},
        {"taef2 encode 1024", fake_tae(32, 0, 1), DV_STAGE_ENCODE, 1024, 493.0, 1.34, -2},
        {"taesana decode 1024", fake_tae(32, 1, 0), DV_STAGE_DECODE, 32, 592.1, 8.30, -1},
        {"taesana encode 1024", fake_tae(32, 1, 0), DV_STAGE_ENCODE, 1024, 33.3, 1.26, -1},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        check_published(&all[i]);
    }
}

/* ---- facts ---- */

static void expect_facts(const char *what, dv_tensors *t, const char *arch, const char *variant, int32_t scale,
                         uint32_t features) {
    const described d = describe(t, NULL, "");
    if (CHECKF(d.result == DAVY_OK, "%s: %s", what, message())) {
        CHECKF(strcmp(d.arch->name, arch) == 0, "%s is '%s'", what, d.arch->name);
        CHECKF(strcmp(d.info.variant, variant) == 0, "%s: variant '%s'", what, d.info.variant);
        CHECKF(d.info.scale_num == scale && d.info.scale_den == 1, "%s: scale %d", what, (int)d.info.scale_num);
        CHECKF(d.info.features == features, "%s: features %u", what, (unsigned)d.info.features);
    }
    dv_tensors_release(t);
}

static void test_facts(void) {
    const uint32_t upscales = DAVY_MODEL_UPSCALES | DAVY_MODEL_TILES_EXACT;
    const uint32_t vae = DAVY_MODEL_ENCODES | DAVY_MODEL_DECODES;
    const fake_rrdb_spec plus = {.dialect = 0, .nf = 16, .gc = 8, .blocks = 2, .doublings = 2, .in = 3, .plus = 1};
    expect_facts("compact", fake_compact(24, 8, 2), "compact", "24 features, 8 convolutions, x2", 2, upscales);
    expect_facts("span", fake_span(48, 4, 1, 1), "span", "48 features, x4, no norm", 4, upscales);
    expect_facts("span folded", fake_span(52, 2, 0, 0), "span", "52 features, x2", 2, upscales);
    expect_facts("esrgan x8", rrdb(0, 64, 23, 3, 3), "rrdb", "64 features, 23 blocks, x8", 8, upscales);
    expect_facts("x2plus", rrdb(1, 64, 23, 2, 12), "rrdb", "64 features, 23 blocks, x2", 2, upscales);
    expect_facts("esrgan+", fake_rrdb(plus), "rrdb", "ESRGAN+, 16 features, 2 blocks, x4", 4, upscales);
    expect_facts("taef2", fake_tae(32, 0, 1), "vae_tae", "8x, 32 latent channels, pooled blocks", 1, vae);
    expect_facts("taesana", fake_tae(32, 1, 0), "vae_tae", "32x, 32 latent channels", 1, vae | DAVY_MODEL_TILES_EXACT);
    expect_facts("kl", kl(0, 4, 1, 128), "vae_kl", "scale unknown, 4 latent channels", 1, vae | DAVY_MODEL_MOMENTS);
}

/* One half in every way its names occur. */
static void test_tae_names(void) {
    static const struct {
        const char *prefix;
        int offset, encoder;
    } names[] = {{"", 0, 1},
                 {"", 0, 0},
                 {"encoder.", 0, 1},
                 {"taesd_encoder.", 0, 1},
                 {"taesd_decoder.", 0, 0},
                 {"encoder.layers.", 0, 1},
                 {"decoder.layers.", 1, 0}};
    for (size_t i = 0; i < 2 * sizeof names / sizeof names[0]; i++) {
        const size_t k = i / 2;
        const int large = i % 2 == 1;
        dv_tensors *t = fake_new();
        fake_tae_half(t, names[k].prefix, names[k].offset, names[k].encoder, large, 16, 0);
        fake_done(t);
        const described d = describe(t, NULL, "");
        CHECKF(d.result == DAVY_OK && strcmp(d.arch->name, "vae_tae") == 0 &&
                   d.info.spatial_factor == (large ? 32 : 8) && d.info.latent_channels == 16,
               "'%s' %d: %s", names[k].prefix, names[k].encoder, message());
        CHECKF(((d.info.features & DAVY_MODEL_ENCODES) != 0) == (names[k].encoder == 1), "'%s': which half",
               names[k].prefix);
        dv_graph *there = fake_build(t, NULL, names[k].encoder ? DV_STAGE_ENCODE : DV_STAGE_DECODE, 32, 64);
        CHECKF(there != NULL, "'%s': %s", names[k].prefix, message());
        dv_graph *other = fake_build(t, NULL, names[k].encoder ? DV_STAGE_DECODE : DV_STAGE_ENCODE, 32, 64);
        CHECKF(other == NULL && strstr(message(), "only the") != NULL, "the missing half: %s", message());
        dv_graph_release(there);
        dv_graph_release(other);
        dv_tensors_release(t);
    }
}

/* ---- whose latents these are ---- */

static void expect_scale(dv_tensors *t, const char *json, const char *file, double scale, double shift,
                         const char *family) {
    dv_json *config = NULL;
    if (json != NULL) {
        CHECKF(dv_json_parse(json, strlen(json), "config.json", &config) == DAVY_OK, "%s", message());
    }
    const described d = describe(t, config, file);
    CHECKF(d.result == DAVY_OK && fabs((double)d.info.latent_scale - scale) < 1e-6 &&
               fabs((double)d.info.latent_shift - shift) < 1e-6 && strncmp(d.info.variant, family, strlen(family)) == 0,
           "%s %s: %g %g '%s' %s", file, json != NULL ? json : "", (double)d.info.latent_scale,
           (double)d.info.latent_shift, d.info.variant, d.result == DAVY_OK ? "" : message());
    dv_json_release(config);
    dv_tensors_release(t);
}

static dv_tensors *from_checkpoint(dv_tensors *t, const char *checkpoint) {
    CHECK(dv_tensors_add_meta(t, "checkpoint", checkpoint) == DAVY_OK);
    return t;
}

static dv_tensors *three_levels(void) {
    const fake_kl_spec s = {
        .names = 0, .z = 4, .quant = 1, .levels = 3, .enc = {128, 256, 512}, .dec = {128, 256, 512}};
    return fake_kl(s);
}

static dv_tensors *flux2(void) {
    dv_tensors *t = kl(1, 32, 1, 96);
    fake_vector(t, "bn.running_mean", 128);
    fake_vector(t, "bn.running_var", 128);
    fake_done(t);
    return t;
}

static void test_families(void) {
    expect_scale(kl(0, 4, 1, 128), "{\"scaling_factor\":0.18215}", "sdxl.safetensors", 0.18215, 0, "SD 1");
    expect_scale(kl(0, 4, 1, 128), "{\"scaling_factor\":0.77,\"shift_factor\":null}", "", 0.77, 0, "scale unknown");
    expect_scale(kl(1, 16, 0, 128), "{\"scaling_factor\":0.3611,\"shift_factor\":0.1159}", "sd3.safetensors", 0.3611,
                 0.1159, "FLUX.1");
    expect_scale(kl(1, 4, 1, 128), "{\"scaling_factor\":0.5,\"latents_mean\":[1,2,3,4]}", "sdxl.safetensors", 0, 0,
                 "normalised per channel");
    expect_scale(kl(1, 4, 1, 128), "{\"hidden_size\":64}", "SDXL_vae.safetensors", 0.13025, 0, "SDXL");
    expect_scale(from_checkpoint(kl(0, 4, 1, 128), "sdxl"), NULL, "v1-5-pruned.safetensors", 0.13025, 0, "SDXL");
    expect_scale(from_checkpoint(kl(0, 16, 0, 128), "flux"), NULL, "", 0.3611, 0.1159, "FLUX.1");
    expect_scale(from_checkpoint(kl(0, 16, 0, 128), "sd1"), NULL, "", 0, 0, "scale unknown"); /* z does not fit */
    expect_scale(kl(0, 16, 0, 128), NULL, "ae.safetensors", 0.3611, 0.1159, "FLUX.1");
    expect_scale(kl(0, 16, 0, 128), NULL, "sd3.5_large_vae.safetensors", 1.5305, 0.0609, "SD 3");
    expect_scale(kl(0, 4, 1, 128), NULL, "vae-ft-mse-840000-ema-pruned.safetensors", 0.18215, 0, "SD 1");
    expect_scale(kl(0, 4, 1, 128), NULL, "model.safetensors", 0, 0, "scale unknown");
    expect_scale(three_levels(), NULL, "vae.safetensors", 0.08333, 0, "SD x4 upscaler");
    expect_scale(flux2(), NULL, "vae.safetensors", 0, 0, "FLUX.2");
}

/* ---- the fold of SPAN ---- */

/* Zero padding, then 1x1, 3x3 without padding, 1x1, plus the 1x1 skip: as it was trained. */
static float as_trained(dv_tensors *t, const float *x, int h, int w, int y0, int x0, int o, int in, int out) {
    float *p[8];
    static const char *const names[8] = {"sk.weight",     "sk.bias",     "conv.0.weight", "conv.0.bias",
                                         "conv.1.weight", "conv.1.bias", "conv.2.weight", "conv.2.bias"};
    for (int i = 0; i < 8; i++) {
        const dv_tensor_ref *ref = dv_tensors_find(t, fake_name("conv_1.%s", names[i]));
        p[i] = calloc((size_t)dv_tensor_elements(ref), sizeof(float));
        dv_tensor_read_f32(ref, p[i]);
    }
    double sum = (double)p[7][o] + (double)p[1][o];
    for (int i = 0; i < in; i++) {
        sum += (double)p[0][o * in + i] * (double)x[(y0 * w + x0) * in + i];
    }
    for (int m = 0; m < 2 * out; m++) {
        double wide = (double)p[5][m];
        for (int tap = 0; tap < 9; tap++) {
            const int iy = y0 + tap / 3 - 1;
            const int ix = x0 + tap % 3 - 1;
            const int inside = iy >= 0 && ix >= 0 && iy < h && ix < w;
            for (int n = 0; n < 2 * in; n++) {
                double first = (double)p[3][n]; /* the bias reaches the padded ring */
                for (int i = 0; i < in && inside; i++) {
                    first += (double)p[2][n * in + i] * (double)x[(iy * w + ix) * in + i];
                }
                wide += first * (double)p[4][(m * 2 * in + n) * 9 + tap];
            }
        }
        sum += (double)p[6][o * 2 * out + m] * wide;
    }
    for (int i = 0; i < 8; i++) {
        free(p[i]);
    }
    return (float)sum;
}

static void test_fold(void) {
    enum { H = 3, W = 4, IN = 3, OUT = 8 };
    dv_tensors *t = fake_span(OUT, 2, 1, 1);
    float *data = NULL;
    float x[H * W * IN];
    float *out = calloc(4 * H * W * 3, sizeof *out);
    for (int i = 0; i < H * W * IN; i++) {
        x[i] = (float)(i * 37 % 11) / 11.0f;
    }
    CHECK(fake_fill(t, &data));
    dv_graph *g = fake_build(t, NULL, DV_STAGE_UPSCALE, H, W);
    if (CHECKF(g != NULL, "%s", message())) {
        dv_node *conv = &g->nodes[1]; /* conv_1: no norm in front */
        CHECK(conv->op == DV_OP_CONV2D && g->params[conv->weight].derive != NULL);
        float first[H * W * OUT];
        g->values[g->output].uses--;
        g->output = conv->out;
        CHECK(interpret(g, x, first));
        for (int i = 0; i < H * W * OUT; i++) {
            const float expected = as_trained(t, x, H, W, i / OUT / W, i / OUT % W, i % OUT, IN, OUT);
            CHECKF(fabsf(first[i] - expected) < 1e-5f, "element %d is %g, trained form gives %g", i, (double)first[i],
                   (double)expected);
        }
    }
    dv_graph_release(g);
    dv_tensors_release(t);
    free(data);
    free(out);
}

/* ---- refusals ---- */

static void expect_refused(const char *what, dv_tensors *t, davy_result code, const char *says) {
    const described d = describe(t, NULL, "");
    davy_result r = d.result;
    if (r == DAVY_OK) {
        dv_graph *g = fake_build(t, NULL, d.arch->task == DAVY_TASK_VAE ? DV_STAGE_DECODE : DV_STAGE_UPSCALE, 16, 16);
        davy_error_info info = {.struct_size = sizeof info};
        dv_error_get(&info);
        r = g == NULL ? info.code : DAVY_OK;
        dv_graph_release(g);
    }
    CHECKF(r == code && strstr(message(), says) != NULL, "%s: %d, %s", what, (int)r, message());
    dv_tensors_release(t);
}

static dv_tensors *named(const char *const *names, size_t count) {
    const int64_t shape[2] = {4, 4};
    dv_tensors *t = fake_new();
    for (size_t i = 0; i < count; i++) {
        fake_add(t, 2, shape, "%s", names[i]);
    }
    fake_done(t);
    return t;
}

static dv_tensors *without(dv_tensors *t, const char *name) {
    for (int64_t i = 0; i < t->count; i++) {
        if (strcmp(t->refs[i].name, name) == 0) {
            dv_free(t->refs[i].name);
            memmove(&t->refs[i], &t->refs[i + 1], (size_t)(t->count - i - 1) * sizeof *t->refs);
            t->count--;
            return t;
        }
    }
    CHECKF(0, "no tensor '%s'", name);
    return t;
}

static dv_tensors *reshaped(dv_tensors *t, const char *name, int32_t axis, int64_t size) {
    for (int64_t i = 0; i < t->count; i++) {
        if (strcmp(t->refs[i].name, name) == 0) {
            t->refs[i].shape[axis] = size;
            return t;
        }
    }
    CHECKF(0, "no tensor '%s'", name);
    return t;
}

static void test_refusals(void) {
    const char *const lora[] = {"lora_unet_down.lora_down.weight", "lora_unet_down.lora_up.weight"};
    const char *const unknown[] = {"a.b\x1b[31m", "c.d", "e", "f", "g"};
    const char *const clip[] = {"text_model.encoder.layers.0.mlp.fc1.weight", "text_model.final_layer_norm.weight"};
    const char *const unet[] = {"model.diffusion_model.input_blocks.0.0.weight", "model.diffusion_model.out.2.weight"};
    const char *const llm[] = {"model.layers.0.self_attn.q_proj.weight", "lm_head.weight"};
    const char *const hunyuan[] = {"decoder.conv_in.conv.weight", "encoder.conv_in.conv.weight"};
    const char *const f3[] = {"block_1.att_conv.weight", "to_pixel.eval_conv.weight", "conv_1.eval_conv.weight"};
    expect_refused("LoRA", named(lora, 2), DAVY_E_ARCH, "LoRA");
    expect_refused("CLIP", named(clip, 2), DAVY_E_ARCH, "CLIP");
    expect_refused("UNet", named(unet, 2), DAVY_E_ARCH, "without its VAE");
    expect_refused("LLM", named(llm, 2), DAVY_E_ARCH, "language model");
    expect_refused("Hunyuan", named(hunyuan, 2), DAVY_E_ARCH, "HunyuanVideo");
    expect_refused("SPAN-F3", named(f3, 3), DAVY_E_ARCH, "SPAN-F3");
    expect_refused("unknown", named(unknown, 5), DAVY_E_ARCH,
                   "5 tensors of no known family: a.b?[31m [4,4], c.d [4,4]");
    expect_refused("nothing", named(unknown, 0), DAVY_E_ARCH, "no tensors");

    expect_refused("missing", without(fake_compact(8, 2, 2), "body.4.bias"), DAVY_E_TENSOR, "'body.4.bias'");
    expect_refused("missing norm", without(kl(0, 4, 1, 128), "decoder.mid.attn_1.q.weight"), DAVY_E_TENSOR,
                   "'decoder.mid.attn_1.q.weight'");
    expect_refused("wrong shape", reshaped(fake_compact(8, 2, 2), "body.4.weight", 1, 9), DAVY_E_SHAPE,
                   "'body.4.weight'");
    expect_refused("no square", reshaped(fake_compact(8, 2, 2), "body.6.weight", 0, 13), DAVY_E_SHAPE, "13 outputs");
    expect_refused("huge index", reshaped(rrdb(0, 64, 1, 2, 3), "model.0.weight", 1, 5), DAVY_E_UNSUPPORTED, "5 input");
    expect_refused("latents differ", reshaped(fake_tae(4, 0, 0), "decoder.1.weight", 1, 8), DAVY_E_SHAPE, "8");
    expect_refused("folded sizes", reshaped(fake_span(8, 2, 1, 0), "block_2.c1_r.conv.2.weight", 0, 9), DAVY_E_SHAPE,
                   "'block_2.c1_r'");

    dv_tensors *t = fake_compact(8, 2, 2);
    const dv_probe probe = {t, NULL, ""};
    const dv_arch *arch = NULL;
    CHECK(dv_arch_detect(&probe, "compact", &arch) == DAVY_OK && strcmp(arch->name, "compact") == 0);
    CHECK(dv_arch_detect(&probe, "rrdb", &arch) == DAVY_E_ARCH && strstr(message(), "no 'rrdb' weights") != NULL);
    CHECK(dv_arch_detect(&probe, "rrdc", &arch) == DAVY_E_ARCH &&
          strstr(message(), "no architecture called 'rrdc'") != NULL);
    dv_graph *g = fake_build(t, NULL, DV_STAGE_DECODE, 8, 8);
    CHECKF(g == NULL && strstr(message(), "upscale") != NULL, "%s", message());
    dv_graph_release(g);
    dv_tensors_release(t);
    t = kl(0, 4, 1, 128);
    g = fake_build(t, NULL, DV_STAGE_ENCODE, 64, 60);
    CHECKF(g == NULL && strstr(message(), "multiples of 8") != NULL, "%s", message());
    dv_graph_release(g);
    dv_tensors_release(t);
}

/* A name with a large number must not make anything loop or allocate. */
static void test_hostile_numbers(void) {
    dv_tensors *t = rrdb(1, 16, 1, 1, 3);
    fake_conv(t, "body.999999.rdb1.conv1", 4, 4, 3, 1);
    fake_done(t);
    expect_refused("a million blocks", t, DAVY_E_SHAPE, "blocks");
    t = fake_compact(8, 2, 2);
    fake_vector(t, "body.99999999999999999999.weight", 4);
    fake_done(t);
    const described d = describe(t, NULL, "");
    CHECKF(d.result == DAVY_OK, "%s", message()); /* no number: not a layer */
    dv_tensors_release(t);
}

/* ---- real lists of names, where they are at hand ---- */

static dv_json *read_json(const char *path) {
    FILE *f = fopen(path, "rb");
    dv_json *json = NULL;
    char *text = calloc(1, 1 << 20);
    if (f != NULL && text != NULL) {
        const size_t n = fread(text, 1, 1 << 20, f);
        CHECKF(dv_json_parse(text, n, path, &json) == DAVY_OK, "%s", message());
    }
    if (f != NULL) {
        fclose(f);
    }
    free(text);
    return json;
}

static dv_tensors *tensors_of(const dv_json *file) {
    dv_tensors *t = fake_new();
    for (const dv_json *e = dv_json_first(dv_json_get(file, "tensors")); e != NULL; e = dv_json_next(e)) {
        int64_t shape[8] = {0};
        int32_t ndim = 0;
        for (const dv_json *s = dv_json_first(dv_json_get(e, "shape")); s != NULL && ndim < 8; s = dv_json_next(s)) {
            CHECK(dv_json_int(s, &shape[ndim++]));
        }
        fake_add(t, ndim, shape, "%s", dv_json_string(dv_json_get(e, "name")));
    }
    fake_done(t);
    return t;
}

static dv_tensors *tensors_of_case(const dv_json *manifest) {
    dv_tensors *all = fake_new();
    for (const dv_json *f = dv_json_first(dv_json_get(manifest, "files")); f != NULL; f = dv_json_next(f)) {
        const char *path = dv_json_string(dv_json_get(f, "path"));
        const char *prefix = strncmp(path, "encoder", 7) == 0   ? "encoder."
                             : strncmp(path, "decoder", 7) == 0 ? "decoder."
                                                                : "";
        if (strncmp(path, "inputs", 6) != 0) {
            dv_tensors *t = tensors_of(f);
            CHECKF(dv_tensors_unwrap(t) == DAVY_OK && dv_tensors_merge(all, t, prefix) == DAVY_OK, "%s", message());
            dv_tensors_release(t);
        }
    }
    return all;
}

static void test_real_names(void) {
    static const struct {
        const char *name, *arch, *says; /* says: what the refusal names */
    } cases[] = {
        {"compact_anime", "compact", NULL},
        {"compact_x2", "compact", NULL},
        {"compact_x4v3", "compact", NULL},
        {"esrgan_x2_unshuffle", "rrdb", NULL},
        {"esrgan_x4", "rrdb", NULL},
        {"span_x2", "span", NULL},
        {"span_x4_52", "span", NULL},
        {"taesd", "vae_tae", NULL},
        {"taef1", "vae_tae", NULL},
        {"vae_sd15_ldm", "vae_kl", NULL},
        {"vae_sdxl", "vae_kl", NULL},
        {"vae_sd3", "vae_kl", NULL},
        {"vae_flux_ldm", "vae_kl", NULL},
        {"dat_x4", NULL, "DAT"},
        {"drct_x4", NULL, "DRCT"},
        {"hat_x4", NULL, "HAT"},
        {"omnisr_x4", NULL, "OmniSR"},
        {"realplksr_x4", NULL, "RealPLKSR"},
        {"swinir_light_x2", NULL, "SwinIR"},
        {"swinir_real_x4", NULL, "SwinIR"},
        {"seedvr2_vae_5f", NULL, "SeedVR2"},
        {"vlm_llava_siglip", NULL, "vision-language"},
        {"vlm_qwen2_5_vl", NULL, "vision-language"},
        {"vlm_qwen2_vl", NULL, "vision-language"},
        {"vlm_qwen3_vl", NULL, "vision-language"},
        {"vlm_smolvlm_reduced", NULL, "vision-language"},
    };
    const char *root = getenv("DAVY_SHARED");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/golden/%s/manifest.json", root != NULL ? root : "../shared", cases[i].name);
        dv_json *manifest = read_json(path);
        if (manifest == NULL) {
            check_skip(path);
            continue;
        }
        dv_tensors *t = tensors_of_case(manifest);
        const described d = describe(t, NULL, "");
        if (cases[i].arch != NULL) {
            CHECKF(d.result == DAVY_OK && strcmp(d.arch->name, cases[i].arch) == 0, "%s: %s", cases[i].name, message());
        } else {
            CHECKF(d.result == DAVY_E_ARCH && strstr(message(), cases[i].says) != NULL, "%s: %s", cases[i].name,
                   message());
        }
        dv_tensors_release(t);
        dv_json_release(manifest);
    }
}

int main(void) {
    test_upscalers();
    test_autoencoders();
    test_facts();
    test_tae_names();
    test_families();
    test_fold();
    test_refusals();
    test_hostile_numbers();
    test_real_names();
    return check_done();
}
