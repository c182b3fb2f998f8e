/* weights.c - what is packed, found by stage, label and form. One thread packs at a time (weights_pack.c); others that need
 * weights wait for it, but go on asking whether they have been cancelled. */
#include <string.h>

#include "core/cuda/gpu.h"
#include "core/base/error.h"
#include "core/exec/weights_priv.h"

#define WAIT_NS 20000000ull

/* ---- lookup ---- */

static uint64_t hash_of(const char *label) {
    uint64_t h = 1469598103934665603ull;
    for (const char *c = label; *c != '\0'; c++) {
        h = (h ^ (uint64_t)(unsigned char)*c) * 1099511628211ull;
    }
    return h;
}

/* What decides a kernel's packing: itself, the channels, the window, how the input is read, the precision. */
static bool same_form(const dv_weight *a, const dv_weight *b) {
    const dvk_conv2d_args *p = &a->conv;
    const dvk_conv2d_args *q = &b->conv;
    return dv_kernel_is(a->kernel, b->kernel) && a->bytes == b->bytes && a->count == b->count && p->x.c == q->x.c &&
           p->y.c == q->y.c && p->kh == q->kh && p->kw == q->kw && p->stride == q->stride &&
           p->upsample == q->upsample && p->x.dtype == q->x.dtype && p->compute == q->compute &&
           p->epi.shuffle == q->epi.shuffle && p->phased == q->phased && a->parts == b->parts;
}

/* Under the lock. */
static dv_packed *find(const dv_store *s, dv_stage stage, const char *label, const dv_weight *w) {
    const uint64_t hash = hash_of(label);
    for (int64_t i = 0; i < s->n_entries; i++) {
        dv_packed *e = s->entries[i];
        if (e->hash == hash && e->stage == stage && same_form(&e->what, w) && strcmp(e->label, label) == 0) {
            return e;
        }
    }
    return NULL;
}

static void release_entry(dv_store *s, dv_packed *e) {
    if (e != NULL) {
        if (s->gpu == NULL) {
            dv_heap_free(s->services->heap, DV_MEM_WEIGHTS, e->data, e->what.bytes);
        }
        dv_free(e->label);
        dv_free(e);
    }
}

/* By the thread that packs: appends an entry with no contents; on a GPU it gets its memory later. */
static davy_result add(dv_store *s, dv_stage stage, const char *label, const dv_weight *w, dv_packed **out) {
    dv_packed *e = dv_calloc(1, sizeof *e);
    char *copy = dv_strdup(label);
    davy_result r = DAVY_OK;
    if (e == NULL || copy == NULL) {
        dv_free(e);
        dv_free(copy);
        return dv_fail(DAVY_E_NOMEM_HOST, "weights: out of memory");
    }
    *e = (dv_packed){.hash = hash_of(label), .stage = stage, .label = copy, .what = *w};
    if (s->gpu == NULL) {
        r = dv_heap_alloc(s->services->heap, DV_MEM_WEIGHTS, w->bytes, "weights", &e->data);
    }
    if (r != DAVY_OK) {
        goto fail;
    }
    dv_mutex_lock(s->lock);
    dv_packed **entries = dv_grow(s->entries, s->n_entries + 1, &s->cap_entries, sizeof *entries);
    if (entries != NULL) {
        s->entries = entries;
        entries[s->n_entries++] = e;
        s->bytes += dv_weight_room(s, w);
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
static dv_packed *take_unready(dv_store *s) {
    dv_packed *taken = NULL;
    dv_mutex_lock(s->lock);
    for (int64_t i = 0; i < s->n_entries && taken == NULL; i++) {
        if (!s->entries[i]->ready) {
            taken = s->entries[i];
            s->entries[i] = s->entries[--s->n_entries];
            s->bytes -= dv_weight_room(s, &taken->what);
        }
    }
    dv_mutex_unlock(s->lock);
    return taken;
}

/* ---- device memory ---- */

/* One block for all that is missing: hundreds of small vectors would cost as many allocations. */
static davy_result add_slab(dv_store *s, const dv_missing *m) {
    uint64_t bytes = 0;
    for (int64_t i = 0; i < m->count; i++) {
        bytes += dv_weight_room(s, m->weights[i]);
    }
    if (bytes == 0) {
        return DAVY_OK;
    }
    dv_slab *slabs = dv_grow(s->slabs, s->n_slabs + 1, &s->cap_slabs, sizeof *slabs);
    if (slabs == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "weights: out of memory");
    }
    s->slabs = slabs;
    void *data = NULL;
    const davy_result r = dv_gpu_alloc(s->gpu, DV_MEM_WEIGHTS, bytes, "weights", &data);
    if (r != DAVY_OK) {
        return r;
    }
    slabs[s->n_slabs++] = (dv_slab){.data = data, .bytes = bytes};
    char *at = data;
    for (int64_t i = 0; i < m->count; i++) {
        m->entries[i]->data = at;
        at += dv_weight_room(s, m->weights[i]);
    }
    return DAVY_OK;
}

/* After a failure: no entry in the last slab has become ready. */
static void drop_slab(dv_store *s) {
    const dv_slab *last = &s->slabs[--s->n_slabs];
    dv_gpu_free(s->gpu, DV_MEM_WEIGHTS, last->data, last->bytes);
}

/* ---- binding ---- */

static davy_result list_missing(dv_store *s, dv_stage stage, const dv_plan *plan, dv_missing *m) {
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
        m->derived = m->derived || p->derive != NULL || p->derive_share != NULL;
    }
    return DAVY_OK;
}

