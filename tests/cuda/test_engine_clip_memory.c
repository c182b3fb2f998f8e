/* test_engine_clip_memory.c - clips on the mock driver with short memory: refused calls that can be repeated, states in host memory,
 * clips that continue with less memory. */
#include "core/clip/stream_priv.h" /* first, because later headers define variables with the names of its parameters */

#include "tests/cuda/clip_calls.h"

/* Counts plans: the linker calls this instead of the engine's function. */
static int plans_made;
davy_result __real_dv_engine_make_plan(const dv_engine *e, const dv_request *q, const dv_plan_desc *desc,
                                       dv_plan **out);
davy_result __wrap_dv_engine_make_plan(const dv_engine *e, const dv_request *q, const dv_plan_desc *desc,
                                       dv_plan **out);

davy_result __wrap_dv_engine_make_plan(const dv_engine *e, const dv_request *q, const dv_plan_desc *desc,
                                       dv_plan **out) {
    plans_made++;
    return __real_dv_engine_make_plan(e, q, desc, out);
}

/* With any shortage of device memory the call reports it and can be repeated. */
static void test_short(void) {
    bench b;
    if (bench_open(&b, DAVY_DTYPE_BF16, true, 0)) {
        clip whole = whole_clip(&b, &plain);
        int refused = 0;
        for (int64_t left = 4 << 10; left <= 4 << 20; left *= 2) {
            dv_clip_stream *s = stream_of(&b, 0, 1);
            clip c = clip_new();
            m->device_bytes = m->used_bytes + (uint64_t)left;
            const davy_result r = call_stream(s, &plain, (char *)c.in, (char *)c.out, 0, 1, NULL, NULL);
            refused += r == DAVY_E_NOMEM_DEVICE;
            CHECKF(r == DAVY_OK || r == DAVY_E_NOMEM_DEVICE, "%s", last_error());
            m->device_bytes = (uint64_t)4 << 30;
            if (r == DAVY_OK) {
                dv_clip_stream_reset(s);
            }
            CHECKF(run_clip(&b, s, &plain, &c, 1, 1) == DAVY_OK && same(&c, &whole), "%s", last_error());
            clip_free(&c);
            dv_clip_stream_release(s);
        }
        CHECKF(refused > 2 && refused < 11, "%d refused", refused);
        clip_free(&whole);
    }
    bench_close(&b, "short");
}

static void test_budget(void) {
    bench b;
    if (bench_open(&b, DAVY_DTYPE_BF16, true, 1 << 20)) {
        dv_clip_stream *s = NULL;
        CHECK(dv_clip_stream_open(b.engine, &(dv_clip_stream_desc){.stage = DV_STAGE_DECODE, .h = 64, .w = 64}, &s) ==
              DAVY_E_BUDGET);
        SAYS("decode of a clip of 64 x 64 needs at least");
        CHECK(s == NULL);
    }
    bench_close(&b, "budget");
}

/* Finds and sets the smallest budget, to the KiB, in which a stream of such slices opens. */
static dv_clip_stream *stream_in_least(bench *b, int64_t slice) {
    const uint64_t used = dv_gpu_used(b->gpu, DV_MEM_WEIGHTS);
    uint64_t refused = used, opened = used + (64 << 20);
    dv_clip_stream *s = NULL;
    while (opened - refused > 1024) {
        const uint64_t budget = (refused + opened) / 2;
        dv_gpu_set_budget(b->gpu, budget);
        const davy_result r = dv_clip_stream_open(
            b->engine,
            &(dv_clip_stream_desc){.stage = DV_STAGE_DECODE, .h = HEIGHT / 4, .w = WIDTH / 4, .slice = slice}, &s);
        CHECKF(r == DAVY_OK || r == DAVY_E_BUDGET, "%s", last_error());
        if (r == DAVY_OK) {
            opened = budget;
            dv_clip_stream_release(s);
        } else {
            refused = budget;
        }
    }
    dv_gpu_set_budget(b->gpu, opened);
    return stream_of(b, 0, slice);
}

