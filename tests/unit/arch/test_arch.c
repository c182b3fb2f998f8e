/* test_arch.c - the detected network of a file, its names and facts, and the errors for unsupported files. If
 * DAVY_SHARED has lists of names of real files, they are read. */
#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "tests/lib/check.h"
#include "tests/lib/fake_networks.h"
#include "tests/lib/manifest_names.h"

typedef struct described {
    const dv_arch *arch;
    davy_model_info info;
    davy_result result;
} described;

static described describe(const dv_tensors *t, const dv_json *config, const char *file_name) {
    const dv_probe probe = {.tensors = t, .config = config, .file_name = file_name};
    described d = {0};
    int64_t cfg[DV_ARCH_CONFIG_BYTES / sizeof(int64_t)] = {0};
    d.result = dv_arch_detect(&probe, NULL, &d.arch);
    d.result = d.result == DAVY_OK ? d.arch->config(&probe, cfg) : d.result;
    if (d.result == DAVY_OK) {
        d.arch->info(cfg, &d.info);
    }
    return d;
}

/* ---- facts ---- */

static void expect_facts(const char *what, dv_tensors *t, const char *arch, const char *variant, int32_t scale,
                         uint32_t features) {
    const described d = describe(t, NULL, "");
    if (CHECKF(d.result == DAVY_OK, "%s: %s", what, last_error())) {
        CHECKF(strcmp(d.arch->name, arch) == 0, "%s is '%s'", what, d.arch->name);
        CHECKF(strcmp(d.info.variant, variant) == 0, "%s: variant '%s'", what, d.info.variant);
        CHECKF(d.info.scale_num == scale && d.info.scale_den == 1, "%s: scale %d", what, (int)d.info.scale_num);
        CHECKF(d.info.features == features, "%s: features %u", what, (unsigned)d.info.features);
    }
    dv_tensors_release(t);
}

static void test_facts(void) {
    const uint32_t upscales = DAVY_MODEL_UPSCALES;
    const uint32_t vae = DAVY_MODEL_ENCODES | DAVY_MODEL_DECODES;
    const fake_rrdb_spec plus = {.dialect = 0, .nf = 16, .gc = 8, .blocks = 2, .doublings = 2, .in = 3, .plus = 1};
    expect_facts("compact", fake_compact(24, 8, 2), "compact", "24 features, 8 convolutions, x2", 2, upscales);
    expect_facts("span", fake_span(48, 4, 1, 1), "span", "48 features, x4, no norm", 4, upscales);
    expect_facts("span folded", fake_span(52, 2, 0, 0), "span", "52 features, x2", 2, upscales);
    expect_facts("esrgan x8", fake_usual_rrdb(0, 64, 23, 3, 3), "rrdb", "64 features, 23 blocks, x8", 8, upscales);
    expect_facts("x2plus", fake_usual_rrdb(1, 64, 23, 2, 12), "rrdb", "64 features, 23 blocks, x2", 2, upscales);
    expect_facts("esrgan+", fake_rrdb(plus), "rrdb", "ESRGAN+, 16 features, 2 blocks, x4", 4, upscales);
    expect_facts("taef2", fake_tae(32, 0, 1), "vae_tae", "8x, 32 latent channels, pooled blocks", 1, vae);
    expect_facts("taesana", fake_tae(32, 1, 0), "vae_tae", "32x, 32 latent channels", 1, vae);
    expect_facts("kl", fake_usual_kl(0, 4, 1, 128), "vae_kl", "scale unknown, 4 latent channels", 1,
                 vae | DAVY_MODEL_MOMENTS);
}

/* One half under every naming scheme in which it occurs. */
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
               "'%s' %d: %s", names[k].prefix, names[k].encoder, last_error());
        CHECKF(((d.info.features & DAVY_MODEL_ENCODES) != 0) == (names[k].encoder == 1), "'%s': which half",
               names[k].prefix);
        dv_graph *there = fake_build(t, NULL, names[k].encoder ? DV_STAGE_ENCODE : DV_STAGE_DECODE, 32, 64);
        CHECKF(there != NULL, "'%s': %s", names[k].prefix, last_error());
        dv_graph *other = fake_build(t, NULL, names[k].encoder ? DV_STAGE_DECODE : DV_STAGE_ENCODE, 32, 64);
        CHECKF(other == NULL && strstr(last_error(), "only the") != NULL, "the missing half: %s", last_error());
        dv_graph_release(there);
        dv_graph_release(other);
        dv_tensors_release(t);
    }
}

/* ---- the family of latents ---- */

