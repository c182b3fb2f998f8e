/* cuda_check.c - kcheck --cuda --test: runs every problem on every CUDA kernel that supports it, in each of its
 * precisions, against the CPU's reference. All of a problem's memory is copied to the device and back, so that writes
 * outside of the outputs are detected. Each case runs twice and must give the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/error.h"
#include "tests/kcheck/kcheck_cuda.h"

enum { CANARY = 0x5a, PATIENCE_SECONDS = 20, QUICK_CASES = 40 };

static kc_device device;
static int lost; /* 1: this process can no longer use the device */

static const char *op_of(int entry) {
    const kc_entry *e = kc_cuda_entry(entry);
    return e != NULL ? e->kernel->op : "?";
}

static const char *variant_of(int entry) {
    const kc_entry *e = kc_cuda_entry(entry);
    return e != NULL ? e->variant : "?";
}

static void run_from(const kc_options *o, kc_progress *now);

static const kc_runner runner = {.run = run_from, .op = op_of, .variant = variant_of, .entries = kc_cuda_entries};

static void fail(kc_result *r, const char *what) {
    if (!r->failed) {
        davy_error_info error = {.struct_size = sizeof error};
        dv_error_get(&error);
        r->failed = 1;
        snprintf(r->why, sizeof r->why, "%s%.180s", what, error.message);
        lost |= error.code == DAVY_E_DEVICE_LOST;
    }
}

static davy_result give_up(void *user) {
    const time_t *start = user;
    lost = time(NULL) - *start > PATIENCE_SECONDS;
    return lost ? dv_fail(DAVY_E_DEVICE, "did not finish within %d seconds", (int)PATIENCE_SECONDS) : DAVY_OK;
}

/* Prepares all of the device's memory for the run. */
static void stage(const kc_problem *p, const kc_layout *l) {
    unsigned char *to = device.staging;
    memset(to, CANARY, l->exchanged);
    for (int i = 0; i < p->n_buffers; i++) {
        if (!p->buffers[i].host_only) {
            memcpy(to + l->buffers[i], p->buffers[i].before, p->buffers[i].bytes);
        }
    }
    memset(to + l->scratch, 0xff, l->scratch_bytes); /* NaN, to detect reads of uninitialised scratch */
    memset(to + l->stats, 0xff, l->stats_bytes);
}

/* Number of intact canary bytes from the front on. */
static uint64_t canaries(const unsigned char *of, uint64_t bytes) {
    uint64_t i = 0;
    while (i < bytes && of[i] == CANARY) {
        const uint64_t more = bytes - i - 1; /* each byte equals the one before it */
        i += memcmp(of + i, of + i + 1, more < 4096 ? more : 4096) == 0 ? (more < 4096 ? more + 1 : 4096) : 1;
    }
    return i;
}

static int gaps_untouched(const kc_problem *p, const kc_layout *l, kc_result *r) {
    unsigned char *of = device.staging;
    for (int i = 0; i < p->n_buffers; i++) {
        if (!p->buffers[i].host_only) {
            memcpy(p->buffers[i].start, of + l->buffers[i], p->buffers[i].bytes);
            memset(of + l->buffers[i], CANARY, p->buffers[i].bytes);
        }
    }
    memset(of + l->scratch, CANARY, l->scratch_bytes);
    const uint64_t end = l->stats_bytes > 0 ? l->stats : l->exchanged; /* statistics are last */
    const uint64_t clean = canaries(of, end) == end ? end + l->stats_bytes : canaries(of, end);
    if (clean < end || clean + canaries(of + clean, l->exchanged - clean) < l->exchanged) {
        r->failed = 1;
        snprintf(r->why, sizeof r->why, "wrote outside its memory: near byte %llu of %llu", (unsigned long long)clean,
                 (unsigned long long)l->exchanged);
        return 0;
    }
    return 1;
}

static int launch(const kc_entry *e, const kc_problem *p, const kc_layout *l, kc_result *r) {
    dvk_args args = kc_args_at(p, l, device.arena);
    time_t start = time(NULL);
    if (dv_gpu_upload(device.queue, device.arena, device.staging, l->exchanged) != DAVY_OK) {
        fail(r, "upload: ");
        return 0;
    }
    const int code =
        e->kernel->enqueue(&args, l->scratch_bytes > 0 ? device.arena + l->scratch : NULL, &device.queue->base);
    if (dv_gpu_check(device.gpu, code, e->variant) != DAVY_OK ||
        dv_gpu_queue_wait(device.queue, give_up, &start) != DAVY_OK ||
        dv_gpu_download(device.queue, device.staging, device.arena, l->exchanged) != DAVY_OK) {
        fail(r, "");
        return 0;
    }
    return 1;
}

