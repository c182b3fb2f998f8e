/* stop.c - stops work at every step. It cancels at the first poll, the second, and so on, early during the first writes to new
 * memory, and after every few microseconds. It also runs with each budget from nothing to plenty. Each time the memory must be
 * freed, and the next undisturbed run must give the same picture. */
#include <stdlib.h>
#include <string.h>

#include "core/tiles/engine.h"
#include "core/base/os.h"
#include "core/base/profile.h"
#include "tests/fault/life.h"

enum { MOST = 5000 };

static const davy_api *api;

/* ---- internal: the engine's polls ---- */

typedef struct stopper {
    int polls, stop_at;
} stopper;

static int32_t count_polls(void *user) {
    stopper *s = user;
    return s->polls++ >= s->stop_at;
}

static dv_services inner_services(const davy_host *host, int32_t threads) {
    dv_services s = {.heap = dv_heap_create(host, 0), .profile = dv_profile_create(), .cpu = dvk_cpu_detect()};
    static const dv_log silent;
    s.log = &silent;
    CHECK(s.heap != NULL && s.profile != NULL && dv_pool_create(threads, &s.pool) == DAVY_OK);
    return s;
}

static void inner_release(const dv_services *s) {
    CHECK(dv_heap_used(s->heap, DV_MEM_WEIGHTS) == 0 && dv_heap_used(s->heap, DV_MEM_WORKSPACE) == 0);
    dv_pool_release(s->pool);
    dv_profile_release(s->profile);
    dv_heap_release(s->heap);
}

static dv_engine *inner_engine(const dv_services *services, const synth_file *file) {
    dv_source *source = NULL;
    dv_tensors *tensors = NULL;
    dv_engine *engine = NULL;
    const dv_open_options open = {.no_pickle = true};
    CHECK(dv_source_open_memory("small.safetensors", file->data, file->bytes, &source) == DAVY_OK);
    CHECK(dv_tensors_open(source, &open, &tensors) == DAVY_OK);
    dv_source_release(source);
    CHECK(dv_tensors_unwrap(tensors) == DAVY_OK);
    const dv_engine_desc desc = {.services = services, .tensors = tensors, .file_name = "small.safetensors"};
    if (!CHECK(dv_engine_create(&desc, &engine) == DAVY_OK)) {
        dv_tensors_release(tensors);
    }
    return engine;
}

static dvk_image packed(picture *p) {
    return (dvk_image){.data = p->v,
                       .dtype = DVK_F32,
                       .channels = (int32_t)p->c,
                       .n = 1,
                       .h = p->h,
                       .w = p->w,
                       .sn = 4 * p->c * p->w * p->h,
                       .sh = 4 * p->c * p->w,
                       .sw = 4 * p->c,
                       .sc = 4,
                       .map = {0, 1, 2, 3}};
}

static void cancel_at_every_poll(void) {
    const dv_services services = inner_services(NULL, 2);
    synth_file file = synth_compact(8, 1, 2, 5);
    dv_engine *engine = inner_engine(&services, &file);
    if (engine == NULL) {
        return;
    }
    picture in = picture_new(1, 90, 80, 3), out = picture_new(1, 180, 160, 3), want = picture_new(1, 180, 160, 3);
    picture_fill(&in, 8);
    dv_work work = {.stage = DV_STAGE_UPSCALE, .in = packed(&in), .out = packed(&want), .in_mul = 1, .out_mul = 1};
    work.tiling.width = 32; /* several tiles, so it also stops between them */
    work.tiling.height = 32;
    CHECK(dv_engine_run(engine, &work) == DAVY_OK);
    stopper s = {0, 0};
    work.out = packed(&out);
    work.control.cancelled = count_polls;
    work.control.cancelled_user = &s;
    davy_result r = DAVY_E_INTERNAL;
    int stops = 0;
    for (; s.stop_at < MOST; s.stop_at++) {
        s.polls = 0;
        dv_engine_unload(engine); /* so that it also stops during loading */
        r = dv_engine_run(engine, &work);
        if (r == DAVY_OK) {
            break;
        }
        stops++;
        CHECKF(r == DAVY_E_CANCELLED, "stopped at poll %d: %d", s.stop_at, (int)r);
        CHECKF(s.polls == s.stop_at + 1, "poll %d said stop, %d more were made", s.stop_at, s.polls - s.stop_at - 1);
    }
    printf("  stopped at %d polls\n", stops);
    CHECKF(stops >= 10, "a run of several tiles polls only %d times", stops);
    CHECKF(r == DAVY_OK && picture_max_error(&out, &want) == 0, "a run that is not stopped: %d", (int)r);
    dv_engine_release(engine);
    inner_release(&services);
    picture_free(&in);
    picture_free(&out);
    picture_free(&want);
    free(file.data);
}

