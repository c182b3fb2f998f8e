/* row_program_cuda.c - runs a program on a GPU's queue. The host waits only at cuts: it stays at most MARKS pieces ahead of the
 * device, so a cancelled run ends soon. */
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/os.h"
#include "core/vlm/row_program_priv.h"

enum { MARKS = 3 };

typedef struct table {
    void *data;
    uint64_t bytes;
} table;

struct dv_prog_cuda {
    dv_gpu *gpu;
    void *scratch; /* the kernels use it one after the other */
    uint64_t scratch_bytes;
    dv_gpu_event *marks[MARKS]; /* ends of the pieces of a run */
    table *tables;
    int64_t n_tables, tables_room;
    dv_gpu_replay replay; /* the recorded graph of all items */
};

davy_result dv_prog_cuda_start(dv_row_program *p) {
    p->cuda = dv_calloc(1, sizeof *p->cuda);
    if (p->cuda == NULL) {
        return dv_row_program_no_memory();
    }
    p->cuda->gpu = p->queue->gpu;
    return DAVY_OK;
}

void dv_prog_cuda_clear(dv_row_program *p) {
    dv_prog_cuda *c = p->cuda;
    davy_error_info saved;
    dv_error_get(&saved);
    dv_gpu_queue_wait(p->queue, NULL, NULL); /* an error means a lost device, on which no work runs */
    dv_error_set(&saved);
    dv_gpu_replay_reset(&c->replay);
    for (int64_t i = 0; i < c->n_tables; i++) {
        dv_gpu_free(c->gpu, DV_MEM_WORKSPACE, c->tables[i].data, c->tables[i].bytes);
    }
    for (int i = 0; i < MARKS; i++) {
        dv_gpu_event_release(c->marks[i]);
    }
    dv_gpu_free(c->gpu, DV_MEM_WORKSPACE, c->scratch, c->scratch_bytes);
    dv_free(c->tables);
    dv_free(c);
    p->cuda = NULL;
}

/* ---- kernels ---- */

static uint32_t bit_of(dvk_dtype compute) {
    return compute == DVK_F32 ? DVK_COMPUTES_F32 : compute == DVK_F16 ? DVK_COMPUTES_F16 : DVK_COMPUTES_BF16;
}

/* Falls back to a kernel that computes in f32 if there is none for 16 bits. */
static const dvk_cuda_kernel *chosen(const dv_row_program *p, const char *op, const void *args) {
    const dvk_cuda_caps *caps = dv_gpu_caps(p->cuda->gpu);
    const dvk_cuda_kernel *k = dvk_cuda_choose(op, args, caps, bit_of(p->compute));
    return k != NULL ? k : dvk_cuda_choose(op, args, caps, DVK_COMPUTES_F32);
}

bool dv_prog_cuda_has(const dv_row_program *p, const char *op, const void *args) {
    return chosen(p, op, args) != NULL;
}

static davy_result choose_item(const dv_row_program *p, dv_prog_item *item) {
    const char *op = dv_item_op(item);
    item->cuda = chosen(p, op, &item->a);
    return item->cuda != NULL ? DAVY_OK
                              : dv_fail(DAVY_E_UNSUPPORTED, "captioning: cuda:%d has no kernel for this model's \"%s\"",
                                        (int)dv_gpu_index(p->cuda->gpu), op);
}

static davy_result need_scratch(dv_row_program *p, uint64_t bytes) {
    dv_prog_cuda *c = p->cuda;
    if (bytes <= c->scratch_bytes) {
        return DAVY_OK;
    }
    davy_result r = dv_gpu_queue_wait(p->queue, NULL, NULL);
    dv_gpu_free(c->gpu, DV_MEM_WORKSPACE, c->scratch, c->scratch_bytes);
    c->scratch = NULL;
    c->scratch_bytes = 0;
    r = r < 0 ? r : dv_gpu_alloc(c->gpu, DV_MEM_WORKSPACE, bytes, "scratch memory of captioning kernels", &c->scratch);
    c->scratch_bytes = r == DAVY_OK ? bytes : 0;
    return r;
}

davy_result dv_prog_cuda_choose(dv_row_program *p) {
    const dvk_cuda_caps *caps = dv_gpu_caps(p->cuda->gpu);
    davy_result r = DAVY_OK;
    uint64_t most = 0;
    for (int64_t i = 0; r == DAVY_OK && i < p->n; i++) {
        dv_prog_item *item = p->items[i];
        r = choose_item(p, item);
        if (r == DAVY_OK && item->cuda->scratch_bytes != NULL) {
            const uint64_t bytes = item->cuda->scratch_bytes(&item->a, caps);
            most = bytes > most ? bytes : most;
        }
    }
    return r < 0 ? r : need_scratch(p, most);
}

davy_result dv_prog_cuda_finish(dv_row_program *p) {
    davy_result r = dv_prog_cuda_choose(p);
    for (int i = 0; r == DAVY_OK && i < MARKS && p->n_cuts > 0; i++) {
        r = dv_gpu_event_create(p->cuda->gpu, false, &p->cuda->marks[i]);
    }
    return r;
}

/* ---- running ---- */

