/* test_vlm_mock_rows.c - many rows at a time on the mock GPU: batches over pages, and tokens that are looked up. The mock driver's kernels
 * sum each row separately, so every row must equal a single dialogue, bit for bit. */
#include "tests/lib/vlm_lookup.h"
#include "tests/lib/vlm_together.h"
#include "tests/cuda/vlm_mock.h"
#include "tests/lib/hooks.h"

static void test_together(bool qwen3, int64_t chunk, dv_vlm_format format, int lazy) {
    pair p;
    if (vlm_mock_start(&p, qwen3, DVK_F32, format)) {
        m->lazy = lazy; /* work is done only when the program waits for it */
        test_ways(&p.gpu, chunk, 14);
        m->lazy = 0;
        CHECK(dv_gpu_used(p.device, DV_MEM_WORKSPACE) == 0);
    }
    vlm_mock_end(&p, "together");
}

static void test_found(bool qwen3, int lazy) {
    pair p;
    if (vlm_mock_start(&p, qwen3, DVK_F32, DV_VLM_AS_STORED)) {
        m->lazy = lazy;
        test_lookup(&p.gpu);
        m->lazy = 0;
    }
    vlm_mock_end(&p, "looked up");
}

/* ---- failures ---- */

/* Host and device memory that runs out at any place, and launches that fail. */
static void test_ends(bool qwen3) {
    pair p;
    m->no_pools = 1; /* with a pool each failing allocation is tried twice */
    question *questions = calloc(3, sizeof *questions);
    bool ok = vlm_mock_start(&p, qwen3, DVK_F32, DV_VLM_AS_STORED) && CHECK(questions != NULL);
    for (int i = 0; ok && i < 3; i++) {
        ok = make_question(&p.gpu, i, &questions[i]);
        if (ok) {
            ask_alone(&p.gpu, &questions[i], 0);
        }
    }
    const uint64_t before = ok ? dv_gpu_used(p.device, DV_MEM_WORKSPACE) : 0;
    davy_result r = ok ? DAVY_E_NOMEM_HOST : DAVY_OK;
    for (int64_t n = 0; r < 0 && n < 5000; n++) {
        dv_alloc_fail_after(n);
        r = ask_until_error(&p.gpu, questions, 3);
        dv_alloc_fail_after(-1);
        CHECK(r == DAVY_OK || r == DAVY_E_NOMEM_HOST);
        CHECK(dv_gpu_used(p.device, DV_MEM_WORKSPACE) == before);
    }
    CHECK_OK(r);
    int64_t failed = 0;
    for (int64_t n = 1; ok && n < 40; n++) {
        m->fail_alloc_at = n;
        r = ask_until_error(&p.gpu, questions, 3);
        m->fail_alloc_at = 0;
        failed += r == DAVY_E_NOMEM_DEVICE;
        CHECK(r == DAVY_OK || r == DAVY_E_NOMEM_DEVICE);
        CHECK(dv_gpu_used(p.device, DV_MEM_WORKSPACE) == before);
    }
    CHECKF(!ok || failed > 2, "%d", (int)failed);
    for (int i = 0; questions != NULL && i < 3; i++) {
        dv_encoded_free(&questions[i].seen);
    }
    free(questions);
    vlm_mock_end(&p, "ends");
}

int main(void) {
    mock_use(MOCK_FOLDER "/libmock_cuda.so");
    test_together(false, 0, DV_VLM_AS_STORED, 0);
    test_together(true, 7, DV_VLM_AS_STORED, 0);
    test_together(true, 0, DV_VLM_INT8, 1);
    test_found(false, 0);
    test_found(true, 1);
    test_ends(false);
    test_ends(true);
    return check_done();
}