static void expect_scale(dv_tensors *t, const char *json, const char *file, double scale, double shift,
                         const char *family) {
    dv_json *config = NULL;
    if (json != NULL) {
        CHECKF(dv_json_parse(json, strlen(json), "config.json", &config) == DAVY_OK, "%s", last_error());
    }
    const described d = describe(t, config, file);
    CHECKF(d.result == DAVY_OK && fabs((double)d.info.latent_scale - scale) < 1e-6 &&
               fabs((double)d.info.latent_shift - shift) < 1e-6 && strncmp(d.info.variant, family, strlen(family)) == 0,
           "%s %s: %g %g '%s' %s", file, json != NULL ? json : "", (double)d.info.latent_scale,
           (double)d.info.latent_shift, d.info.variant, d.result == DAVY_OK ? "" : last_error());
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
    dv_tensors *t = fake_usual_kl(1, 32, 1, 96);
    fake_vector(t, "bn.running_mean", 128);
    fake_vector(t, "bn.running_var", 128);
    fake_done(t);
    return t;
}

static void test_families(void) {
    expect_scale(fake_usual_kl(0, 4, 1, 128), "{\"scaling_factor\":0.18215}", "sdxl.safetensors", 0.18215, 0, "SD 1");
    expect_scale(fake_usual_kl(0, 4, 1, 128), "{\"scaling_factor\":0.77,\"shift_factor\":null}", "", 0.77, 0,
                 "scale unknown");
    expect_scale(fake_usual_kl(1, 16, 0, 128), "{\"scaling_factor\":0.3611,\"shift_factor\":0.1159}", "sd3.safetensors",
                 0.3611, 0.1159, "FLUX.1");
    expect_scale(fake_usual_kl(1, 4, 1, 128), "{\"scaling_factor\":0.5,\"latents_mean\":[1,2,3,4]}", "sdxl.safetensors",
                 0, 0, "normalised per channel");
    expect_scale(fake_usual_kl(1, 4, 1, 128), "{\"hidden_size\":64}", "SDXL_vae.safetensors", 0.13025, 0, "SDXL");
    expect_scale(from_checkpoint(fake_usual_kl(0, 4, 1, 128), "sdxl"), NULL, "v1-5-pruned.safetensors", 0.13025, 0,
                 "SDXL");
    expect_scale(from_checkpoint(fake_usual_kl(0, 16, 0, 128), "flux"), NULL, "", 0.3611, 0.1159, "FLUX.1");
    expect_scale(from_checkpoint(fake_usual_kl(0, 16, 0, 128), "sd1"), NULL, "", 0, 0,
                 "scale unknown"); /* z does not fit */
    expect_scale(fake_usual_kl(0, 16, 0, 128), NULL, "ae.safetensors", 0.3611, 0.1159, "FLUX.1");
    expect_scale(fake_usual_kl(0, 16, 0, 128), NULL, "vae.safetensors", 0, 0, "scale unknown"); /* possibly SD 3's */
    expect_scale(fake_usual_kl(1, 4, 1, 128), "{\"_class_name\":\"AutoencoderKL\",\"latent_channels\":4}",
                 "diffusion_pytorch_model.safetensors", 0.18215, 0, "SD 1");
    expect_scale(fake_usual_kl(1, 16, 0, 128), "{\"_class_name\":\"AutoencoderKL\"}", "vae.safetensors", 0, 0,
                 "scale unknown");
    expect_scale(fake_usual_kl(0, 16, 0, 128), NULL, "sd3.5_large_vae.safetensors", 1.5305, 0.0609, "SD 3");
    expect_scale(fake_usual_kl(0, 4, 1, 128), NULL, "vae-ft-mse-840000-ema-pruned.safetensors", 0.18215, 0, "SD 1");
    expect_scale(fake_usual_kl(0, 4, 1, 128), NULL, "model.safetensors", 0, 0, "scale unknown");
    expect_scale(three_levels(), NULL, "vae.safetensors", 0.08333, 0, "SD x4 upscaler");
    expect_scale(flux2(), NULL, "vae.safetensors", 0, 0, "FLUX.2");
}