/* Where the model has all of it. Its entries stay as long as it does. */
static bool find_in_model(const dv_store *s, const dv_graph *graph, const dv_missing *m, const void **data) {
    bool all = true;
    dv_mutex_lock(s->model->lock);
    for (int64_t i = 0; i < m->count && all; i++) {
        const dv_packed *e =
            find(s->model, m->entries[i]->stage, graph->params[m->weights[i]->param].label, m->weights[i]);
        all = e != NULL && e->ready;
        data[i] = all ? e->data : NULL;
    }
    dv_mutex_unlock(s->model->lock);
    return all;
}

/* *copied: nothing is left to pack. */
static davy_result copy_from_model(dv_store *s, const dv_graph *graph, const dv_missing *m, bool *copied) {
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
            r = r == DAVY_OK ? waited : r;
            dv_gpu_queue_give(q);
        }
    }
    if (*copied && r == DAVY_OK) {
        dv_packed_mark_ready(s, m->entries, m->count);
    }
    dv_free((void *)(uintptr_t)data);
    return r;
}

static davy_result pack_missing(dv_store *s, dv_stage stage, const dv_plan *plan, dv_watch *watch) {
    dv_missing m = {0};
    const int64_t slabs = s->n_slabs;
    davy_result r = list_missing(s, stage, plan, &m);
    if (r == DAVY_OK && s->gpu != NULL) {
        r = add_slab(s, &m);
    }
    bool copied = false;
    if (r == DAVY_OK) {
        r = copy_from_model(s, plan->graph, &m, &copied);
    }
    if (r == DAVY_OK && !copied) {
        r = dv_store_pack(s, plan->graph, &m, watch);
    }
    for (dv_packed *e = NULL; r != DAVY_OK && (e = take_unready(s)) != NULL;) {
        release_entry(s, e);
    }
    if (r != DAVY_OK && s->n_slabs > slabs) {
        drop_slab(s);
    }
    for (int64_t i = 0; m.derived && i < s->tensors->count; i++) {
        const dv_tensor_ref *ref = &s->tensors->refs[i];
        if (ref->bytes >= DV_RELEASE_BYTES) {
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
            bytes += dv_weight_room(s, w);
        }
    }
    dv_mutex_unlock(s->lock);
    return bytes;
}

uint64_t dv_store_copies(dv_store *s, dv_stage stage, const dv_plan *plan) {
    uint64_t most = 0;
    for (int64_t i = 0; i < plan->n_weights; i++) {
        const dv_weight *w = &plan->weights[i];
        const uint64_t bytes = dv_weight_source(plan->graph, w);
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

/* Out of memory: it counts again. */
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
            seen->bytes += dv_weight_room(s, w);
            bytes += anew || find(s, stage, label, w) == NULL ? dv_weight_room(s, w) : 0;
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
