/* test_convnets.c - PLKSR, SPAN-F3, Real-CUGAN, waifu2x and OmniSR: facts, published numbers, errors. Convolutions
 * that replace transposed ones compute the same values. */
#include <math.h>
#include <string.h>

#include "core/block/derived.h"
#include "core/base/error.h"
#include "tests/lib/check.h"
#include "tests/lib/last_error.h"
#include "tests/lib/fake_convnets.h"
#include "tests/lib/interpret.h"

static const fake_plksr_spec real_x4 = {.real = 1, .nf = 64, .blocks = 28, .scale = 4, .k = 17, .gates = 1};
static const fake_cugan_spec cugan_x2 = {.in = 3, .bottom = 3, .k = 4, .out = 3};

/* ---- facts ---- */

static void expect_facts(dv_tensors *t, const char *file, const char *name, const char *variant, int32_t scale,
                         bool wide) {
    const dv_probe probe = {.tensors = t, .file_name = file};
    const dv_arch *arch = NULL;
    int64_t cfg[DV_ARCH_CONFIG_BYTES / sizeof(int64_t)] = {0};
    davy_model_info info = {0};
    if (CHECKF(dv_arch_detect(&probe, NULL, &arch) == DAVY_OK && arch->config(&probe, cfg) == DAVY_OK, "%s: %s",
               variant, last_error())) {
        arch->info(cfg, &info);
        CHECKF(strcmp(arch->name, name) == 0, "%s is '%s'", variant, arch->name);
        CHECKF(strcmp(info.variant, variant) == 0, "'%s', expected '%s'", info.variant, variant);
        CHECKF(info.scale_num == scale && info.scale_den == 1 && info.features == DAVY_MODEL_UPSCALES &&
                   info.in_channels == 3 && info.out_channels == 3,
               "%s: scale %d", variant, (int)info.scale_num);
        CHECKF((arch->wide != NULL && arch->wide(cfg)) == wide, "%s: range", variant);
    }
    dv_tensors_release(t);
}

/* Values beside the tensors of a pickle. */
static dv_tensors *with_value(dv_tensors *t, const char *key, const char *value) {
    CHECK(dv_tensors_add_meta(t, key, value) == DAVY_OK);
    return t;
}

static void test_facts(void) {
    fake_plksr_spec s = {.nf = 64, .blocks = 28, .scale = 4, .k = 17, .gates = 1, .mixer = {3, 1}};
    expect_facts(fake_plksr(s), "", "plksr", "PLKSR, 64 features, 28 blocks, x4", 4, false);
    expect_facts(fake_plksr(real_x4), "", "plksr", "RealPLKSR, 64 features, 28 blocks, x4", 4, true);
    s = real_x4;
    s.layer_norm = 1;
    s.samples = 1;
    s.scale = 2;
    expect_facts(fake_plksr(s), "", "plksr", "RealPLKSR DySample, layer norm, 64 features, 28 blocks, x2", 2, false);
    expect_facts(fake_spanf3(64, 8, 2, 4, 0), "", "spanf3", "64 features, 8 blocks, x2", 2, false);
    expect_facts(fake_spanf3(48, 5, 1, 4, 1), "", "spanf3", "48 features, 5 blocks, x4", 4, false);
    expect_facts(fake_cugan(cugan_x2), "up2x.pth", "cugan", "UpCunet, x2", 2, false);
    expect_facts(fake_cugan(cugan_x2), "waifu2x-art-scale2x.pth", "cugan", "UpCUNet, x2", 2, false);
    expect_facts(fake_cugan((fake_cugan_spec){3, 3, 5, 3, 0, 1}), "", "cugan", "UpCunet pro, x3", 3, false);
    expect_facts(with_value(fake_cugan(cugan_x2), "value.pro", "1"), "up2x.pth", "cugan", "UpCunet pro, x2", 2, false);
    expect_facts(with_value(fake_cugan(cugan_x2), "value.name", "waifu2x.upcunet"), "scale2x.pth", "cugan",
                 "UpCUNet, x2", 2, false);
    expect_facts(fake_cugan((fake_cugan_spec){3, 64, 4, 64, 12, 0}), "", "cugan", "UpCunet, x4", 4, false);
    expect_facts(fake_cugan((fake_cugan_spec){12, 64, 4, 64, 12, 0}), "", "cugan", "UpCunet, x2 fast", 2, false);
    expect_facts(fake_cugan((fake_cugan_spec){3, 3, 3, 3, 0, 0}), "", "waifu2x", "CUNet, x1", 1, false);
    expect_facts(fake_upconv7(), "", "waifu2x", "UpConv7, x2", 2, false);
    expect_facts(fake_omnisr(64, 5, 8, 4), "", "omnisr", "64 features, 5 groups, windows of 8, x4", 4, true);
}