/* ---- new memory ---- */

enum { MARK = 0xA5, PAGE = 4096, LARGE = 8 << 20, LITTLE = 2 << 20 };

typedef struct fresh {
    unsigned char *blocks[8]; /* large blocks, in the order of allocation */
    size_t bytes[8];
    int n, watched; /* the run must end soon after the first write to this block */
    size_t written; /* bytes of its pages written until then */
} fresh;

static void *DAVY_CALL marked_alloc(void *user, size_t bytes, size_t align) {
    fresh *f = user;
    unsigned char *p = dv_aligned_alloc(bytes, align);
    if (p != NULL && bytes >= LARGE && CHECK(f->n < 8)) {
        memset(p, MARK, bytes);
        f->blocks[f->n] = p;
        f->bytes[f->n++] = bytes;
    }
    return p;
}

static void DAVY_CALL marked_free(void *user, void *p, size_t bytes) {
    (void)user;
    (void)bytes;
    dv_aligned_free(p);
}

static int32_t written_to(void *user) {
    fresh *f = user;
    f->written = 0;
    for (size_t at = 0; f->n > f->watched && at < f->bytes[f->watched]; at += PAGE) {
        f->written += f->blocks[f->watched][at] != MARK ? PAGE : 0;
    }
    return f->written > 0;
}

/* The first write to a page may take a thousand times as long as later ones. So a run must not write to much new memory between
 * two polls: with one thread, at most the first piece of a loop. */
static void cancel_in_fresh_memory(void) {
    fresh f = {.n = 0};
    const davy_host host = {.struct_size = sizeof host, .user = &f, .alloc = marked_alloc, .free = marked_free};
    dv_services services = inner_services(&host, 1);
    synth_file file = synth_compact(8, 1, 2, 5);
    dv_engine *engine = inner_engine(&services, &file);
    picture in = picture_new(1, 500, 1000, 3), out = picture_new(1, 1000, 2000, 3);
    picture_fill(&in, 8);
    dv_work work = {.stage = DV_STAGE_UPSCALE, .in = packed(&in), .out = packed(&out), .in_mul = 1, .out_mul = 1};
    work.tiling =
        (dv_tiling){.width = 400, .height = 400, .overlap = 1}; /* below the reach: tiles blend in a band of rows */
    work.control = (dv_control){.cancelled = written_to, .cancelled_user = &f};
    for (f.watched = 0; engine != NULL && f.watched < 2; f.watched++) {
        dv_engine_unload(engine);
        f.n = 0;
        CHECKF(dv_engine_run(engine, &work) == DAVY_E_CANCELLED, "block %d of %d was not written to", f.watched, f.n);
        CHECKF(f.written > 0 && f.written <= LITTLE, "%zu of %zu bytes of block %d before a look", f.written,
               f.bytes[f.watched], f.watched);
    }
    dv_engine_release(engine);
    inner_release(&services);
    picture_free(&in);
    picture_free(&out);
    free(file.data);
}

/* ---- through the ABI: cancel and budget ---- */

