/* weights.c - packs weights and finds packed ones by stage, label and form. One thread packs at a time. Other threads that need
 * weights wait for it and keep polling their watch, so that they can be cancelled. */
#include "core/exec/weights.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/os.h"
#include "core/cuda/gpu.h"

#define WAIT_NS       20000000ull
#define RELEASE_BYTES 65536ull /* smaller tensors are not worth a system call */

typedef struct packed_weight {
    uint64_t hash;
    dv_stage stage;
    char *label;
    dv_weight what; /* param is not compared: each graph numbers its parameters differently */
    void *data;     /* the entry's own memory; on a GPU a part of a slab */
    bool ready;     /* under the lock */
} packed_weight;

typedef struct slab { /* device memory for the weights that one plan added */
    void *data;
    uint64_t bytes;
} slab;

struct dv_store {
    const dv_services *services;
    dv_gpu *gpu;     /* NULL: the CPU */
    dv_store *model; /* store of another GPU, referenced, from which packed weights are copied; NULL: none */
    const dv_tensors *tensors;
    _Atomic int32_t refs;
    dv_mutex *lock;
    dv_cond *free; /* signalled when a thread has finished packing */
    bool packing;
    packed_weight **entries; /* pointers, so that entries do not move when the array grows */
    int64_t n_entries, cap_entries;
    slab *slabs;
    int64_t n_slabs, cap_slabs;
    uint64_t bytes;
};

/* Weights of a plan that had no entry, and their new entries, which are not packed yet. */
typedef struct missing {
    packed_weight **entries;
    const dv_weight **weights;
    int64_t count;
    bool derived;
} missing;

static uint64_t room_of(const dv_store *s, const dv_weight *w) {
    return s->gpu != NULL ? dv_align_up(w->bytes, DV_WEIGHT_ALIGN) : w->bytes;
}

static int64_t elements_of(const dv_param_info *p) {
    int64_t n = 1;
    for (int32_t i = 0; i < p->ndim; i++) {
        n *= p->shape[i];
    }
    return n;
}

/* Bytes of the f32 values that a weight is packed from; 0 for vectors, which are read in place. */
static uint64_t source_bytes(const dv_graph *g, const dv_weight *w) {
    const uint64_t values = (uint64_t)elements_of(&g->params[w->param]);
    return dv_kernel_none(w->kernel) ? 0 : dv_align_up(values * sizeof(float), 64);
}

/* ---- packing is two parallel loops over a batch of parameters. The first reads them as f32 from the file, one unit each. The
 * second packs them with the packing function of their kernel, many units each. Batches bound the memory of the f32 copies. For a
 * GPU a batch is packed into host memory in its device order and uploaded in one copy. ---- */

typedef struct batch {
    dv_store *store;
    const dv_graph *graph;
    packed_weight **entries; /* [count] */
    const dv_weight *const *weights;
    float **sources;     /* [count]; NULL for vectors */
    void **packed;       /* [count]: the packed values, in host memory */
    int64_t *first_unit; /* [count + 1], of the packing loop */
    int64_t count;
    uint64_t limit;     /* as in packing */
    davy_result result; /* first failure of a worker, under the store's lock */
    davy_error_info error;
} batch;

static davy_result read_stored(const batch *b, const dv_param_info *p, float *dst) {
    if (p->ref != NULL) {
        const davy_result r = dv_tensor_read_f32(p->ref, dst);
        if (p->ref->bytes >= RELEASE_BYTES) {
            dv_source_done_with(p->ref->source, p->ref->offset, p->ref->bytes);
        }
        return r;
    }
    if (p->from != NULL) { /* values derived in shares are there already */
        return p->from->derive_share != NULL ? DAVY_OK : p->from->derive(b->store->tensors, p->from, dst);
    }
    memcpy(dst, p->constant, (size_t)elements_of(p) * sizeof(float));
    return DAVY_OK;
}

static davy_result read_values(const batch *b, const dv_param_info *p, float *dst) {
    const davy_result r = read_stored(b, p, dst);
    for (int64_t i = 0; p->exponent != 0 && r == DAVY_OK && i < elements_of(p); i++) {
        dst[i] = ldexpf(dst[i], p->exponent);
    }
    return r;
}

