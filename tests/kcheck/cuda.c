/* cuda.c - see kcheck_cuda.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "kernels/costs/cuda_costs.h"
#include "tests/kcheck/kcheck_cuda.h"

enum { GAP = 512, ALIGN = 256 };

static kc_entry entries[KC_MAX_ENTRIES];
static int n_entries;

static void add_entry(const dvk_cuda_kernel *k, uint32_t computes, dvk_dtype compute, const char *name) {
    if (n_entries < KC_MAX_ENTRIES) {
        kc_entry *e = &entries[n_entries];
        *e = (kc_entry){.kernel = k, .computes = computes, .compute = compute};
        snprintf(e->variant, sizeof e->variant, "%s%s%s", k->variant, name[0] != '\0' ? " " : "", name);
    }
    n_entries++; /* kc_run detects one too many */
}

int kc_cuda_entries(void) {
    static const struct {
        uint32_t bit;
        dvk_dtype compute;
    } precisions[] = {{DVK_COMPUTES_F32, DVK_F32},   {DVK_COMPUTES_TF32, DVK_TF32}, {DVK_COMPUTES_F16, DVK_F16},
                      {DVK_COMPUTES_BF16, DVK_BF16}, {DVK_COMPUTES_FP8, DVK_FP8},   {DVK_COMPUTES_INT8, DVK_INT8}};
    const int known = n_entries > 0;
    for (int32_t i = 0; !known && i < dvk_cuda_kernel_count; i++) {
        const dvk_cuda_kernel *k = dvk_cuda_kernels[i];
        if (k != NULL && k->computes == DVK_COMPUTES_ANY) {
            add_entry(k, DVK_COMPUTES_ANY, DVK_F32, "");
        } else if (k != NULL) {
            for (size_t j = 0; j < sizeof precisions / sizeof precisions[0]; j++) {
                if ((k->computes & precisions[j].bit) != 0) {
                    add_entry(k, precisions[j].bit, precisions[j].compute, kc_dtype_name(precisions[j].compute));
                }
            }
        }
    }
    return n_entries;
}

const kc_entry *kc_cuda_entry(int i) {
    return i < kc_cuda_entries() ? &entries[i] : NULL;
}

/* Makes the choice that of a device with that capability; 0: of this device. */
static void be_like(dvk_cuda_caps *caps, int32_t sm) {
    const int32_t most = sm == 75 ? 64 << 10 : sm == 86 || sm == 89 || sm == 120 ? 99 << 10 : sm < 90 ? 163 << 10 : 0;
    if (sm > 0) {
        caps->sm = sm;
        caps->costs = dvk_cost_table_of(sm, NULL);
        caps->shared_bytes = most > 0 && most < caps->shared_bytes ? most : caps->shared_bytes;
    }
}

int kc_device_open(kc_device *d, const kc_options *o, char *why, size_t bytes) {
    *d = (kc_device){0};
    why[0] = '\0';
    davy_device_info info = {.struct_size = sizeof info};
    int32_t n_modules = 0;
    dvk_cuda_modules(&n_modules);
    if (n_modules == 0) {
        snprintf(why, bytes, "this build has no CUDA kernels");
    } else if (dv_gpu_count(NULL, why, bytes) == 0) {
        return 0;
    } else if (dv_gpu_describe(NULL, 0, &info) != DAVY_OK || info.reason[0] != '\0') {
        snprintf(why, bytes, "%s: %s", info.name, info.reason);
    }
    if (why[0] != '\0') {
        return 0;
    }
    d->heap = dv_heap_create(NULL, 0);
    const dv_gpu_desc desc = {.index = 0, .heap = d->heap, .log = &(dv_log){0}};
    if (d->heap == NULL || dv_gpu_open(&desc, &d->gpu) != DAVY_OK ||
        dv_gpu_queue_take(d->gpu, NULL, &d->queue) != DAVY_OK) {
        davy_error_info error = {.struct_size = sizeof error};
        dv_error_get(&error);
        snprintf(why, bytes, "%s", error.message);
        return 0;
    }
    d->caps = *dv_gpu_caps(d->gpu);
    be_like(&d->caps, o->sm);
    d->queue->base.caps = &d->caps;
    return 1;
}

void kc_device_close(kc_device *d) {
    if (d->arena != NULL) {
        dv_gpu_free(d->gpu, DV_MEM_WORKSPACE, d->arena, d->arena_bytes);
    }
    free(d->staging);
    d->queue->base.caps = dv_gpu_caps(d->gpu);
    dv_gpu_queue_give(d->queue);
    dv_gpu_release(d->gpu);
    dv_heap_release(d->heap);
}

