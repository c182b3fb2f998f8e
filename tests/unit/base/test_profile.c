/* test_profile.c - sums, order and text of the profile; no entries while it is off. */
#include <string.h>

#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/base/profile.h"
#include "tests/lib/check.h"

static dv_json *json_of(dv_profile *p) {
    dv_json *json = NULL;
    char *text = dv_profile_json(p);
    if (CHECK(text != NULL)) {
        CHECK(dv_json_parse(text, strlen(text), "profile", &json) == DAVY_OK);
    }
    dv_free(text);
    return json;
}

static int64_t number(const dv_json *object, const char *key) {
    int64_t v = -1;
    dv_json_int(dv_json_get(object, key), &v);
    return v;
}

static double real(const dv_json *object, const char *key) {
    double v = -1.0;
    dv_json_double(dv_json_get(object, key), &v);
    return v;
}

int main(void) {
    dv_profile *p = dv_profile_create();
    if (!CHECK(p != NULL)) {
        return check_done();
    }
    CHECK(!dv_profile_on(p));
    dv_profile_add(p, &(dv_profile_run){"lost", "conv2d ref", 1000, 1, 1});
    dv_json *json = json_of(p);
    CHECK(dv_json_is_array(json) && dv_json_size(json) == 0);
    dv_json_release(json);

    dv_profile_start(p);
    CHECK(dv_profile_on(p));
    dv_profile_add(p, &(dv_profile_run){"body.0", "conv2d ref", 1500000, 10, 100});
    dv_profile_add(p, &(dv_profile_run){"body.\"2\"\n", "conv2d ref", 9000000, 20, 200});
    dv_profile_add(p, &(dv_profile_run){"body.0", "conv2d ref", 2500000, 10, 100});
    dv_profile_add(p, &(dv_profile_run){"body.0", "conv2d cpu/avx2", 1000, 1, 2});
    json = json_of(p);
    if (CHECK(dv_json_size(json) == 3)) {
        const dv_json *first = dv_json_first(json);
        const dv_json *second = dv_json_next(first);
        CHECK(strcmp(dv_json_string(dv_json_get(first, "step")), "body.\"2\"\n") == 0 && number(first, "calls") == 1);
        CHECK(real(first, "ms") == 9.0);
        CHECK(strcmp(dv_json_string(dv_json_get(second, "step")), "body.0") == 0);
        CHECK(strcmp(dv_json_string(dv_json_get(second, "kernel")), "conv2d ref") == 0);
        CHECK(number(second, "calls") == 2 && real(second, "ms") == 4.0 && number(second, "flops") == 20 &&
              number(second, "bytes") == 200);
    }
    dv_json_release(json);

    dv_profile_stop(p);
    CHECK(!dv_profile_on(p));
    dv_profile_add(p, &(dv_profile_run){"body.0", "conv2d ref", 1, 1, 1});
    json = json_of(p); /* measurements are kept until the next start */
    CHECK(dv_json_size(json) == 3 && number(dv_json_next(dv_json_first(json)), "calls") == 2);
    dv_json_release(json);
    dv_profile_start(p);
    json = json_of(p);
    CHECK(dv_json_size(json) == 0);
    dv_json_release(json);

    const dv_peak peak = {.tensor = 800e3, .simt = 60e3, .bytes = 4000.0}; /* per ns */
    dv_profile_set_peak(p, &peak);
    dv_profile_add(p, &(dv_profile_run){"a", "conv2d cuda/simt", 3000, 1, 1});
    dv_profile_add(p, &(dv_profile_run){"b", "conv2d cuda/mma-tf32", 2000, 1, 1});
    dv_profile_add(p, &(dv_profile_run){"c", "conv2d cuda/wgmma", 1000, 1, 1});
    json = json_of(p);
    const dv_json *at = dv_json_first(json);
    static const int64_t want[3] = {60000, 400000, 800000};
    for (int i = 0; i < 3 && CHECK(at != NULL); i++, at = dv_json_next(at)) {
        CHECK(number(at, "peak_gflops") == want[i] && number(at, "peak_gbs") == 4000);
        CHECK(real(at, "ms") > 0.0009);
    }
    dv_json_release(json);
    dv_profile_release(p);
    return check_done();
}
