/* gpu_queue.c - streams: copies between host and device, the operations that kernels use (launch, clear, tensor map), events, and
 * captured graphs. */
#include <string.h>

#include "core/base/error.h"
#include "core/cuda/gpu_priv.h"
#include "kernels/dtype.h"

/* ---- between host and device. Pageable memory is copied through two pinned stages per queue: while the device copies one, the
 * CPU fills or empties the other. Pinned memory from DIRECT_BYTES on is copied directly. ---- */

enum { DIRECT_BYTES = 1 << 20 }; /* below this, a copy by the CPU is cheaper than a wait for the device */

typedef struct region { /* rows in host and device memory; rows without gaps are merged into one */
    char *host;
    cu_address device;
    uint64_t host_pitch, device_pitch, row_bytes, rows;
} region;

static region make_region(const dv_gpu_rows *rows, bool up) {
    void *src = (void *)(uintptr_t)rows->src;
    region r = {.host = up ? src : rows->dst,
                .device = gpu_address(up ? rows->dst : src),
                .host_pitch = up ? rows->src_pitch : rows->dst_pitch,
                .device_pitch = up ? rows->dst_pitch : rows->src_pitch,
                .row_bytes = rows->row_bytes,
                .rows = rows->rows};
    if (r.rows > 1 && r.host_pitch == r.row_bytes && r.device_pitch == r.row_bytes) {
        r.row_bytes *= r.rows;
        r.rows = 1;
    }
    return r;
}

static dv_gpu_rows one_row(void *dst, const void *src, uint64_t bytes) {
    return (dv_gpu_rows){.dst = dst, .dst_pitch = bytes, .src = src, .src_pitch = bytes, .row_bytes = bytes, .rows = 1};
}

/* Splits the part that fits into a stage off the beginning of `rest`. False: nothing is left. */
static bool next_piece(region *rest, region *piece) {
    if (rest->rows == 0 || rest->row_bytes == 0) {
        return false;
    }
    *piece = *rest;
    if (rest->row_bytes <= STAGE_BYTES) {
        piece->rows = (uint64_t)dv_min((int64_t)rest->rows, STAGE_BYTES / (int64_t)rest->row_bytes);
        rest->host += piece->rows * rest->host_pitch;
        rest->device += piece->rows * rest->device_pitch;
        rest->rows -= piece->rows;
    } else if (rest->rows == 1) {
        piece->row_bytes = STAGE_BYTES;
        rest->host += STAGE_BYTES;
        rest->device += STAGE_BYTES;
        rest->row_bytes -= STAGE_BYTES;
    } else { /* rows longer than a stage: the caller copies row by row */
        return false;
    }
    return true;
}

/* ---- stages ---- */

static cu_result wait_stage(dv_gpu *g, gpu_stage *s) {
    const uint64_t until = dv_now_ns() + 300000;
    cu_result c = s->busy ? CU_NOT_READY : CU_OK;
    while (c == CU_NOT_READY && dv_now_ns() < until) {
        c = g->cu->event_query(s->done);
    }
    if (c == CU_NOT_READY) { /* sleeps until the event completes */
        c = g->cu->event_sync(s->done);
    }
    s->busy = s->busy && c != CU_OK;
    return c;
}

static cu_result mark_stage(dv_gpu *g, gpu_queue *q, gpu_stage *s) {
    const cu_result c = g->cu->event_record(s->done, q->pub.stream);
    s->busy = c == CU_OK;
    return c;
}

static davy_result need_event(dv_gpu *g, gpu_stage *s) {
    if (s->done != NULL) {
        return DAVY_OK;
    }
    return dv_gpu_check(g, g->cu->event_create(&s->done, CU_EVENT_BLOCKING | CU_EVENT_NO_TIMING), "staging memory");
}