static void cancel_any_time(life *l, host_state *state) {
    davy_model *m = NULL;
    const davy_model_desc desc = {.struct_size = sizeof desc, .sources = &l->source, .n_sources = 1};
    const davy_tensor src = host_tensor(&l->in);
    davy_tensor dst = host_tensor(&l->out);
    IS(api->model_open(l->ctx, &desc, &m), DAVY_OK);
    int cancelled = 0, finished = 0, other = 0;
    for (uint64_t ns = 0; ns < 1500000; ns += 5000) {
        davy_job *job = NULL;
        api->model_unload(m, 0);
        if (api->upscale(m, &src, &dst, NULL, &job) != DAVY_OK) {
            other++;
            continue;
        }
        const uint64_t until = host_now_ns() + ns;
        while (host_now_ns() < until) {
        }
        api->job_cancel(job);
        if (ns % 10000 == 0) {
            const davy_result r = api->job_wait(job, UINT64_MAX);
            cancelled += r == DAVY_E_CANCELLED;
            finished += r == DAVY_OK;
            other += r != DAVY_E_CANCELLED && r != DAVY_OK;
        }
        api->job_release(job);
    }
    printf("  jobs: %d cancelled, %d had finished\n", cancelled, finished);
    CHECK(cancelled > 0 && other == 0);
    IS(api->upscale(m, &src, &dst, NULL, NULL), DAVY_OK);
    CHECK(life_right(l, 0));
    api->model_release(m);
    IS(api->context_trim(l->ctx, 0, 0), DAVY_OK);
    CHECKF(atomic_load(&state->bytes) == 0, "%lld bytes are not given back", atomic_load(&state->bytes));
}

static void budget_at_every_threshold(life *l, host_state *state) {
    atomic_store(&state->peak_bytes, 0);
    IS(life_live(l), DAVY_OK);
    IS(api->context_trim(l->ctx, 0, 0), DAVY_OK);
    const uint64_t enough = (uint64_t)atomic_load(&state->peak_bytes) + 4096;
    const uint64_t step = enough / 400 + 1;
    int fits = 0, refused = 0, first_fit = -1, last_refusal = -1, n = 0;
    for (uint64_t budget = 1; budget < enough + step; budget += step, n++) {
        IS(api->context_budget(l->ctx, 0, budget), DAVY_OK);
        atomic_store(&state->peak_bytes, 0);
        const davy_result r = life_live(l);
        CHECKF(r == DAVY_OK || r == DAVY_E_BUDGET, "budget %llu: %s (%s)", (unsigned long long)budget,
               api->result_name(r), host_error(l->api));
        CHECKF(atomic_load(&state->peak_bytes) <= (long long)budget, "budget %llu: %lld bytes",
               (unsigned long long)budget, atomic_load(&state->peak_bytes));
        if (r == DAVY_OK) {
            CHECKF(life_right(l, 1e-5), "budget %llu changes the picture", (unsigned long long)budget);
            first_fit = first_fit < 0 ? n : first_fit;
            fits++;
        } else {
            last_refusal = n;
            refused++;
        }
        IS(api->context_trim(l->ctx, 0, 0), DAVY_OK);
        CHECKF(atomic_load(&state->bytes) == 0, "budget %llu leaves %lld bytes", (unsigned long long)budget,
               atomic_load(&state->bytes));
    }
    printf("  budgets up to %llu bytes: %d fit, %d are refused\n", (unsigned long long)enough, fits, refused);
    CHECK(fits > 0 && refused > 0);
    CHECKF(last_refusal < first_fit, "a budget fits that is smaller than one refused");
    IS(api->context_budget(l->ctx, 0, 1u << 30), DAVY_OK);
    IS(life_live(l), DAVY_OK);
    CHECK(life_right(l, 0));
}

int main(void) {
    api = davy_get_api(DAVY_ABI_1_0);
    cancel_at_every_poll();
    cancel_in_fresh_memory();
    host_state state;
    host_state_init(&state);
    state.level = DAVY_LOG_WARN;
    const davy_host host = host_callbacks(&state);
    const davy_context_desc desc = {
        .struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .host = &host, .device = "cpu", .n_threads = 2};
    davy_context *ctx = NULL;
    IS(api->context_create(&desc, &ctx), DAVY_OK);
    life l;
    life_begin(&l, api, ctx);
    cancel_any_time(&l, &state);
    budget_at_every_threshold(&l, &state);
    life_end(&l);
    api->context_release(ctx);
    CHECK(atomic_load(&state.blocks) == 0 && atomic_load(&state.wrong_frees) == 0);
    return check_done();
}
