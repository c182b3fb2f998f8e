/* captions_gpus.c - pictures shared by the GPUs of a context: each has its own weights, sequences and thread, and takes the next
 * picture when it has room for one. The calling thread works on the first, and alone tells how far all of them are. */
#include <string.h>

#include "core/host/context.h"
#include "core/base/error.h"
#include "core/dialogue/dialogue_priv.h"

/* A GPU that has no room for the weights leaves the pictures to the others. */
static davy_result load(dv_captioning *c) {
    davy_dialogue *d = c->dialogue;
    d->now = &c->turn;
    const davy_result r = dv_turn_load(d, &c->turn);
    if (r < 0 && d->gpu > 0 && dv_ran_out(r)) {
        davy_error_info why;
        dv_error_get(&why);
        dv_logf(dv_context_services(dv_dialogue_context(d))->log, DAVY_LOG_WARN,
                "captioning goes on without one GPU: %s", why.message);
        return DAVY_OK;
    }
    return r;
}

static void work(void *arg) {
    dv_captioning *c = arg;
    c->r = load(c);
    c->r = c->r < 0 || c->dialogue->pin == NULL ? c->r : dv_caption_share(c);
    c->r = dv_turn_why(&c->turn, c->r);
    c->dialogue->now = NULL;
    if (c->r < 0) {
        dv_error_get(&c->error);
        atomic_store(&c->all->stop, true);
    }
}

/* How many GPUs are worth it: each with two pictures at least. */
static int32_t shares_of(const dv_captions *c) {
    const int64_t gpus = dv_captioner_gpus(dv_model_captioner(c->dialogue->model));
    return (int32_t)dv_max(1, dv_min(gpus, c->n / 2));
}

static void begin(dv_captions *all, dv_captioning *list, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        dv_captioning *c = &list[i];
        c->all = all;
        c->turn = all->turn;
        c->turn.quiet = i > 0;
        c->turn.stop = &all->stop;
        c->most = dv_div_up(all->n, n);
    }
    list[0].dialogue = all->dialogue;
    list[0].others = list + 1;
    list[0].n_others = n - 1;
}

/* What went wrong first matters; who was only stopped for it does not. */
static davy_result end(dv_captioning *list, int32_t n) {
    const dv_captioning *failed = NULL;
    for (int32_t i = 0; i < n; i++) {
        dv_captioning *c = &list[i];
        if (c->thread != NULL) {
            dv_thread_join(c->thread);
        }
        const bool real = c->r < 0 && c->r != DAVY_E_CANCELLED;
        failed = c->r < 0 && (failed == NULL || (real && failed->r == DAVY_E_CANCELLED)) ? c : failed;
    }
    for (int32_t i = 1; i < n; i++) {
        dv_dialogue_release(list[i].dialogue);
    }
    if (failed == NULL) {
        return DAVY_OK;
    }
    dv_error_set(&failed->error);
    return failed->r;
}

davy_result dv_caption_together(dv_captions *all) {
    const int32_t n = shares_of(all);
    dv_captioning *list = dv_calloc((uint64_t)n, sizeof *list);
    if (list == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    begin(all, list, n);
    davy_result r = DAVY_OK;
    for (int32_t i = 1; r == DAVY_OK && i < n; i++) {
        r = dv_dialogue_open_same(all->dialogue, i, &list[i].dialogue);
        r = r < 0 ? r : dv_thread_start(work, &list[i], "davy-caption", &list[i].thread);
    }
    if (r == DAVY_OK) {
        work(&list[0]);
    } else {
        list[0].r = r;
        dv_error_get(&list[0].error);
        atomic_store(&all->stop, true);
    }
    r = end(list, n);
    dv_free(list);
    return r;
}