/* ---- errors ---- */

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
    CHECKF(r == code && strstr(last_error(), says) != NULL, "%s: %d, %s", what, (int)r, last_error());
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
    expect_refused("LoRA", named(lora, 2), DAVY_E_ARCH, "LoRA");
    expect_refused("CLIP", named(clip, 2), DAVY_E_ARCH, "CLIP");
    expect_refused("UNet", named(unet, 2), DAVY_E_ARCH, "without its VAE");
    expect_refused("LLM", named(llm, 2), DAVY_E_ARCH, "language model");
    expect_refused("Hunyuan", named(hunyuan, 2), DAVY_E_ARCH, "HunyuanVideo");
    expect_refused("unknown", named(unknown, 5), DAVY_E_ARCH,
                   "5 tensors of no known family: a.b?[31m [4,4], c.d [4,4]");
    expect_refused("nothing", named(unknown, 0), DAVY_E_ARCH, "no tensors");

    static const char *const attend[] = {"encoder.down_blocks.3.attentions.0.to_q.weight",
                                         "decoder.up_blocks.0.attentions.0.query.weight",
                                         "decoder.up.3.attn.1.q.weight"};
    for (int i = 0; i < 3; i++) {
        dv_tensors *t = fake_usual_kl(i < 2, 4, 1, 128);
        fake_vector(t, attend[i], 512);
        fake_done(t);
        expect_refused(attend[i], t, DAVY_E_UNSUPPORTED, "attention inside its levels");
    }

    expect_refused("missing", without(fake_compact(8, 2, 2), "body.4.bias"), DAVY_E_TENSOR, "'body.4.bias'");
    expect_refused("missing norm", without(fake_usual_kl(0, 4, 1, 128), "decoder.mid.attn_1.q.weight"), DAVY_E_TENSOR,
                   "'decoder.mid.attn_1.q.weight'");
    expect_refused("missing in the last block",
                   without(fake_usual_kl(0, 4, 1, 128), "decoder.up.0.block.2.conv1.weight"), DAVY_E_TENSOR,
                   "'decoder.up.0.block.2.conv1.weight'");
    expect_refused("wrong shape", reshaped(fake_compact(8, 2, 2), "body.4.weight", 1, 9), DAVY_E_SHAPE,
                   "'body.4.weight'");
    expect_refused("no square", reshaped(fake_compact(8, 2, 2), "body.6.weight", 0, 13), DAVY_E_SHAPE, "13 outputs");
    expect_refused("huge index", reshaped(fake_usual_rrdb(0, 64, 1, 2, 3), "model.0.weight", 1, 5), DAVY_E_UNSUPPORTED,
                   "5 input");
    expect_refused("latents differ", reshaped(fake_tae(4, 0, 0), "decoder.1.weight", 1, 8), DAVY_E_SHAPE, "8");
    expect_refused("folded sizes", reshaped(fake_span(8, 2, 1, 0), "block_2.c1_r.conv.2.weight", 0, 9), DAVY_E_SHAPE,
                   "'block_2.c1_r'");

    dv_tensors *t = fake_compact(8, 2, 2);
    const dv_probe probe = {.tensors = t, .file_name = ""};
    const dv_arch *arch = NULL;
    CHECK(dv_arch_detect(&probe, "compact", &arch) == DAVY_OK && strcmp(arch->name, "compact") == 0);
    CHECK(dv_arch_detect(&probe, "rrdb", &arch) == DAVY_E_ARCH &&
          strstr(last_error(), "do not fit architecture 'rrdb'") != NULL);
    CHECK(dv_arch_detect(&probe, "rrdc", &arch) == DAVY_E_ARCH &&
          strstr(last_error(), "no architecture called 'rrdc'") != NULL);
    dv_graph *g = fake_build(t, NULL, DV_STAGE_DECODE, 8, 8);
    CHECKF(g == NULL && strstr(last_error(), "upscale") != NULL, "%s", last_error());
    dv_graph_release(g);
    dv_tensors_release(t);
    t = fake_usual_kl(0, 4, 1, 128);
    g = fake_build(t, NULL, DV_STAGE_ENCODE, 64, 60);
    CHECKF(g == NULL && strstr(last_error(), "multiples of 8") != NULL, "%s", last_error());
    dv_graph_release(g);
    dv_tensors_release(t);
}

/* A name with a large number must not cause a long loop or a large allocation. */
static void test_hostile_numbers(void) {
    dv_tensors *t = fake_usual_rrdb(1, 16, 1, 1, 3);
    fake_conv(t, "body.999999.rdb1.conv1", 4, 4, 3, 1);
    fake_done(t);
    expect_refused("a million blocks", t, DAVY_E_SHAPE, "blocks");
    t = fake_usual_kl(0, 4, 1, 128);
    fake_conv(t, "decoder.up.0.block.999999.conv1", 4, 4, 3, 1);
    fake_done(t);
    expect_refused("a million blocks of a decoder", t, DAVY_E_TENSOR, "no first block");
    t = fake_compact(8, 2, 2);
    fake_vector(t, "body.99999999999999999999.weight", 4);
    fake_done(t);
    const described d = describe(t, NULL, "");
    CHECKF(d.result == DAVY_OK, "%s", last_error()); /* no number: not a layer */
    dv_tensors_release(t);
}

/* ---- lists of real names, if available ---- */

static void test_real_names(void) {
    static const struct {
        const char *name, *arch, *says; /* says: a part of the expected error */
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
        {"dat_x4", "dat", NULL},
        {"drct_x4", "drct", NULL},
        {"hat_x4", "hat", NULL},
        {"omnisr_x4", "omnisr", NULL},
        {"realplksr_x4", "plksr", NULL},
        {"swinir_light_x2", "swinir", NULL},
        {"swinir_real_x4", "swinir", NULL},
        {"seedvr2_vae_5f", "vae_seedvr2", NULL},
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
            CHECKF(d.result == DAVY_OK && strcmp(d.arch->name, cases[i].arch) == 0, "%s: %s", cases[i].name,
                   last_error());
        } else {
            CHECKF(d.result == DAVY_E_ARCH && strstr(last_error(), cases[i].says) != NULL, "%s: %s", cases[i].name,
                   last_error());
        }
        dv_tensors_release(t);
        dv_json_release(manifest);
    }
}

int main(void) {
    test_facts();
    test_tae_names();
    test_families();
    test_refusals();
    test_hostile_numbers();
    test_real_names();
    return check_done();
}
