/* store.c - packing is two parallel loops over a batch of parameters: read as f32 from the file (one unit each), then
 * packed by the kernel that will use them (many units each). Batches bound the memory that the f32 copies take. One
 * thread packs at a time; others that need weights wait for it, but go on asking whether they have been cancelled. */
#include "core/store.h"

#include <stdatomic.h>
#include <string.h>

#include "core/error.h"
#include "core/os.h"

#define RELEASE_BYTES 65536ull /* smaller tensors are not worth a system call */
#define WAIT_NS       20000000ull

typedef struct entry {
    uint64_t hash;
    dv_stage stage;
    char *label;
    dv_weight what; /* param is not used to compare: graphs number them on their own */
    void *data;
    bool ready; /* under the lock */
} entry;

struct dv_store {
    const dv_services *services;
    const dv_tensors *tensors;
    _Atomic int32_t refs;
    dv_mutex *lock;
    dv_cond *free; /* nobody packs */
    bool packing;
    entry **entries; /* pointers, so that they stay put while the array grows */
    int64_t n_entries, cap_entries;
    uint64_t bytes;
};

typedef struct batch {
    dv_store *store;
    const dv_graph *graph;
    entry **entries; /* [count] */
    float **sources; /* [count]; NULL for vectors */
    const dv_weight *const *weights;
    int64_t *first_unit; /* [count + 1], of the packing loop */
    int64_t count;
    davy_result result; /* first failure of a worker, under the store's lock */
    davy_error_info error;
} batch;

/* ---- lookup ---- */

static uint64_t hash_of(const char *label) {
    uint64_t h = 1469598103934665603ull;
    for (const char *c = label; *c != '\0'; c++) {
        h = (h ^ (uint64_t)(unsigned char)*c) * 1099511628211ull;
    }
    return h;
}

/* What decides a kernel's packing: itself, the channels, the window, how the input is read. */
static bool same_form(const dv_weight *a, const dv_weight *b) {
    const dvk_conv2d_args *p = &a->conv;
    const dvk_conv2d_args *q = &b->conv;
    return a->kernel == b->kernel && a->bytes == b->bytes && a->count == b->count && p->x.c == q->x.c &&
           p->y.c == q->y.c && p->kh == q->kh && p->kw == q->kw && p->stride == q->stride &&
           p->upsample == q->upsample && p->x.dtype == q->x.dtype;
}

/* Under the lock. */
static entry *find(const dv_store *s, dv_stage stage, const char *label, const dv_weight *w) {
    const uint64_t hash = hash_of(label);
    for (int64_t i = 0; i < s->n_entries; i++) {
        entry *e = s->entries[i];
        if (e->hash == hash && e->stage == stage && same_form(&e->what, w) && strcmp(e->label, label) == 0) {
            return e;
        }
    }
    return NULL;
}

static void release_entry(dv_store *s, entry *e) {
    if (e != NULL) {
        dv_heap_free(s->services->heap, DV_MEM_WEIGHTS, e->data, e->what.bytes);
        dv_free(e->label);
        dv_free(e);
    }
}

/* By the thread that packs: appends an entry with memory but no contents. */
static davy_result add(dv_store *s, dv_stage stage, const char *label, const dv_weight *w, entry **out) {
    entry *e = dv_calloc(1, sizeof *e);
    char *copy = dv_strdup(label);
    davy_result r = DAVY_OK;
    if (e == NULL || copy == NULL) {
        dv_free(e);
        dv_free(copy);
        return dv_fail(DAVY_E_NOMEM_HOST, "weights: out of memory");
    }
    *e = (entry){.hash = hash_of(label), .stage = stage, .label = copy, .what = *w};
    r = dv_heap_alloc(s->services->heap, DV_MEM_WEIGHTS, w->bytes, "weights", &e->data);
    if (r != DAVY_OK) {
        goto fail;
    }
    dv_mutex_lock(s->lock);
    entry **entries = dv_grow(s->entries, s->n_entries + 1, &s->cap_entries, sizeof *entries);
    if (entries != NULL) {
        s->entries = entries;
        entries[s->n_entries++] = e;
        s->bytes += w->bytes;
    }
    dv_mutex_unlock(s->lock);
    if (entries == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "weights: out of memory");
        goto fail;
    }
    *out = e;
    return DAVY_OK;
