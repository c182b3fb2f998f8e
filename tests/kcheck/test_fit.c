/* test_fit.c - tests kcheck --fit with synthetic times of a machine with known costs, including outliers. */
#include <math.h>
#include <string.h>

#include "tests/lib/check.h"
#include "tests/kcheck/fit.h"

static const dvk_cuda_caps card = {.sm = 89,
                                   .processors = 128,
                                   .shared_bytes = 99 << 10,
                                   .l2_bytes = 72 << 20,
                                   .memory_gbs = 877,
                                   .tensor_tflops = 132,
                                   .simt_tflops = 74};

static void set(dvk_cost_table *t, int32_t term, double times) {
    t->values[term] *= times;
}

/* The true costs of the card: launches of half the time, and a lower memory rate. */
static dvk_cost_table truth(void) {
    dvk_cost_table t = {.sm = 89};
    for (int i = 0; i < DVK_COSTS; i++) {
        t.values[i] = dvk_cuda_cost(&card, i);
    }
    set(&t, DVK_COST(pixel_norm, launch), 0.5);
    set(&t, DVK_COST(pixel_norm, memory), 0.7);
    set(&t, DVK_COST(excite, launch), 1.5);
    set(&t, DVK_COST(excite, row), 3.0);
    return t;
}

static void measure(kc_fit *f, const char *op, const char *variant, dvk_args args, const dvk_cuda_caps *caps) {
    kc_sample s = {.cuda = dvk_cuda_find(op, variant), .args = args};
    if (CHECK(s.cuda != NULL)) {
        s.ns = s.cuda->cost(&s.args, caps) * (f->count % 5 == 4 ? 1.4 : 1.0); /* every fifth time is an outlier */
        kc_fit_add(f, &s);
    }
}

static void near(double value, double wanted, const char *what) {
    CHECKF(fabs(value / wanted - 1.0) < 0.04, "%s is %g, not %g", what, value, wanted);
}

static void test_factors(void) {
    const dvk_cost_table real = truth();
    dvk_cuda_caps caps = card;
    caps.costs = &real;
    kc_fit f = {0};
    for (int64_t m = 64; m <= 1 << 20; m *= 4) {
        measure(&f, "row_norm", "cuda/pixels", (dvk_args){.row_norm = {.m = m, .heads = 1, .dim = 180}}, &caps);
        measure(&f, "excite", "cuda", (dvk_args){.excite = {.rows = 10 + m / 64, .c = 512, .hidden = 32}}, &caps);
    }
    static dvk_cost_table found;
    static kc_fitted fitted[DVK_COSTS];
    kc_fit_cuda(&f, &card, &found, &fitted);
    for (int32_t t = 0; t < DVK_COSTS; t++) {
        near(found.values[t], real.values[t], dvk_cost_terms[t].term);
    }
    const kc_fitted *of = &fitted[DVK_COST(pixel_norm, memory)];
    CHECKF(of->cases == 8 && of->before > 1.1 && of->after < 1.04, "%d cases: %g, %g", of->cases, of->before,
           of->after);
    CHECK(fitted[DVK_COST(conv_mma, tensor)].cases == 0);

    char text[4096] = "";
    FILE *file = tmpfile();
    if (CHECK(file != NULL)) {
        kc_fit_write_cuda(file, "sm89_RTX_4090", &found, (const kc_fitted(*)[DVK_COSTS]) & fitted);
        rewind(file);
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
    }
    CHECK(strstr(text, "COST(pixel_norm, launch, LAUNCH, ") != NULL &&
          strstr(text, "COST(excite, row, TIME, ") != NULL);
    CHECK(strstr(text, "conv_mma") == NULL);
    kc_fit_free(&f);
}

static void test_tables(void) {
    CHECK(strcmp(dvk_cost_table_of(75, NULL)->name, "sm75") == 0);
    CHECK(strcmp(dvk_cost_table_of(87, "Orin")->name, "sm86") == 0);
    CHECK(strcmp(dvk_cost_table_of(103, NULL)->name, "sm100") == 0);
    CHECK(strcmp(dvk_cost_table_of(121, NULL)->name, "sm120") == 0);
    CHECK(dvk_cost_table_of(90, "NVIDIA H200")->sm == 90);
}

static void test_names(void) {
    static const char *const names[][2] = {{"NVIDIA H100 80GB HBM3", "sm90_H100"},
                                           {"NVIDIA GeForce RTX 4090", "sm90_RTX_4090"},
                                           {"NVIDIA A100-SXM4-80GB", "sm90_A100"},
                                           {"Tesla T4", "sm90_Tesla_T4"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[64];
        kc_fit_name(name, sizeof name, 90, names[i][0]);
        CHECKF(strcmp(name, names[i][1]) == 0, "%s: %s", names[i][0], name);
    }
}

static void test_cpu(void) {
    kc_fit f = {0};
    for (int64_t m = 1; m <= 64; m *= 2) {
        kc_sample s = {.cpu = dvk_find("linear", "cpu/avx2"), .args.linear = {.m = m, .n = 256, .k = 512}};
        if (s.cpu == NULL) { /* another processor */
            return;
        }
        s.ns = 2.0 * s.cpu->cost(&s.args);
        kc_fit_add(&f, &s);
    }
    char text[8192] = "";
    FILE *file = tmpfile();
    if (CHECK(file != NULL)) {
        CHECK(kc_fit_write_cpu(file, &f, "avx2"));
        CHECK(!kc_fit_write_cpu(file, &f, "amx"));
        rewind(file);
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
    }
    CHECK(strstr(text, "COST(linear, read, TIME, 0.4)\nCOST(linear, rows, RATE, 24)\n") != NULL);
    CHECK(strstr(text, "COST(linear_q8, read, TIME, 0.05)") != NULL);
    kc_fit_free(&f);
}

int main(void) {
    test_factors();
    test_tables();
    test_names();
    test_cpu();
    return check_done();
}