static davy_result read_one(const batch *b, int64_t i) {
    const dv_param_info *p = &b->graph->params[b->weights[i]->param];
    if (b->sources[i] != NULL) {
        return read_values(b, p, b->sources[i]);
    }
    float *dst = b->packed[i];
    const int64_t have = elements_of(p);
    if (have < 1 || b->weights[i]->count % have != 0) {
        return dv_fail(DAVY_E_SHAPE, "%s: %lld values, expected %lld", p->label, (long long)have,
                       (long long)b->weights[i]->count);
    }
    const davy_result r = read_values(b, p, dst);
    for (int64_t c = have; r == DAVY_OK && c < b->weights[i]->count; c++) {
        dst[c] = dst[c - have];
    }
    return r;
}

static int64_t shares_of(const batch *b, int64_t i) {
    const dv_param_info *p = &b->graph->params[b->weights[i]->param];
    return p->from != NULL && p->from->derive_share != NULL ? p->from->shares : 0;
}

static void keep_failure(batch *b, davy_result r) {
    if (r < 0) {
        dv_mutex_lock(b->store->lock);
        if (b->result == DAVY_OK) {
            b->result = r;
            dv_error_get(&b->error);
        }
        dv_mutex_unlock(b->store->lock);
    }
}

static void read_units(void *user, int64_t first, int64_t last, int32_t worker) {
    batch *b = user;
    (void)worker;
    for (int64_t i = first; i < last; i++) {
        keep_failure(b, read_one(b, i));
    }
}

/* Derives expensive parameters in shares, one parameter after the other. */
static void share_units(void *user, int64_t first, int64_t last, int32_t worker) {
    batch *b = user;
    (void)worker;
    for (int64_t u = first; u < last; u++) {
        int64_t i = 0;
        int64_t share = u;
        while (share >= shares_of(b, i)) {
            share -= shares_of(b, i++);
        }
        const dv_derivation *from = b->graph->params[b->weights[i]->param].from;
        float *dst = b->sources[i] != NULL ? b->sources[i] : b->packed[i];
        keep_failure(b, from->derive_share(b->store->tensors, from, (int32_t)share, b->store->services->cpu, dst));
    }
}

static int64_t parts_of(const dv_weight *w) {
    return dv_max(w->parts, 1);
}

/* Packs units [first, last) of a weight, counted through all its parts. */
static void pack_some(const batch *b, int64_t i, int64_t first, int64_t last) {
    const dv_weight *w = b->weights[i];
    const int64_t units = dv_kernel_pack_units(w->kernel, &w->conv);
    const int64_t each = elements_of(&b->graph->params[w->param]) / parts_of(w);
    while (first < last) {
        const int64_t part = first / units, at = first % units;
        const int64_t end = dv_min(units, at + last - first);
        char *to = (char *)b->packed[i] + (uint64_t)part * (w->bytes / (uint64_t)parts_of(w));
        dv_kernel_pack(w->kernel, &w->conv, b->sources[i] + part * each, to, at, end);
        first += end - at;
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
        pack_some(b, i, u - b->first_unit[i], end - b->first_unit[i]);
        u = end;
    }
}

