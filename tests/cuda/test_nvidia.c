/* test_nvidia.c - mocked cuDNN and cuBLASLt: found, rejected, measured, and combined with davy's kernels around them. */
#include "core/cuda/conv_nvidia.h"
#include "core/host/device.h"
#include "core/base/profile.h"
#include "tests/cuda/all_modules.h"
#include "tests/cuda/mock_use.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/hooks.h"

#define FOLDER MOCK_FOLDER "/nvidia"

static char logged[4096];

static void take_log(void *user, davy_log_level level, const char *text) {
    (void)user;
    (void)level;
    const size_t n = strlen(logged);
    snprintf(logged + n, sizeof logged - n, "%s\n", text);
}

static const dv_log a_log = {.fn = take_log, .level = DAVY_LOG_DEBUG};

static dv_gpu *open_with(const char *library_dir, bool nvidia) {
    const dv_gpu_desc desc = {.index = 0, .library_dir = library_dir, .heap = heap, .log = &a_log, .nvidia = nvidia};
    dv_gpu *g = NULL;
    logged[0] = '\0';
    OK(dv_gpu_open(&desc, &g));
    return g;
}

static void close_with(dv_gpu *g, const char *where) {
    dv_gpu_release(g);
    CHECKF(m->nvidia_handles == 0 && m->nvidia_parts == 0, "%s leaves %d handles, %d parts", where,
           (int)m->nvidia_handles, (int)m->nvidia_parts);
    balanced(where);
    CHECK(m->live == 0 && m->events == 0 && m->streams == 0);
    mock_call("mock_reset");
}

/* ---- single convolutions ---- */

static dvk_view view_of(dvk_dtype type, int64_t c, int64_t pixel, uintptr_t at) {
    return (dvk_view){.data = (void *)at,
                      .dtype = type,
                      .n = 1,
                      .h = 8,
                      .w = 12,
                      .c = c,
                      .sn = 96 * pixel,
                      .sh = 12 * pixel,
                      .sw = pixel};
}

static float vector[64];

/* A convolution from 32 to 64 channels with bias. */
static dvk_conv2d_args conv_of(int32_t k) {
    return (dvk_conv2d_args){.x = view_of(DVK_BF16, 32, 32, 4096),
                             .y = view_of(DVK_BF16, 64, 64, 65536),
                             .w = vector,
                             .epi = {.alpha = 1.0f, .bias = vector},
                             .kh = k,
                             .kw = k,
                             .stride = 1,
                             .pad_top = k / 2,
                             .pad_left = k / 2,
                             .upsample = 1,
                             .compute = DVK_BF16};
}

/* Runs it. Returns the launches of davy's kernels, less one for each missing run of the library; -1: no candidate. */
static int run_conv(dv_gpu *g, const dvk_conv2d_args *a, int *status) {
    int library = 0;
    const dvk_cuda_kernel *k = dv_conv_nvidia(a, dv_gpu_caps(g), &library);
    nv_conv *c = k != NULL ? nv_conv_find(g, library, a, true) : NULL;
    void *scratch = NULL;
    dv_gpu_queue *q = NULL;
    if (c == NULL) {
        return -1;
    }
    atomic_store(&c->chunks, 4);
    const uint64_t bytes = k->scratch_bytes(a, dv_gpu_caps(g));
    OK(dv_gpu_alloc(g, DV_MEM_WORKSPACE, bytes, "scratch", &scratch));
    OK(dv_gpu_queue_take(g, NULL, &q));
    const int64_t launches = m->launches;
    const int64_t runs = m->nvidia_runs;
    *status = k->enqueue(a, scratch, &q->base);
    OK(dv_gpu_queue_wait(q, NULL, NULL));
    const int n = (int)(m->launches - launches);
    CHECKF(*status != CU_OK || m->nvidia_runs == runs + 1, "%d runs", (int)(m->nvidia_runs - runs));
    dv_gpu_queue_give(q);
    dv_gpu_free(g, DV_MEM_WORKSPACE, scratch, bytes);
    return n;
}

static void expect(dv_gpu *g, const char *what, const dvk_conv2d_args *a, int launches, bool biased) {
    int status = CU_OK;
    const int n = run_conv(g, a, &status);
    CHECKF(n == launches && status == CU_OK && (n < 0 || (m->nvidia_biased != 0) == biased),
           "%s: %d launches, status %d, biased %d", what, n, status, m->nvidia_biased);
}

