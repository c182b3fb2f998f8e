/* test_engine_int8.c - int8 convolutions on the CPU, in whole runs. They are chosen if they are faster, stay close to f32, and give the
 * same bits on any number of threads. If no int8 kernel is faster, the engine uses f32. */
#include "tests/lib/engine_fixture.h"

static dv_tensors *wide_compact(void) {
    return fake_compact(64, 4, 2);
}

static dv_tensors *wide_kl(void) {
    return fake_kl((fake_kl_spec){.names = 1, .z = 4, .levels = 2, .enc = {64, 96}, .dec = {96, 64}});
}

static int run_once(const fixture_spec *spec, dv_tensors *(*make)(void), const question *q, result *r, davy_dtype *as) {
    fixture f;
    fixture_spec now = *spec;
    now.tensors = make();
    if (!engine_fixture_open(&f, &now)) {
        return 0;
    }
    davy_model_info info = {.struct_size = sizeof info};
    dv_engine_info(f.engine, &info);
    *as = info.compute;
    const int good = CHECKF(ask(&f, q, r) == DAVY_OK, "%s", last_error());
    engine_fixture_close(&f);
    return good;
}

static double psnr(const result *a, const result *b) {
    double sum = 0.0, low = INFINITY, high = -INFINITY;
    const int64_t count = a->c * a->h * a->w;
    for (int64_t i = 0; i < count; i++) {
        const double d = (double)a->data[i] - (double)b->data[i];
        sum += d * d;
        low = fmin(low, (double)b->data[i]);
        high = fmax(high, (double)b->data[i]);
    }
    return sum > 0.0 ? 10.0 * log10((high - low) * (high - low) * (double)count / sum) : 200.0;
}

static void check_close(dv_tensors *(*make)(void), const question *q, const char *what) {
    const uint32_t cpus[] = {0, DVK_CPU_AVX2, DVK_CPU_AVX2 | DVK_CPU_AVX512 | DVK_CPU_VNNI};
    for (size_t i = 0; i < DV_ARRAY_LEN(cpus); i++) {
        const uint32_t cpu = cpus[i] & dvk_cpu_detect();
        const fixture_spec plain = {.threads = 2, .cpu = cpu};
        result want = {0}, got = {0}, again = {0};
        davy_dtype as = DAVY_DTYPE_AUTO;
        fixture_spec eight = plain;
        eight.compute = DAVY_DTYPE_INT8;
        if (run_once(&plain, make, q, &want, &as) && CHECK(as == DAVY_DTYPE_F32) &&
            run_once(&eight, make, q, &got, &as)) {
            const double close = psnr(&got, &want);
            CHECKF(close > 40.0, "%s: %.1f dB", what, close);
            CHECKF(!(cpu & DVK_CPU_VNNI) || as == DAVY_DTYPE_INT8, "%s: int8 gains nothing with VNNI", what);
            CHECKF(as != DAVY_DTYPE_F32 || close == 200.0, "%s: %.1f dB from what it is", what, close);
            CHECKF(cpu != 0 || as == DAVY_DTYPE_F32, "%s: int8 without a kernel that gains", what);
            eight.threads = 5;
            CHECK(run_once(&eight, make, q, &again, &as) && same_bits(&again, &got));
        }
        free(want.data);
        free(got.data);
        free(again.data);
    }
}

static void test_close(void) {
    const question picture = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 45, .w = 61};
    const question latent = {.stage = DV_STAGE_DECODE, .c = 4, .h = 13, .w = 19};
    const question encode = {.stage = DV_STAGE_ENCODE, .c = 3, .h = 40, .w = 56};
    check_close(wide_compact, &picture, "compact");
    check_close(wide_kl, &latent, "kl decoder");
    check_close(wide_kl, &encode, "kl encoder");
}

/* The least budget for f32 is also enough for int8 and its calibration. */
static void test_budget(dv_tensors *(*make)(void), const question *q) {
    fixture f;
    fixture_spec spec = {.tensors = make(), .threads = 1, .cpu = dvk_cpu_detect(), .budget = 1u << 30};
    uint64_t least = 0;
    result r = {0};
    for (int runs = engine_fixture_open(&f, &spec); runs;) {
        CHECK(dv_engine_unload(f.engine) == DAVY_OK);
        runs = ask(&f, q, &r) == DAVY_OK;
        least = runs ? dv_heap_budget(f.services.heap) : least;
        dv_heap_set_budget(f.services.heap, dv_heap_budget(f.services.heap) / 16 * 15);
        free(r.data);
    }
    engine_fixture_close(&f);
    spec.tensors = make();
    spec.budget = least;
    spec.compute = DAVY_DTYPE_INT8;
    if (CHECK(least < 1u << 26) && engine_fixture_open(&f, &spec)) {
        CHECKF(ask(&f, q, &r) == DAVY_OK, "%s", last_error());
        free(r.data);
        CHECK(dv_heap_peak(f.services.heap) <= least);
    }
    engine_fixture_close(&f);
}

static void test_budgets(void) {
    const question picture = {.stage = DV_STAGE_UPSCALE, .c = 3, .h = 24, .w = 20};
    const question latent = {.stage = DV_STAGE_DECODE, .c = 4, .h = 8, .w = 8};
    test_budget(wide_compact, &picture);
    test_budget(wide_kl, &latent);
}

static void test_refused(void) {
    const davy_dtype not [] = {DAVY_DTYPE_F16, DAVY_DTYPE_FP8, DAVY_DTYPE_INT4};
    for (size_t i = 0; i < DV_ARRAY_LEN(not ); i++) {
        dv_services services = {.cpu = dvk_cpu_detect(), .heap = dv_heap_create(NULL, 0)};
        float *data = NULL;
        dv_tensors *t = wide_compact();
        const dv_engine_desc desc = {.services = &services, .tensors = t, .file_name = "refused", .compute = not [i]};
        dv_engine *e = NULL;
        CHECK(fake_fill(t, &data) && dv_pool_create(1, &services.pool) == DAVY_OK);
        CHECK(dv_engine_create(&desc, &e) == DAVY_E_UNSUPPORTED && strstr(last_error(), "fp32, bf16 or int8") != NULL);
        dv_tensors_release(t);
        dv_pool_release(services.pool);
        dv_heap_release(services.heap);
        free(data);
    }
}

int main(void) {
    test_close();
    test_budgets();
    test_refused();
    return check_done();
}
