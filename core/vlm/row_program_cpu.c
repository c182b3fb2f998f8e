/* row_row_program_cpu.c - a program on the threads of a pool. */
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/vlm/row_program_priv.h"

void dv_prog_cpu_choose(dv_row_program *p, dv_prog_item *item) {
    const char *op = dv_item_op(item);
    const dvk_dtype compute = p->compute == DVK_F32 ? DVK_F32 : DVK_BF16;
    const bool large = item->kind == ITEM_LINEAR || item->kind == ITEM_ATTENTION;
    const bool plain = item->kind == ITEM_LINEAR && p->plain;
    item->step = (dv_parallel_step){.kernel = plain ? dvk_find(op, "ref") : dvk_choose(op, &item->a, p->cpu, compute),
                                    .args = &item->a,
                                    .alone = p->rows == 1 && !large};
    if (item->step.kernel == NULL) {
        p->r = dv_fail(DAVY_E_INTERNAL, "captioning: the CPU has no \"%s\"", op);
    }
}

davy_result dv_prog_cpu_finish(dv_row_program *p) {
    dv_parallel_step *list = dv_calloc((uint64_t)dv_max(1, p->n), sizeof *list);
    p->steps = list != NULL ? dv_calloc((uint64_t)p->n_cuts + 1, sizeof(dv_steps *)) : NULL;
    davy_result r = p->steps != NULL ? DAVY_OK : dv_row_program_no_memory();
    int64_t from = 0;
    for (int64_t i = 0; r == DAVY_OK && i <= p->n_cuts; i++) {
        const int64_t to = i < p->n_cuts ? p->cuts[i] : p->n;
        for (int64_t k = from; k < to; k++) {
            list[k - from] = p->items[k]->step;
        }
        r = dv_steps_create(p->pool, list, to - from, &p->steps[i]);
        from = to;
    }
    dv_free(list);
    return r;
}

davy_result dv_prog_cpu_run(dv_row_program *p, int32_t (*cancel)(void *user), void *user) {
    davy_result r = DAVY_OK;
    for (int64_t i = 0; r == DAVY_OK && i <= p->n_cuts; i++) {
        const bool stop = i > 0 && cancel != NULL && cancel(user) != 0;
        r = stop ? dv_fail(DAVY_E_CANCELLED, "cancelled") : dv_steps_run(p->steps[i]);
    }
    return r;
}

void dv_prog_cpu_clear(dv_row_program *p) {
    for (int64_t i = 0; p->steps != NULL && i <= p->n_cuts; i++) {
        dv_steps_release(p->steps[i]);
    }
    dv_free(p->steps);
    p->steps = NULL;
}