static davy_result need_stage(dv_gpu *g, gpu_stage *s) {
    void *p = NULL;
    davy_result r = need_event(g, s);
    if (r < 0 || s->host != NULL) {
        return r;
    }
    r = g->heap != NULL ? dv_heap_claim(g->heap, DV_MEM_WORKSPACE, STAGE_BYTES, "staging memory") : DAVY_OK;
    if (r < 0) {
        return r;
    }
    const cu_result c = g->cu->host_alloc(&p, STAGE_BYTES, CU_HOST_PORTABLE);
    if (c != CU_OK) {
        if (g->heap != NULL) {
            dv_heap_unclaim(g->heap, DV_MEM_WORKSPACE, STAGE_BYTES);
        }
        if (c == CU_OUT_OF_MEMORY) {
            return dv_fail_in(DAVY_E_NOMEM_HOST, DAVY_DOMAIN_CUDA, c,
                              "staging memory: the driver cannot pin %d bytes of host memory", (int)STAGE_BYTES);
        }
        return dv_gpu_check(g, c, "staging memory");
    }
    s->host = p;
    return DAVY_OK;
}

void gpu_stages_free(dv_gpu *g, gpu_queue *q, bool alive) {
    for (int i = 0; i < STAGES; i++) {
        gpu_stage *s = &q->stage[i];
        if (alive && s->busy) {
            gpu_note(g, g->cu->event_sync(s->done));
        }
        if (alive && s->done != NULL) {
            g->cu->event_destroy(s->done);
        }
        if (alive && s->host != NULL) {
            g->cu->host_free(s->host);
        }
        if (s->host != NULL && g->heap != NULL) {
            dv_heap_unclaim(g->heap, DV_MEM_WORKSPACE, STAGE_BYTES);
        }
        *s = (gpu_stage){0};
    }
}

/* ---- copying ---- */

static cu_result copy_rows(dv_gpu *g, cu_stream stream, const dv_gpu_rows *rows) {
    const int unified = 4;
    const cu_copy_2d c = {.src_type = unified,
                          .dst_type = unified,
                          .src_device = gpu_address(rows->src),
                          .dst_device = gpu_address(rows->dst),
                          .src_pitch = (size_t)rows->src_pitch,
                          .dst_pitch = (size_t)rows->dst_pitch,
                          .width_bytes = (size_t)rows->row_bytes,
                          .height = (size_t)rows->rows};
    return g->cu->copy_2d(&c, stream);
}

static cu_result enqueue(dv_gpu *g, gpu_queue *q, const region *r, bool up) {
    const cu_address host = gpu_address(r->host);
    if (r->rows == 1) {
        return g->cu->copy_any(up ? r->device : host, up ? host : r->device, (size_t)r->row_bytes, q->pub.stream);
    }
    const dv_gpu_rows rows = {.dst = up ? gpu_pointer(r->device) : r->host,
                              .dst_pitch = up ? r->device_pitch : r->host_pitch,
                              .src = up ? r->host : gpu_pointer(r->device),
                              .src_pitch = up ? r->host_pitch : r->device_pitch,
                              .row_bytes = r->row_bytes,
                              .rows = r->rows};
    return copy_rows(g, q->pub.stream, &rows);
}

static cu_result enqueue_staged(dv_gpu *g, gpu_queue *q, gpu_stage *s, const region *piece, bool up) {
    region staged = *piece;
    staged.host = s->host;
    staged.host_pitch = piece->row_bytes;
    const cu_result c = enqueue(g, q, &staged, up);
    return c != CU_OK ? c : mark_stage(g, q, s);
}

static void move_rows(char *dst, uint64_t dst_pitch, const char *src, uint64_t src_pitch, const region *piece) {
    for (uint64_t y = 0; y < piece->rows; y++) {
        memcpy(dst + y * dst_pitch, src + y * src_pitch, (size_t)piece->row_bytes);
    }
}

static davy_result upload_staged(dv_gpu *g, gpu_queue *q, region rest) {
    region piece;
    davy_result r = DAVY_OK;
    for (int i = 0; r == DAVY_OK && next_piece(&rest, &piece); i ^= 1) {
        gpu_stage *s = &q->stage[i];
        r = need_stage(g, s);
        r = r < 0 ? r : dv_gpu_check(g, wait_stage(g, s), "upload");
        if (r == DAVY_OK) {
            move_rows(s->host, piece.row_bytes, piece.host, piece.host_pitch, &piece);
            r = dv_gpu_check(g, enqueue_staged(g, q, s, &piece, true), "upload");
        }
    }
    return r;
}