fail:
    release_entry(s, e);
    return r;
}

/* Takes out one entry without contents, after a failure; NULL: none left. Released without the lock: that may call the
 * host. */
static entry *take_unready(dv_store *s) {
    entry *taken = NULL;
    dv_mutex_lock(s->lock);
    for (int64_t i = 0; i < s->n_entries && taken == NULL; i++) {
        if (!s->entries[i]->ready) {
            taken = s->entries[i];
            s->entries[i] = s->entries[--s->n_entries];
            s->bytes -= taken->what.bytes;
        }
    }
    dv_mutex_unlock(s->lock);
    return taken;
}

/* ---- reading and packing ---- */

static int64_t elements_of(const dv_param_info *p) {
    int64_t n = 1;
    for (int32_t i = 0; i < p->ndim; i++) {
        n *= p->shape[i];
    }
    return n;
}

static davy_result read_values(const batch *b, const dv_param_info *p, float *dst) {
    if (p->ref != NULL) {
        const davy_result r = dv_tensor_read_f32(p->ref, dst);
        if (p->ref->bytes >= RELEASE_BYTES) {
            dv_source_done_with(p->ref->source, p->ref->offset, p->ref->bytes);
        }
        return r;
    }
    if (p->derive != NULL) {
        return p->derive(b->store->tensors, p->key, dst);
    }
    memcpy(dst, p->constant, (size_t)elements_of(p) * sizeof(float));
    return DAVY_OK;
}

static davy_result read_one(const batch *b, int64_t i) {
    const dv_param_info *p = &b->graph->params[b->weights[i]->param];
    if (b->sources[i] != NULL) {
        return read_values(b, p, b->sources[i]);
    }
    float *dst = b->entries[i]->data;
    const int64_t have = elements_of(p);
    if (have != b->weights[i]->count && have != 1) {
        return dv_fail(DAVY_E_SHAPE, "%s: %lld values, expected %lld", p->label, (long long)have,
                       (long long)b->weights[i]->count);
    }
    const davy_result r = read_values(b, p, dst);
    for (int64_t c = have; r == DAVY_OK && c < b->weights[i]->count; c++) {
        dst[c] = dst[0];
    }
    return r;
}

static void read_units(void *user, int64_t first, int64_t last, int32_t worker) {
    batch *b = user;
    (void)worker;
    for (int64_t i = first; i < last; i++) {
        const davy_result r = read_one(b, i);
        if (r != DAVY_OK) {
            dv_mutex_lock(b->store->lock);
            if (b->result == DAVY_OK) {
                b->result = r;
                dv_error_get(&b->error);
            }
            dv_mutex_unlock(b->store->lock);
        }
    }
}

static void pack_units(void *user, int64_t first, int64_t last, int32_t worker) {
    const batch *b = user;
    (void)worker;
    int64_t i = 0;
    for (int64_t u = first; u < last;) {
        while (u >= b->first_unit[i + 1]) {
            i++;
        }
        const int64_t end = dv_min(last, b->first_unit[i + 1]);
        const dv_weight *w = b->weights[i];
        w->kernel->pack(&w->conv, b->sources[i], b->entries[i]->data, u - b->first_unit[i], end - b->first_unit[i]);
        u = end;
    }
}