/* A state in host memory, because the device has no room for it: the same bits. */
static void test_offload(void) {
    bench b;
    if (bench_open(&b, DAVY_DTYPE_F32, true, 0)) {
        clip whole = whole_clip(&b, &plain);
        clip c = clip_new();
        dv_clip_stream_info info;
        dv_clip_stream *s = stream_of(&b, 0, 1);
        dv_clip_stream_info_get(s, &info);
        dv_clip_stream_release(s);
        const uint64_t state = info.state_bytes;
        CHECK(info.offloaded_bytes == 0);
        s = stream_in_least(&b, 1);
        dv_clip_stream_info_get(s, &info);
        CHECK(info.offloaded_bytes > state / 2 && info.state_bytes == state);
        const int64_t pinned = m->pinned;
        for (int round = 0; round < 3; round++) {
            CHECKF(run_clip(&b, s, &plain, &c, 1, 2) == DAVY_OK && same(&c, &whole), "round %d, distance %g", round,
                   distance(&c, &whole));
            dv_clip_stream_reset(s);
        }
        CHECK(m->pinned > pinned);
        dv_clip_stream_release(s);
        for (int64_t round = 0, before = 0; round < 3; round++, before = m->pinned) { /* pinned memory stays cached */
            s = stream_of(&b, 0, 1);
            CHECKF(run_clip(&b, s, &plain, &c, 1, 2) == DAVY_OK && same(&c, &whole), "%s", last_error());
            dv_clip_stream_release(s);
            CHECK(round < 2 || m->pinned == before);
        }
        const int64_t kept = m->pinned;
        CHECK(dv_gpu_unpin_idle(b.gpu) >= 1024 && m->pinned < kept);
        s = stream_of(&b, 0, 1);
        dv_heap_set_budget(heap, dv_heap_used(heap, DV_MEM_WORKSPACE) + 1024);
        CHECK(call_stream(s, &plain, (char *)c.in, (char *)c.out, 0, 1, NULL, NULL) == DAVY_E_BUDGET);
        SAYS("state of a clip");
        dv_heap_set_budget(heap, 0);
        CHECKF(run_clip(&b, s, &plain, &c, 1, 1) == DAVY_OK && same(&c, &whole), "%s", last_error());
        dv_clip_stream_release(s);
        clip_free(&c);
        clip_free(&whole);
    }
    bench_close(&b, "offload");
}

/* ---- transformed frames ---- */

static int64_t count_op(const dv_plan *p, const char *op) {
    int64_t n = 0;
    for (int64_t i = 0; i < p->n_steps; i++) {
        n += strcmp(dv_kernel_op(p->steps[i].kernel), op) == 0;
    }
    return n;
}

/* Opens a stream with these settings of the choice. */
static dv_clip_stream *stream_as(bench *b, int64_t frames, const dv_slice_choice *as) {
    dv_clip_stream *s = stream_of(b, frames, as->info.slice);
    dv_plan *plan = NULL;
    dv_slice_choice c = *as;
    CHECKF(dv_clip_stream_measure(s, &c) == DAVY_OK, "%s", last_error());
    s->choice = c;
    dv_slice_plans_drop(&s->plans);
    CHECK(dv_clip_stream_plan(s, &s->choice, (dv_clip_slice){as->info.slice, !as->whole, false}, &plan) == DAVY_OK);
    const int64_t bands = count_op(plan, "conv2d_winograd_band");
    CHECK(count_op(plan, "conv2d_winograd") + bands > 0 && (bands > 0) == as->policy.transform_bands);
    dv_plan_release(plan);
    return s;
}

static void check_as(bench *b, const dv_slice_choice *as, const clip *whole) {
    dv_clip_stream *s = stream_as(b, 0, as);
    clip c = clip_new();
    const uint64_t offloaded = s->choice.info.offloaded_bytes;
    CHECK((offloaded > 0) == as->policy.offload_state &&
          (as->policy.resident_bytes > 0 || offloaded > s->choice.info.state_bytes / 2 || !as->policy.offload_state));
    for (int round = 0; round < (as->policy.offload_state ? 2 : 1); round++) { /* also with memory pinned before */
        CHECKF(run_clip(b, s, &plain, &c, 1, 2) == DAVY_OK && same(&c, whole),
               "by frame %d, bands %d, offload %d: distance %g", as->policy.frame_by_frame, as->policy.transform_bands,
               as->policy.offload_state, distance(&c, whole));
        dv_clip_stream_reset(s);
    }
    clip_free(&c);
    dv_clip_stream_release(s);
}

