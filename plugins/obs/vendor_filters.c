/* vendor_filters.c - all davy filters, for requests from outside: the status of each, and a VAE filter's latent. */
#include <stdlib.h>
#include <string.h>

#include "latent.h"
#include "plugin.h"
#include "vendor.h"

enum { MOST = 256 };

typedef struct found { /* references, taken while libobs locks its lists and used afterwards */
    obs_source_t *sources[MOST], *filters[MOST];
    int n_sources, n_filters;
} found;

static bool add_source(void *data, obs_source_t *source) {
    found *f = data;
    obs_source_t *held = f->n_sources < MOST ? obs_source_get_ref(source) : NULL;
    if (held != NULL) {
        f->sources[f->n_sources++] = held;
    }
    return f->n_sources < MOST;
}

static void add_filter(obs_source_t *source, obs_source_t *filter, void *data) {
    found *f = data;
    const char *id = obs_source_get_unversioned_id(filter);
    obs_source_t *held = NULL;
    (void)source;
    if (id != NULL && strncmp(id, "davy_", 5) == 0 && f->n_filters < MOST) {
        held = obs_source_get_ref(filter);
    }
    if (held != NULL) {
        f->filters[f->n_filters++] = held;
    }
}

static found *find(void) {
    found *f = bzalloc(sizeof *f);
    obs_enum_sources(add_source, f);
    obs_enum_scenes(add_source, f);
    for (int i = 0; i < f->n_sources; i++) {
        obs_source_enum_filters(f->sources[i], add_filter, f);
    }
    return f;
}

static void let_go(found *f) {
    for (int i = 0; i < f->n_filters; i++) {
        obs_source_release(f->filters[i]);
    }
    for (int i = 0; i < f->n_sources; i++) {
        obs_source_release(f->sources[i]);
    }
    bfree(f);
}

static const char *parent_name(obs_source_t *filter) {
    obs_source_t *parent = obs_filter_get_parent(filter);
    return parent != NULL ? obs_source_get_name(parent) : "";
}

/* ---- status ---- */

static void tell(obs_source_t *filter, obs_data_array_t *list) {
    obs_data_t *one = obs_data_create();
    struct calldata call;
    calldata_init(&call);
    obs_data_set_string(one, "filter", obs_source_get_name(filter));
    obs_data_set_string(one, "source", parent_name(filter));
    obs_data_set_string(one, "kind", obs_source_get_unversioned_id(filter));
    obs_data_set_bool(one, "enabled", obs_source_enabled(filter));
    if (proc_handler_call(obs_source_get_proc_handler(filter), "davy_get_status", &call)) {
        obs_data_set_string(one, "state", calldata_string(&call, "text"));
        obs_data_set_string(one, "level", calldata_string(&call, "level"));
        obs_data_set_int(one, "done", calldata_int(&call, "done"));
        obs_data_set_int(one, "dropped", calldata_int(&call, "dropped"));
        obs_data_set_double(one, "ms", (double)calldata_int(&call, "last_us") / 1000.0);
    }
    calldata_free(&call);
    obs_data_array_push_back(list, one);
    obs_data_release(one);
}

void vendor_filters_status(obs_data_t *response) {
    obs_data_array_t *list = obs_data_array_create();
    found *f = find();
    for (int i = 0; i < f->n_filters; i++) {
        tell(f->filters[i], list);
    }
    let_go(f);
    obs_data_set_array(response, "filters", list);
    obs_data_array_release(list);
}

/* ---- a latent ---- */

static char *base64(const uint8_t *from, size_t bytes) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *to = bmalloc((bytes + 2) / 3 * 4 + 1);
    char *at = to;
    for (size_t i = 0; i < bytes; i += 3) {
        const size_t left = bytes - i;
        const uint32_t three =
            (uint32_t)from[i] << 16 | (left > 1 ? (uint32_t)from[i + 1] << 8 : 0) | (left > 2 ? from[i + 2] : 0);
        *at++ = digits[three >> 18];
        *at++ = digits[three >> 12 & 63];
        *at++ = left > 1 ? digits[three >> 6 & 63] : '=';
        *at++ = left > 2 ? digits[three & 63] : '=';
    }
    *at = '\0';
    return to;
}

static void put_latent(const davy_tensor *t, obs_data_t *response) {
    obs_data_array_t *shape = obs_data_array_create();
    size_t bytes = sizeof(float);
    for (int i = 0; i < t->ndim; i++) {
        obs_data_t *axis = obs_data_create();
        obs_data_set_int(axis, "size", t->shape[i]);
        obs_data_array_push_back(shape, axis);
        obs_data_release(axis);
        bytes *= (size_t)t->shape[i];
    }
    char *text = base64((const uint8_t *)(uintptr_t)t->data, bytes);
    obs_data_set_array(response, "shape", shape);
    obs_data_set_string(response, "layout", "HWC");
    obs_data_set_string(response, "dtype", "F32");
    obs_data_set_string(response, "data", text);
    obs_data_array_release(shape);
    bfree(text);
}

/* Writes the filter's latent into the response. false: it has none. */
static bool give_latent(obs_source_t *filter, obs_data_t *response) {
    proc_handler_t *procedures = obs_source_get_proc_handler(filter);
    struct calldata call;
    calldata_init(&call);
    davy_tensor *t = NULL;
    if (proc_handler_call(procedures, "davy_lend_latent", &call)) {
        t = calldata_ptr(&call, "tensor");
    }
    if (t != NULL) {
        obs_data_set_string(response, "filter", obs_source_get_name(filter));
        obs_data_set_string(response, "source", parent_name(filter));
        obs_data_set_int(response, "frame", calldata_int(&call, "frame"));
        obs_data_set_int(response, "timestamp_ms", calldata_int(&call, "timestamp_ms"));
        obs_data_set_double(response, "scale", calldata_float(&call, "scale"));
        obs_data_set_double(response, "shift", calldata_float(&call, "shift"));
        put_latent(t, response);
        proc_handler_call(procedures, "davy_return_latent", &call); /* `call` still holds "tensor" */
    }
    calldata_free(&call);
    return t != NULL;
}

void vendor_filters_latent(const char *source, obs_data_t *response) {
    found *f = find();
    bool has = false;
    for (int i = 0; i < f->n_filters && !has; i++) {
        obs_source_t *filter = f->filters[i];
        const bool any = source == NULL || source[0] == '\0';
        if (any || strcmp(source, obs_source_get_name(filter)) == 0 || strcmp(source, parent_name(filter)) == 0) {
            has = give_latent(filter, response);
        }
    }
    let_go(f);
    obs_data_set_bool(response, "found", has);
}