static davy_result run_loops(batch *b, dv_watch *watch) {
    const dv_services *services = b->store->services;
    uint64_t bytes = 0;
    for (int64_t i = 0; i < b->count; i++) {
        const int64_t units = b->sources[i] != NULL ? b->weights[i]->kernel->pack_units(&b->weights[i]->conv) : 0;
        b->first_unit[i + 1] = b->first_unit[i] + units;
        bytes += b->weights[i]->bytes;
    }
    dv_loop read = {.units = b->count, .run = read_units, .user = b};
    davy_result r = dv_watch_loop(watch, services->pool, &read, dv_store_cost(bytes) / 2);
    if (r == DAVY_OK && b->result != DAVY_OK) {
        dv_error_set(&b->error);
        return b->result;
    }
    if (r == DAVY_OK) {
        dv_loop pack = {.units = b->first_unit[b->count], .run = pack_units, .user = b};
        r = dv_watch_loop(watch, services->pool, &pack, dv_store_cost(bytes) / 2);
    }
    return r;
}

/* f32 values that a weight is packed from; vectors are read in place. */
static uint64_t source_bytes(const dv_graph *g, const dv_weight *w) {
    return w->kernel != NULL ? dv_align_up((uint64_t)elements_of(&g->params[w->param]) * sizeof(float), 64) : 0;
}

static davy_result pack_batch(batch *b, uint64_t bytes, dv_watch *watch) {
    dv_store *s = b->store;
    void *block = NULL;
    b->sources = dv_calloc((uint64_t)b->count, sizeof *b->sources);
    b->first_unit = dv_calloc((uint64_t)b->count + 1, sizeof *b->first_unit);
    davy_result r = DAVY_OK;
    if (b->sources == NULL || b->first_unit == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "weights: out of memory");
    }
    if (r == DAVY_OK && bytes > 0) {
        r = dv_heap_alloc(s->services->heap, DV_MEM_WORKSPACE, bytes, "weights being packed", &block);
    }
    if (r == DAVY_OK) {
        uint64_t at = 0;
        for (int64_t i = 0; i < b->count; i++) {
            if (b->weights[i]->kernel != NULL) {
                b->sources[i] = (float *)(void *)((char *)block + at);
                at += source_bytes(b->graph, b->weights[i]);
            }
        }
        r = run_loops(b, watch);
    }
    if (r == DAVY_OK) {
        dv_mutex_lock(s->lock);
        for (int64_t i = 0; i < b->count; i++) {
            b->entries[i]->ready = true;
        }
        dv_mutex_unlock(s->lock);
    }
    dv_heap_free(s->services->heap, DV_MEM_WORKSPACE, block, bytes);
    dv_free(b->sources);
    dv_free(b->first_unit);
    return r;
}

/* ---- binding ---- */

typedef struct missing { /* weights of a plan that have no entry yet, and their new entries */
    entry **entries;
    const dv_weight **weights;
    int64_t count;
    bool derived;
} missing;

static davy_result list_missing(dv_store *s, dv_stage stage, const dv_plan *plan, missing *m) {
    m->entries = dv_calloc((uint64_t)plan->n_weights + 1, sizeof *m->entries);
    m->weights = dv_calloc((uint64_t)plan->n_weights + 1, sizeof *m->weights);
    if (m->entries == NULL || m->weights == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "weights: out of memory");
    }
    for (int64_t i = 0; i < plan->n_weights; i++) {
        const dv_weight *w = &plan->weights[i];
        const dv_param_info *p = &plan->graph->params[w->param];
        if (find(s, stage, p->label, w) != NULL) { /* only the packing thread adds: no lock needed to look */
            continue;
        }
        const davy_result r = add(s, stage, p->label, w, &m->entries[m->count]);
        if (r != DAVY_OK) {
            return r;
        }
        m->weights[m->count++] = w;
        m->derived = m->derived || p->derive != NULL;
    }
    return DAVY_OK;
}