/* Slices give the bits of the whole clip, for any set of plain frames and any place of the state. */
static void test_transformed(void) {
    bench b;
    if (bench_open(&b, DAVY_DTYPE_BF16, true, 0)) {
        static const uint64_t kept_plain[] = {0, 0x15};
        for (int i = 0; i < 2; i++) {
            dv_slice_choice as = {.whole = true,
                                  .policy = {.transform_frames = true, .plain_rings.bits[0] = kept_plain[i]},
                                  .info.slice = LATENTS};
            dv_clip_stream *s = stream_as(&b, LATENTS, &as);
            clip whole = clip_new();
            CHECKF(run_clip(&b, s, &plain, &whole, LATENTS, 0) == DAVY_OK, "%s", last_error());
            dv_clip_stream_release(s);
            as.whole = false;
            for (int k = i; k < 16; k += 1 + i) {
                as.policy.frame_by_frame = k % 2 == 1;
                as.policy.transform_bands = k % 2 == 0 && k > 0;
                as.policy.offload_state = k >= 4;
                as.policy.resident_bytes = k >= 12 ? 4096 : 0;
                as.policy.overlap_arena_bytes = k >= 8 ? 1 << 20 : 0;
                as.info.slice = 1 + k / 2 % 2;
                check_as(&b, &as, &whole);
            }
            clip_free(&whole);
        }
    }
    bench_close(&b, "transformed");
}

/* For any budget the clip is computed within it, with some plain frames if there is no room for more transformed ones. */
static void test_budgets(void) {
    bench b;
    if (bench_open(&b, DAVY_DTYPE_BF16, true, 0)) {
        clip exact = whole_clip(&b, &plain), c = clip_new();
        dv_clip_stream_release(stream_in_least(&b, 1));
        const uint64_t least = dv_gpu_budget(b.gpu);
        bool some = false;
        for (uint64_t budget = least; budget < least + (160 << 10); budget += 16 << 10) { /* mostly weights */
            CHECK(dv_engine_unload(b.engine) == DAVY_OK);
            dv_gpu_set_budget(b.gpu, budget);
            dv_clip_stream *s = stream_of(&b, 0, 2);
            some = some || (s->choice.policy.transform_frames && dv_rings_any(&s->choice.policy.plain_rings));
            CHECKF(s->choice.need <= budget, "%llu bytes in %llu", (unsigned long long)s->choice.need,
                   (unsigned long long)budget);
            CHECKF(run_clip(&b, s, &plain, &c, 1, 2) == DAVY_OK && distance(&c, &exact) < 0.05, "%s, %g", last_error(),
                   distance(&c, &exact));
            dv_clip_stream_release(s);
        }
        CHECK(some);
        clip_free(&c);
        clip_free(&exact);
    }
    bench_close(&b, "budgets");
}

/* A cached choice is used while the memory is the same. With less memory the choice is made again. */
static void test_again(void) {
    bench b;
    if (bench_open(&b, DAVY_DTYPE_BF16, true, 0)) {
        dv_clip_stream *first = stream_of(&b, 0, 2), *again = stream_of(&b, 0, 2);
        const uint64_t need = first->choice.need;
        CHECK(b.engine->clip_choices != NULL && memcmp(&first->choice, &again->choice, sizeof first->choice) == 0);
        dv_clip_stream_release(again);
        dv_clip_stream_release(first);
        dv_gpu_set_budget(b.gpu, need - 1);
        again = stream_of(&b, 0, 2);
        CHECKF(again->choice.need < need, "%llu bytes, %llu before", (unsigned long long)again->choice.need,
               (unsigned long long)need);
        dv_clip_stream_release(again);
        dv_gpu_set_budget(b.gpu, 0);
        again = stream_of(&b, 0, 2);
        CHECK(again->choice.need == need);
        dv_clip_stream_release(again);
    }
    bench_close(&b, "again");
}

/* A cached choice stays valid after its weights have been packed, also in a budget with little room beside them (vectors as long as a
 * last slice). It is invalid if the weights have to be packed and do not fit, even if all else is the same. */