/* Compares the statistics of one group of one picture, merged from the kernel's output, with those of the stored
 * values. */
static void compare_group(const kc_problem *p, const kc_layout *l, int64_t n, int64_t group, kc_result *r) {
    dvk_view rows = p->args.conv.y;
    const dvk_view *y = &rows;
    const int64_t width = y->c / p->stats_groups;
    const float *part = (const float *)(const void *)(device.staging + l->stats);
    double count = 0.0, mean = 0.0, m2 = 0.0;
    for (int64_t k = 0; k < l->stats_chunks; k++) {
        const float *of = part + ((n * l->stats_chunks + k) * p->stats_groups + group) * 3;
        const double more = (double)of[0];
        if (more > 0.0) {
            const double delta = (double)of[1] - mean;
            mean += delta * more / (count + more);
            m2 += (double)of[2] + delta * delta * count * more / (count + more);
            count += more;
        }
    }
    if (p->stats_rows > 0) {
        rows.data = (char *)rows.data + p->stats_first * rows.sh * (int64_t)dvk_dtype_size(rows.dtype);
        rows.h = p->stats_rows;
    }
    double sum = 0.0, squares = 0.0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < y->h * y->w; i++) {
            const int64_t at = n * y->sn + i / y->w * y->sh + i % y->w * y->sw + group * width;
            for (int64_t c = 0; c < width; c++) {
                const double v = (double)dvk_load(y->data, y->dtype, at + c);
                sum += pass == 0 ? v : 0.0;
                squares += pass == 1 ? (v - sum) * (v - sum) : 0.0;
            }
        }
        sum /= pass == 0 ? (double)(y->h * y->w * width) : 1.0;
    }
    const double all = (double)(y->h * y->w * width);
    const double spread = sqrt(squares / all + sum * sum);
    const int good =
        fabs(count - all) < 0.5 && fabs(mean - sum) <= 1e-5 * spread && fabs(m2 - squares) <= 1e-4 * squares;
    if (!good && !r->failed) {
        r->failed = 1;
        snprintf(r->why, sizeof r->why,
                 "statistics of picture %lld, group %lld: %.0f values, mean %.7g, M2 %.7g; stored %.0f, %.7g, %.7g",
                 (long long)n, (long long)group, count, mean, m2, all, sum, squares);
    }
}

/* Compares the sum of a channel with that of the stored values, each of which may be rounded by half a step. */
static void compare_sums(const kc_problem *p, const kc_layout *l, int64_t c, kc_result *r) {
    const dvk_view *y = &p->args.conv.y;
    const float *rows = (const float *)(const void *)(device.staging + l->stats);
    const double step = y->dtype == DVK_F16 ? 0x1p-11 : 0x1p-8;
    double sum = 0.0, stored = 0.0, all = 0.0;
    for (int64_t k = 0; k < l->stats_chunks; k++) {
        sum += (double)rows[k * y->c + c];
    }
    for (int64_t i = 0; i < y->h * y->w; i++) {
        const double v = (double)dvk_load(y->data, y->dtype, i / y->w * y->sh + i % y->w * y->sw + c);
        stored += v;
        all += fabs(v);
    }
    if (fabs(sum - stored) > (step + 1e-5) * all && !r->failed) {
        r->failed = 1;
        snprintf(r->why, sizeof r->why, "sum of channel %lld: %.7g; stored %.7g", (long long)c, sum, stored);
    }
}

static void compare_twice(kc_problem *p, int round, kc_result *r) {
    for (int i = 0; i < p->n_outputs; i++) {
        kc_buffer *b = p->outputs[i].buffer;
        if (round == 0) {
            memcpy(b->after_run, b->start, b->bytes);
        } else if (memcmp(b->after_run, b->start, b->bytes) != 0 && !r->failed) {
            r->failed = 1;
            snprintf(r->why, sizeof r->why, "a second run gave different bits");
        }
    }
}

static void run_apart(const kc_entry *e, kc_problem *p, kc_layout *l, const unsigned char *packed, kc_result *r) {
    kc_restore(p);
    if (kc_run_apart(&device, e, p, l, packed) != DAVY_OK) {
        fail(r, "");
    } else if (kc_untouched(p, r)) {
        kc_compare(p, e->compute, e->variant, r);
    }
}

