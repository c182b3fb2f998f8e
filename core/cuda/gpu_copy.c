/* gpu_copy.c - between host and device. Pageable memory goes through two pinned pieces per queue: while the device copies
 * one, the processor fills or empties the other. Large memory that is pinned already is copied as it is. */
#include <string.h>

#include "core/cuda/gpu_priv.h"
#include "core/base/error.h"

enum { DIRECT_BYTES = 1 << 20 }; /* below, a copy by the processor is cheaper than waiting for the device */

typedef struct region { /* of rows; a packed one is a single row */
    char *host;
    cu_address device;
    uint64_t host_pitch, device_pitch, row_bytes, rows;
} region;

static region make_region(void *host, uint64_t host_pitch, void *device, uint64_t device_pitch, uint64_t row_bytes,
                          uint64_t rows) {
    region r = {host, gpu_address(device), host_pitch, device_pitch, row_bytes, rows};
    if (rows > 1 && host_pitch == row_bytes && device_pitch == row_bytes) {
        r.row_bytes = row_bytes * rows;
        r.rows = 1;
    }
    return r;
}

/* Takes what fits into a stage off the beginning of `rest`; false: nothing is left. */
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
    } else { /* rows longer than a stage: the caller goes row by row */
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
    if (c == CU_NOT_READY) { /* sleeps until the device says so */
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
            return dv_fail_in(DAVY_E_NOMEM_HOST, DAVY_DOMAIN_CUDA, c, "staging memory: %d bytes could not be pinned",
                              (int)STAGE_BYTES);
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

static cu_result copy_rows(dv_gpu *g, cu_stream stream, cu_address dst, uint64_t dst_pitch, cu_address src,
                           uint64_t src_pitch, uint64_t row_bytes, uint64_t rows) {
    const int unified = 4;
    const cu_copy_2d c = {.src_type = unified,
                          .dst_type = unified,
                          .src_device = src,
                          .dst_device = dst,
                          .src_pitch = (size_t)src_pitch,
                          .dst_pitch = (size_t)dst_pitch,
                          .width_bytes = (size_t)row_bytes,
                          .height = (size_t)rows};
    return g->cu->copy_2d(&c, stream);
}

static cu_result enqueue(dv_gpu *g, gpu_queue *q, const region *r, bool up) {
    const cu_address host = gpu_address(r->host);
    if (r->rows == 1) {
        return g->cu->copy_any(up ? r->device : host, up ? host : r->device, (size_t)r->row_bytes, q->pub.stream);
    }
    return up ? copy_rows(g, q->pub.stream, r->device, r->device_pitch, host, r->host_pitch, r->row_bytes, r->rows)
              : copy_rows(g, q->pub.stream, host, r->host_pitch, r->device, r->device_pitch, r->row_bytes, r->rows);
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

/* Memory that the device reads and writes itself: 0 pageable, else what the driver calls it. */
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
        return dv_fail(DAVY_E_STATE, "%s: the stream is being recorded", up ? "upload" : "download");
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
    const region r = make_region((void *)(uintptr_t)src, bytes, device, bytes, bytes, 1);
    return copy_region(q, &r, true);
}

davy_result dv_gpu_download(dv_gpu_queue *q, void *dst, const void *device, uint64_t bytes) {
    const region r = make_region(dst, bytes, (void *)(uintptr_t)device, bytes, bytes, 1);
    return copy_region(q, &r, false);
}

davy_result dv_gpu_upload_2d(dv_gpu_queue *q, void *device, uint64_t dst_pitch, const void *src, uint64_t src_pitch,
                             uint64_t row_bytes, uint64_t rows) {
    const region r = make_region((void *)(uintptr_t)src, src_pitch, device, dst_pitch, row_bytes, rows);
    return copy_region(q, &r, true);
}

davy_result dv_gpu_download_2d(dv_gpu_queue *q, void *dst, uint64_t dst_pitch, const void *device, uint64_t src_pitch,
                               uint64_t row_bytes, uint64_t rows) {
    const region r = make_region(dst, dst_pitch, (void *)(uintptr_t)device, src_pitch, row_bytes, rows);
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
    gpu_leave(g);
    return dv_gpu_check(g, c, "copy on the device");
}

davy_result dv_gpu_copy_2d(dv_gpu_queue *q, void *dst, uint64_t dst_pitch, const void *src, uint64_t src_pitch,
                           uint64_t row_bytes, uint64_t rows) {
    dv_gpu *g = q->gpu;
    const davy_result r = gpu_enter(g, "copy of rows");
    if (r < 0) {
        return r;
    }
    const cu_result c =
        copy_rows(g, q->stream, gpu_address(dst), dst_pitch, gpu_address(src), src_pitch, row_bytes, rows);
    gpu_leave(g);
    return dv_gpu_check(g, c, "copy of rows");
}