static void test_packed_since(bool tight) {
    bench b;
    if (bench_open(&b, DAVY_DTYPE_BF16, true, 0)) {
        clip c = clip_new();
        plans_made = 0;
        dv_clip_stream *first = stream_of(&b, 0, 2);
        CHECKF(plans_made > 3, "%d plans", plans_made);
        const uint64_t budget = tight ? first->choice.need + 4096 : 0;
        if (tight) { /* the choice is made once more */
            dv_clip_stream_release(first);
            dv_gpu_set_budget(b.gpu, budget);
            first = stream_of(&b, 0, 2);
        }
        const dv_slice_choice before = first->choice;
        CHECK(before.weights > 0 && before.weights == before.weights_all);
        CHECKF(run_clip(&b, first, &plain, &c, 1, 2) == DAVY_OK, "%s", last_error());
        dv_clip_stream_release(first);
        const uint64_t packed = dv_gpu_used(b.gpu, DV_MEM_WEIGHTS);
        CHECKF(packed >= before.weights, "%llu bytes packed, %llu expected", (unsigned long long)packed,
               (unsigned long long)before.weights);
        plans_made = 0; /* the choice is valid: at most its own slices are planned, once */
        dv_clip_stream *again = stream_of(&b, 0, 2);
        const dv_slice_choice found = again->choice;
        CHECKF(plans_made <= 3, "%d plans", plans_made);
        CHECK(memcmp(&found.policy.plain_rings, &before.policy.plain_rings, sizeof found.policy.plain_rings) == 0 &&
              found.policy.transform_frames == before.policy.transform_frames &&
              found.policy.frame_by_frame == before.policy.frame_by_frame &&
              found.info.arena_bytes == before.info.arena_bytes);
        CHECK(!tight || (found.weights < 4096 && found.need - found.weights == before.need - before.weights));
        dv_clip_stream_release(again);
        if (tight) { /* the free memory is the same as with the weights */
            CHECK(dv_engine_unload(b.engine) == DAVY_OK);
            dv_gpu_set_budget(b.gpu, budget - packed);
            again = NULL;
            const davy_result r = dv_clip_stream_open(
                b.engine, &(dv_clip_stream_desc){.stage = DV_STAGE_DECODE, .h = HEIGHT / 4, .w = WIDTH / 4, .slice = 2},
                &again);
            CHECK(r == DAVY_E_BUDGET || (r == DAVY_OK && again->choice.need <= budget - packed));
            dv_clip_stream_release(again);
        }
        clip_free(&c);
    }
    bench_close(&b, "packed since");
}

/* Later slices give the values that decide; the first ones can only add memory. The chosen candidate is measured like any choice. */
static void test_weighing(void) {
    bench b;
    if (bench_open(&b, DAVY_DTYPE_BF16, true, 0)) {
        dv_clip_stream *s = stream_of(&b, 0, 2);
        for (int k = 0; k < 8; k++) {
            const dv_slice_choice as = {.policy = {.frame_by_frame = k % 2 == 1, .transform_frames = k >= 4},
                                        .info.slice = 1 + k / 2 % 2};
            dv_slice_choice all = as;
            dv_clip_candidate w;
            CHECK(dv_clip_stream_weigh(s, &as, NULL, &w) == DAVY_OK && !w.complete);
            CHECK(dv_clip_stream_measure(s, &all) == DAVY_OK);
            CHECK(w.c.need <= all.need && w.c.need > all.need / 2 && fabs(w.c.cost_frame - all.cost_frame) < 1e-9);
            CHECK(dv_clip_stream_weigh_all(s, &w) == DAVY_OK && w.complete);
            CHECK(w.c.need == all.need && w.c.weights == all.weights && w.c.info.arena_bytes == all.info.arena_bytes &&
                  w.c.info.flops_first == all.info.flops_first && w.c.info.flops_step == all.info.flops_step);
            dv_clip_candidate_end(&w);
        }
        dv_slice_choice chosen = s->choice;
        CHECK(dv_clip_stream_measure(s, &chosen) == DAVY_OK && chosen.need == s->choice.need);
        dv_clip_stream_release(s);
    }
    bench_close(&b, "weighing");
}

/* In a budget with room for one form of the weights, those of earlier clips are freed as soon as they are unused. */
static void test_other_weights(void) {
    bench b;
    clip least = clip_new(), c = clip_new();
    uint64_t budget = 0;
    if (bench_open(&b, DAVY_DTYPE_BF16, true, 0)) {
        dv_clip_stream *s = stream_in_least(&b, 1);
        budget = dv_gpu_budget(b.gpu);
        CHECKF(run_clip(&b, s, &plain, &least, 1, 1) == DAVY_OK, "%s", last_error());
        dv_clip_stream_release(s);
    }
    bench_close(&b, "other weights");
    if (bench_open(&b, DAVY_DTYPE_BF16, true, 0)) {
        dv_clip_stream *s = NULL, *first = stream_of(&b, 0, 2);
        CHECKF(run_clip(&b, first, &plain, &c, 1, 2) == DAVY_OK, "%s", last_error());
        const uint64_t weights = dv_gpu_used(b.gpu, DV_MEM_WEIGHTS);
        dv_gpu_set_budget(b.gpu, dv_gpu_used(b.gpu, DV_MEM_WORKSPACE) + budget);
        CHECK(dv_clip_stream_open(
                  b.engine,
                  &(dv_clip_stream_desc){.stage = DV_STAGE_DECODE, .h = HEIGHT / 4, .w = WIDTH / 4, .slice = 1},
                  &s) == DAVY_E_BUDGET);
        dv_clip_stream_release(first);
        dv_gpu_set_budget(b.gpu, budget);
        CHECK(dv_gpu_used(b.gpu, DV_MEM_WEIGHTS) == weights);
        s = stream_of(&b, 0, 1);
        CHECK(dv_gpu_used(b.gpu, DV_MEM_WEIGHTS) == 0);
        CHECKF(run_clip(&b, s, &plain, &c, 1, 1) == DAVY_OK && same(&c, &least), "%s", last_error());
        dv_clip_stream_release(s);
    }
    bench_close(&b, "other weights");
    clip_free(&least);
    clip_free(&c);
}