static davy_result enqueue(dv_row_program *p, int64_t from, int64_t to) {
    davy_result r = DAVY_OK;
    for (int64_t i = from; r == DAVY_OK && i < to; i++) {
        const dv_prog_item *item = p->items[i];
        r = dv_gpu_check(p->cuda->gpu, item->cuda->enqueue(&item->a, p->cuda->scratch, &p->queue->base),
                         dv_item_op(item));
    }
    return r;
}

/* Waits until a piece is done or the caller cancels. */
static davy_result await_mark(dv_gpu_event *mark, int32_t (*cancel)(void *user), void *user) {
    const uint64_t begin = dv_now_ns();
    const uint64_t busy_ns = 300000;
    const uint64_t pause_ns = 50000;
    for (;;) {
        bool ready = false;
        const davy_result r = dv_gpu_event_ready(mark, &ready);
        if (r < 0 || ready) {
            return r;
        }
        if (dv_now_ns() - begin > busy_ns) {
            if (cancel(user) != 0) {
                return dv_fail(DAVY_E_CANCELLED, "cancelled");
            }
            dv_sleep_ns(pause_ns);
        }
    }
}

davy_result dv_prog_cuda_run(dv_row_program *p, int32_t (*cancel)(void *user), void *user) {
    davy_result r = DAVY_OK;
    int64_t from = 0;
    for (int64_t i = 0; r == DAVY_OK && i <= p->n_cuts; i++) {
        const int64_t to = i < p->n_cuts ? p->cuts[i] : p->n;
        dv_gpu_event *mark = p->cuda->marks[i % MARKS];
        if (i > 0 && cancel != NULL) {
            r = cancel(user) != 0 ? dv_fail(DAVY_E_CANCELLED, "cancelled") : DAVY_OK;
            r = r == DAVY_OK && i >= MARKS ? await_mark(mark, cancel, user) : r;
        }
        r = r < 0 ? r : enqueue(p, from, to);
        if (r == DAVY_OK && cancel != NULL && i < p->n_cuts) {
            r = dv_gpu_event_record(mark, p->queue);
        }
        from = to;
    }
    return r;
}

static davy_result enqueue_all(void *user, dv_gpu_queue *q) {
    dv_row_program *p = user;
    (void)q; /* equals the program's queue */
    return enqueue(p, 0, p->n);
}

davy_result dv_row_program_repeat(dv_row_program *p) {
    dv_gpu_replay *replay = &p->cuda->replay;
    replay->enqueue = enqueue_all;
    replay->user = p;
    return dv_gpu_replay_run(replay, p->queue, p->queue);
}

davy_result dv_row_program_limit(dv_row_program *p, int64_t keys) {
    const davy_result r = dv_gpu_queue_wait(p->queue, NULL, NULL); /* the graph may still run */
    if (r < 0) {
        return r;
    }
    for (int64_t i = 0; i < p->n; i++) {
        dv_prog_item *item = p->items[i];
        if (item->kind == ITEM_ATTENTION && item->a.attention.in.position != NULL) {
            item->a.attention.keys = keys;
        } else if (item->kind == ITEM_ATTENTION_NEW) {
            item->a.fresh.a.keys = keys;
        } else if (item->kind == ITEM_ATTENTION_OUT) {
            item->a.out.of.a.keys = keys;
        }
    }
    dv_gpu_replay_reset(&p->cuda->replay);
    return dv_prog_cuda_choose(p);
}

/* ---- memory ---- */

davy_result dv_row_program_table(dv_row_program *p, const void *host, uint64_t bytes, const void **out) {
    dv_prog_cuda *c = p->cuda;
    *out = host;
    if (p->r < 0 || c == NULL || host == NULL) {
        return p->r;
    }
    table *tables = dv_grow(c->tables, c->n_tables + 1, &c->tables_room, sizeof *tables);
    void *data = NULL;
    c->tables = tables != NULL ? tables : c->tables;
    p->r = tables == NULL ? dv_row_program_no_memory()
                          : dv_gpu_alloc(c->gpu, DV_MEM_WORKSPACE, bytes, "tables of a captioning model", &data);
    if (p->r == DAVY_OK) {
        tables[c->n_tables++] = (table){.data = data, .bytes = bytes};
        p->r = dv_gpu_upload(p->queue, data, host, bytes);
    }
    *out = data;
    return p->r;
}

davy_result dv_row_program_put(dv_row_program *p, void *to, const void *host, uint64_t bytes) {
    if (p->queue != NULL) {
        return dv_gpu_upload(p->queue, to, host, bytes);
    }
    memcpy(to, host, (size_t)bytes);
    return DAVY_OK;
}

davy_result dv_row_program_move(dv_row_program *p, void *to, const void *from, uint64_t bytes) {
    if (p->queue != NULL) {
        return dv_gpu_copy(p->queue, to, p->queue->gpu, from, bytes);
    }
    memcpy(to, from, (size_t)bytes);
    return DAVY_OK;
}

typedef struct asking {
    int32_t (*cancel)(void *user);
    void *user;
} asking;

static davy_result ask(void *user) {
    const asking *a = user;
    return a->cancel(a->user) != 0 ? dv_fail(DAVY_E_CANCELLED, "cancelled") : DAVY_OK;
}

davy_result dv_row_program_wait(dv_row_program *p, int32_t (*cancel)(void *user), void *user) {
    asking a = {.cancel = cancel, .user = user};
    return p->queue == NULL ? DAVY_OK : dv_gpu_queue_wait(p->queue, cancel != NULL ? ask : NULL, &a);
}