static void test_around(void) {
    dv_gpu *g = open_with(FOLDER, true);
    dvk_conv2d_args a = conv_of(3);
    expect(g, "3x3", &a, 0, true);
    a.epi.act = DVK_ACT_RELU;
    expect(g, "3x3 relu", &a, 0, true);
    a.epi.act = DVK_ACT_SILU;
    expect(g, "3x3 silu", &a, 1, false);
    a.epi.stats = vector;
    a.epi.stats_groups = 8;
    expect(g, "with statistics", &a, 2, false);
    a.pro.act = DVK_ACT_SILU;
    expect(g, "with a prologue", &a, 3, false);
    a = conv_of(3);
    a.x.sw = 40;
    a.x.sh = 12 * 40;
    a.x.sn = 96 * 40;
    expect(g, "a slice", &a, 1, true);
    a = conv_of(1);
    expect(g, "1x1", &a, 1, true); /* converts the bias to 16 bits */
    a.x.sw = 40;
    a.x.sh = 12 * 40;
    expect(g, "1x1 of a slice", &a, 1, true);
    a.epi.n_res = 1;
    a.epi.res[0] = a.y;
    a.epi.beta[0] = 1.0f;
    expect(g, "1x1 + residual", &a, 1, false);
    a = conv_of(3);
    a.stride = 2;
    a.pad_top = a.pad_left = 0;
    a.y.h = 4;
    a.y.w = 6;
    a.y.sh = 6 * 64;
    expect(g, "half size, padded behind", &a, 0, true);
    a.y.h = 3; /* one row less than possible */
    expect(g, "half size, short", &a, 0, true);
    a.y.h = 2;
    expect(g, "half size, shorter still", &a, -1, false);
    a = conv_of(3);
    a.x.c = 20;
    expect(g, "20 channels", &a, -1, false);
    a = conv_of(3);
    a.upsample = 2;
    expect(g, "upsampled", &a, -1, false);
    a = conv_of(3);
    a.compute = DVK_F32;
    expect(g, "f32", &a, -1, false);
    CHECK(strstr(logged, "cuDNN 91900 may compute") != NULL && nv_cudnn_version() == 91900);
    close_with(g, "around");
}

static void test_refusals(void) {
    static const int launches[] = {0, -1, -1, 1};
    const dvk_conv2d_args a[2] = {conv_of(1), conv_of(3)};
    for (int refuses = 1; refuses <= 3; refuses++) {
        dv_gpu *g = open_with(FOLDER, true);
        m->nvidia_refuses = refuses;
        expect(g, "refused, cuBLASLt", &a[0], launches[refuses], false);
        expect(g, "refused, cuDNN", &a[1], launches[refuses], false);
        CHECK(refuses != 1 || strstr(logged, "does not start") != NULL);
        close_with(g, "refused");
    }
    dv_gpu *g = open_with(FOLDER, true);
    int status = CU_OK;
    m->nvidia_refuses = 4;
    CHECK(run_conv(g, &a[1], &status) == 0 && status == CU_NOT_SUPPORTED && strstr(logged, "failed with") != NULL);
    m->nvidia_refuses = 0;
    CHECK(run_conv(g, &a[1], &status) == 0 && status == CU_OK);
    close_with(g, "run");
}

static void test_loading(void) {
    const dvk_conv2d_args a = conv_of(3);
    const dvk_conv2d_args b = conv_of(1);
    for (int version = 8; version <= 11; version += 3) {
        dv_gpu *g = open_with(FOLDER, true);
        m->nvidia_version = version;
        expect(g, "another cuDNN", &a, -1, false);
        CHECKF(strstr(logged, "it is not used") != NULL && strstr(logged, "no cuDNN") != NULL, "log: %s", logged);
        close_with(g, "version");
    }
    dv_gpu *g = open_with(FOLDER "/incomplete", true);
    expect(g, "incomplete", &a, -1, false);
    CHECKF(strstr(logged, "has no cudnnSetStream") != NULL, "log: %s", logged);
    close_with(g, "incomplete");
    g = open_with(FOLDER, false);
    expect(g, "not wanted", &a, -1, false);
    CHECK(strstr(logged, "cuDNN") == NULL);
    close_with(g, "not wanted");
    if (dlopen("libcudnn.so.9", RTLD_LAZY) == NULL && dlopen("libcublasLt.so.13", RTLD_LAZY) == NULL) {
        g = open_with(MOCK_FOLDER "/nowhere", true);
        expect(g, "absent", &a, -1, false);
        expect(g, "absent", &b, -1, false);
        CHECK(strstr(logged, "no cuDNN") != NULL && strstr(logged, "no cuBLASLt") != NULL);
        close_with(g, "absent");
    }
}

/* ---- measuring ---- */

