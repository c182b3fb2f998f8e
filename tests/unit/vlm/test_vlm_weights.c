/* test_vlm_weights.c - tensors of captioning models: names, shapes, tied heads, formats, wrong files. */
#include <math.h>

#include "tests/lib/vlm_fixture.h"
#include "tests/lib/hooks.h"

static dv_tensor_ref *ref_of(dv_tensors *t, const char *name) {
    for (int64_t i = 0; i < t->count; i++) {
        if (strcmp(t->refs[i].name, name) == 0) {
            return &t->refs[i];
        }
    }
    return NULL;
}

static void drop(dv_tensors *t, const char *name) {
    dv_tensor_ref *ref = ref_of(t, name);
    if (CHECK(ref != NULL)) {
        dv_free(ref->name);
        dv_source_release(ref->source);
        t->count--;
        memmove(ref, ref + 1, (size_t)(t->refs + t->count - ref) * sizeof *ref);
    }
}

static void check_message(davy_result got, davy_result wanted, const char *part, const char *more) {
    davy_error_info info = {.struct_size = sizeof info};
    dv_error_get(&info);
    CHECKF(got == wanted, "%s, wanted %s", dv_result_name(got), dv_result_name(wanted));
    CHECKF(strstr(info.message, part) != NULL && strstr(info.message, more) != NULL &&
               strstr(info.message, "fake weights"),
           "message \"%s\"", info.message);
}

static void test_files_that_lie(void) {
    static const char *const names[] = {"model.text_model.layers.1.mlp.down_proj.weight",
                                        "model.text_model.norm.weight",
                                        "model.text_model.embed_tokens.weight",
                                        "model.vision_model.encoder.layers.0.self_attn.k_proj.bias",
                                        "model.vision_model.embeddings.position_embedding.weight",
                                        "model.connector.modality_projection.proj.weight"};
    for (size_t i = 0; i < DV_ARRAY_LEN(names); i++) {
        for (int lie = 0; lie < 3; lie++) {
            fixture f;
            CHECK(fixture_start(&f, false));
            dv_tensor_ref *ref = ref_of(f.tensors, names[i]);
            if (lie == 0) {
                drop(f.tensors, names[i]);
            } else if (CHECK(ref != NULL)) {
                ref->shape[0] -= lie; /* shorter than in the configuration */
                ref->bytes = (uint64_t)dv_tensor_elements(ref) * 4;
            }
            check_message(fixture_load(&f, DV_VLM_AS_STORED), lie == 0 ? DAVY_E_TENSOR : DAVY_E_SHAPE, names[i],
                          lie == 0 ? "missing" : "the configuration expects");
            CHECK(dv_heap_used(f.heap, DV_MEM_WEIGHTS) == 0);
            fixture_end(&f);
        }
    }
}

static void test_unknown_type(void) {
    fixture f;
    const char *name = "model.text_model.layers.0.self_attn.o_proj.weight";
    CHECK(fixture_start(&f, false));
    dv_tensor_ref *ref = ref_of(f.tensors, name);
    if (CHECK(ref != NULL)) {
        ref->dtype = DV_STORED_OTHER;
        snprintf(ref->dtype_name, sizeof ref->dtype_name, "IQ3_S");
    }
    check_message(fixture_load(&f, DV_VLM_AS_STORED), DAVY_E_UNSUPPORTED, name, "IQ3_S");
    if (ref != NULL) { /* integers without scales */
        ref->dtype = DV_STORED_I8;
        snprintf(ref->dtype_name, sizeof ref->dtype_name, "I8");
    }
    check_message(fixture_load(&f, DV_VLM_AS_STORED), DAVY_E_UNSUPPORTED, name, "has type I8, which is not supported");
    fixture_end(&f);
}

static void test_tied_head(void) {
    fixture f;
    CHECK(fixture_start(&f, false));
    CHECK_OK(fixture_load(&f, DV_VLM_AS_STORED));
    CHECK(f.model.weights->head.data != f.model.weights->embed.data);
    dv_vlm_weights_release(f.model.weights);
    f.model.weights = NULL;
    f.model.config.text.tied_head = true; /* besides a separate head: the embedding is used */
    CHECK_OK(fixture_load(&f, DV_VLM_AS_STORED));
    CHECK(f.model.weights->head.data == f.model.weights->embed.data);
    dv_vlm_weights_release(f.model.weights);
    f.model.weights = NULL;
    f.model.config.text.tied_head = false;
    drop(f.tensors, "lm_head.weight");
    CHECK_OK(fixture_load(&f, DV_VLM_AS_STORED));
    CHECK(f.model.weights->head.data == f.model.weights->embed.data);
    fixture_end(&f);
}

static double error_of(const fixture *f, const dv_vlm_matrix *m, const char *name) {
    const dv_tensor_ref *ref = dv_tensors_find(f->tensors, name);
    const float *x = f->data + ref->offset / 4;
    float row[256];
    double difference = 0.0;
    double norm = 0.0;
    for (int64_t i = 0; i < m->n; i++) {
        dv_vlm_matrix_row(f->model.weights, m, i, row);
        for (int64_t j = 0; j < m->k; j++) {
            difference += pow((double)row[j] - (double)x[i * m->k + j], 2);
            norm += pow((double)x[i * m->k + j], 2);
        }
    }
    return sqrt(difference / norm);
}