static void run_entry(const kc_options *o, const kc_entry *e, kc_problem *p, kc_result *r) {
    kc_layout l;
    kc_layout_make(&device, e, p, &l);
    unsigned char *packed = kc_cuda_pack(e, p);
    if (packed == NULL || !kc_device_reserve(&device, l.bytes, l.exchanged)) {
        fail(r, "");
        free(packed);
        return;
    }
    if (o->quick) {
        run_apart(e, p, &l, packed, r);
    }
    if (!o->quick && dv_gpu_upload(device.queue, device.arena + l.packed, packed, l.packed_bytes) != DAVY_OK) {
        fail(r, "weights: ");
    }
    for (int round = 0; round < 2 && !o->quick && !r->failed; round++) {
        stage(p, &l);
        if (launch(e, p, &l, r) && gaps_untouched(p, &l, r) && kc_untouched(p, r)) {
            if (round == 0) {
                kc_compare(p, e->compute, e->variant, r);
                for (int64_t i = 0; l.stats_bytes > 0 && !p->no_compare && i < p->args.conv.y.n * p->stats_groups;
                     i++) {
                    compare_group(p, &l, i / p->stats_groups, i % p->stats_groups, r);
                }
                for (int64_t c = 0; p->sums && !p->no_compare && c < p->args.conv.y.c; c++) {
                    compare_sums(p, &l, c, r);
                }
            }
            compare_twice(p, round, r);
        }
    }
    free(packed);
}

/* Runs one problem, unaligned or in the planner's layout, on every kernel from number `first` on. */
static void run_case(const kc_options *o, kc_progress *now, int suite, int index, int first) {
    const char *op = kc_suites[suite]->op;
    kc_problem p = {.rng = {.state = kc_case_seed(o->seed, kc_suites[suite]->number, index / 2)}, .aligned = index % 2};
    kc_suites[suite]->build(&p, index / 2);
    now->suite = suite;
    now->index = index;
    now->entry = first;
    snprintf(now->text, sizeof now->text, "%.140s%s", p.text, p.aligned ? " aligned" : "");
    const dvk_kernel *known = NULL;
    for (int i = first; i < kc_cuda_entries(); i++) {
        const kc_entry *e = kc_cuda_entry(i);
        /* minutes under a checker; if the reference is slow, the planner's layout alone is tested */
        const int too_long = p.flops > 2e8 && (o->quick || !p.aligned);
        if (too_long || !kc_cuda_selected(o, &device, e, op) || !kc_cuda_fits(&device, e, &p)) {
            continue;
        }
        if (known == NULL) {
            kc_snapshot(&p);
        }
        const dvk_kernel *ref = kc_reference_of(op, e->compute, e->variant);
        if (ref != known) {
            kc_reference(&p, ref);
            known = ref;
        }
        kc_result result = {0};
        now->entry = i;
        run_entry(o, e, &p, &result);
        kc_note(o, &runner, now, &result);
        if (lost) {
            fflush(stdout);
            now->entry = i + 1;
            _Exit(KC_AGAIN);
        }
    }
    kc_release(&p);
}

static void run_from(const kc_options *o, kc_progress *now) {
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* failures are visible even if the run is stopped */
    if (!kc_device_open(&device, o, now->skipped, sizeof now->skipped)) {
        return;
    }
    int index = now->index;
    int first = now->entry;
    for (int s = now->suite; s < kc_suite_count; s++, index = 0, first = 0) {
        int any = 0;
        for (int i = 0; i < kc_cuda_entries(); i++) {
            any |= kc_cuda_selected(o, &device, kc_cuda_entry(i), kc_suites[s]->op);
        }
        const time_t start = time(NULL);
        const int count = 2 * kc_suites[s]->count();
        /* odd: covers aligned and unaligned cases */
        const int step = o->quick && count > QUICK_CASES ? count / QUICK_CASES | 1 : 1;
        for (; any && index < count; index += step, first = 0) {
            run_case(o, now, s, index, first);
        }
        if (any) {
            printf("%s: %d problems, %.0f s\n", kc_suites[s]->op, count / step, difftime(time(NULL), start));
        }
    }
    kc_device_close(&device);
}

int kc_cuda_check(const kc_options *o) {
    return kc_run(o, &runner);
}