int kc_cuda_selected(const kc_options *o, const kc_device *d, const kc_entry *e, const char *op) {
    char name[96];
    snprintf(name, sizeof name, "%s %s", e->kernel->op, e->variant);
    return strcmp(e->kernel->op, op) == 0 && e->kernel->sm_min <= d->caps.sm &&
           (e->kernel->sm_max == 0 || d->caps.sm <= e->kernel->sm_max) &&
           (o->pattern == NULL || strstr(name, o->pattern) != NULL);
}

/* Some kernels compute in the precision of their 16-bit inputs. */
static int computes_in(const kc_entry *e, int input) {
    return e->computes == DVK_COMPUTES_ANY || e->compute == DVK_F32 || input == (int)e->compute ||
           (input != DVK_F16 && input != DVK_BF16);
}

static int precision_fits(const kc_entry *e, const kc_problem *p) {
    const char *op = e->kernel->op;
    if (strcmp(op, "attention") == 0 && e->kernel->computes != DVK_COMPUTES_ANY) {
        const dvk_dtype t = p->args.attention.q.dtype;
        return t == DVK_F32 || t == e->compute;
    }
    if (strcmp(op, "window_attention") == 0 && e->kernel->computes != DVK_COMPUTES_ANY) {
        return p->args.window.q.dtype == DVK_F32 || p->args.window.q.dtype == e->compute;
    }
    if (strcmp(op, "channel_attention") == 0 && e->kernel->computes != DVK_COMPUTES_ANY) {
        return p->args.channel.q.dtype == DVK_F32 || p->args.channel.q.dtype == e->compute;
    }
    return strcmp(op, "linear") == 0 ? computes_in(e, (int)p->args.linear.x.form)
           : strcmp(op, "attention_kv") == 0
               ? computes_in(e, (int)p->args.attention_kv.q.form) && computes_in(e, (int)p->args.attention_kv.k.form)
           : strcmp(op, "attention_new") == 0 ? computes_in(e, (int)p->args.attention_new.a.k.form)
           : strcmp(op, "attention_out") == 0 ? computes_in(e, (int)p->args.attention_out.of.a.k.form)
                                              : 1;
}

int kc_cuda_fits(const kc_device *d, const kc_entry *e, kc_problem *p) {
    static float some;
    const dvk_cuda_kernel *k = e->kernel;
    if (!precision_fits(e, p)) {
        return 0;
    }
    const int transformed = strncmp(k->op, "conv2d_winograd", 15) == 0; /* products of f16 for every storage type */
    if (transformed && p->args.conv.y.dtype != e->compute) {
        return 0;
    }
    if (transformed || strcmp(k->op, "conv2d") == 0) {
        dvk_conv2d_args *a = &p->args.conv;
        a->compute = transformed ? DVK_F16 : e->compute;
        a->epi.stats = p->stats_groups > 0 ? &some : NULL;
        a->epi.stats_groups = p->stats_groups;
        if (p->stats_groups > 0 && (k->stats_chunks == NULL || k->stats_chunks(a, &d->caps) == 0)) {
            return 0;
        }
        if (p->sums && (k->sums_chunks == NULL || k->sums_chunks(a, &d->caps) == 0)) {
            return 0;
        }
    }
    return k->supports == NULL || k->supports(&p->args, &d->caps);
}

static uint64_t aligned(uint64_t v) {
    return (v + ALIGN - 1) / ALIGN * ALIGN;
}

static uint64_t take(uint64_t *at, uint64_t bytes) {
    const uint64_t start = *at;
    *at = aligned(start + bytes + GAP);
    return start;
}

void kc_layout_make(const kc_device *d, const kc_entry *e, kc_problem *p, kc_layout *l) {
    const dvk_cuda_kernel *k = e->kernel;
    *l = (kc_layout){0};
    uint64_t at = GAP;
    for (int i = 0; i < p->n_buffers; i++) {
        const uint64_t shift = (uintptr_t)p->buffers[i].start % ALIGN;
        l->buffers[i] = p->buffers[i].host_only ? 0 : take(&at, shift + p->buffers[i].bytes) + shift;
    }
    if (k->scratch_bytes != NULL) {
        l->scratch_bytes = k->scratch_bytes(&p->args, &d->caps);
        l->scratch = take(&at, l->scratch_bytes);
    }
    if (p->stats_groups > 0) {
        l->stats_chunks = k->stats_chunks(&p->args, &d->caps);
        l->stats_bytes = (uint64_t)(p->args.conv.y.n * l->stats_chunks * p->stats_groups * 3) * sizeof(float);
        l->stats = take(&at, l->stats_bytes);
    } else if (p->sums) {
        l->stats_chunks = k->sums_chunks(&p->args, &d->caps);
        l->stats_bytes = (uint64_t)(l->stats_chunks * p->args.conv.y.c) * sizeof(float);
        l->stats = take(&at, l->stats_bytes);
    }
    l->exchanged = at;
    l->packed_bytes = k->packed_bytes != NULL ? k->packed_bytes(&p->args) : 0;
    l->packed = take(&at, l->packed_bytes);
    l->bytes = at;
}

