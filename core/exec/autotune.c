/* autotune.c - see autotune.h. */
#include "core/exec/autotune.h"

#include <string.h>

#include "core/cuda/conv_nvidia.h"
#include "core/base/error.h"
#include "core/plan/arena.h"
#include "core/base/mem.h"

enum { ROUNDS = 3, RUNS = 4 }; /* the best round counts */

typedef struct candidate { /* a library's convolution for a step */
    dv_step *step;
    const dvk_cuda_kernel *kernel;
    nv_conv *conv;
    uint64_t scratch, weight;
} candidate;

typedef struct bench {
    const dv_plan *plan;
    dv_gpu *gpu;
    dv_gpu_queue *queue;
    dv_gpu_event *from, *to;
    char *arena, *scratch, *weights; /* one block */
    uint64_t bytes;
} bench;

/* ---- candidates ---- */

static bool find(dv_gpu *gpu, const dv_plan *p, dv_step *s, candidate *out) {
    const dvk_cuda_caps *caps = dv_gpu_caps(gpu);
    const dvk_conv2d_args *a = &s->args.conv;
    int library = 0;
    const bool stores = p->direct && s == &p->steps[p->n_steps - 1]; /* no library stores pictures */
    if (stores || a->scaled || a->epi.sums != NULL || strcmp(dv_kernel_op(s->kernel), "conv2d") != 0) {
        return false;
    }
    *out = (candidate){.step = s, .kernel = dv_conv_nvidia(a, caps, &library)};
    out->conv = out->kernel != NULL ? nv_conv_find(gpu, library, a, true) : NULL;
    if (out->conv == NULL) {
        return false;
    }
    const dvk_cuda_kernel *ours = s->kernel.cuda;
    atomic_store(&out->conv->chunks, a->epi.stats != NULL ? ours->stats_chunks(a, caps) : 0);
    out->scratch = dv_align_up(out->kernel->scratch_bytes(a, caps), 256);
    out->weight = out->kernel->packed_bytes(a);
    return true;
}

/* ---- measuring ---- */

static davy_result open_bench(bench *b, const candidate *list, int64_t n) {
    const dv_plan *p = b->plan;
    uint64_t scratch = p->scratch_bytes;
    uint64_t weights = DV_WEIGHT_ALIGN;
    for (int64_t i = 0; i < n; i++) {
        scratch = list[i].scratch > scratch ? list[i].scratch : scratch;
        weights = list[i].weight > weights ? list[i].weight : weights;
    }
    for (int64_t i = 0; i < p->n_weights; i++) {
        weights = p->weights[i].bytes > weights ? p->weights[i].bytes : weights;
    }
    const uint64_t arena = dv_align_up(p->arena_bytes, 256);
    b->bytes = arena + scratch + weights;
    void *block = NULL;
    davy_result r = dv_gpu_alloc(b->gpu, DV_MEM_WORKSPACE, b->bytes, "measuring", &block);
    if (r == DAVY_OK) {
        b->arena = block;
        b->scratch = b->arena + arena;
        b->weights = b->scratch + scratch;
    }
    r = r < 0 ? r : dv_gpu_queue_take(b->gpu, NULL, &b->queue);
    r = r < 0 ? r : dv_gpu_event_create(b->gpu, true, &b->from);
    r = r < 0 ? r : dv_gpu_event_create(b->gpu, true, &b->to);
    return r < 0 ? r : dv_gpu_check(b->gpu, b->queue->base.clear(&b->queue->base, block, b->bytes), "measuring");
}

static void close_bench(bench *b) {
    if (b->queue != NULL) {
        dv_gpu_queue_wait(b->queue, NULL, NULL);
        dv_gpu_queue_give(b->queue);
    }
    dv_gpu_event_release(b->from);
    dv_gpu_event_release(b->to);
    if (b->arena != NULL) {
        dv_gpu_free(b->gpu, DV_MEM_WORKSPACE, b->arena, b->bytes);
    }
}

/* The step's arguments in the bench's memory. All weights share one block of zeros, because values do not change the time. */
static dvk_args args_of(const bench *b, const dv_step *s) {
    dvk_args args = s->args;
    for (int64_t i = s->first_bind; i < s->first_bind + s->n_binds; i++) {
        const dv_bind *bind = &b->plan->binds[i];
        const void *p = bind->kind == DV_BIND_ARENA ? b->arena + bind->at : b->weights;
        memcpy((char *)&args + bind->field, &p, sizeof p);
    }
    return args;
}

static davy_result time_once(bench *b, const dvk_cuda_kernel *k, const dvk_args *args, int runs, float *ms) {
    davy_result r = dv_gpu_event_record(b->from, b->queue);
    for (int i = 0; i < runs && r == DAVY_OK; i++) {
        r = dv_gpu_check(b->gpu, k->enqueue(args, b->scratch, &b->queue->base), "measuring");
    }
    r = r < 0 ? r : dv_gpu_event_record(b->to, b->queue);
    r = r < 0 ? r : dv_gpu_queue_wait(b->queue, NULL, NULL);
    return r < 0 ? r : dv_gpu_event_ms(b->from, b->to, ms);
}