static davy_result empty_stage(dv_gpu *g, gpu_stage *s, region *pending) {
    const davy_result r = dv_gpu_check(g, wait_stage(g, s), "download");
    if (r == DAVY_OK && pending->rows > 0) {
        move_rows(pending->host, pending->host_pitch, s->host, pending->row_bytes, pending);
    }
    pending->rows = 0;
    return r;
}

static davy_result download_staged(dv_gpu *g, gpu_queue *q, region rest) {
    region pending[STAGES] = {{0}};
    region piece;
    davy_result r = DAVY_OK;
    int i = 0;
    for (; r == DAVY_OK && next_piece(&rest, &piece); i ^= 1) {
        r = need_stage(g, &q->stage[i]);
        r = r < 0 ? r : empty_stage(g, &q->stage[i], &pending[i]);
        r = r < 0 ? r : dv_gpu_check(g, enqueue_staged(g, q, &q->stage[i], &piece, false), "download");
        pending[i] = piece;
    }
    for (int k = 0; r == DAVY_OK && k < STAGES; k++, i ^= 1) { /* i is the older one */
        r = empty_stage(g, &q->stage[i], &pending[i]);
    }
    return r;
}

/* 0: pageable. Otherwise the device can access it directly, and this is the driver's CU_MEMORY_ type. */
static unsigned kind_of(dv_gpu *g, const region *r) {
    unsigned first = 0;
    unsigned last = 0;
    const cu_address begin = gpu_address(r->host);
    const cu_address end = begin + (r->rows - 1) * r->host_pitch + r->row_bytes - 1;
    const bool known = g->cu->pointer_attribute(&first, CU_POINTER_MEMORY_TYPE, begin) == CU_OK &&
                       g->cu->pointer_attribute(&last, CU_POINTER_MEMORY_TYPE, end) == CU_OK;
    return known && first == last ? first : 0;
}

static davy_result copy_direct(dv_gpu *g, gpu_queue *q, const region *r, bool up) {
    const char *what = up ? "upload" : "download";
    gpu_stage *s = &q->stage[0]; /* for its event */
    davy_result d = need_event(g, s);
    d = d < 0 ? d : dv_gpu_check(g, wait_stage(g, s), what);
    d = d < 0 ? d : dv_gpu_check(g, enqueue(g, q, r, up), what);
    d = d < 0 ? d : dv_gpu_check(g, mark_stage(g, q, s), what);
    return d < 0 ? d : dv_gpu_check(g, wait_stage(g, s), what);
}

static davy_result copy_region(dv_gpu_queue *pub, const region *all, bool up) {
    gpu_queue *q = pub->priv;
    dv_gpu *g = pub->gpu;
    if (all->row_bytes == 0 || all->rows == 0) {
        return DAVY_OK;
    }
    if (q->capturing) {
        return dv_fail(DAVY_E_STATE, "%s: the stream is capturing a graph", up ? "upload" : "download");
    }
    davy_result r = gpu_enter(g, up ? "upload" : "download");
    if (r < 0) {
        return r;
    }
    const unsigned kind = kind_of(g, all);
    if (kind == CU_MEMORY_DEVICE || (kind == CU_MEMORY_HOST && all->row_bytes * all->rows >= DIRECT_BYTES)) {
        r = copy_direct(g, q, all, up);
    } else if (all->row_bytes <= STAGE_BYTES || all->rows == 1) {
        r = up ? upload_staged(g, q, *all) : download_staged(g, q, *all);
    } else {
        region row = *all;
        row.rows = 1;
        for (uint64_t y = 0; y < all->rows && r == DAVY_OK; y++) {
            r = up ? upload_staged(g, q, row) : download_staged(g, q, row);
            row.host += all->host_pitch;
            row.device += all->device_pitch;
        }
    }
    gpu_leave(g);
    return r;
}