static davy_result pack_missing(dv_store *s, dv_stage stage, const dv_plan *plan, dv_watch *watch) {
    missing m = {0};
    davy_result r = list_missing(s, stage, plan, &m);
    for (int64_t i = 0; r == DAVY_OK && i < m.count;) {
        batch b = {.store = s, .graph = plan->graph, .entries = m.entries + i, .weights = m.weights + i};
        uint64_t bytes = 0;
        while (i + b.count < m.count) {
            const uint64_t more = source_bytes(plan->graph, b.weights[b.count]);
            if (b.count > 0 && bytes + more > DV_STORE_BATCH_BYTES) {
                break;
            }
            bytes += more;
            b.count++;
        }
        r = pack_batch(&b, bytes, watch);
        i += b.count;
    }
    for (entry *e = NULL; r != DAVY_OK && (e = take_unready(s)) != NULL;) {
        release_entry(s, e);
    }
    for (int64_t i = 0; m.derived && i < s->tensors->count; i++) {
        const dv_tensor_ref *ref = &s->tensors->refs[i];
        if (ref->bytes >= RELEASE_BYTES) {
            dv_source_done_with(ref->source, ref->offset, ref->bytes);
        }
    }
    dv_free(m.entries);
    dv_free(m.weights);
    return r;
}

/* Waits for the right to pack. No lock is held while the host's callbacks run. */
static davy_result begin_packing(dv_store *s, dv_watch *watch) {
    dv_mutex_lock(s->lock);
    while (s->packing) {
        dv_cond_wait(s->free, s->lock, WAIT_NS);
        if (s->packing) {
            dv_mutex_unlock(s->lock);
            const davy_result r = dv_watch_poll(watch);
            if (r != DAVY_OK) {
                return r;
            }
            dv_mutex_lock(s->lock);
        }
    }
    s->packing = true;
    dv_mutex_unlock(s->lock);
    return DAVY_OK;
}

davy_result dv_store_bind(dv_store *s, dv_stage stage, const dv_plan *plan, dv_watch *watch, const void **pointers) {
    davy_result r = begin_packing(s, watch);
    if (r != DAVY_OK) {
        return r;
    }
    r = pack_missing(s, stage, plan, watch);
    dv_mutex_lock(s->lock);
    for (int64_t i = 0; r == DAVY_OK && i < plan->n_weights; i++) {
        const dv_weight *w = &plan->weights[i];
        pointers[i] = find(s, stage, plan->graph->params[w->param].label, w)->data;
    }
    s->packing = false;
    dv_cond_broadcast(s->free);
    dv_mutex_unlock(s->lock);
    return r;
}

uint64_t dv_store_missing(dv_store *s, dv_stage stage, const dv_plan *plan) {
    uint64_t bytes = 0;
    dv_mutex_lock(s->lock);
    for (int64_t i = 0; i < plan->n_weights; i++) {
        const dv_weight *w = &plan->weights[i];
        if (find(s, stage, plan->graph->params[w->param].label, w) == NULL) {
            bytes += w->bytes;
        }
    }
    dv_mutex_unlock(s->lock);
    return bytes;
}

uint64_t dv_store_bytes(dv_store *s) {
    dv_mutex_lock(s->lock);
    const uint64_t bytes = s->bytes;
    dv_mutex_unlock(s->lock);
    return bytes;
}

double dv_store_cost(uint64_t bytes) {
    return (double)bytes; /* about 1 GB/s */
}

davy_result dv_store_create(const dv_services *services, const dv_tensors *tensors, dv_store **out) {
    dv_store *s = dv_calloc(1, sizeof *s);
    if (s == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "weights: out of memory");
    }
    s->services = services;
    s->tensors = tensors;
    atomic_init(&s->refs, 1);
    s->lock = dv_mutex_create();
    s->free = dv_cond_create();
    if (s->lock == NULL || s->free == NULL) {
        dv_store_release(s);
        return dv_fail(DAVY_E_NOMEM_HOST, "weights: out of memory");
    }
    *out = s;
    return DAVY_OK;
}

dv_store *dv_store_ref(dv_store *s) {
    atomic_fetch_add(&s->refs, 1);
    return s;
}

void dv_store_release(dv_store *s) {
    if (s == NULL || atomic_fetch_sub(&s->refs, 1) != 1) {
        return;
    }
    for (int64_t i = 0; i < s->n_entries; i++) {
        release_entry(s, s->entries[i]);
    }
    dv_free(s->entries);
    dv_cond_release(s->free);
    dv_mutex_release(s->lock);
    dv_free(s);
}