static void test_formats(void) {
    static const struct {
        dv_vlm_format format;
        dvk_wtype type, head;
        double least, most;
    } cases[] = {
        {DV_VLM_AS_STORED, DVK_W_F32, DVK_W_F32, 0, 0},    {DV_VLM_F32, DVK_W_F32, DVK_W_F32, 0, 0},
        {DV_VLM_BF16, DVK_W_BF16, DVK_W_BF16, 1e-4, 4e-3}, {DV_VLM_INT8, DVK_W_Q8_0, DVK_W_Q8_0, 1e-4, 1e-2},
        {DV_VLM_INT4, DVK_W_Q4_0, DVK_W_Q8_0, 1e-2, 2e-1}, {DV_VLM_NARROW, DVK_W_BF16, DVK_W_BF16, 1e-4, 4e-3}};
    for (size_t i = 0; i < DV_ARRAY_LEN(cases); i++) {
        for (int plain = 0; plain < 2; plain++) {
            fixture f;
            CHECK(fixture_start(&f, false));
            f.model.cpu = plain ? 0 : f.model.cpu;
            CHECK_OK(fixture_load(&f, cases[i].format));
            const dv_vlm_weights *w = f.model.weights;
            const double error = error_of(&f, &w->layers[1].down, "model.text_model.layers.1.mlp.down_proj.weight");
            CHECKF(error >= cases[i].least && error <= cases[i].most, "format %d: error %.3g", (int)cases[i].format,
                   error);
            CHECK(w->layers[0].out.type == cases[i].type && w->head.type == cases[i].head);
            const dvk_wtype other = cases[i].format == DV_VLM_NARROW ? DVK_W_BF16 : DVK_W_F32;
            CHECK(w->embed.type == other && w->blocks[0].out.type == other);
            CHECK(w->plain == (plain != 0 || (dvk_cpu_detect() & DVK_CPU_AVX2) == 0));
            fixture_end(&f);
        }
    }
}

/* Each allocation fails once: an error, no leak. */
static void test_out_of_memory(void) {
    fixture f;
    CHECK(fixture_start(&f, true));
    davy_result r = DAVY_E_NOMEM_HOST;
    int64_t n = 0;
    for (; r == DAVY_E_NOMEM_HOST && n < 10000; n++) {
        dv_alloc_fail_after(n);
        r = fixture_load(&f, DV_VLM_INT8);
        dv_alloc_fail_after(-1);
        CHECK(r == DAVY_OK || dv_heap_used(f.heap, DV_MEM_WEIGHTS) == 0);
    }
    CHECKF(r == DAVY_OK && n > 10, "after %d allocations: %s", (int)n, dv_result_name(r));
    fixture_end(&f);
}

/* A tensor of later nanochat versions must be refused: without it the output would be wrong. */
static void test_later_nanochats(void) {
    fixture f;
    const int64_t one = 1;
    CHECK(fixture_start(&f, false));
    f.model.config.family = DV_VLM_NANOCHAT;
    fake_add(f.tensors, 1, &one, "resid_lambdas");
    f.tensors->refs[f.tensors->count - 1].source = dv_source_ref(f.tensors->refs[0].source);
    check_message(fixture_load(&f, DV_VLM_AS_STORED), DAVY_E_UNSUPPORTED, "resid_lambdas", "later");
    fixture_end(&f);
}

typedef struct asked {
    int calls, stop_at;
    uint64_t done, total;
} asked;

static davy_result ask(void *user, uint64_t done, uint64_t total) {
    asked *a = user;
    CHECK(done >= a->done && done <= total && (a->total == 0 || a->total == total));
    a->done = done;
    a->total = total;
    return ++a->calls == a->stop_at ? dv_fail(DAVY_E_CANCELLED, "enough") : DAVY_OK;
}

/* The callback between matrices can end the loading at each matrix. Then no memory stays in use. */
static void test_loading(void) {
    int calls = 0;
    for (int stop_at = 0; stop_at <= calls; stop_at++) {
        fixture f;
        asked a = {.stop_at = stop_at};
        CHECK(fixture_start(&f, false));
        const dv_vlm_weights_source source = {.text = f.tensors,
                                              .vision = f.tensors,
                                              .config = &f.model.config,
                                              .heap = f.heap,
                                              .pool = f.pool,
                                              .cpu = f.model.cpu,
                                              .loading = {.progress = ask, .user = &a}};
        const davy_result r = dv_vlm_weights_load(&source, &f.model.weights);
        CHECK(r == (stop_at > 0 ? DAVY_E_CANCELLED : DAVY_OK));
        CHECK(r == DAVY_OK || dv_heap_used(f.heap, DV_MEM_WEIGHTS) == 0);
        calls = stop_at == 0 ? a.calls : calls;
        fixture_end(&f);
    }
    CHECK(calls > 10);
}

int main(void) {
    test_files_that_lie();
    test_loading();
    test_later_nanochats();
    test_unknown_type();
    test_tied_head();
    test_formats();
    test_out_of_memory();
    return check_done();
}
