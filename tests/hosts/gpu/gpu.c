/* gpu.c - a host's choice of GPUs: the list, selectors, the environment, budgets, smaller tiles if memory is short. It uses a mock
 * of the driver, so it runs on every machine. */
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hosts/gpu/gpu_mock.h"

static void the_list(void) {
    davy_device_info d = {.struct_size = sizeof d};
    int32_t n = 0;
    IS(api->device_count(NULL, &n), DAVY_OK);
    CHECK(n == 3);
    IS(api->device_info(NULL, 0, &d), DAVY_OK);
    CHECK(d.kind == DAVY_DEVICE_CPU && d.index == 0 && strcmp(d.selector, "cpu") == 0);
    IS(api->device_info(NULL, 1, &d), DAVY_OK);
    CHECK(d.kind == DAVY_DEVICE_CUDA && d.index == 0 && strcmp(d.selector, "cuda:0") == 0 && d.reason[0] == '\0');
    CHECK(d.compute_major == 9 && (d.features & DAVY_FEATURE_BF16) != 0 && d.memory_total_bytes > 0);
    mock->device[1].major = 5;
    IS(api->device_info(NULL, 2, &d), DAVY_OK);
    CHECKF(d.index == 1 && strstr(d.reason, "5.6") != NULL, "%s: %s", d.selector, d.reason);
    IS(api->device_info(NULL, 3, &d), DAVY_E_NOT_FOUND);
    mock->n_devices = 0;
    IS(api->device_count(NULL, &n), DAVY_OK);
    CHECK(n == 1);
    mock_again();
}

/* gpu: the log line that names the opened GPU; "": the CPU. */
static void opens(const char *device, const char *gpu) {
    davy_context *ctx = NULL;
    const davy_result r = open_on(device, 0, &ctx);
    CHECKF(r == DAVY_OK, "%s: %s", device != NULL ? device : "NULL", host_error(api));
    if (r == DAVY_OK) {
        const davy_memory_info m = memory_of(ctx);
        CHECKF((strstr(heard, "computes") != NULL) == (gpu[0] != '\0') && strstr(heard, gpu) != NULL,
               "%s does not open \"%s\": %s", device != NULL ? device : "NULL", gpu, heard);
        CHECK((m.device_budget_bytes > 0) == (gpu[0] != '\0'));
    }
    api->context_release(ctx);
}

static void refuses(const char *device, davy_result want, const char *words) {
    davy_context *ctx = NULL;
    const davy_result r = open_on(device, 0, &ctx);
    CHECKF(r == want && ctx == NULL, "%s: %s, expected %s (%s)", device, api->result_name(r), api->result_name(want),
           host_error(api));
    SAYS(words);
}

static void selectors(void) {
    opens(NULL, "cuda:0 computes");
    opens("auto", "cuda:0 computes");
    opens("cpu", "");
    opens("cuda", "cuda:0 computes");
    opens("cuda:1", "cuda:1 computes");
    opens("cuda:0,cuda:1", "cuda:1 computes");
    opens("cuda:uuid=GPU-1234ff78", "cuda:1 computes");
    refuses("cuda:7", DAVY_E_DEVICE, "cuda:7");
    refuses("cuda:uuid=1234", DAVY_E_DEVICE, "more than one");
    refuses("cuda:x", DAVY_E_INVALID, "cuda:x");
    refuses("cuda:0,cuda:0", DAVY_E_INVALID, "twice");
    refuses("cpu,cuda:0", DAVY_E_INVALID, "expected");
    refuses("cuda:0,", DAVY_E_INVALID, "expected");
    mock->device[0].major = 5; /* the first one is too old */
    opens("auto", "cuda:1 computes");
    HEARD("cuda:0 (Mock GPU A) is not used");
    refuses("cuda:0", DAVY_E_DEVICE, "compute capability");
    mock->n_devices = 1;
    opens("auto", "");
    HEARD("compute capability");
    refuses("cuda", DAVY_E_DEVICE, "compute capability");
    mock->n_devices = 0;
    opens("auto", "");
    HEARD("no GPU: ");
    refuses("cuda", DAVY_E_DEVICE, "no device");
    mock_again();
    mock_is_empty("selectors");
}

static void environment(void) {
    davy_context *ctx = NULL;
    setenv("DAVY_DEVICE", "cpu", 1);
    opens("auto", "");
    opens("cuda:1", "cuda:1 computes"); /* the host's choice overrides the environment */
    setenv("DAVY_DEVICE", "cuda:1", 1);
    opens(NULL, "cuda:1 computes");
    const davy_context_desc deaf = {.struct_size = sizeof deaf,
                                    .abi_version = DAVY_ABI_VERSION,
                                    .device_budget_bytes = 12345678,
                                    .flags = DAVY_CONTEXT_NO_ENVIRONMENT};
    mock->device[1].major = 5;
    IS(api->context_create(&deaf, &ctx), DAVY_OK);
    CHECK(memory_of(ctx).device_budget_bytes == 12345678);
    api->context_release(ctx);
    refuses("auto", DAVY_E_DEVICE, "compute capability"); /* requested by the environment, so the CPU is no fallback */
    setenv("DAVY_DEVICE", "tpu", 1);
    refuses(NULL, DAVY_E_OPTION, "DAVY_DEVICE");
    unsetenv("DAVY_DEVICE");
    mock_again();
}