davy_result dv_gpu_upload(dv_gpu_queue *q, void *device, const void *src, uint64_t bytes) {
    const dv_gpu_rows row = one_row(device, src, bytes);
    return dv_gpu_upload_2d(q, &row);
}

davy_result dv_gpu_download(dv_gpu_queue *q, void *dst, const void *device, uint64_t bytes) {
    const dv_gpu_rows row = one_row(dst, device, bytes);
    return dv_gpu_download_2d(q, &row);
}

davy_result dv_gpu_upload_2d(dv_gpu_queue *q, const dv_gpu_rows *rows) {
    const region r = make_region(rows, true);
    return copy_region(q, &r, true);
}

davy_result dv_gpu_download_2d(dv_gpu_queue *q, const dv_gpu_rows *rows) {
    const region r = make_region(rows, false);
    return copy_region(q, &r, false);
}

davy_result dv_gpu_copy(dv_gpu_queue *q, void *dst, const dv_gpu *src_gpu, const void *src, uint64_t bytes) {
    dv_gpu *g = q->gpu;
    davy_result r = bytes > 0 ? gpu_enter(g, "copy on the device") : DAVY_OK;
    if (r < 0 || bytes == 0) {
        return r;
    }
    const cu_result c = src_gpu == g || src_gpu == NULL
                            ? g->cu->copy_any(gpu_address(dst), gpu_address(src), (size_t)bytes, q->stream)
                            : g->cu->copy_peer(gpu_address(dst), g->context, gpu_address(src), src_gpu->context,
                                               (size_t)bytes, q->stream);
    return gpu_leave_with(g, c, "copy on the device");
}

davy_result dv_gpu_copy_2d(dv_gpu_queue *q, const dv_gpu_rows *rows) {
    dv_gpu *g = q->gpu;
    const davy_result r = gpu_enter(g, "copy of rows");
    if (r < 0) {
        return r;
    }
    const cu_result c = copy_rows(g, q->stream, rows);
    return gpu_leave_with(g, c, "copy of rows");
}

/* ---- operations that kernels call ---- */

static size_t slot_of(const char *module, const char *name) {
    const uint64_t mixed = ((uint64_t)(uintptr_t)module * 31 + (uint64_t)(uintptr_t)name) * 0x9e3779b97f4a7c15u;
    return (size_t)(mixed >> 56) & (QUEUE_FUNCTIONS - 1);
}

/* Looks up by the names' addresses. The strings are compared too: a caller may build a name in a local array, whose address is
 * reused. */
static cu_result find_function(gpu_queue *q, const dvk_launch *l, gpu_function **out) {
    const size_t slot = slot_of(l->module, l->function);
    gpu_function *f = q->recent[slot].function;
    if (f != NULL && q->recent[slot].module == l->module && q->recent[slot].name == l->function &&
        strcmp(f->name, l->function) == 0 && strcmp(f->module, l->module) == 0) {
        *out = f;
        return CU_OK;
    }
    const cu_result r = gpu_find_function(q->pub.gpu, l->module, l->function, &f);
    if (r == CU_OK) {
        q->recent[slot].module = l->module;
        q->recent[slot].name = l->function;
        q->recent[slot].function = f;
        *out = f;
    }
    return r;
}

/* Allows all shared memory that the function's static part leaves, so that this is done once per function. */
static cu_result allow_shared(dv_gpu *g, gpu_function *f, uint32_t bytes) {
    int fixed = 0;
    cu_result r = g->cu->function_get(&fixed, CU_FUNCTION_SHARED_BYTES, f->handle);
    const int32_t most = g->caps.shared_bytes - fixed;
    if (r != CU_OK || (int64_t)bytes > most) {
        return r != CU_OK ? r : CU_INVALID_VALUE;
    }
    r = g->cu->function_set(f->handle, CU_FUNCTION_MAX_DYNAMIC_SHARED, most);
    if (r == CU_OK) {
        atomic_store(&f->dynamic_shared, (uint32_t)most);
    }
    return r;
}