/* ---- published numbers ---- */

static void check_near(const char *name, const char *what, double got, double expected) {
    CHECKF(fabs(got - expected) <= fmax(expected * 6e-3, 0.006), "%s: %s is %.4f, published %.4f", name, what, got,
           expected);
}

/* halo -2: some op needs the whole picture */
static void check_numbers(const char *name, dv_tensors *t, int64_t side, double gflop, double million, int64_t halo) {
    dv_graph *g = fake_build(t, NULL, DV_STAGE_UPSCALE, side, side);
    dv_reach reach;
    if (CHECKF(g != NULL, "%s: %s", name, last_error()) && CHECK(dv_graph_reach(g, &reach) == DAVY_OK)) {
        check_near(name, "GFLOP", (double)dv_graph_flops(g) / 1e9, gflop);
        check_near(name, "M parameters", (double)dv_graph_parameters(g) / 1e6, million);
        CHECKF(reach.global == (halo == -2) && (halo < 0 || reach.halo == halo), "%s: halo %d, published %d", name,
               (int)reach.halo, (int)halo);
    }
    dv_graph_release(g);
    dv_tensors_release(t);
}

static void test_numbers(void) {
    fake_plksr_spec s = {.nf = 64, .blocks = 28, .scale = 4, .k = 17, .gates = 1, .mixer = {3, 1}};
    check_numbers("PLKSR", fake_plksr(s), 64, 45.4, 5.551, -1);
    s = (fake_plksr_spec){.nf = 64, .blocks = 12, .scale = 4, .k = 13, .mixer = {3, 3}};
    check_numbers("PLKSR-tiny", fake_plksr(s), 64, 19.4, 2.371, -1);
    check_numbers("RealPLKSR", fake_plksr(real_x4), 64, 60.4, 7.390, 310);
    s = real_x4;
    s.samples = 1;
    check_numbers("RealPLKSR DySample", fake_plksr(s), 64, 60.5, 7.402, 310);
    s = real_x4;
    s.layer_norm = 1;
    check_numbers("RealPLKSR layer norm", fake_plksr(s), 64, 60.4, 7.390, 310);
    check_numbers("SPAN-F3 b8", fake_spanf3(64, 8, 2, 4, 1), 64, 1.98, 0.97, 52);
    check_numbers("SPAN-F3 b5", fake_spanf3(48, 5, 2, 4, 0), 64, 0.73, 0.36, 34);
    check_numbers("OmniSR", fake_omnisr(64, 5, 8, 4), 64, 1.722e-3 * 64 * 64, 0.805, -2);
    check_numbers("CUGAN x2", fake_cugan(cugan_x2), 512, 1.604e-3 * 512 * 512, 1.285, 18);
    check_numbers("CUGAN x4", fake_cugan((fake_cugan_spec){3, 64, 4, 64, 12, 0}), 512, 2.244e-3 * 512 * 512, 1.407, 19);
}

/* ---- derived weights ---- */

/* Transposed convolution by its definition: every input pixel adds its kernel to the output. */
static void transposed(const float *x, dv_shape in, const float *w, const float *bias, int64_t c_out, int64_t k,
                       int64_t s, int64_t pad, float *y) {
    const int64_t h = (in.h - 1) * s - 2 * pad + k, width = (in.w - 1) * s - 2 * pad + k;
    for (int64_t i = 0; i < h * width * c_out; i++) {
        y[i] = bias[i % c_out];
    }
    for (int64_t i = 0; i < in.h * in.w * in.c * c_out * k * k; i++) {
        const int64_t kx = i % k, ky = i / k % k, o = i / k / k % c_out, c = i / k / k / c_out % in.c;
        const int64_t p = i / k / k / c_out / in.c;
        const int64_t oy = p / in.w * s + ky - pad, ox = p % in.w * s + kx - pad;
        if (oy >= 0 && ox >= 0 && oy < h && ox < width) {
            y[(oy * width + ox) * c_out + o] += x[p * in.c + c] * w[((c * c_out + o) * k + ky) * k + kx];
        }
    }
}

