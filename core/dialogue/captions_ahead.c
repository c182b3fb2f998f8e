/* captions_ahead.c - the next picture is looked at while those before it are spoken about: on a GPU most of a look is the
 * processor's work. One thread, one picture at a time; it tells nothing and stops when its caller does. */
#include <string.h>

#include "core/base/error.h"
#include "core/dialogue/dialogue_priv.h"

struct dv_ahead {
    dv_captioning *c;
    davy_dialogue *dialogue; /* the thread's own: it holds the picture */
    dv_turn turn;
    dv_thread *thread;
    dv_mutex *lock;
    dv_cond *changed;
    bool asked, there, ends; /* under the lock, as all below while the thread works on it: */
    uint32_t index;
    uint64_t start_ns;
    davy_result r;
    davy_error_info error;
    dv_encoded seen;
};

davy_result dv_caption_look(davy_dialogue *d, const dv_pixels *pixels, dv_encoded *out) {
    const dv_picture_options o = dv_turn_picture_options(d, &d->asking);
    const dv_session_options cancel = {.cancel = dv_turn_should_stop, .room = dv_turn_make_room, .user = d};
    davy_result r = dv_turn_begin(d, d->now, DV_TURN_LOOK, 1);
    r = r < 0 ? r : dv_dialogue_add_pixels(d, pixels);
    r = r < 0 ? r : dv_encode_image(dv_pinned_model(d->pin), &d->pictures[0], &o, &cancel, out);
    dv_dialogue_drop(d);
    return r;
}

static void work(void *arg) {
    dv_ahead *a = arg;
    dv_mutex_lock(a->lock);
    while (!a->ends) {
        if (!a->asked || a->there) {
            dv_cond_wait(a->changed, a->lock, UINT64_MAX);
            continue;
        }
        dv_mutex_unlock(a->lock);
        a->start_ns = dv_now_ns();
        a->r = dv_caption_look(a->dialogue, &a->c->all->pixels[a->index], &a->seen);
        if (a->r < 0) {
            dv_error_get(&a->error);
        }
        dv_mutex_lock(a->lock);
        a->there = true;
        dv_cond_broadcast(a->changed);
    }
    dv_mutex_unlock(a->lock);
}

davy_result dv_ahead_start(dv_captioning *c, dv_ahead **out) {
    dv_ahead *a = dv_calloc(1, sizeof *a);
    *out = a;
    if (a == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    a->c = c;
    a->turn = c->turn;
    a->turn.quiet = true;
    a->lock = dv_mutex_create();
    a->changed = dv_cond_create();
    davy_result r = a->lock != NULL && a->changed != NULL
                        ? dv_dialogue_open_same(c->dialogue, c->dialogue->gpu, &a->dialogue)
                        : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    if (r == DAVY_OK) {
        a->dialogue->now = &a->turn;
        r = dv_turn_load(a->dialogue, &a->turn); /* the weights are there */
    }
    return r < 0 ? r : dv_thread_start(work, a, "davy-look", &a->thread);
}

void dv_ahead_end(dv_ahead *a) {
    if (a == NULL) {
        return;
    }
    if (a->thread != NULL) {
        dv_mutex_lock(a->lock);
        a->ends = true;
        dv_cond_broadcast(a->changed);
        dv_mutex_unlock(a->lock);
        dv_thread_join(a->thread);
    }
    dv_encoded_free(&a->seen);
    if (a->dialogue != NULL) {
        a->dialogue->now = NULL;
        dv_dialogue_release(a->dialogue);
    }
    dv_cond_release(a->changed);
    dv_mutex_release(a->lock);
    dv_free(a);
}

void dv_ahead_ask(dv_ahead *a, uint32_t index) {
    dv_mutex_lock(a->lock);
    if (!a->asked) {
        a->asked = true;
        a->index = index;
        dv_cond_broadcast(a->changed);
    }
    dv_mutex_unlock(a->lock);
}

bool dv_ahead_ready(dv_ahead *a) {
    dv_mutex_lock(a->lock);
    const bool there = a->there;
    dv_mutex_unlock(a->lock);
    return there;
}

davy_result dv_ahead_take(dv_ahead *a, dv_encoded *out, uint64_t *start_ns) {
    dv_mutex_lock(a->lock);
    while (!a->there) {
        dv_cond_wait(a->changed, a->lock, UINT64_MAX);
    }
    a->asked = a->there = false;
    dv_mutex_unlock(a->lock);
    *out = a->seen;
    *start_ns = a->start_ns;
    a->seen = (dv_encoded){.smaller = false};
    if (a->r < 0) {
        dv_error_set(&a->error);
    }
    return a->r;
}
