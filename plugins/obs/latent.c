/* latent.c - see latent.h. */
#include "latent.h"

#include <stdlib.h>

void latent_shelf_open(latent_shelf *s) {
    const plugin_lock fresh = PLUGIN_LOCK_INIT;
    s->lock = fresh;
    s->last = NULL;
}

void latent_shelf_close(latent_shelf *s) {
    latent_put(s, NULL);
}

void latent_put(latent_shelf *s, latent *l) {
    plugin_lock_take(&s->lock);
    latent *before = s->last;
    s->last = l;
    plugin_lock_give(&s->lock);
    latent_return(before);
}

latent *latent_borrow(latent_shelf *s) {
    plugin_lock_take(&s->lock);
    latent *l = s->last;
    if (l != NULL) {
        atomic_fetch_add(&l->holders, 1);
    }
    plugin_lock_give(&s->lock);
    return l;
}

void latent_return(latent *l) {
    if (l != NULL && atomic_fetch_sub(&l->holders, 1) == 1) {
        l->api->buffer_release(l->tensor.buffer);
        free(l);
    }
}