/* The two kernels alternate, so that warm-up and other load on the device affect both alike. */
static davy_result measure(bench *b, const candidate *c, float best[2]) {
    const dvk_cuda_kernel *const kernels[2] = {c->step->kernel.cuda, c->kernel};
    const dvk_args args = args_of(b, c->step);
    davy_result r = DAVY_OK;
    for (int round = 0; round <= ROUNDS; round++) { /* round 0 warms up */
        for (int k = 0; k < 2 && r == DAVY_OK; k++) {
            float ms = 0.0f;
            r = time_once(b, kernels[k], &args, round == 0 ? 1 : RUNS, &ms);
            best[k] = round <= 1 || ms < best[k] ? ms : best[k];
        }
    }
    return r;
}

static void measure_all(const dv_plan *plan, dv_gpu *gpu, const dv_log *log, candidate *list, int64_t n) {
    bench b = {.plan = plan, .gpu = gpu};
    davy_result r = open_bench(&b, list, n);
    for (int64_t i = 0; i < n && r == DAVY_OK; i++) {
        const candidate *c = &list[i];
        const dvk_conv2d_args *a = &c->step->args.conv;
        float best[2] = {0.0f, 0.0f};
        if (atomic_load(&c->conv->measured)) {
            continue;
        }
        const bool ran = measure(&b, c, best) == DAVY_OK;
        atomic_store(&c->conv->faster, ran && best[1] < best[0]);
        atomic_store(&c->conv->measured, true);
        dv_logf(log, DAVY_LOG_DEBUG,
                "cuda:%d: conv2d %dx%d, %lld to %lld channels, %lldx%lld: %s %.1f us, %s %.1f us%s",
                (int)dv_gpu_index(gpu), (int)a->kh, (int)a->kw, (long long)a->x.c, (long long)a->y.c, (long long)a->y.w,
                (long long)a->y.h, c->step->kernel.cuda->variant, (double)best[0] * 1e3 / RUNS, c->kernel->variant,
                (double)best[1] * 1e3 / RUNS, ran ? "" : ", failed");
    }
    close_bench(&b);
}

/* ---- the plan ---- */

static void take(dv_plan *p, const candidate *c) {
    dv_step *s = c->step;
    for (int64_t i = s->first_bind; i < s->first_bind + s->n_binds; i++) {
        const dv_bind *bind = &p->binds[i];
        if (bind->kind == DV_BIND_WEIGHT && bind->field == offsetof(dvk_args, conv.w)) {
            dv_weight *w = &p->weights[bind->at];
            p->weight_bytes += dv_align_up(c->weight, DV_WEIGHT_ALIGN) - dv_align_up(w->bytes, DV_WEIGHT_ALIGN);
            s->bytes += c->weight - w->bytes;
            w->bytes = c->weight;
            w->kernel.cuda = c->kernel;
        }
    }
    s->kernel.cuda = c->kernel;
    s->scratch_at = dv_align_up(p->arena_bytes, DV_ARENA_ALIGN);
    if (c->scratch > p->scratch_bytes) {
        p->scratch_added += c->scratch - p->scratch_bytes;
        p->scratch_bytes = c->scratch;
    }
}

/* The tile size was chosen without the libraries' scratch. It must fit beside everything else, with an eighth to spare for the
 * memory that a run needs outside its plan. */
static bool has_room(const dv_plan *p, dv_gpu *gpu, const candidate *list, int64_t n) {
    const uint64_t budget = dv_gpu_budget(gpu);
    uint64_t scratch = p->scratch_bytes;
    uint64_t weights = p->weight_bytes;
    for (int64_t i = 0; i < n; i++) {
        scratch = list[i].scratch > scratch ? list[i].scratch : scratch;
        weights += dv_align_up(list[i].weight, DV_WEIGHT_ALIGN);
    }
    const uint64_t need = p->arena_bytes + scratch + weights;
    const uint64_t used = dv_gpu_used(gpu, DV_MEM_WEIGHTS) + dv_gpu_used(gpu, DV_MEM_WORKSPACE);
    return budget == 0 || used + need + need / 8 <= budget;
}

void dv_plan_autotune(dv_plan *p, dv_gpu *gpu, const dv_log *log) {
    davy_error_info error = {.struct_size = sizeof error};
    candidate *list = dv_gpu_uses_nvidia(gpu) ? dv_calloc((uint64_t)p->n_steps + 1, sizeof *list) : NULL;
    int64_t n = 0;
    bool open = false;
    for (int64_t i = 0; list != NULL && i < p->n_steps; i++) {
        if (find(gpu, p, &p->steps[i], &list[n])) {
            open = open || !atomic_load(&list[n].conv->measured);
            n++;
        }
    }
    if (n > 0 && !has_room(p, gpu, list, n)) {
        dv_logf(log, DAVY_LOG_DEBUG, "cuda:%d: no room in the memory budget for the scratch of NVIDIA's libraries",
                (int)dv_gpu_index(gpu));
        n = 0;
    }
    if (open && n > 0) {
        dv_error_get(&error);
        measure_all(p, gpu, log, list, n);
        dv_error_set(&error);
    }
    for (int64_t i = 0; i < n; i++) {
        if (atomic_load(&list[i].conv->faster)) {
            take(p, &list[i]);
        }
    }
    dv_free(list);
}