static cu_result launch_inside(gpu_queue *q, const dvk_launch *l) {
    dv_gpu *g = q->pub.gpu;
    gpu_function *f = NULL;
    cu_launch_attribute attributes[2];
    cu_result r = find_function(q, l, &f);
    if (r == CU_OK && l->shared_bytes > atomic_load_explicit(&f->dynamic_shared, memory_order_relaxed)) {
        r = allow_shared(g, f, l->shared_bytes);
    }
    if (r == CU_OK && l->cluster > 8 && !atomic_load(&f->wide_cluster)) { /* 8 is the portable maximum */
        r = g->cu->function_set(f->handle, CU_FUNCTION_WIDE_CLUSTER, 1);
        atomic_store(&f->wide_cluster, r == CU_OK);
    }
    if (r != CU_OK) {
        return r;
    }
    cu_launch_config config = {.grid = {l->grid[0], l->grid[1], l->grid[2]},
                               .block = {l->block[0], l->block[1], l->block[2]},
                               .shared_bytes = l->shared_bytes,
                               .stream = q->pub.stream,
                               .attributes = attributes};
    memset(attributes, 0, sizeof attributes);
    if (l->cluster > 1) {
        cu_launch_attribute *a = &attributes[config.n_attributes++];
        a->id = CU_LAUNCH_CLUSTER;
        a->value.cluster[0] = l->cluster;
        a->value.cluster[1] = 1;
        a->value.cluster[2] = 1;
    }
    if ((l->flags & DVK_LAUNCH_OVERLAP) != 0 && g->caps.sm >= 90) {
        cu_launch_attribute *a = &attributes[config.n_attributes++];
        a->id = CU_LAUNCH_SERIALIZATION;
        a->value.serialization = 1;
    }
    return g->cu->launch(&config, f->handle, l->params, NULL);
}

static int queue_launch(dvk_queue *base, const dvk_launch *l) {
    gpu_queue *q = (gpu_queue *)base;
    dv_gpu *g = q->pub.gpu;
    cu_result r = gpu_enter_cu(g);
    if (r == CU_OK) {
        r = gpu_note(g, launch_inside(q, l));
        gpu_leave(g);
    }
    return r;
}

static int queue_clear(dvk_queue *base, void *device, size_t bytes) {
    gpu_queue *q = (gpu_queue *)base;
    dv_gpu *g = q->pub.gpu;
    cu_result r = bytes > 0 ? gpu_enter_cu(g) : CU_OK;
    if (r == CU_OK && bytes > 0) {
        r = gpu_note(g, g->cu->set_8(gpu_address(device), 0, bytes, q->pub.stream));
        gpu_leave(g);
    }
    return r;
}

static int map_type(dvk_dtype t) {
    switch (t) {
    case DVK_U16:
        return 1;
    case DVK_F16:
        return 6;
    case DVK_F32:
        return 7;
    case DVK_BF16:
        return 9;
    default: /* bytes */
        return 0;
    }
}

static int queue_tensor_map(dvk_queue *base, const dvk_tensor_map_desc *d, dvk_tensor_map *out) {
    dv_gpu *g = ((gpu_queue *)base)->pub.gpu;
    uint64_t size[5];
    uint64_t stride[4];
    uint32_t box[5];
    uint32_t step[5];
    if (d->rank < 1 || d->rank > 5) {
        return CU_INVALID_VALUE;
    }
    for (int32_t i = 0; i < d->rank; i++) {
        size[i] = (uint64_t)d->size[i];
        box[i] = (uint32_t)d->box[i];
        step[i] = d->step[i] != 0 ? (uint32_t)d->step[i] : 1;
        if (i > 0) {
            stride[i - 1] = (uint64_t)d->stride_bytes[i - 1];
        }
    }
    /* L2 promotion: for a channel slice, fetch less, because the neighbouring bytes belong to other channels */
    const bool slice = d->rank > 1 && d->size[0] * (int64_t)dvk_dtype_size(d->dtype) < d->stride_bytes[0];
    const int promotion = slice ? 2 /* 128 bytes */ : 3 /* 256 */;
    const int swizzle = d->swizzle_bytes == 128 ? 3 : d->swizzle_bytes == 64 ? 2 : d->swizzle_bytes == 32 ? 1 : 0;
    cu_result r = gpu_enter_cu(g);
    if (r == CU_OK) {
        r = g->cu->tensor_map(out->opaque, map_type(d->dtype), (uint32_t)d->rank, (void *)(uintptr_t)d->data, size,
                              stride, box, step, 0, swizzle, promotion, 0 /* zeros outside */);
        gpu_leave(g);
    }
    return r;
}