static void upscales(davy_model *m, int64_t side, davy_result want) {
    picture in = picture_new(1, side, side, 3), out = {0};
    const davy_result r = host_upscale(api, m, &in, NULL, &out);
    CHECKF(r == want, "%lld x %lld: %s, expected %s (%s)", (long long)side, (long long)side, api->result_name(r),
           api->result_name(want), host_error(api));
    picture_free(&in);
    picture_free(&out);
}

static void budgets(void) {
    davy_context *ctx = NULL;
    davy_model *a = NULL, *b = NULL;
    IS(open_on("cuda:0", 64u << 20, &ctx), DAVY_OK);
    IS(host_open_small(api, ctx, &a), DAVY_OK);
    IS(host_open_small(api, ctx, &b), DAVY_OK);
    upscales(a, 200, DAVY_OK);
    davy_memory_info m = memory_of(ctx);
    CHECK(m.device_budget_bytes == 64u << 20 && m.device_weights_bytes > 0 && m.device_workspace_bytes > 0);
    CHECK(m.device_peak_bytes >= m.device_weights_bytes + m.device_workspace_bytes);
    IS(api->context_trim(ctx, UINT64_MAX, UINT64_MAX), DAVY_OK);
    CHECK(memory_of(ctx).device_workspace_bytes == m.device_workspace_bytes);
    IS(api->context_trim(ctx, m.device_weights_bytes, UINT64_MAX), DAVY_OK); /* frees arenas first */
    m = memory_of(ctx);
    CHECK(m.device_workspace_bytes == 0 && m.device_weights_bytes > 0);
    IS(api->context_trim(ctx, 0, 0), DAVY_OK);
    m = memory_of(ctx);
    CHECK(m.device_weights_bytes == 0 && m.device_cache_bytes == 0 && mock->live == 0);
    upscales(a, 200, DAVY_OK); /* loads the weights again */
    upscales(b, 200, DAVY_OK);
    /* A budget below the need of both models: idle weights and arenas are freed, then tiles become smaller. */
    for (uint64_t budget = 32u << 20; budget >= 2u << 20; budget /= 2) {
        IS(api->context_budget(ctx, budget, 0), DAVY_OK);
        m = memory_of(ctx);
        CHECK(m.device_budget_bytes == budget && m.device_weights_bytes + m.device_workspace_bytes <= budget);
        upscales(a, 300, DAVY_OK);
        upscales(b, 300, DAVY_OK);
    }
    IS(api->context_budget(ctx, 4096, 0), DAVY_OK);
    upscales(a, 300, DAVY_E_BUDGET);
    IS(api->context_budget(ctx, 0, 0), DAVY_OK); /* back to nine tenths of the free memory */
    CHECK(memory_of(ctx).device_budget_bytes > 64u << 20);
    upscales(a, 300, DAVY_OK);
    api->model_release(a);
    api->model_release(b);
    api->context_release(ctx);
    mock_is_empty("budgets");
}

/* Other programs have filled the device, although the budget is not used up. */
static void full_device(void) {
    davy_context *ctx = NULL;
    davy_model *m = NULL;
    for (int64_t at = 1; at <= 6; at++) {
        mock_again();
        IS(open_on("cuda:0", 0, &ctx), DAVY_OK);
        IS(host_open_small(api, ctx, &m), DAVY_OK);
        mock->fail_alloc_at = at;
        picture in = picture_new(1, 64, 64, 3), out = {0};
        const davy_result r = host_upscale(api, m, &in, NULL, &out);
        CHECKF(r == DAVY_OK || r == DAVY_E_NOMEM_DEVICE, "allocation %lld fails: %s (%s)", (long long)at,
               api->result_name(r), host_error(api));
        mock->fail_alloc_at = 0;
        picture_free(&out);
        upscales(m, 64, DAVY_OK);
        api->model_release(m);
        api->context_release(ctx);
        picture_free(&in);
        mock_is_empty("a full device");
    }
}

typedef struct lender {
    int64_t live, calls;
    int refuse;
} lender;

static uint64_t DAVY_CALL lend_device(void *user, int32_t device, uint64_t bytes, void *stream) {
    lender *l = user;
    (void)stream;
    CHECK(device == 0);
    if (l->refuse) {
        return 0;
    }
    l->live++;
    l->calls++;
    return (uint64_t)(uintptr_t)aligned_alloc(256, (bytes + 255) / 256 * 256);
}