static void check_transposed(int32_t k, int32_t s, int32_t pad) {
    enum { IN = 3, OUT = 2, H = 5, W = 4 };
    const dv_transposed opts = {.c_out = OUT, .k = k, .stride = s, .pad = pad};
    dv_tensors *t = fake_new();
    dv_graph *g = NULL;
    float *data = NULL;
    float x[H * W * IN], got[400 * OUT], expected[400 * OUT], w[IN * OUT * 25], bias[OUT];
    fake_transposed(t, "up", IN, OUT, k);
    fake_done(t);
    CHECK(fake_fill(t, &data) && dv_graph_create(t, &g) == DAVY_OK);
    for (int i = 0; i < H * W * IN; i++) {
        x[i] = (float)(i * 37 % 11) / 11.0f;
    }
    dv_output(g, dv_conv_transposed(g, dv_input(g, (dv_shape){1, H, W, IN}), "up", &opts));
    if (CHECKF(dv_graph_check(g) == DAVY_OK, "%s", last_error())) {
        CHECK(dv_tensor_read_f32(dv_tensors_find(t, "up.weight"), w) == DAVY_OK);
        CHECK(dv_tensor_read_f32(dv_tensors_find(t, "up.bias"), bias) == DAVY_OK);
        const dv_shape in = {1, H, W, IN};
        transposed(x, in, w, bias, OUT, k, s, pad, expected);
        CHECK(interpret(g, x, got));
        const dv_shape out = dv_shape_of(g, g->output);
        CHECKF(out.h == (H - 1) * s - 2 * pad + k && out.w == (W - 1) * s - 2 * pad + k, "k %d: %d rows", (int)k,
               (int)out.h);
        for (size_t i = 0; i < in_count(out); i++) {
            CHECKF(fabsf(got[i] - expected[i]) < 1e-5f, "k %d s %d: element %d is %g, expected %g", (int)k, (int)s,
                   (int)i, (double)got[i], (double)expected[i]);
        }
    }
    dv_graph_release(g);
    dv_tensors_release(t);
    free(data);
}

/* ---- errors ---- */

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

static void expect_refused(dv_tensors *t, davy_result code, const char *says) {
    dv_graph *g = fake_build(t, NULL, DV_STAGE_UPSCALE, 32, 32);
    davy_error_info info = {.struct_size = sizeof info};
    dv_error_get(&info);
    CHECKF(g == NULL && info.code == code && strstr(info.message, says) != NULL, "'%s', expected '%s'", info.message,
           says);
    dv_graph_release(g);
    dv_tensors_release(t);
}

static void test_refusals(void) {
    const fake_plksr_spec small = {.real = 1, .nf = 16, .blocks = 2, .scale = 2, .k = 5, .gates = 1, .samples = 1};
    fake_plksr_spec sparse = {.nf = 16, .blocks = 1, .scale = 2, .k = 17, .large = 1};
    expect_refused(reshaped(fake_plksr(small), "feats.4.weight", 0, 13), DAVY_E_SHAPE, "13 outputs");
    expect_refused(reshaped(fake_plksr(small), "feats.1.lk.conv.weight", 0, 99), DAVY_E_SHAPE, "99 outputs");
    expect_refused(reshaped(fake_plksr(small), "feats.1.lk.conv.weight", 2, 4), DAVY_E_UNSUPPORTED, "4 x 4");
    expect_refused(reshaped(fake_plksr(small), "feats.2.attn.f.0.weight", 1, 15), DAVY_E_SHAPE, "feats.2.attn.f.0");
    expect_refused(reshaped(fake_plksr(small), "feats.2.refine.bias", 0, 15), DAVY_E_SHAPE, "feats.2.refine.bias");
    expect_refused(reshaped(fake_plksr(small), "to_img.offset.weight", 0, 7), DAVY_E_SHAPE, "7 outputs");
    expect_refused(reshaped(fake_plksr(small), "to_img.end_conv.weight", 1, 7), DAVY_E_SHAPE, "end_conv");
    expect_refused(reshaped(fake_plksr(sparse), "feats.1.lk.convs.2.weight", 3, 7), DAVY_E_SHAPE, "convs.2");
    sparse.large = 2;
    sparse.k = 7; /* a third of it is even */
    expect_refused(fake_plksr(sparse), DAVY_E_UNSUPPORTED, "7 x 7");
    dv_tensors *t = fake_plksr(small);
    fake_conv(t, "feats.900000.refine", 4, 4, 1, 1);
    fake_done(t);
    expect_refused(t, DAVY_E_UNSUPPORTED, "blocks");

    expect_refused(reshaped(fake_spanf3(8, 1, 2, 4, 0), "to_pixel.eval_conv.weight", 0, 47), DAVY_E_SHAPE, "47 out");
    expect_refused(fake_spanf3(8, 1, 4, 2, 0), DAVY_E_UNSUPPORTED, "smaller");
    expect_refused(reshaped(fake_spanf3(8, 2, 2, 4, 1), "block_2.att_conv.weight", 1, 9), DAVY_E_SHAPE, "block_2");
    expect_refused(reshaped(fake_cugan(cugan_x2), "unet1.conv2_up.weight", 0, 63), DAVY_E_SHAPE, "unet1.conv2_up");
    expect_refused(reshaped(fake_cugan(cugan_x2), "unet2.conv3_up.weight", 1, 64), DAVY_E_SHAPE, "unet2.conv3_up");
    expect_refused(reshaped(fake_cugan(cugan_x2), "unet1.conv1.conv.0.weight", 1, 4), DAVY_E_UNSUPPORTED, "4 channels");
    expect_refused(reshaped(fake_upconv7(), "net.12.weight", 1, 4), DAVY_E_UNSUPPORTED, "3 channels in and 4 out");
    expect_refused(reshaped(fake_upconv7(), "net.6.weight", 1, 4), DAVY_E_SHAPE, "net.6");
    expect_refused(fake_omnisr(40, 1, 8, 2), DAVY_E_UNSUPPORTED, "40 features");
    expect_refused(fake_omnisr(64, 1, 100, 2), DAVY_E_UNSUPPORTED, "windows of");
    expect_refused(
        reshaped(fake_omnisr(64, 1, 8, 2), "residual_layer.0.residual_layer.0.layer.4.fn.dwconv.weight", 0, 9),
        DAVY_E_SHAPE, "4.fn.dwconv");
    expect_refused(reshaped(fake_omnisr(64, 1, 8, 2), "up.0.weight", 0, 13), DAVY_E_SHAPE, "13 outputs");
}