/* Runs a network of 3x3 convolutions with 16 channels. Returns whether cuDNN was in the profile. */
static bool run_network(dv_gpu *g, const char *where) {
    dv_services services = {.heap = heap, .log = &a_log, .gpus = &g, .n_gpus = 1, .profile = dv_profile_create()};
    dv_tensors *t = fake_compact(16, 2, 2);
    float *data = NULL;
    dv_engine *engine = NULL;
    CHECK(fake_fill(t, &data) && dv_pool_create(1, &services.pool) == DAVY_OK);
    const dv_engine_desc desc = {.services = &services, .tensors = t, .file_name = "mock"};
    OK(dv_engine_create(&desc, &engine));
    float *in = calloc(3 * 50 * 60, sizeof *in);
    float *out = calloc(12 * 50 * 60, sizeof *out);
    const dv_work w = {.stage = DV_STAGE_UPSCALE,
                       .in = planes(in, 3, 50, 60),
                       .out = planes(out, 3, 100, 120),
                       .in_mul = 1.0f,
                       .out_mul = 1.0f};
    for (int i = 0; i < 3; i++) { /* the third run launches a captured graph */
        CHECKF(dv_engine_run(engine, &w) == DAVY_OK, "%s: %s", where, last_error());
    }
    dv_profile_start(services.profile);
    CHECKF(dv_engine_run(engine, &w) == DAVY_OK, "%s: %s", where, last_error());
    dv_profile_stop(services.profile);
    char *json = dv_profile_json(services.profile);
    const bool theirs = strstr(json, "cuda/cudnn") != NULL;
    CHECK(strstr(json, "conv2d cuda/") != NULL);
    dv_free(json);
    dv_engine_release(engine);
    dv_pool_release(services.pool);
    dv_profile_release(services.profile);
    free(data);
    free(in);
    free(out);
    return theirs;
}

static void test_measured(void) {
    for (int fast = 0; fast < 2; fast++) {
        dv_gpu *g = open_with(FOLDER, true);
        m->nvidia_ms = fast ? -0.5 : 0.5; /* with the launch after it, less or more time than davy's kernel */
        CHECK(run_network(g, "measured") == (fast == 1));
        CHECKF(strstr(logged, "cuda/cudnn ") != NULL, "log: %s", logged);
        const int64_t runs = m->nvidia_runs;
        logged[0] = '\0';
        m->nvidia_ms = fast ? 10.0 : -10.0; /* already measured */
        CHECK(run_network(g, "again") == (fast == 1));
        CHECK(strstr(logged, "cuda/cudnn ") == NULL && (m->nvidia_runs > runs) == (fast == 1));
        close_with(g, "measured");
    }
    dv_gpu *g = open_with(FOLDER, true);
    m->nvidia_ms = -0.5;
    m->nvidia_refuses = 4;
    CHECK(!run_network(g, "failing"));
    close_with(g, "failing");
    g = open_with(FOLDER, true);
    dv_gpu_set_budget(g, 8 << 20); /* no room for the library's workspace */
    m->nvidia_ms = -0.5;
    CHECK(!run_network(g, "short of memory"));
    CHECKF(strstr(logged, "no room") != NULL, "log: %s", logged);
    dv_gpu_set_budget(g, 1 << 30);
    const uint64_t all = m->device_bytes;
    m->device_bytes = 24 << 20;
    CHECK(!run_network(g, "a full device"));
    m->device_bytes = all;
    CHECK(run_network(g, "with memory"));
    close_with(g, "memory");
}

static void test_option(void) {
    bool on = false;
    OK(dv_env_nvidia(true, "1", &on));
    CHECK(on);
    CHECK(dv_env_nvidia(true, "yes", &on) == DAVY_E_OPTION);
    SAYS("nvidia_libraries");
    setenv("DAVY_NVIDIA_LIBRARIES", "1", 1);
    OK(dv_env_nvidia(true, NULL, &on));
    CHECK(on);
    OK(dv_env_nvidia(true, "0", &on));
    CHECK(!on);
    OK(dv_env_nvidia(false, NULL, &on));
    CHECK(!on);
    setenv("DAVY_NVIDIA_LIBRARIES", "often", 1);
    CHECK(dv_env_nvidia(true, NULL, &on) == DAVY_E_OPTION);
    SAYS("DAVY_NVIDIA_LIBRARIES");
    unsetenv("DAVY_NVIDIA_LIBRARIES");
}

int main(void) {
    heap = dv_heap_create(NULL, 0);
    mock_use(MOCK_FOLDER "/libmock_cuda.so");
    use_all_modules();
    mock_call("mock_reset");
    test_option();
    test_around();
    test_refusals();
    test_loading();
    test_measured();
    dv_heap_release(heap);
    return check_done();
}
