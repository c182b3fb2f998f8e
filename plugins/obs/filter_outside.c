/* filter_outside.c - a filter's interface for other modules: status, the latent of a VAE filter, the toggle hotkey. */
#include <stdio.h>
#include <string.h>

#include "filter.h"

static void get_status(void *data, calldata_t *call) {
    static const char *const levels[] = {"ok", "warning", "error"}; /* enum obs_text_info_type */
    filter *f = data;
    char text[sizeof f->status];
    plugin_lock_take(&f->lock);
    memcpy(text, f->status, sizeof text);
    const int kind = f->status_kind;
    const uint64_t done = f->said_done;
    const uint64_t dropped = f->said_dropped;
    plugin_lock_give(&f->lock);
    calldata_set_string(call, "text", text);
    calldata_set_string(call, "level", levels[kind]);
    calldata_set_int(call, "done", (long long)done);
    calldata_set_int(call, "dropped", (long long)dropped);
    calldata_set_int(call, "last_us", atomic_load(&f->client->last_us));
}

/* The borrower must hold the filter's source until it has returned the latent. */
static void lend_latent(void *data, calldata_t *call) {
    filter *f = data;
    latent *l = latent_borrow(&f->client->latent);
    calldata_set_ptr(call, "tensor", l != NULL ? &l->tensor : NULL);
    calldata_set_int(call, "frame", l != NULL ? (long long)l->frame : 0);
    calldata_set_int(call, "timestamp_ms", l != NULL ? (long long)(l->ns / 1000000) : 0);
    calldata_set_float(call, "scale", l != NULL ? (double)l->scale : 0.0);
    calldata_set_float(call, "shift", l != NULL ? (double)l->shift : 0.0);
}

static void return_latent(void *data, calldata_t *call) {
    (void)data;
    latent_return(calldata_ptr(call, "tensor")); /* its first member */
}

void filter_offer(filter *f) {
    proc_handler_t *procedures = obs_source_get_proc_handler(f->context);
    f->hotkey = OBS_INVALID_HOTKEY_ID;
    f->self = obs_source_get_weak_source(f->context);
    signal_handler_add(obs_source_get_signal_handler(f->context), "void davy_state(ptr source, string state)");
    proc_handler_add(procedures,
                     "void davy_get_status(out string text, out string level, out int done, out int dropped, "
                     "out int last_us)",
                     get_status, f);
    if (f->kind == FILTER_VAE) {
        proc_handler_add(procedures,
                         "void davy_lend_latent(out ptr tensor, out int frame, out int timestamp_ms, out float scale, "
                         "out float shift)",
                         lend_latent, f);
        proc_handler_add(procedures, "void davy_return_latent(in ptr tensor)", return_latent, f);
    }
}

void filter_signal(filter *f, const char *text) {
    struct calldata data;
    calldata_init(&data);
    calldata_set_ptr(&data, "source", f->context);
    calldata_set_string(&data, "state", text);
    signal_handler_signal(obs_source_get_signal_handler(f->context), "davy_state", &data);
    calldata_free(&data);
}

static void pressed(void *data, obs_hotkey_id id, obs_hotkey_t *hotkey, bool down) {
    obs_source_t *self = down ? obs_weak_source_get_source(data) : NULL;
    (void)id;
    (void)hotkey;
    if (self != NULL) {
        obs_source_set_enabled(self, !obs_source_enabled(self));
        obs_source_release(self);
    }
}

/* OBS has no hotkeys for filters: the source gets the hotkey. */
void filter_offer_hotkey(filter *f) {
    obs_source_t *parent = obs_filter_get_parent(f->context);
    if (f->hotkey == OBS_INVALID_HOTKEY_ID && parent != NULL) {
        char key[512];
        char label[512];
        const char *name = obs_source_get_name(f->context);
        snprintf(key, sizeof key, "davy.toggle.%s", name);
        snprintf(label, sizeof label, "%s: %s", name, obs_module_text("Davy.Toggle.Hotkey"));
        f->hotkey = obs_hotkey_register_source(parent, key, label, pressed, f->self);
    }
}

void filter_withdraw(filter *f) {
    if (f->hotkey != OBS_INVALID_HOTKEY_ID) {
        obs_hotkey_unregister(f->hotkey);
    }
    obs_weak_source_release(f->self);
}