/* ---- less memory in the middle of a clip ---- */

/* After its first latent, a clip finds `less` bytes fewer than its rest needs. */
static davy_result run_short(bench *b, dv_clip_stream *s, clip *c, uint64_t rest, uint64_t less) {
    davy_result r = call_stream(s, &plain, (char *)c->in, (char *)c->out, 0, 1, NULL, NULL);
    CHECKF(r == DAVY_OK, "%s", last_error());
    m->device_bytes = m->used_bytes + rest - dv_gpu_used(b->gpu, DV_MEM_WEIGHTS);
    m->device_bytes = m->device_bytes > less ? m->device_bytes - less : 0;
    r = call_stream(s, &plain, (char *)c->in, (char *)c->out, 1, LATENTS - 1, NULL, NULL);
    m->device_bytes = (uint64_t)4 << 30;
    return r;
}

typedef struct outcomes {
    int shorter, offloaded, refused;
} outcomes;

/* Computed frames stay valid. The others are computed in shorter slices or with an offloaded state, with the same bits. Otherwise only
 * this clip is lost. */
static void check_retreat(davy_dtype compute, uint64_t weights, uint64_t less, const clip *whole, outcomes *out) {
    bench b;
    if (bench_open(&b, compute, true, 0)) {
        dv_clip_stream_info before, after;
        dv_clip_stream *s = stream_of(&b, 0, 3);
        clip c = clip_new();
        dv_clip_stream_info_get(s, &before);
        const davy_result r = run_short(&b, s, &c, weights, less);
        dv_clip_stream_info_get(s, &after);
        CHECKF(r == DAVY_OK || r == DAVY_E_NOMEM_DEVICE, "%s", last_error());
        CHECKF(r != DAVY_OK || same(&c, whole), "%d bytes less: distance %g", (int)less, distance(&c, whole));
        out->shorter += r == DAVY_OK && after.arena_bytes < before.arena_bytes && after.offloaded_bytes == 0;
        out->offloaded += r == DAVY_OK && after.offloaded_bytes > 0;
        out->refused += r != DAVY_OK;
        dv_clip_stream_reset(s);
        CHECKF(run_clip(&b, s, &plain, &c, 1, 3) == DAVY_OK && same(&c, whole), "%d bytes less, then distance %g",
               (int)less, distance(&c, whole));
        clip_free(&c);
        dv_clip_stream_release(s);
    }
    bench_close(&b, "retreat");
}

static void test_retreat(davy_dtype compute) {
    bench b;
    outcomes seen = {0};
    if (bench_open(&b, compute, true, 0)) {
        clip whole = whole_clip(&b, &plain), c = clip_new();
        dv_clip_stream *s = stream_of(&b, 0, 3);
        CHECK(run_clip(&b, s, &plain, &c, 1, 3) == DAVY_OK && same(&c, &whole));
        dv_clip_stream_release(s);
        const uint64_t weights = dv_gpu_used(b.gpu, DV_MEM_WEIGHTS);
        bench_close(&b, "retreat");
        for (uint64_t less = 4 << 10; less <= 4 << 20; less = less / 2 * 3) {
            check_retreat(compute, weights, less, &whole, &seen);
        }
        clip_free(&c);
        clip_free(&whole);
    } else {
        bench_close(&b, "retreat");
    }
    CHECKF(seen.shorter > 0 && seen.offloaded > 0 && seen.refused > 0, "%d shorter, %d offloaded, %d refused",
           seen.shorter, seen.offloaded, seen.refused);
}

int main(void) {
    reference_begin();
    test_short();
    test_budget();
    test_offload();
    test_transformed();
    test_budgets();
    test_again();
    test_packed_since(false);
    test_packed_since(true);
    test_weighing();
    test_other_weights();
    test_retreat(DAVY_DTYPE_F32);
    test_retreat(DAVY_DTYPE_BF16);
    return reference_end();
}
