/* cuda_bench.c - kcheck --cuda --bench: times each kernel on the shapes of real networks, on the device. A captured
 * graph runs the kernel many times in sequence. It rotates over enough copies of the problem's memory to exceed the
 * device's cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "tests/kcheck/fit.h"
#include "tests/kcheck/kcheck_cuda.h"
#include "tests/lib/last_error.h"

enum { MAX_COPIES = 128, PATTERN = 1 << 20 };

static kc_device device;

/* Random numbers of a type, for memory without host data. */
static void pattern_of(unsigned char *to, dvk_dtype t, uint64_t bytes) {
    kc_rng rng = {.state = (uint64_t)t};
    const size_t size = t == DVK_NONE ? 1 : dvk_dtype_size(t);
    for (size_t i = 0; i < bytes / size; i++) {
        if (t == DVK_F32 || t == DVK_F16 || t == DVK_BF16) {
            dvk_store(to, t, (int64_t)i, kc_uniform(&rng));
        } else {
            to[i] = (unsigned char)kc_next(&rng);
        }
    }
}

static davy_result fill(unsigned char *to, uint64_t bytes, dvk_dtype t) {
    static unsigned char pattern[PATTERN];
    const uint64_t first = bytes < PATTERN ? bytes : PATTERN;
    pattern_of(pattern, t, first);
    davy_result r = dv_gpu_upload(device.queue, to, pattern, first);
    for (uint64_t have = first; r == DAVY_OK && have < bytes; have *= 2) {
        r = dv_gpu_copy(device.queue, to + have, device.gpu, to, have < bytes - have ? have : bytes - have);
    }
    return r;
}

/* One copy of the problem's memory. Host data (parameters) are copied; the rest is random. */
static davy_result set_up(const kc_entry *e, kc_problem *p, const kc_layout *l, unsigned char *base) {
    davy_result r = DAVY_OK;
    for (int i = 0; r == DAVY_OK && i < p->n_buffers; i++) {
        const kc_buffer *b = &p->buffers[i];
        if (b->host_only) {
            continue;
        }
        const int made_up = b->dtype != DVK_NONE || b->bytes > 64u << 20;
        r = made_up ? fill(base + l->buffers[i], b->bytes, b->dtype)
                    : dv_gpu_upload(device.queue, base + l->buffers[i], b->start, b->bytes);
    }
    if (l->packed_bytes > 0 && r == DAVY_OK) {
        unsigned char *packed = kc_cuda_pack(e, p);
        if (packed == NULL) {
            return dv_fail(DAVY_E_NOMEM_HOST, "no memory");
        }
        r = dv_gpu_upload(device.queue, base + l->packed, packed, l->packed_bytes);
        free(packed);
    }
    return r;
}

static davy_result enqueue(const kc_entry *e, const kc_problem *p, const kc_layout *l, int runs, int copies) {
    davy_result r = DAVY_OK;
    for (int i = 0; r == DAVY_OK && i < runs; i++) {
        unsigned char *base = device.arena + (uint64_t)(i % copies) * l->bytes;
        const dvk_args args = kc_args_at(p, l, base);
        void *scratch = l->scratch_bytes > 0 ? base + l->scratch : NULL;
        r = dv_gpu_check(device.gpu, e->kernel->enqueue(&args, scratch, &device.queue->base), e->variant);
    }
    return r;
}

/* Seconds of one run, from a graph of `runs` of them. The graph is launched three times, and the last one counts. */
static double time_runs(const kc_entry *e, const kc_problem *p, const kc_layout *l, int runs, int copies) {
    dv_gpu_graph *graph = NULL;
    dv_gpu_event *from = NULL;
    dv_gpu_event *to = NULL;
    float ms = -1.0f;
    davy_result r = dv_gpu_capture_begin(device.queue);
    if (r == DAVY_OK) {
        const davy_result work = enqueue(e, p, l, runs, copies);
        r = dv_gpu_capture_end(device.queue, &graph);
        r = work != DAVY_OK ? work : r;
    }
    r = r == DAVY_OK ? dv_gpu_event_create(device.gpu, true, &from) : r;
    r = r == DAVY_OK ? dv_gpu_event_create(device.gpu, true, &to) : r;
    for (int i = 0; r == DAVY_OK && i < 3; i++) {
        r = dv_gpu_event_record(from, device.queue);
        r = r == DAVY_OK ? dv_gpu_graph_launch(graph, device.queue) : r;
        r = r == DAVY_OK ? dv_gpu_event_record(to, device.queue) : r;
        r = r == DAVY_OK ? dv_gpu_queue_wait(device.queue, NULL, NULL) : r;
        r = r == DAVY_OK ? dv_gpu_event_ms(from, to, &ms) : r;
    }
    dv_gpu_event_release(from);
    dv_gpu_event_release(to);
    dv_gpu_graph_release(graph);
    return r == DAVY_OK ? (double)ms * 1e-3 / runs : -1.0;
}