/* ---- taking and returning queues ---- */

static gpu_queue *find_idle(dv_gpu *g, bool own) {
    dv_mutex_lock(g->lock);
    gpu_queue *q = g->queues;
    while (q != NULL && (q->taken || (q->own != NULL) != own)) {
        q = q->next;
    }
    if (q != NULL) {
        q->taken = true;
    }
    dv_mutex_unlock(g->lock);
    return q;
}

static davy_result new_queue(dv_gpu *g, bool own, gpu_queue **out) {
    gpu_queue *q = dv_calloc(1, sizeof *q);
    if (q == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a CUDA stream");
    }
    davy_result r = own ? gpu_enter(g, "a stream") : DAVY_OK;
    if (own && r == DAVY_OK) {
        const cu_result c = g->cu->stream_create(&q->own, CU_STREAM_NON_BLOCKING);
        r = gpu_leave_with(g, c, "a stream");
    }
    if (r < 0) {
        dv_free(q);
        return r;
    }
    q->pub.base =
        (dvk_queue){.caps = &g->caps, .launch = queue_launch, .clear = queue_clear, .tensor_map = queue_tensor_map};
    q->pub.gpu = g;
    q->pub.priv = q;
    q->taken = true;
    dv_mutex_lock(g->lock);
    q->next = g->queues;
    g->queues = q;
    dv_mutex_unlock(g->lock);
    *out = q;
    return DAVY_OK;
}

davy_result dv_gpu_queue_take(dv_gpu *g, void *stream, dv_gpu_queue **out) {
    if (g->process != dv_process_id()) { /* another thread may have held the lock at the fork */
        return dv_fail(DAVY_E_FORKED, "a stream: cuda:%d was opened before fork()", (int)g->index);
    }
    gpu_queue *q = find_idle(g, stream == NULL);
    const davy_result r = q != NULL ? DAVY_OK : new_queue(g, stream == NULL, &q);
    if (r < 0) {
        return r;
    }
    q->pub.stream = stream != NULL ? stream : (void *)q->own;
    q->pub.foreign = stream != NULL;
    *out = &q->pub;
    return DAVY_OK;
}

void dv_gpu_queue_give(dv_gpu_queue *pub) {
    if (pub != NULL && pub->gpu->process == dv_process_id()) {
        gpu_queue *q = pub->priv;
        dv_mutex_lock(pub->gpu->lock);
        q->taken = false;
        dv_mutex_unlock(pub->gpu->lock);
    }
}

void gpu_queues_close(dv_gpu *g, bool alive) {
    while (g->queues != NULL) {
        gpu_queue *q = g->queues;
        g->queues = q->next;
        if (alive && q->own != NULL) {
            gpu_note(g, g->cu->stream_sync(q->own));
        }
        gpu_stages_free(g, q, alive);
        if (alive && q->own != NULL) {
            g->cu->stream_destroy(q->own);
        }
        dv_free(q);
    }
}

/* ---- events, and waiting for a queue without keeping a CPU busy ---- */

struct dv_gpu_event {
    dv_gpu *gpu;
    cu_event event;
};

davy_result dv_gpu_event_create(dv_gpu *g, bool timing, dv_gpu_event **out) {
    dv_gpu_event *e = dv_calloc(1, sizeof *e);
    if (e == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a CUDA event");
    }
    davy_result r = gpu_enter(g, "an event");
    if (r == DAVY_OK) {
        const cu_result c = g->cu->event_create(&e->event, timing ? 0 : CU_EVENT_NO_TIMING);
        r = gpu_leave_with(g, c, "an event");
    }
    if (r < 0) {
        dv_free(e);
        return r;
    }
    e->gpu = g;
    *out = e;
    return DAVY_OK;
}