static void DAVY_CALL take_device(void *user, int32_t device, uint64_t ptr, uint64_t bytes, void *stream) {
    lender *l = user;
    (void)device;
    (void)bytes;
    (void)stream;
    l->live--;
    free((void *)(uintptr_t)ptr);
}

static void memory_of_the_host(void) {
    lender l = {0};
    const davy_host host = {
        .struct_size = sizeof host, .user = &l, .device_alloc = lend_device, .device_free = take_device};
    const davy_context_desc d = {
        .struct_size = sizeof d, .abi_version = DAVY_ABI_VERSION, .host = &host, .device = "cuda:0"};
    davy_context *ctx = NULL;
    davy_model *m = NULL;
    mock_again();
    IS(api->context_create(&d, &ctx), DAVY_OK);
    IS(host_open_small(api, ctx, &m), DAVY_OK);
    upscales(m, 64, DAVY_OK);
    CHECK(l.calls > 0 && l.live > 0 && mock->allocs == 0);
    IS(api->context_trim(ctx, 0, 0), DAVY_OK);
    CHECKF(l.live == 0, "%lld blocks of the host are kept", (long long)l.live);
    l.refuse = 1;
    picture in = picture_new(1, 64, 64, 3), out = {0};
    const davy_result r = host_upscale(api, m, &in, NULL, &out);
    CHECKF(r == DAVY_E_NOMEM_DEVICE || r == DAVY_E_BUDGET, "a host that lends nothing: %s", api->result_name(r));
    picture_free(&in);
    l.refuse = 0;
    upscales(m, 64, DAVY_OK);
    api->model_release(m);
    api->context_release(ctx);
    CHECK(l.live == 0);
    mock_is_empty("memory of the host");
}

/* The host's CUDA context determines the GPU. */
static void context_of_the_host(void) {
    static const struct {
        const char *device;
        davy_result want;
    } cases[] = {{NULL, DAVY_OK},
                 {"cuda", DAVY_OK},
                 {"cuda:1", DAVY_OK},
                 {"cuda:0", DAVY_E_INVALID},
                 {"cuda:0,cuda:1", DAVY_E_INVALID}};
    int (*retain)(void **, int) = NULL, (*release)(int) = NULL;
    void *const found[] = {dlsym(mock_library, "cuDevicePrimaryCtxRetain"),
                           dlsym(mock_library, "cuDevicePrimaryCtxRelease_v2")};
    void *theirs = NULL;
    memcpy(&retain, &found[0], sizeof retain);
    memcpy(&release, &found[1], sizeof release);
    mock_again();
    CHECK(retain(&theirs, 1) == 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const davy_host host = {.struct_size = sizeof host, .log_level = DAVY_LOG_INFO, .log = hear_all};
        const davy_context_desc d = {.struct_size = sizeof d,
                                     .abi_version = DAVY_ABI_VERSION,
                                     .host = &host,
                                     .device = cases[i].device,
                                     .cuda_context = theirs};
        davy_context *ctx = NULL;
        heard[0] = '\0';
        IS(api->context_create(&d, &ctx), cases[i].want);
        if (ctx != NULL) {
            davy_model *m = NULL;
            HEARD("cuda:1 computes");
            IS(host_open_small(api, ctx, &m), DAVY_OK);
            upscales(m, 64, DAVY_OK);
            api->model_release(m);
        }
        api->context_release(ctx);
        CHECK(mock->retained == 1);
    }
    CHECK(release(1) == 0);
    mock_is_empty("a context of the host");
}

/* A forked child gets E_FORKED and does not call the driver, not even in a release. */
static void forked(void) {
    davy_context *ctx = NULL;
    davy_model *m = NULL;
    davy_buffer *buffer = NULL;
    mock_again();
    IS(open_on("cuda:0", 0, &ctx), DAVY_OK);
    IS(host_open_small(api, ctx, &m), DAVY_OK);
    upscales(m, 64, DAVY_OK);
    IS(api->buffer_alloc(ctx, DAVY_MEMORY_CUDA, 4096, &buffer), DAVY_OK);
    const pid_t child = fork();
    if (child == 0) {
        const int64_t before = mock->pushes;
        davy_memory_info info = {.struct_size = sizeof info};
        int wrong = api->context_memory(ctx, &info) != DAVY_E_FORKED;
        api->buffer_release(buffer);
        api->model_release(m);
        api->context_release(ctx);
        wrong |= mock->pushes != before || mock->live == 0;
        _exit(wrong);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    upscales(m, 64, DAVY_OK);
    api->buffer_release(buffer);
    api->model_release(m);
    api->context_release(ctx);
    mock_is_empty("a fork");
}

int main(void) {
    unsetenv("DAVY_DEVICE");
    mock_begin();
    if (!host_has_device_code(api, "hosts.gpu")) {
        return check_done();
    }
    the_list();
    selectors();
    environment();
    budgets();
    full_device();
    memory_of_the_host();
    context_of_the_host();
    forked();
    return check_done();
}
