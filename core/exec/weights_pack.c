/* weights_pack.c - packing is two parallel loops over a batch of parameters: read as f32 from the file (one unit each),
 * then packed by the kernel that will use them (many units each). Batches bound the memory that the f32 copies take. For
 * a GPU a batch is packed into host memory, in the order in which it will lie in the device's, and goes there at once. */
#include <math.h>
#include <string.h>

#include "core/cuda/gpu.h"
#include "core/base/error.h"
#include "core/exec/weights_priv.h"

typedef struct batch {
    dv_store *store;
    const dv_graph *graph;
    dv_packed **entries; /* [count] */
    const dv_weight *const *weights;
    float **sources;     /* [count]; NULL for vectors */
    void **packed;       /* [count]: where the result goes, in host memory */
    int64_t *first_unit; /* [count + 1], of the packing loop */
    int64_t count;
    uint64_t limit;     /* as in packing */
    davy_result result; /* first failure of a worker, under the store's lock */
    davy_error_info error;
} batch;

static davy_result read_stored(const batch *b, const dv_param_info *p, float *dst) {
    if (p->ref != NULL) {
        const davy_result r = dv_tensor_read_f32(p->ref, dst);
        if (p->ref->bytes >= DV_RELEASE_BYTES) {
            dv_source_done_with(p->ref->source, p->ref->offset, p->ref->bytes);
        }
        return r;
    }
    if (p->derive_share != NULL) {
        return DAVY_OK; /* they are there */
    }
    if (p->derive != NULL) {
        return p->derive(b->store->tensors, p->key, dst);
    }
    memcpy(dst, p->constant, (size_t)dv_param_elements(p) * sizeof(float));
    return DAVY_OK;
}

static davy_result read_values(const batch *b, const dv_param_info *p, float *dst) {
    const davy_result r = read_stored(b, p, dst);
    for (int64_t i = 0; p->exponent != 0 && r == DAVY_OK && i < dv_param_elements(p); i++) {
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
    const int64_t have = dv_param_elements(p);
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
    return p->derive_share != NULL ? p->shares : 0;
}

static void keep_failure(batch *b, davy_result r) {
    if (r != DAVY_OK) {
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

/* Shares of the parameters that are much work, one parameter after the other. */
static void share_units(void *user, int64_t first, int64_t last, int32_t worker) {
    batch *b = user;
    (void)worker;
    for (int64_t u = first; u < last; u++) {
        int64_t i = 0;
        int64_t share = u;
        while (share >= shares_of(b, i)) {
            share -= shares_of(b, i++);
        }
        const dv_param_info *p = &b->graph->params[b->weights[i]->param];
        float *dst = b->sources[i] != NULL ? b->sources[i] : b->packed[i];
        keep_failure(b, p->derive_share(b->store->tensors, p->key, (int32_t)share, b->store->services->cpu, dst));
    }
}

static int64_t parts_of(const dv_weight *w) {
    return dv_max(w->parts, 1);
}

/* Units of all parts of a weight, one part after the other. */
static void pack_some(const batch *b, int64_t i, int64_t first, int64_t last) {
    const dv_weight *w = b->weights[i];
    const int64_t units = dv_kernel_pack_units(w->kernel, &w->conv);
    const int64_t each = dv_param_elements(&b->graph->params[w->param]) / parts_of(w);
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
    r = r == DAVY_OK ? dv_watch_loop(watch, services->pool, &read, dv_store_cost(bytes) / 2) : r;
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

/* Host memory that a weight takes while its batch is packed. */
static uint64_t passing_bytes(const dv_store *s, const dv_graph *g, const dv_weight *w) {
    return dv_weight_source(g, w) + (s->gpu != NULL ? dv_weight_room(s, w) : 0);
}

/* Sets b->count to what of the `left` weights goes together; returns the host memory that takes. */
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

/* Packed values first, for a GPU: one piece that is uploaded as it is. Returns its size. */
static uint64_t lay_out(batch *b, char *block) {
    uint64_t at = 0;
    for (int64_t i = 0; i < b->count; i++) {
        b->packed[i] = b->store->gpu != NULL ? block + at : b->entries[i]->data;
        at += b->store->gpu != NULL ? dv_weight_room(b->store, b->weights[i]) : 0;
    }
    const uint64_t packed = at;
    for (int64_t i = 0; i < b->count; i++) {
        const uint64_t bytes = dv_weight_source(b->graph, b->weights[i]);
        b->sources[i] = bytes > 0 ? (float *)(void *)(block + at) : NULL;
        at += bytes;
    }
    return packed;
}

void dv_packed_mark_ready(dv_store *s, dv_packed **entries, int64_t count) {
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
    uint64_t bytes, limit; /* of a batch: of the largest; that only a weight by itself passes */
    void *arrays;
    dv_gpu_queue *queue;
} packing;

static uint64_t largest_batch(const dv_store *s, const dv_graph *g, const dv_missing *m, uint64_t limit) {
    batch b = {.store = (dv_store *)(uintptr_t)s, .graph = g, .limit = limit};
    uint64_t most = 0;
    for (int64_t i = 0; i < m->count; i += b.count) {
        b.weights = m->weights + i;
        const uint64_t bytes = gather(&b, m->count - i);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Where memory is short batches become smaller, down to a weight at a time. */
static davy_result take_block(const dv_store *s, const dv_graph *g, const dv_missing *m, packing *p) {
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

static davy_result begin(const dv_store *s, const dv_graph *g, const dv_missing *m, packing *p) {
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

davy_result dv_store_pack(dv_store *s, const dv_graph *graph, const dv_missing *m, dv_watch *watch) {
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
            dv_packed_mark_ready(s, b.entries, b.count);
        }
        i += b.count;
    }
    if (p.queue != NULL) { /* also after a failure: what has been enqueued writes to memory that is given up */
        const davy_result waited = dv_gpu_queue_wait(p.queue, r == DAVY_OK ? poll : NULL, watch);
        r = r == DAVY_OK ? waited : r;
        if (waited != DAVY_OK) {
            dv_gpu_queue_wait(p.queue, NULL, NULL);
        }
    }
    if (r == DAVY_OK && s->gpu != NULL) {
        dv_packed_mark_ready(s, m->entries, m->count);
    }
    end(s, &p);
    return r;
}