void dv_gpu_event_release(dv_gpu_event *e) {
    if (e == NULL) {
        return;
    }
    dv_gpu *g = e->gpu;
    if (g->process == dv_process_id() && gpu_enter_cu(g) == CU_OK) {
        g->cu->event_destroy(e->event);
        gpu_leave(g);
    }
    dv_free(e);
}

davy_result dv_gpu_event_record(dv_gpu_event *e, dv_gpu_queue *q) {
    dv_gpu *g = q->gpu;
    const davy_result r = gpu_enter(g, "marking a stream");
    return r < 0 ? r : gpu_leave_with(g, g->cu->event_record(e->event, q->stream), "marking a stream");
}

davy_result dv_gpu_event_wait(dv_gpu_queue *q, dv_gpu_event *e) {
    dv_gpu *g = q->gpu;
    const davy_result r = gpu_enter(g, "one stream waiting for another");
    return r < 0 ? r : gpu_leave_with(g, g->cu->stream_wait(q->stream, e->event, 0), "one stream waiting for another");
}

davy_result dv_gpu_event_ready(dv_gpu_event *e, bool *ready) {
    dv_gpu *g = e->gpu;
    davy_result r = gpu_enter(g, "work on the device");
    if (r == DAVY_OK) {
        const cu_result c = g->cu->event_query(e->event);
        gpu_leave(g);
        *ready = c == CU_OK;
        r = dv_gpu_check(g, c == CU_NOT_READY ? CU_OK : c, "work on the device");
    }
    return r;
}

davy_result dv_gpu_event_ms(dv_gpu_event *from, dv_gpu_event *to, float *ms) {
    dv_gpu *g = from->gpu;
    const davy_result r = gpu_enter(g, "time between events");
    return r < 0 ? r : gpu_leave_with(g, g->cu->event_ms(ms, from->event, to->event), "time between events");
}

static davy_result look(dv_gpu_queue *q, bool *done) {
    dv_gpu *g = q->gpu;
    davy_result r = gpu_enter(g, "work on the device");
    if (r == DAVY_OK) {
        const cu_result c = g->cu->stream_query(q->stream);
        gpu_leave(g);
        *done = c == CU_OK;
        r = dv_gpu_check(g, c == CU_NOT_READY ? CU_OK : c, "work on the device");
    }
    return r;
}

davy_result dv_gpu_queue_wait(dv_gpu_queue *q, davy_result (*poll)(void *user), void *user) {
    const uint64_t begin = dv_now_ns();
    const uint64_t poll_ns = 10000000;
    const uint64_t busy_ns = 400000; /* the system sleeps about 70 us longer than requested */
    uint64_t polled = begin;
    for (;;) {
        bool done = false;
        davy_result r = look(q, &done);
        if (r < 0 || done) {
            return r;
        }
        const uint64_t now = dv_now_ns();
        if (poll != NULL && now - polled >= poll_ns) {
            r = poll(user);
            if (r != DAVY_OK) {
                return r;
            }
            polled = now;
        }
        if (now - begin > busy_ns) { /* so that the wait is at most a sixteenth longer than the work */
            dv_sleep_ns((uint64_t)dv_max(20000, dv_min((int64_t)(now - begin) / 16, 1000000)));
        }
    }
}

/* ---- graphs: enqueued work is captured and launched again as a whole ---- */

struct dv_gpu_graph {
    dv_gpu *gpu;
    cu_graph_exec exec;
};

davy_result dv_gpu_capture_begin(dv_gpu_queue *pub) {
    gpu_queue *q = pub->priv;
    dv_gpu *g = pub->gpu;
    if (pub->foreign || q->capturing) {
        return dv_fail(DAVY_E_STATE, "capturing a graph: the stream %s",
                       pub->foreign ? "belongs to the host" : "is capturing already");
    }
    davy_result r = gpu_enter(g, "capturing a graph");
    if (r == DAVY_OK) {
        const cu_result c = g->cu->capture_begin(q->own, CU_CAPTURE_THREAD_LOCAL);
        r = gpu_leave_with(g, c, "capturing a graph");
    }
    q->capturing = r == DAVY_OK;
    return r;
}

