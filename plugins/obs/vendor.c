/* vendor.c - the vendor "davy" of obs-websocket, for programs that control OBS. Requests: GetCaption, CaptionNow, GetStatus and
 * GetLatent. Event: CaptionReady. The plugin calls obs-websocket through libobs's procedure handlers only. */
#include <stdio.h>
#include <string.h>

#include "caption.h"
#include "text.h"
#include "vendor.h"

typedef void (*request_fn)(obs_data_t *request, obs_data_t *response, void *user);

typedef struct request_callback { /* obs-websocket reads this struct */
    request_fn callback;
    void *user;
} request_callback;

static proc_handler_t *websocket;
static void *vendor;

static bool call(const char *procedure, struct calldata *data) {
    return websocket != NULL && proc_handler_call(websocket, procedure, data);
}

/* ---- requests ---- */

typedef struct wanted {
    const char *source; /* "" or NULL: any */
    obs_data_t *response;
    bool now, found;
} wanted;

/* Whether the request's source names this filter or its source. Copies the source's name while it holds the filter. */
static bool fits(caption_board *b, const char *source, char *name, size_t bytes) {
    obs_source_t *filter = obs_weak_source_get_source(b->filter);
    obs_source_t *parent = filter != NULL ? obs_filter_get_parent(filter) : NULL;
    text_put(name, bytes, "%s", parent != NULL ? obs_source_get_name(parent) : "");
    const bool fit = filter != NULL && (source == NULL || source[0] == '\0' || strcmp(source, name) == 0 ||
                                        strcmp(source, obs_source_get_name(filter)) == 0);
    obs_source_release(filter);
    return fit;
}

static bool look_at(caption_board *b, void *user) {
    wanted *w = user;
    char source[256];
    char text[CAPTION_TEXT];
    if (!fits(b, w->source, source, sizeof source)) {
        return true;
    }
    w->found = true;
    if (w->now) {
        atomic_store(&b->now, true);
        return false;
    }
    plugin_lock_take(&b->lock);
    memcpy(text, b->text, sizeof text);
    obs_data_set_int(w->response, "timestamp_ms", (long long)(b->answered_ns / 1000000));
    obs_data_set_int(w->response, "latency_ms", b->latency_ms);
    plugin_lock_give(&b->lock);
    obs_data_set_string(w->response, "text", text);
    obs_data_set_string(w->response, "source", source);
    return false;
}

static void on_get_caption(obs_data_t *request, obs_data_t *response, void *user) {
    wanted w = {.source = obs_data_get_string(request, "source"), .response = response};
    (void)user;
    caption_each(look_at, &w);
    obs_data_set_bool(response, "found", w.found);
}

static void on_caption_now(obs_data_t *request, obs_data_t *response, void *user) {
    wanted w = {.source = obs_data_get_string(request, "source"), .response = response, .now = true};
    (void)user;
    caption_each(look_at, &w);
    obs_data_set_bool(response, "accepted", w.found);
}

static void on_get_status(obs_data_t *request, obs_data_t *response, void *user) {
    const char *why = NULL;
    const davy_api *api = plugin_davy(&why);
    (void)request;
    (void)user;
    obs_data_set_string(response, "plugin", DAVY_OBS_VERSION);
    obs_data_set_string(response, "version", api != NULL ? api->version() : "");
    obs_data_set_string(response, "problem", why);
    vendor_filters_status(response);
}

static void on_get_latent(obs_data_t *request, obs_data_t *response, void *user) {
    (void)user;
    vendor_filters_latent(obs_data_get_string(request, "source"), response);
}

/* ---- obs-websocket ---- */

static void offer(const char *type, request_callback *callback) {
    struct calldata data;
    calldata_init(&data);
    calldata_set_ptr(&data, "vendor", vendor);
    calldata_set_string(&data, "type", type);
    calldata_set_ptr(&data, "callback", callback);
    call("vendor_request_register", &data);
    calldata_free(&data);
}

static request_callback get_caption = {on_get_caption, NULL};
static request_callback get_status = {on_get_status, NULL};
static request_callback get_latent = {on_get_latent, NULL};
static request_callback caption_now = {on_caption_now, NULL};

void vendor_open(void) {
    struct calldata data;
    calldata_init(&data);
    if (proc_handler_call(obs_get_proc_handler(), "obs_websocket_api_get_ph", &data)) {
        websocket = calldata_ptr(&data, "ph");
    }
    calldata_free(&data);
    calldata_init(&data);
    calldata_set_string(&data, "name", "davy");
    if (call("vendor_register", &data)) {
        vendor = calldata_ptr(&data, "vendor");
    }
    calldata_free(&data);
    if (vendor != NULL) {
        offer("GetCaption", &get_caption);
        offer("GetStatus", &get_status);
        offer("CaptionNow", &caption_now);
        offer("GetLatent", &get_latent);
    }
}

void vendor_close(void) {
    vendor = NULL;
    websocket = NULL;
}

void vendor_caption(const char *source, const char *filter, const char *text, int latency_ms) {
    if (vendor == NULL) {
        return;
    }
    obs_data_t *event = obs_data_create();
    obs_data_set_string(event, "source", source);
    obs_data_set_string(event, "filter", filter);
    obs_data_set_string(event, "text", text);
    obs_data_set_int(event, "latency_ms", latency_ms);
    struct calldata data;
    calldata_init(&data);
    calldata_set_ptr(&data, "vendor", vendor);
    calldata_set_string(&data, "type", "CaptionReady");
    calldata_set_ptr(&data, "data", event);
    call("vendor_event_emit", &data);
    calldata_free(&data);
    obs_data_release(event);
}
