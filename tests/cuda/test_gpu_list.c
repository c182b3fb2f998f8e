/* test_gpu_list.c - finds the driver and its devices, on the mock. A driver stays loaded for the life of a process, so each case has its
 * own process. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda/mock_use.h"
#include "tests/lib/hooks.h"

static void in_child(const char *name, void (*fn)(void)) {
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        check_passed = 0;
        check_failed = 0;
        fn();
        _exit(check_failed == 0 && check_passed > 0 ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    CHECKF(status == 0, "%s", name);
}

static void expect_none(const char *words) {
    char why[256] = "";
    davy_device_info info;
    int32_t index = -1;
    const dv_gpu_desc desc = {.index = 0};
    dv_gpu *g = NULL;
    for (int round = 0; round < 2; round++) {
        why[0] = '\0';
        CHECK(dv_gpu_count(NULL, why, sizeof why) == 0);
        CHECKF(strstr(why, words) != NULL, "\"%s\" is not in: %s", words, why);
    }
    CHECK(dv_gpu_count(NULL, NULL, 0) == 0);
    CHECK(dv_gpu_describe(NULL, 0, &info) < 0);
    CHECK(dv_gpu_find(NULL, "cuda", &index) == DAVY_E_DEVICE);
    SAYS(words);
    CHECK(dv_gpu_open(&desc, &g) == DAVY_E_DEVICE && g == NULL);
    SAYS(words);
}

static void no_file(void) {
    setenv("DAVY_CUDA_DRIVER", "/nowhere/libcuda.so.1", 1);
    expect_none("/nowhere/libcuda.so.1");
}

static void not_installed(void) {
    unsetenv("DAVY_CUDA_DRIVER");
    char why[256] = "";
    if (dv_gpu_count("/nowhere", why, sizeof why) == 0 && strstr(why, "was not found") != NULL) {
        expect_none("was not found");
    } else {
        CHECK(1); /* this machine has a driver */
    }
}

static void not_a_driver(void) {
    setenv("DAVY_CUDA_DRIVER", MOCK_FOLDER "/libmock_other.so", 1);
    expect_none("has no cuInit");
}

static void init_fails(void) {
    mock_use(MOCK_FOLDER "/libmock_cuda.so");
    m->init_result = 803;
    expect_none("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH");
}

static void no_devices(void) {
    mock_use(MOCK_FOLDER "/libmock_cuda.so");
    m->n_devices = 0;
    expect_none("finds no device");
}

/* The device is listed with a reason. */
static void expect_reason(const char *words) {
    davy_device_info info;
    int32_t index = -1;
    const dv_gpu_desc desc = {.index = 0};
    dv_gpu *g = NULL;
    CHECK(dv_gpu_count(NULL, NULL, 0) == 2);
    OK(dv_gpu_describe(NULL, 0, &info));
    CHECKF(strstr(info.reason, words) != NULL, "%s", info.reason);
    CHECK(strcmp(info.name, "Mock GPU A") == 0 && info.memory_total_bytes == (uint64_t)4 << 30);
    CHECK(dv_gpu_find(NULL, "cuda:0", &index) == DAVY_E_DEVICE);
    SAYS(words);
    CHECK(dv_gpu_open(&desc, &g) == DAVY_E_DEVICE && g == NULL);
    SAYS(words);
}

static void too_old(void) {
    mock_use(MOCK_FOLDER "/libmock_cuda.so");
    m->version = 12040;
    expect_reason("it supports CUDA 12.4, davy needs 13.0 or newer");
}

static void incomplete(void) {
    mock_use(MOCK_FOLDER "/libmock_incomplete.so");
    expect_reason("has no cuEventElapsedTime");
}

static void no_device_code(void) {
    mock_use(MOCK_FOLDER "/libmock_cuda.so");
    dv_gpu_use_modules(mock_modules, 0);
    expect_reason("has no device code");
}

/* If memory runs out during the search for the driver, the next call searches again. */
static void short_of_memory(void) {
    mock_use(MOCK_FOLDER "/libmock_cuda.so");
    davy_device_info info;
    int32_t index = -1;
    int failures = 0;
    for (davy_result r = DAVY_E_NOMEM_HOST; r != DAVY_OK && failures < 100; failures += r != DAVY_OK) {
        dv_alloc_fail_after(failures);
        r = dv_gpu_find("/nowhere", "cuda:1", &index);
        dv_alloc_fail_after(-1);
        CHECKF(r == DAVY_OK || r == DAVY_E_NOMEM_HOST, "allocation %d: %s", failures, last_error());
    }
    CHECKF(failures > 0 && failures < 100 && index == 1, "%d failures", failures);
    OK(dv_gpu_describe(NULL, 0, &info));
}

static void init_short_of_memory(void) {
    mock_use(MOCK_FOLDER "/libmock_cuda.so");
    int32_t index = -1;
    m->init_result = 2;
    CHECK(dv_gpu_find(NULL, "cuda:0", &index) == DAVY_E_NOMEM_HOST);
    SAYS("did not start");
    m->init_result = 0;
    OK(dv_gpu_find(NULL, "cuda:0", &index));
}