static void test_small_pictures(void) {
    dv_tensors *const all[] = {fake_plksr(real_x4),      fake_spanf3(8, 1, 2, 4, 0),
                               fake_cugan(cugan_x2),     fake_upconv7(),
                               fake_omnisr(32, 1, 7, 2), fake_cugan((fake_cugan_spec){12, 64, 4, 64, 12, 0})};
    static const int64_t scales[] = {4, 2, 2, 2, 2, 2};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        for (int64_t side = 1; side < 20; side += 3) {
            dv_graph *g = fake_build(all[k], NULL, DV_STAGE_UPSCALE, side, side / 2 + 1);
            if (CHECKF(g != NULL, "network %d, side %d: %s", (int)k, (int)side, last_error())) {
                const dv_shape y = dv_shape_of(g, g->output);
                CHECKF(y.h == side * scales[k] && y.w == (side / 2 + 1) * scales[k] && y.c == 3, "network %d: %d x %d",
                       (int)k, (int)y.w, (int)y.h);
            }
            dv_graph_release(g);
        }
        dv_tensors_release(all[k]);
    }
}

/* Changes every size of every tensor in turn: the file is rejected, or it builds and fuses without a fault. */
static void test_hostile_sizes(void) {
    static const int64_t sizes[] = {0, 1, 2, 5, 96, (int64_t)1 << 40};
    dv_tensors *const all[] = {
        fake_plksr((fake_plksr_spec){.real = 1, .nf = 8, .blocks = 1, .scale = 2, .k = 5, .gates = 1, .samples = 1}),
        fake_plksr((fake_plksr_spec){.nf = 8, .blocks = 1, .scale = 2, .k = 9, .large = 2}),
        fake_plksr((fake_plksr_spec){.nf = 8, .blocks = 1, .scale = 2, .k = 5, .large = 1, .gates = 1}),
        fake_spanf3(8, 1, 2, 4, 1),
        fake_cugan(cugan_x2),
        fake_upconv7(),
        fake_omnisr(32, 1, 4, 2),
    };
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
        int64_t refused = 0;
        for (int64_t i = 0; i < all[k]->count; i++) {
            dv_tensor_ref *ref = &all[k]->refs[i];
            for (int32_t axis = 0; axis < ref->ndim; axis++) {
                const int64_t size = ref->shape[axis];
                for (size_t v = 0; v < sizeof sizes / sizeof sizes[0]; v++) {
                    ref->shape[axis] = sizes[v];
                    dv_graph *g = fake_build(all[k], NULL, DV_STAGE_UPSCALE, 16, 16);
                    refused += g == NULL;
                    CHECKF(g == NULL || dv_fuse(g) == DAVY_OK, "%s [%d] = %d: %s", ref->name, (int)axis, (int)sizes[v],
                           last_error());
                    dv_graph_release(g);
                }
                ref->shape[axis] = size;
            }
        }
        CHECKF(refused > all[k]->count * 2, "network %d: %d of %d refused", (int)k, (int)refused, (int)all[k]->count);
        dv_tensors_release(all[k]);
    }
}

int main(void) {
    test_facts();
    test_numbers();
    check_transposed(2, 2, 0);
    check_transposed(4, 2, 3);
    check_transposed(5, 3, 2);
    test_refusals();
    test_small_pictures();
    test_hostile_sizes();
    return check_done();
}
