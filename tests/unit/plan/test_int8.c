/* test_int8.c - the choice of layers that compute with 8-bit products. */
#include <math.h>

#include "core/plan/int8.h"
#include "tests/lib/check.h"

static void fill(dv_int8 *e, const double *errors, int64_t n) {
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
    for (int64_t i = 0; i < n; i++) {
        CHECK(dv_int8_add(e, names[i], i % 2 == 0 ? 2.0 : 1.0) == DAVY_OK);
        e->layers[i].error = errors[i];
    }
}

/* Layers with the most operations per error come first. A layer that exceeds the error stays off. */
static void test_pick(void) {
    const double errors[] = {4.0, 1.0, 1.0, 3.0, 0.0, 100.0};
    dv_int8 e = {0};
    fill(&e, errors, 6);
    dv_int8_pick(&e, 0, 6.0);
    CHECK(dv_int8_has(&e, "e") && dv_int8_has(&e, "c") && dv_int8_has(&e, "b") && dv_int8_has(&e, "a"));
    CHECK(!dv_int8_has(&e, "d") && !dv_int8_has(&e, "f") && !dv_int8_has(&e, "z"));
    CHECK(dv_int8_count(&e) == 4);
    dv_int8_clear(&e);
}

/* Layers before `first` belong to another stage. */
static void test_stages(void) {
    const double errors[] = {1.0, 1.0, 1.0, 1.0};
    dv_int8 e = {0};
    fill(&e, errors, 4);
    dv_int8_pick(&e, 2, 10.0);
    CHECK(!dv_int8_has(&e, "a") && !dv_int8_has(&e, "b") && dv_int8_has(&e, "c") && dv_int8_has(&e, "d"));
    dv_int8_set(&e, 0, 1, true);
    while (dv_int8_drop(&e, 2)) {
    }
    CHECK(dv_int8_has(&e, "a") && dv_int8_count(&e) == 1);
    dv_int8_clear(&e);
}

/* Drops a quarter at a time, layers with the fewest operations per error first. */
static void test_drop(void) {
    const double errors[] = {1.0, 8.0, 2.0, 1.0, 3.0, 1.0, 4.0, 1.0};
    dv_int8 e = {0};
    fill(&e, errors, 8);
    dv_int8_pick(&e, 0, 1000.0);
    CHECK(dv_int8_count(&e) == 8);
    CHECK(dv_int8_drop(&e, 0) && dv_int8_count(&e) == 6);
    CHECK(!dv_int8_has(&e, "b") && !dv_int8_has(&e, "g"));
    CHECK(dv_int8_drop(&e, 0) && dv_int8_count(&e) == 4 && !dv_int8_has(&e, "e"));
    dv_int8_clear(&e);
}

/* A layer whose error is NaN stays off. */
static void test_not_finite(void) {
    const double errors[] = {(double)NAN, 1.0, (double)INFINITY};
    dv_int8 e = {0};
    fill(&e, errors, 3);
    dv_int8_pick(&e, 0, 5.0);
    CHECK(dv_int8_count(&e) == 1 && dv_int8_has(&e, "b"));
    dv_int8_clear(&e);
}

int main(void) {
    test_pick();
    test_stages();
    test_drop();
    test_not_finite();
    return check_done();
}