/* In FLOP or bytes per ns; sums: which of the two is the bound. */
static double peak_of(const kc_entry *e, const kc_problem *p, int *sums) {
    const double tensor = e->compute == DVK_FP8    ? 2.0
                          : e->compute == DVK_INT8 ? 2.0
                          : e->compute == DVK_TF32 ? 0.5
                          : e->compute == DVK_F32  ? 0.0
                                                   : 1.0;
    const double rate = 1e3 * (tensor > 0.0 ? tensor * device.caps.tensor_tflops : device.caps.simt_tflops);
    *sums = p->flops > 0.0 && p->bytes / device.caps.memory_gbs <= p->flops / rate;
    return *sums ? rate : device.caps.memory_gbs;
}

static void bench_one(const kc_options *o, const kc_entry *e, kc_problem *p) {
    kc_layout l;
    kc_layout_make(&device, e, p, &l);
    int sums = 0;
    const double peak = peak_of(e, p, &sums);
    const double work = sums ? p->flops : p->bytes;
    const double least = work / peak; /* ns */
    const uint64_t cache = 2 * (uint64_t)device.caps.l2_bytes;
    const int copies =
        l.bytes >= cache ? 1 : (int)(cache / l.bytes + 1 < MAX_COPIES ? cache / l.bytes + 1 : MAX_COPIES);
    const double wanted = 2e7 / (least + 3000.0); /* for 20 ms */
    const int runs = wanted < copies ? copies : wanted > 400.0 ? 400 : (int)wanted;
    double seconds = -1.0;
    if (kc_device_reserve(&device, l.bytes * (uint64_t)copies, 0)) {
        davy_result r = DAVY_OK;
        for (int i = 0; r == DAVY_OK && i < copies; i++) {
            r = set_up(e, p, &l, device.arena + (uint64_t)i * l.bytes);
        }
        r = r == DAVY_OK ? enqueue(e, p, &l, 1, 1) : r; /* modules must be loaded outside of a capture */
        r = r == DAVY_OK ? dv_gpu_queue_wait(device.queue, NULL, NULL) : r;
        seconds = r == DAVY_OK ? time_runs(e, p, &l, runs, copies) : -1.0;
    }
    if (seconds < 0.0) {
        printf("%-17s %-22s failed: %s  %s\n", e->kernel->op, e->variant, last_error(), p->text);
        return;
    }
    if (o->fit != NULL) {
        kc_fit_add(o->fit, &(kc_sample){.cuda = e->kernel, .args = p->args, .ns = seconds * 1e9});
    }
    const double rate = work / seconds * 1e-9; /* GFLOP/s, GB/s */
    printf("%-17s %-22s %9.1f us %8.2f %-7s %5.1f %%  cost() %9.1f us  %s\n", e->kernel->op, e->variant, seconds * 1e6,
           rate * 1e-3, sums ? "TFLOP/s" : "TB/s", 100.0 * rate / peak,
           e->kernel->cost != NULL ? e->kernel->cost(&p->args, &device.caps) * 1e-3 : 0.0, p->text);
    fflush(stdout);
}

int kc_cuda_bench(const kc_options *o) {
    char why[200];
    if (!kc_device_open(&device, o, why, sizeof why)) {
        printf("skipped: %s\n", why);
        return 0;
    }
    if (o->fit != NULL) {
        davy_device_info info = {.struct_size = sizeof info};
        dv_gpu_describe(NULL, 0, &info);
        o->fit->caps = device.caps;
        snprintf(o->fit->device, sizeof o->fit->device, "%s", info.name);
    }
    printf(
        "compute capability %d, %d multiprocessors; peaks: %.0f TFLOP/s of 16-bit products, %.0f of f32, %.2f TB/s\n",
        (int)device.caps.sm, (int)device.caps.processors, device.caps.tensor_tflops, device.caps.simt_tflops,
        device.caps.memory_gbs * 1e-3);
    for (int s = 0; s < kc_suite_count; s++) {
        int any = 0;
        for (int i = 0; i < kc_cuda_entries(); i++) {
            any |= kc_cuda_selected(o, &device, kc_cuda_entry(i), kc_suites[s]->op);
        }
        for (int i = 0; any && i < kc_suites[s]->bench_count(); i++) {
            kc_problem p = {.rng = {.state = o->seed}, .aligned = 1, .unfilled = 1, .only = o->text};
            kc_suites[s]->bench_build(&p, i);
            const int64_t groups = p.stats_groups;
            const int wanted = o->text == NULL || strstr(p.text, o->text) != NULL;
            for (int k = 0; wanted && k < kc_cuda_entries(); k++) {
                const kc_entry *e = kc_cuda_entry(k);
                p.stats_groups = groups;
                int fits = kc_cuda_selected(o, &device, e, kc_suites[s]->op) && kc_cuda_fits(&device, e, &p);
                if (!fits && groups > 0 && kc_cuda_selected(o, &device, e, kc_suites[s]->op)) {
                    p.stats_groups = 0; /* a kernel without statistics is timed without them */
                    fits = kc_cuda_fits(&device, e, &p);
                }
                if (fits) {
                    bench_one(o, e, &p);
                }
            }
            kc_release(&p);
        }
    }
    kc_device_close(&device);
    return 0;
}
