/* test_error.c - the error record: codes, prefixes, copies, cutting at character boundaries, one record per thread. */
#include <string.h>

#include "core/base/error.h"
#include "core/base/os.h"
#include "tests/lib/check.h"

static void test_record(void) {
    davy_error_info info;
    CHECK(dv_fail(DAVY_E_SHAPE, "%s: expected %d, found %d", "conv.weight", 3, 4) == DAVY_E_SHAPE);
    dv_error_get(&info);
    CHECK(info.struct_size == sizeof info && info.code == DAVY_E_SHAPE && info.domain == DAVY_DOMAIN_DAVY);
    CHECK(strcmp(info.message, "conv.weight: expected 3, found 4") == 0);
    CHECK(dv_fail_prefix("a/%s", "b.pth") == DAVY_E_SHAPE);
    dv_error_get(&info);
    CHECK(strcmp(info.message, "a/b.pth: conv.weight: expected 3, found 4") == 0);
    CHECK(dv_fail_in(DAVY_E_IO, DAVY_DOMAIN_OS, 13, "no") == DAVY_E_IO);
    davy_error_info other;
    dv_error_get(&other);
    CHECK(other.domain == DAVY_DOMAIN_OS && other.native == 13);
    dv_error_set(&info);
    dv_error_get(&other);
    CHECK(other.code == DAVY_E_SHAPE && strcmp(other.message, info.message) == 0);
}

static void test_own_message_as_argument(void) {
    davy_error_info info;
    dv_fail(DAVY_E_FORMAT, "first");
    dv_error_get(&info);
    dv_fail(DAVY_E_FORMAT, "second, after %s", info.message);
    dv_error_get(&info);
    CHECK(strcmp(info.message, "second, after first") == 0);
}

static void test_long(void) {
    char text[700];
    davy_error_info info;
    for (size_t lead = 0; lead < 4; lead++) { /* three-byte characters, cut at each of their bytes */
        memset(text, 0, sizeof text);
        memset(text, 'x', lead);
        for (size_t i = lead; i + 3 < sizeof text; i += 3) {
            memcpy(text + i, "\xe2\x82\xac", 3);
        }
        dv_fail(DAVY_E_FORMAT, "%s", text);
        dv_error_get(&info);
        const size_t n = strlen(info.message);
        CHECK(n > sizeof info.message - 5 && n < sizeof info.message);
        CHECK((n - lead) % 3 == 0);
        dv_fail_prefix("abcd");
        dv_error_get(&info);
        const size_t m = strlen(info.message);
        CHECK(m < sizeof info.message && (m - lead - 6) % 3 == 0 && strncmp(info.message, "abcd: ", 6) == 0);
    }
    dv_fail_prefix("%s", text);
    dv_error_get(&info);
    CHECK(strlen(info.message) < sizeof info.message);
}

static void test_names(void) {
    CHECK(strcmp(dv_result_name(DAVY_OK), "OK") == 0);
    CHECK(strcmp(dv_result_name(DAVY_END), "END") == 0);
    CHECK(strcmp(dv_result_name(DAVY_E_INVALID), "E_INVALID") == 0);
    CHECK(strcmp(dv_result_name(DAVY_E_TENSOR), "E_TENSOR") == 0);
    CHECK(strcmp(dv_result_name(DAVY_E_CONTEXT_FULL), "E_CONTEXT_FULL") == 0);
    CHECK(strcmp(dv_result_name(DAVY_E_INTERNAL), "E_INTERNAL") == 0);
    CHECK(strcmp(dv_result_name(5), "?") == 0 && strcmp(dv_result_name(-27), "?") == 0);
    CHECK(strcmp(dv_result_name(INT32_MIN), "?") == 0 && strcmp(dv_result_name(INT32_MAX), "?") == 0);
}

static void other_thread(void *arg) {
    davy_error_info info;
    dv_error_get(&info);
    *(bool *)arg = info.code == DAVY_OK && info.message[0] == '\0';
    dv_fail(DAVY_E_BUSY, "elsewhere");
}

static void test_threads(void) {
    bool clean = false;
    dv_thread *t = NULL;
    dv_fail(DAVY_E_ARCH, "here");
    if (CHECK(dv_thread_start(other_thread, &clean, "test", &t) == DAVY_OK)) {
        dv_thread_join(t);
        davy_error_info info;
        dv_error_get(&info);
        CHECK(clean && info.code == DAVY_E_ARCH && strcmp(info.message, "here") == 0);
    }
}

int main(void) {
    test_record();
    test_own_message_as_argument();
    test_long();
    test_names();
    test_threads();
    return check_done();
}
