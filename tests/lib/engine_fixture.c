/* engine_fixture.c - see engine_fixture.h. */
#include "tests/lib/engine_fixture.h"
#include "tests/lib/distance.h"

void engine_fixture_close(fixture *f) {
    dv_engine_release(f->engine);
    if (f->services.heap != NULL) {
        CHECKF(dv_heap_used(f->services.heap, DV_MEM_WEIGHTS) + dv_heap_used(f->services.heap, DV_MEM_WORKSPACE) == 0,
               "memory is left in the heap");
    }
    dv_pool_release(f->services.pool);
    dv_heap_release(f->services.heap);
    free(f->data);
    *f = (fixture){0};
}

dv_tensors *open_weights(const char *path) {
    const dv_open_options options = {0};
    dv_source *source = NULL;
    dv_tensors *t = NULL;
    if (dv_source_open_path(path, true, &source) != DAVY_OK || dv_tensors_open(source, &options, &t) != DAVY_OK ||
        dv_tensors_unwrap(t) != DAVY_OK) {
        dv_tensors_release(t);
        t = NULL;
    }
    dv_source_release(source);
    return t;
}

int engine_fixture_open(fixture *f, const fixture_spec *spec) {
    *f = (fixture){0};
    dv_tensors *t = spec->tensors;
    f->services.cpu = spec->cpu;
    f->services.heap = dv_heap_create(NULL, spec->budget);
    if (t != NULL) {
        CHECK(fake_fill(t, &f->data));
    } else {
        t = open_weights(spec->path);
    }
    const dv_engine_desc desc = {
        .services = &f->services, .tensors = t, .file_name = "fixture", .compute = spec->compute};
    if (!CHECKF(t != NULL && f->services.heap != NULL && dv_pool_create(spec->threads, &f->services.pool) == DAVY_OK &&
                    dv_engine_create(&desc, &f->engine) == DAVY_OK,
                "engine: %s", last_error())) {
        dv_tensors_release(t);
        engine_fixture_close(f);
        return 0;
    }
    return 1;
}

float *made_up(int64_t c, int64_t h, int64_t w) {
    float *p = malloc((size_t)(c * h * w) * sizeof *p);
    for (int64_t i = 0; p != NULL && i < c * h * w; i++) {
        const double x = (double)(i % w);
        const double y = (double)(i / w % h);
        const double k = (double)(i / (w * h));
        p[i] = (float)(0.5 + 0.3 * sin(0.37 * x + 0.11 * y + k) + 0.2 * cos(0.05 * x * (1.0 + 0.1 * k) - 0.23 * y));
    }
    return p;
}

dvk_image planes(void *data, int64_t c, int64_t h, int64_t w) {
    return (dvk_image){.data = data,
                       .dtype = DVK_F32,
                       .channels = (int32_t)c,
                       .n = 1,
                       .h = h,
                       .w = w,
                       .sh = w * 4,
                       .sw = 4,
                       .sc = h * w * 4,
                       .identity_map = 1};
}

davy_result ask(const fixture *f, const question *q, result *r) {
    *r = (result){.info = {.struct_size = sizeof r->info}};
    davy_result code = dv_engine_plan(
        f->engine, &(dv_batch_desc){.stage = q->stage, .h = q->h, .w = q->w, .tiling = &q->tiling}, &r->info);
    if (code != DAVY_OK) {
        return code;
    }
    r->h = r->info.shape[0];
    r->w = r->info.shape[1];
    r->c = q->grey ? 1 : r->info.shape[2];
    float *in = made_up(q->c, q->h, q->w);
    r->data = calloc((size_t)(r->c * r->h * r->w), sizeof *r->data);
    const dv_work work = {.stage = q->stage,
                          .in = planes(in, q->c, q->h, q->w),
                          .out = planes(r->data, r->c, r->h, r->w),
                          .in_mul = 1.0f,
                          .out_mul = 1.0f,
                          .grey = q->grey,
                          .tiling = q->tiling,
                          .control = q->control};
    code = in != NULL && r->data != NULL ? dv_engine_run(f->engine, &work) : DAVY_E_NOMEM_HOST;
    free(in);
    if (code != DAVY_OK) {
        free(r->data);
        r->data = NULL;
    }
    return code;
}

int same_bits(const result *a, const result *b) {
    return a->data != NULL && b->data != NULL && a->c == b->c && a->h == b->h && a->w == b->w &&
           memcmp(a->data, b->data, (size_t)(a->c * a->h * a->w) * sizeof *a->data) == 0;
}

double relative(const result *a, const result *b) {
    if (a->data == NULL || b->data == NULL || a->c != b->c || a->h != b->h || a->w != b->w) {
        return 1e30;
    }
    return relative_distance(a->data, b->data, a->c * a->h * a->w);
}

/* ---- networks ---- */

dv_tensors *small_kl(void) {
    return fake_kl(
        (fake_kl_spec){.names = 1, .z = 4, .quant = 1, .levels = 4, .enc = {32, 32, 64, 64}, .dec = {32, 32, 64, 64}});
}

dv_tensors *small_rrdb(int64_t in) {
    return fake_rrdb((fake_rrdb_spec){.dialect = 0, .nf = 16, .gc = 8, .blocks = 1, .doublings = 2, .in = in});
}

dv_tensors *narrow(void) {
    return fake_compact(12, 11, 2);
}