static davy_result run_loops(batch *b, dv_watch *watch) {
    const dv_services *services = b->store->services;
    uint64_t bytes = 0;
    b->first_unit[0] = 0;
    for (int64_t i = 0; i < b->count; i++) {
        const dv_weight *w = b->weights[i];
        b->first_unit[i + 1] =
            b->first_unit[i] + (b->sources[i] != NULL ? dv_kernel_pack_units(w->kernel, &w->conv) * parts_of(w) : 0);
        bytes += w->bytes;
    }
    dv_loop share = {.run = share_units, .user = b};
    for (int64_t i = 0; i < b->count; i++) {
        share.units += shares_of(b, i);
    }
    davy_result r = share.units > 0 ? dv_watch_loop(watch, services->pool, &share, 0.0) : DAVY_OK;
    dv_loop read = {.units = b->count, .run = read_units, .user = b};
    r = r < 0 ? r : dv_watch_loop(watch, services->pool, &read, dv_store_cost(bytes) / 2);
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

/* ---- batches ---- */

/* Host memory that a weight needs while its batch is packed. */
static uint64_t passing_bytes(const dv_store *s, const dv_graph *g, const dv_weight *w) {
    return source_bytes(g, w) + (s->gpu != NULL ? room_of(s, w) : 0);
}

/* Sets b->count to the number of the next `left` weights that form a batch. Returns the host memory that the batch needs. */
static uint64_t gather(batch *b, int64_t left) {
    uint64_t bytes = 0;
    for (b->count = 0; b->count < left; b->count++) {
        const uint64_t more = passing_bytes(b->store, b->graph, b->weights[b->count]);
        if (b->count > 0 && bytes + more > b->limit) {
            break;
        }
        bytes += more;
    }
    return bytes;
}

/* Lays out a batch in `block`. For a GPU the packed values come first, as one piece that is uploaded as a whole. Returns its size. */
static uint64_t lay_out(batch *b, char *block) {
    uint64_t at = 0;
    for (int64_t i = 0; i < b->count; i++) {
        b->packed[i] = b->store->gpu != NULL ? block + at : b->entries[i]->data;
        at += b->store->gpu != NULL ? room_of(b->store, b->weights[i]) : 0;
    }
    const uint64_t packed = at;
    for (int64_t i = 0; i < b->count; i++) {
        const uint64_t bytes = source_bytes(b->graph, b->weights[i]);
        b->sources[i] = bytes > 0 ? (float *)(void *)(block + at) : NULL;
        at += bytes;
    }
    return packed;
}

static void mark_ready(dv_store *s, packed_weight **entries, int64_t count) {
    dv_mutex_lock(s->lock);
    for (int64_t i = 0; i < count; i++) {
        entries[i]->ready = true;
    }
    dv_mutex_unlock(s->lock);
}

static davy_result poll(void *user) {
    return dv_watch_poll(user);
}

typedef struct packing { /* memory and queue of all batches */
    char *block;
    uint64_t bytes, limit; /* of the largest batch; limit of a batch, exceeded only by a batch of one weight */
    void *arrays;
    dv_gpu_queue *queue;
} packing;

static uint64_t largest_batch(const dv_store *s, const dv_graph *g, const missing *m, uint64_t limit) {
    batch b = {.store = (dv_store *)(uintptr_t)s, .graph = g, .limit = limit};
    uint64_t most = 0;
    for (int64_t i = 0; i < m->count; i += b.count) {
        b.weights = m->weights + i;
        const uint64_t bytes = gather(&b, m->count - i);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* If memory is short, batches become smaller, down to one weight each. */
static davy_result take_block(const dv_store *s, const dv_graph *g, const missing *m, packing *p) {
    void *block = NULL;
    uint64_t refused = UINT64_MAX;
    davy_result r = DAVY_OK;
    p->limit = s->gpu != NULL ? DV_STORE_GPU_BATCH_BYTES : DV_STORE_BATCH_BYTES;
    p->bytes = largest_batch(s, g, m, p->limit);
    while (p->bytes > 0 && p->bytes < refused) {
        r = dv_heap_alloc(s->services->heap, DV_MEM_WORKSPACE, p->bytes, "weights being packed", &block);
        refused = dv_ran_out(r) ? p->bytes : 0;
        while (dv_ran_out(r) && p->limit > 0 && p->bytes == refused) {
            p->limit /= 2;
            p->bytes = largest_batch(s, g, m, p->limit);
        }
    }
    p->block = block;
    return r;
}

static davy_result begin(const dv_store *s, const dv_graph *g, const missing *m, packing *p) {
    const uint64_t per_weight = sizeof(float *) + sizeof(void *) + sizeof(int64_t); /* sources, packed, first_unit */
    p->arrays = dv_calloc((uint64_t)m->count + 1, per_weight);
    if (p->arrays == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "weights: out of memory");
    }
    const davy_result r = take_block(s, g, m, p);
    return r == DAVY_OK && s->gpu != NULL ? dv_gpu_queue_take(s->gpu, NULL, &p->queue) : r;
}

static void end(const dv_store *s, packing *p) {
    if (p->queue != NULL) {
        dv_gpu_queue_give(p->queue);
    }
    if (p->block != NULL) {
        dv_heap_free(s->services->heap, DV_MEM_WORKSPACE, p->block, p->bytes);
    }
    dv_free(p->arrays);
}

static davy_result pack_all(dv_store *s, const dv_graph *graph, const missing *m, dv_watch *watch) {
    packing p = {0};
    davy_result r = m->count > 0 ? begin(s, graph, m, &p) : DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i < m->count;) {
        batch b = {.store = s, .graph = graph, .entries = m->entries + i, .weights = m->weights + i, .limit = p.limit};
        gather(&b, m->count - i);
        b.first_unit = p.arrays;
        b.sources = (float **)(void *)(b.first_unit + b.count + 1);
        b.packed = (void **)(void *)(b.sources + b.count);
        const uint64_t packed = lay_out(&b, p.block);
        r = run_loops(&b, watch);
        if (r == DAVY_OK && s->gpu != NULL) {
            r = dv_gpu_upload(p.queue, b.entries[0]->data, p.block, packed);
        } else if (r == DAVY_OK) {
            mark_ready(s, b.entries, b.count);
        }
        i += b.count;
    }
    if (p.queue != NULL) { /* also after a failure: enqueued copies still use memory that is about to be freed */
        const davy_result waited = dv_gpu_queue_wait(p.queue, r == DAVY_OK ? poll : NULL, watch);
        r = r < 0 ? r : waited;
        if (waited != DAVY_OK) {
            dv_gpu_queue_wait(p.queue, NULL, NULL);
        }
    }
    if (r == DAVY_OK && s->gpu != NULL) {
        mark_ready(s, m->entries, m->count);
    }
    end(s, &p);
    return r;
}

/* ---- lookup ---- */

static uint64_t hash_of(const char *label) {
    uint64_t h = 1469598103934665603ull;
    for (const char *c = label; *c != '\0'; c++) {
        h = (h ^ (uint64_t)(unsigned char)*c) * 1099511628211ull;
    }
    return h;
}

/* Compares everything that decides the packed form: the kernel, the channels, the window, the reading of the input, the precision. */
static bool same_form(const dv_weight *a, const dv_weight *b) {
    const dvk_conv2d_args *p = &a->conv;
    const dvk_conv2d_args *q = &b->conv;
    return dv_kernel_is(a->kernel, b->kernel) && a->bytes == b->bytes && a->count == b->count && p->x.c == q->x.c &&
           p->y.c == q->y.c && p->kh == q->kh && p->kw == q->kw && p->stride == q->stride &&
           p->upsample == q->upsample && p->x.dtype == q->x.dtype && p->compute == q->compute &&
           p->epi.shuffle == q->epi.shuffle && p->phased == q->phased && a->parts == b->parts;
}

/* Under the lock. */
static packed_weight *find(const dv_store *s, dv_stage stage, const char *label, const dv_weight *w) {
    const uint64_t hash = hash_of(label);
    for (int64_t i = 0; i < s->n_entries; i++) {
        packed_weight *e = s->entries[i];
        if (e->hash == hash && e->stage == stage && same_form(&e->what, w) && strcmp(e->label, label) == 0) {
            return e;
        }
    }
    return NULL;
}

static void release_entry(dv_store *s, packed_weight *e) {
    if (e != NULL) {
        if (s->gpu == NULL) {
            dv_heap_free(s->services->heap, DV_MEM_WEIGHTS, e->data, e->what.bytes);
        }
        dv_free(e->label);
        dv_free(e);
    }
}

/* Called by the packing thread. Appends an entry that is not packed yet. On a GPU add_slab gives it memory later. */
static davy_result add(dv_store *s, dv_stage stage, const char *label, const dv_weight *w, packed_weight **out) {
    packed_weight *e = dv_calloc(1, sizeof *e);
    char *copy = dv_strdup(label);
    davy_result r = DAVY_OK;
    if (e == NULL || copy == NULL) {
        dv_free(e);
        dv_free(copy);
        return dv_fail(DAVY_E_NOMEM_HOST, "weights: out of memory");
    }
    *e = (packed_weight){.hash = hash_of(label), .stage = stage, .label = copy, .what = *w};
    if (s->gpu == NULL) {
        r = dv_heap_alloc(s->services->heap, DV_MEM_WEIGHTS, w->bytes, "weights", &e->data);
    }
    if (r < 0) {
        goto fail;
    }
    dv_mutex_lock(s->lock);
    packed_weight **entries = dv_grow(s->entries, s->n_entries + 1, &s->cap_entries, sizeof *entries);
    if (entries != NULL) {
        s->entries = entries;
        entries[s->n_entries++] = e;
        s->bytes += room_of(s, w);
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

/* After a failure, removes one entry that is not packed; NULL: none left. The caller releases it without the lock, because the
 * release may call the host. */
static packed_weight *take_unready(dv_store *s) {
    packed_weight *taken = NULL;
    dv_mutex_lock(s->lock);
    for (int64_t i = 0; i < s->n_entries && taken == NULL; i++) {
        if (!s->entries[i]->ready) {
            taken = s->entries[i];
            s->entries[i] = s->entries[--s->n_entries];
            s->bytes -= room_of(s, &taken->what);
        }
    }
    dv_mutex_unlock(s->lock);
    return taken;
}

/* ---- device memory ---- */

/* One block for all missing weights. Separate blocks would cost hundreds of allocations for small vectors. */
static davy_result add_slab(dv_store *s, const missing *m) {
    uint64_t bytes = 0;
    for (int64_t i = 0; i < m->count; i++) {
        bytes += room_of(s, m->weights[i]);
    }
    if (bytes == 0) {
        return DAVY_OK;
    }
    slab *slabs = dv_grow(s->slabs, s->n_slabs + 1, &s->cap_slabs, sizeof *slabs);
    if (slabs == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "weights: out of memory");
    }
    s->slabs = slabs;
    void *data = NULL;
    const davy_result r = dv_gpu_alloc(s->gpu, DV_MEM_WEIGHTS, bytes, "weights", &data);
    if (r < 0) {
        return r;
    }
    slabs[s->n_slabs++] = (slab){.data = data, .bytes = bytes};
    char *at = data;
    for (int64_t i = 0; i < m->count; i++) {
        m->entries[i]->data = at;
        at += room_of(s, m->weights[i]);
    }
    return DAVY_OK;
}

/* After a failure: no entry in the last slab has become ready. */
static void drop_slab(dv_store *s) {
    const slab *last = &s->slabs[--s->n_slabs];
    dv_gpu_free(s->gpu, DV_MEM_WEIGHTS, last->data, last->bytes);
}

/* ---- binding ---- */

static davy_result list_missing(dv_store *s, dv_stage stage, const dv_plan *plan, missing *m) {
    m->entries = dv_calloc((uint64_t)plan->n_weights + 1, sizeof *m->entries);
    m->weights = dv_calloc((uint64_t)plan->n_weights + 1, sizeof *m->weights);
    if (m->entries == NULL || m->weights == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "weights: out of memory");
    }
    for (int64_t i = 0; i < plan->n_weights; i++) {
        const dv_weight *w = &plan->weights[i];
        const dv_param_info *p = &plan->graph->params[w->param];
        if (find(s, stage, p->label, w) != NULL) { /* only the packing thread adds entries, so no lock is needed */
            continue;
        }
        const davy_result r = add(s, stage, p->label, w, &m->entries[m->count]);
        if (r < 0) {
            return r;
        }
        m->weights[m->count++] = w;
        m->derived = m->derived || p->from != NULL;
    }
    return DAVY_OK;
}

/* Finds all missing weights in the model store. False: it does not have all. Its entries live as long as it does. */
static bool find_in_model(const dv_store *s, const dv_graph *graph, const missing *m, const void **data) {
    bool all = true;
    dv_mutex_lock(s->model->lock);
    for (int64_t i = 0; i < m->count && all; i++) {
        const packed_weight *e =
            find(s->model, m->entries[i]->stage, graph->params[m->weights[i]->param].label, m->weights[i]);
        all = e != NULL && e->ready;
        data[i] = all ? e->data : NULL;
    }
    dv_mutex_unlock(s->model->lock);
    return all;
}

/* *copied: all missing weights were copied, none is left to pack. */
static davy_result copy_from_model(dv_store *s, const dv_graph *graph, const missing *m, bool *copied) {
    *copied = false;
    if (s->model == NULL || m->count == 0) {
        return DAVY_OK;
    }
    const void **data = dv_calloc((uint64_t)m->count, sizeof *data);
    if (data == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "weights: out of memory");
    }
    dv_gpu_queue *q = NULL;
    davy_result r = DAVY_OK;
    *copied = find_in_model(s, graph, m, data);
    if (*copied) {
        r = dv_gpu_queue_take(s->gpu, NULL, &q);
        for (int64_t i = 0; r == DAVY_OK && i < m->count; i++) {
            r = dv_gpu_copy(q, m->entries[i]->data, s->model->gpu, data[i], m->weights[i]->bytes);
        }
        if (q != NULL) {
            const davy_result waited = dv_gpu_queue_wait(q, NULL, NULL);
            r = r < 0 ? r : waited;
            dv_gpu_queue_give(q);
        }
    }
    if (*copied && r == DAVY_OK) {
        mark_ready(s, m->entries, m->count);
    }
    dv_free((void *)(uintptr_t)data);
    return r;
}

