/* client.c - the state that a filter shares with its pictures. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "text.h"

client *client_create(void) {
    const plugin_lock fresh = PLUGIN_LOCK_INIT;
    client *c = calloc(1, sizeof *c);
    if (c != NULL) {
        atomic_init(&c->refs, 1);
        atomic_init(&c->budget_us, 50000);
        c->lock = c->turn = fresh;
        latent_shelf_open(&c->latent);
    }
    return c;
}

void client_release(client *c) {
    if (c != NULL && atomic_fetch_sub(&c->refs, 1) == 1) {
        latent_shelf_close(&c->latent);
        free(c->seen);
        free(c->done);
        free(c);
    }
}

bool client_say(client *c, const char *why) {
    plugin_lock_take(&c->lock);
    const bool news = strcmp(c->why, why) != 0;
    if (news) {
        text_put(c->why, sizeof c->why, "%s", why);
    }
    plugin_lock_give(&c->lock);
    return news;
}

bool client_why(client *c, char *out, size_t bytes) {
    plugin_lock_take(&c->lock);
    text_put(out, bytes, "%s", c->why);
    plugin_lock_give(&c->lock);
    return out[0] != '\0';
}