/* After a failed capture the stream may still be capturing and refuse all work. Then a new stream replaces it. */
static cu_result renew_stream(dv_gpu *g, gpu_queue *q) {
    int status = 0;
    cu_stream fresh = NULL;
    if (g->cu->capture_status(q->own, &status) == CU_OK && status == 0) {
        return CU_OK;
    }
    const cu_result c = g->cu->stream_create(&fresh, CU_STREAM_NON_BLOCKING);
    if (c == CU_OK) {
        g->cu->stream_destroy(q->own);
        q->own = fresh;
        q->pub.stream = fresh;
    }
    return c;
}

davy_result dv_gpu_capture_end(dv_gpu_queue *pub, dv_gpu_graph **out) {
    gpu_queue *q = pub->priv;
    dv_gpu *g = pub->gpu;
    *out = NULL;
    if (!q->capturing) {
        return dv_fail(DAVY_E_STATE, "capturing a graph: the stream is not capturing");
    }
    q->capturing = false;
    dv_gpu_graph *graph = dv_calloc(1, sizeof *graph);
    davy_result r = gpu_enter(g, "capturing a graph");
    if (r < 0) {
        dv_free(graph);
        return r;
    }
    cu_graph recorded = NULL;
    cu_result c = g->cu->capture_end(q->own, &recorded);
    if (c != CU_OK) {
        const cu_result renewed = renew_stream(g, q);
        gpu_note(g, renewed);
    } else if (graph != NULL) {
        c = g->cu->graph_instantiate(&graph->exec, recorded, 0);
    }
    if (recorded != NULL) {
        g->cu->graph_destroy(recorded);
    }
    gpu_leave(g);
    r = dv_gpu_check(g, c, "capturing a graph");
    if (r == DAVY_OK && graph == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a CUDA graph");
    }
    if (r < 0) {
        dv_free(graph);
        return r;
    }
    graph->gpu = g;
    *out = graph;
    return DAVY_OK;
}

davy_result dv_gpu_graph_launch(dv_gpu_graph *graph, dv_gpu_queue *q) {
    dv_gpu *g = q->gpu;
    const davy_result r = gpu_enter(g, "launching a graph");
    return r < 0 ? r : gpu_leave_with(g, g->cu->graph_launch(graph->exec, q->stream), "launching a graph");
}

void dv_gpu_graph_release(dv_gpu_graph *graph) {
    if (graph == NULL) {
        return;
    }
    dv_gpu *g = graph->gpu;
    if (g->process == dv_process_id() && gpu_enter_cu(g) == CU_OK) {
        g->cu->graph_exec_destroy(graph->exec);
        gpu_leave(g);
    }
    dv_free(graph);
}

/* A failure is not fatal: the work is then enqueued step by step. */
static void record(dv_gpu_replay *replay, dv_gpu_queue *own) {
    replay->refused = true;
    if (dv_gpu_capture_begin(own) != DAVY_OK) {
        return;
    }
    const davy_result enqueued = replay->enqueue(replay->user, own);
    const davy_result ended = dv_gpu_capture_end(own, &replay->graph);
    replay->refused = enqueued != DAVY_OK || ended != DAVY_OK || replay->graph == NULL;
    if (replay->refused) {
        dv_gpu_graph_release(replay->graph);
        replay->graph = NULL;
    }
}

davy_result dv_gpu_replay_run(dv_gpu_replay *replay, dv_gpu_queue *own, dv_gpu_queue *q) {
    if (replay->ran && replay->graph == NULL && !replay->refused) {
        record(replay, own);
    }
    const davy_result r =
        replay->graph != NULL ? dv_gpu_graph_launch(replay->graph, q) : replay->enqueue(replay->user, q);
    replay->ran = replay->ran || r == DAVY_OK;
    return r;
}

void dv_gpu_replay_reset(dv_gpu_replay *replay) {
    dv_gpu_graph_release(replay->graph);
    replay->graph = NULL;
    replay->ran = replay->refused = false;
}