static davy_result pack_missing(dv_store *s, dv_stage stage, const dv_plan *plan, dv_watch *watch) {
    missing m = {0};
    const int64_t slabs = s->n_slabs;
    davy_result r = list_missing(s, stage, plan, &m);
    if (r == DAVY_OK && s->gpu != NULL) {
        r = add_slab(s, &m);
    }
    bool copied = false;
    r = r < 0 ? r : copy_from_model(s, plan->graph, &m, &copied);
    if (r == DAVY_OK && !copied) {
        r = pack_all(s, plan->graph, &m, watch);
    }
    for (packed_weight *e = NULL; r != DAVY_OK && (e = take_unready(s)) != NULL;) {
        release_entry(s, e);
    }
    if (r != DAVY_OK && s->n_slabs > slabs) {
        drop_slab(s);
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
            if (r < 0) {
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
    if (r < 0) {
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
            bytes += room_of(s, w);
        }
    }
    dv_mutex_unlock(s->lock);
    return bytes;
}

uint64_t dv_store_copies(dv_store *s, dv_stage stage, const dv_plan *plan) {
    uint64_t most = 0;
    for (int64_t i = 0; i < plan->n_weights; i++) {
        const dv_weight *w = &plan->weights[i];
        const uint64_t bytes = source_bytes(plan->graph, w);
        if (bytes > most) {
            if (s != NULL) {
                dv_mutex_lock(s->lock);
            }
            const bool packed = s != NULL && find(s, stage, plan->graph->params[w->param].label, w) != NULL;
            if (s != NULL) {
                dv_mutex_unlock(s->lock);
            }
            most = packed ? most : bytes;
        }
    }
    return most;
}

/* Adds a weight. False: it was there. If memory runs out, a later plan counts the weight again. */
static bool see(dv_weight_set *seen, uint64_t hash) {
    for (int64_t i = 0; i < seen->count; i++) {
        if (seen->hashes[i] == hash) {
            return false;
        }
    }
    uint64_t *hashes = dv_grow(seen->hashes, seen->count + 1, &seen->capacity, sizeof *hashes);
    if (hashes != NULL) {
        seen->hashes = hashes;
        hashes[seen->count++] = hash;
    }
    return true;
}

uint64_t dv_store_missing_beside(dv_store *s, dv_stage stage, const dv_plan *plan, bool anew, dv_weight_set *seen) {
    uint64_t bytes = 0;
    dv_mutex_lock(s->lock);
    for (int64_t i = 0; i < plan->n_weights; i++) {
        const dv_weight *w = &plan->weights[i];
        const char *label = plan->graph->params[w->param].label;
        const uint64_t form = dv_kernel_none(w->kernel) ? 0 : hash_of(dv_kernel_variant(w->kernel));
        if (see(seen, (hash_of(label) * 31 + form) * 31 + w->bytes)) {
            seen->bytes += room_of(s, w);
            bytes += anew || find(s, stage, label, w) == NULL ? room_of(s, w) : 0;
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

davy_result dv_store_create(const dv_services *services, dv_gpu *gpu, const dv_tensors *tensors, dv_store **out) {
    dv_store *s = dv_calloc(1, sizeof *s);
    if (s == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "weights: out of memory");
    }
    s->services = services;
    s->gpu = gpu;
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

void dv_store_set_model(dv_store *s, dv_store *model) {
    s->model = dv_store_ref(model);
}

dv_gpu *dv_store_gpu(const dv_store *s) {
    return s->gpu;
}

dv_store *dv_store_ref(dv_store *s) {
    atomic_fetch_add(&s->refs, 1);
    return s;
}

int32_t dv_store_refs(const dv_store *s) {
    return atomic_load(&s->refs);
}

void dv_store_release(dv_store *s) {
    if (s == NULL || atomic_fetch_sub(&s->refs, 1) != 1) {
        return;
    }
    for (int64_t i = 0; i < s->n_entries; i++) {
        release_entry(s, s->entries[i]);
    }
    while (s->n_slabs > 0) {
        drop_slab(s);
    }
    dv_free(s->slabs);
    dv_store_release(s->model);
    dv_free(s->entries);
    dv_cond_release(s->free);
    dv_mutex_release(s->lock);
    dv_free(s);
}
