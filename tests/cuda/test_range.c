/* test_range.c - an autoencoder whose sums exceed 65504 many times over, in F16 on the device and in F32 on the CPU: the same picture, no
 * infinities. Skipped without a usable GPU. */
#include <math.h>

#include "core/cuda/gpu.h"
#include "tests/lib/check.h"
#include "tests/lib/fake_networks.h"

enum { Z = 4, SIDE = 24, FACTOR = 2, LARGE = 100000 };

/* The sums of the blocks become large. */
static void enlarge(const dv_tensors *t, float *data) {
    for (int64_t i = 0; i < t->count; i++) {
        const dv_tensor_ref *ref = &t->refs[i];
        if (strstr(ref->name, "conv_in.") != NULL || strstr(ref->name, "conv2.") != NULL ||
            strstr(ref->name, "proj_out.") != NULL) {
            for (uint64_t k = 0; k < ref->bytes / 4; k++) {
                data[ref->offset / 4 + k] *= (float)LARGE;
            }
        }
    }
}

/* A .safetensors file in memory; the caller frees it. */
static unsigned char *write_weights(const dv_tensors *t, const float *data, uint64_t *bytes) {
    uint64_t payload = 0;
    for (int64_t i = 0; i < t->count; i++) {
        payload += t->refs[i].bytes;
    }
    const uint64_t room = 8 + (uint64_t)t->count * 256 + 16;
    unsigned char *file = calloc((size_t)(room + payload), 1);
    char *text = (char *)file + 8;
    size_t n = (size_t)snprintf(text, room, "{");
    for (int64_t i = 0; i < t->count; i++) {
        const dv_tensor_ref *ref = &t->refs[i];
        n += (size_t)snprintf(text + n, room - n, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[", i > 0 ? "," : "",
                              ref->name);
        for (int32_t k = 0; k < ref->ndim; k++) {
            n += (size_t)snprintf(text + n, room - n, "%s%lld", k > 0 ? "," : "", (long long)ref->shape[k]);
        }
        n += (size_t)snprintf(text + n, room - n, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)ref->offset,
                              (unsigned long long)(ref->offset + ref->bytes));
    }
    text[n++] = '}';
    while (n % 8 != 0) {
        text[n++] = ' ';
    }
    for (int i = 0; i < 8; i++) {
        file[i] = (unsigned char)((uint64_t)n >> (8 * i));
    }
    memcpy(file + 8 + n, data, (size_t)payload);
    *bytes = 8 + n + payload;
    return file;
}

static davy_tensor tensor_of(float *data, int64_t h, int64_t w, int64_t c) {
    davy_tensor t = {.struct_size = sizeof t, .memory = DAVY_MEMORY_HOST, .dtype = DAVY_DTYPE_F32};
    t.layout = DAVY_LAYOUT_HWC;
    t.range = DAVY_RANGE_RAW;
    t.channels = c == 3 ? DAVY_CHANNELS_RGB : DAVY_CHANNELS_LATENT;
    t.ndim = 3;
    t.shape[0] = h;
    t.shape[1] = w;
    t.shape[2] = c;
    t.data = (uint64_t)(uintptr_t)data;
    return t;
}

/* Latent to picture and picture to latent. */
static void compute(const davy_api *api, const davy_source *source, const char *device, davy_dtype dtype, float *latent,
                    float *picture, float *picture_out, float *latent_out) {
    const davy_context_desc desc = {.struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .device = device};
    const davy_model_desc model_desc = {
        .struct_size = sizeof model_desc, .sources = source, .n_sources = 1, .compute = dtype};
    davy_context *ctx = NULL;
    davy_model *model = NULL;
    davy_tensor z = tensor_of(latent, SIDE, SIDE, Z);
    davy_tensor x = tensor_of(picture, SIDE * FACTOR, SIDE * FACTOR, 3);
    davy_tensor x_out = tensor_of(picture_out, SIDE * FACTOR, SIDE * FACTOR, 3);
    davy_tensor z_out = tensor_of(latent_out, SIDE, SIDE, Z);
    davy_error_info e = {.struct_size = sizeof e};
    davy_result r = api->context_create(&desc, &ctx);
    r = r < 0 ? r : api->model_open(ctx, &model_desc, &model);
    r = r < 0 ? r : api->vae_decode(model, &z, &x_out, NULL, NULL);
    r = r < 0 ? r : api->vae_encode(model, &x, &z_out, NULL, NULL);
    api->last_error(&e);
    CHECKF(r == DAVY_OK, "%s: %s", device, e.message);
    api->model_release(model);
    api->context_release(ctx);
}

static void compare(const char *what, const float *have, const float *want, int n, double bound) {
    double top = 0.0;
    double worst = 0.0;
    for (int i = 0; i < n; i++) {
        const double d = fabs((double)have[i] - (double)want[i]);
        top = fabs((double)want[i]) > top ? fabs((double)want[i]) : top;
        worst = d > worst || !(d <= worst) ? d : worst;
    }
    printf("%s: largest error %.2e of %.2e\n", what, worst, top);
    CHECKF(worst <= bound * top, "%s differs by %g of %g", what, worst, top);
}

int main(void) {
    static float latent[SIDE * SIDE * Z], picture[SIDE * SIDE * FACTOR * FACTOR * 3];
    static float x[2][SIDE * SIDE * FACTOR * FACTOR * 3], z[2][SIDE * SIDE * Z];
    const fake_kl_spec spec = {.names = 0, .z = Z, .quant = 1, .levels = 2, .enc = {64, 128}, .dec = {64, 128}};
    const davy_api *api = davy_get_api(DAVY_ABI_VERSION);
    int32_t index = 0;
    float *data = NULL;
    davy_source source = {.struct_size = sizeof source, .role = DAVY_SOURCE_WEIGHTS, .name = "vae.safetensors"};
    if (dv_gpu_find(NULL, "cuda", &index) != DAVY_OK) {
        check_skip("no GPU");
        return check_done();
    }
    dv_tensors *t = fake_kl(spec);
    CHECK(fake_fill(t, &data));
    enlarge(t, data);
    unsigned char *file = write_weights(t, data, &source.data_bytes);
    source.data = file;
    for (size_t i = 0; i < DV_ARRAY_LEN(latent); i++) {
        latent[i] = (float)(i * 7919 % 1001) / 500.0f - 1.0f;
    }
    for (size_t i = 0; i < DV_ARRAY_LEN(picture); i++) {
        picture[i] = (float)(i * 104729 % 997) / 498.0f - 1.0f;
    }
    compute(api, &source, "cpu", DAVY_DTYPE_F32, latent, picture, x[0], z[0]);
    compute(api, &source, "cuda", DAVY_DTYPE_F16, latent, picture, x[1], z[1]);
    compare("decoded in F16", x[1], x[0], (int)DV_ARRAY_LEN(picture), 2e-2);
    compare("encoded in F16", z[1], z[0], (int)DV_ARRAY_LEN(latent), 2e-2);
    dv_tensors_release(t);
    free(data);
    free(file);
    return check_done();
}