typedef struct packing {
    const kc_entry *entry;
    const kc_problem *problem;
    unsigned char *to;
} packing;

static void pack_range(void *ctx, int64_t first, int64_t last) {
    const packing *k = ctx;
    k->entry->kernel->pack(&k->problem->args, k->problem->w_source, k->to, first, last);
}

unsigned char *kc_cuda_pack(const kc_entry *e, const kc_problem *p) {
    const dvk_cuda_kernel *k = e->kernel;
    const size_t bytes = k->packed_bytes != NULL ? k->packed_bytes(&p->args) : 0;
    packing work = {.entry = e, .problem = p, .to = calloc(1, bytes + 1)};
    if (work.to != NULL && bytes > 0) {
        kc_wide(k->pack_units(&p->args), pack_range, &work);
    }
    return work.to;
}

int kc_device_reserve(kc_device *d, uint64_t arena_bytes, uint64_t staging_bytes) {
    if (arena_bytes > d->arena_bytes) {
        if (d->arena != NULL) {
            dv_gpu_free(d->gpu, DV_MEM_WORKSPACE, d->arena, d->arena_bytes);
        }
        d->arena = NULL;
        d->arena_bytes = 0;
        void *p = NULL;
        if (dv_gpu_alloc(d->gpu, DV_MEM_WORKSPACE, arena_bytes, "a case", &p) != DAVY_OK) {
            return 0;
        }
        d->arena = p;
        d->arena_bytes = arena_bytes;
    }
    if (staging_bytes > d->staging_bytes) {
        free(d->staging);
        d->staging_bytes = staging_bytes;
        d->staging = malloc(staging_bytes);
    }
    return d->staging != NULL || staging_bytes == 0;
}

static unsigned char *moved(const kc_problem *p, const kc_layout *l, unsigned char *base, uintptr_t address) {
    for (int i = 0; i < p->n_buffers; i++) {
        const uintptr_t start = (uintptr_t)p->buffers[i].start;
        if (address >= start && address < start + p->buffers[i].bytes) {
            return base + l->buffers[i] + (address - start);
        }
    }
    return NULL;
}

/* Relocates pointers: every word of the arguments that is an address in one of the buffers is a pointer, because no
 * integer of the arguments is that large. */
dvk_args kc_args_at(const kc_problem *p, const kc_layout *l, unsigned char *base) {
    uintptr_t words[sizeof(dvk_args) / sizeof(uintptr_t)];
    dvk_args args = p->args;
    memcpy(words, &args, sizeof words);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        unsigned char *to = moved(p, l, base, words[i]);
        words[i] = to != NULL ? (uintptr_t)to : words[i];
    }
    if (p->w_slot != NULL) {
        const size_t slot = (size_t)((const unsigned char *)p->w_slot - (const unsigned char *)&p->args);
        words[slot / sizeof words[0]] = (uintptr_t)(base + l->packed);
    }
    memcpy(&args, words, sizeof words);
    if (p->stats_groups > 0) {
        args.conv.epi.stats = (float *)(void *)(base + l->stats);
    } else if (p->sums) {
        args.conv.epi.sums = (float *)(void *)(base + l->stats);
    }
    return args;
}

/* The rows of the table of `kcheck --support` for CUDA. */
int kc_cuda_support(const kc_options *o) {
    char why[200];
    kc_device d;
    const int open = kc_device_open(&d, o, why, sizeof why);
    printf("| op | variant | compute capability | usable here |\n|---|---|---|---|\n");
    for (int s = 0; s < kc_suite_count; s++) {
        for (int i = 0; i < kc_cuda_entries(); i++) {
            const kc_entry *e = kc_cuda_entry(i);
            const int usable = open && kc_cuda_selected(o, &d, e, kc_suites[s]->op);
            if (!kc_suites[s]->only_cuda && strcmp(e->kernel->op, kc_suites[s]->op) == 0) {
                char last[16] = "";
                if (e->kernel->sm_max > 0) {
                    snprintf(last, sizeof last, " to %d", (int)e->kernel->sm_max);
                }
                printf("| %s | %s | %d%s | %s |\n", e->kernel->op, e->variant, (int)e->kernel->sm_min,
                       e->kernel->sm_max > 0 ? last : " and later", usable ? "yes" : "no");
            }
        }
    }
    if (!open) {
        printf("skipped: %s\n", why);
        return 0;
    }
    kc_device_close(&d);
    return 0;
}