/* After a failure another folder is tried. A driver beside the program is preferred to the system's. */
static void library_dir(void) {
    char why[256] = "";
    char folder[] = MOCK_FOLDER "/driver-XXXXXX";
    char path[sizeof folder + 32];
    unsetenv("DAVY_CUDA_DRIVER");
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/libcuda.so.1", folder);
    CHECK(symlink(MOCK_FOLDER "/libmock_cuda.so", path) == 0);
    if (dv_gpu_count("/nowhere", why, sizeof why) == 0) { /* otherwise this machine has a driver */
        CHECK(dv_gpu_count(folder, why, sizeof why) == 2);
        CHECK(dv_gpu_count(NULL, NULL, 0) == 2); /* loaded: every caller gets it */
    }
    unlink(path);
    rmdir(folder);
}

static void expect_found(const char *selector, int32_t want) {
    int32_t index = -1;
    CHECKF(dv_gpu_find(NULL, selector, &index) == DAVY_OK && index == want, "%s gives %d: %s", selector, (int)index,
           last_error());
}

static void expect_not_found(const char *selector, davy_result want, const char *words) {
    int32_t index = -1;
    const davy_result r = dv_gpu_find(NULL, selector, &index);
    CHECKF(r == want, "%s gives %d", selector, (int)r);
    SAYS(words);
}

static void selectors(void) {
    expect_found("cuda", 0);
    expect_found("cuda:0", 0);
    expect_found("cuda:1", 1);
    expect_found("cuda:uuid=GPU-12345678-9abc-def0-0102-030405060708", 0);
    expect_found("cuda:uuid=123456789ABCDEF00102030405060708", 0);
    expect_found("cuda:uuid=gpu-1234ff", 1);
    expect_found("cuda:uuid=12345", 0);
    expect_found("cuda:pci=0000:01:00.0", 0);
    expect_found("cuda:pci=01:00.0", 0);
    expect_found("cuda:pci=01:00", 0);
    expect_found("cuda:pci=00000000:01:00.0", 0);
    expect_found("cuda:pci=0001:c1:00.0", 1);
    expect_not_found("cuda:2", DAVY_E_DEVICE, "has 2");
    expect_not_found("cuda:uuid=1234", DAVY_E_DEVICE, "more than one");
    expect_not_found("cuda:uuid=GPU-9999", DAVY_E_DEVICE, "no device");
    expect_not_found("cuda:pci=0000:02:00.0", DAVY_E_DEVICE, "no device");
    const char *const wrong[] = {"cpu",
                                 "cuda:",
                                 "cuda:-1",
                                 "cuda:x",
                                 "cuda:1x",
                                 "cuda:uuid=",
                                 "cuda:uuid=GPU-xyz",
                                 "cuda:pci=",
                                 "cuda:pci=1",
                                 "cuda:pci=01:00.x",
                                 "cuda:pci=1:2:3:4",
                                 "cuda:4294967296",
                                 "cudax",
                                 "cuda:uuid=123456789abcdef001020304050607081"};
    for (size_t i = 0; i < DV_ARRAY_LEN(wrong); i++) {
        expect_not_found(wrong[i], DAVY_E_INVALID, "expected");
    }
}

static void listing(void) {
    davy_device_info info;
    OK(dv_gpu_describe(NULL, 1, &info));
    CHECK(info.kind == DAVY_DEVICE_CUDA && info.index == 1 && info.compute_major == 8 && info.compute_minor == 6);
    CHECK(strcmp(info.name, "Mock GPU B") == 0 && strcmp(info.selector, "cuda:1") == 0 && info.reason[0] == '\0');
    CHECK(info.uuid[0] == 0x12 && info.uuid[2] == 0xff && info.driver_version == 13000);
    CHECK(info.features == (DAVY_FEATURE_FP16 | DAVY_FEATURE_BF16 | DAVY_FEATURE_INT8));
    CHECK(info.memory_free_bytes == 0); /* unknown, because there is no context yet */
    OK(dv_gpu_describe(NULL, 0, &info));
    CHECK((info.features & DAVY_FEATURE_FP8) != 0);
    CHECK(dv_gpu_describe(NULL, 2, &info) == DAVY_E_NOT_FOUND);
    CHECK(dv_gpu_describe(NULL, -1, &info) == DAVY_E_NOT_FOUND);
    m->device[0].major = 6;
    m->device[0].minor = 1;
    OK(dv_gpu_describe(NULL, 0, &info));
    CHECK(strstr(info.reason, "6.1") != NULL && strstr(info.reason, "7.5") != NULL);
    expect_found("cuda", 1); /* the first usable device */
    expect_not_found("cuda:0", DAVY_E_DEVICE, "6.1");
    m->device[1].compute_mode = 2;
    expect_not_found("cuda:1", DAVY_E_DEVICE, "prohibited");
    expect_not_found("cuda", DAVY_E_DEVICE, "6.1");
    mock_call("mock_reset");
    balanced("listing");
    CHECK(m->retained == 0);
}

static void healthy(void) {
    mock_use(MOCK_FOLDER "/libmock_cuda.so");
    CHECK(dv_gpu_count(NULL, NULL, 0) == 2);
    selectors();
    listing();
}

int main(void) {
    dv_gpu_use_modules(mock_modules, 2);
    in_child("no file", no_file);
    in_child("not installed", not_installed);
    in_child("not a driver", not_a_driver);
    in_child("cuInit fails", init_fails);
    in_child("no devices", no_devices);
    in_child("too old", too_old);
    in_child("incomplete", incomplete);
    in_child("no device code", no_device_code);
    in_child("library_dir", library_dir);
    in_child("short of memory", short_of_memory);
    in_child("cuInit is short of memory", init_short_of_memory);
    healthy();
    return check_done();
}
