/* sources.c - opens each davy_source as tensors: shipped models, paths, memory and readers. It detects a config by content
 * and merges several files: shards keep their names, halves of a tiny autoencoder get the prefixes "encoder." and "decoder.". */
#include "core/host/sources.h"

#include <inttypes.h>
#include <string.h>

#include "core/host/context.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/base/options.h"
#include "core/base/os.h"
#include "core/base/sized.h"

enum { MAX_SOURCES = 1024, CONFIG_BYTES = 16 << 20 };

typedef struct opening {
    davy_context *ctx;
    const davy_model_desc *desc;
    dv_open_options options;
    bool map;
    dv_opened result;
    int64_t weights;    /* weight sources so far */
    char *first_path;   /* path of the first weights; a config.json may be beside it */
    const char *prefix; /* half_prefix of the first weights; used if the second weights are the other half */
    bool blends;        /* the result is a mix of two weight files */
    double blend;       /* share of the first file, 0 to 1 */
} opening;

static davy_result nomem(const char *what) {
    return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", what);
}

void dv_opened_clear(dv_opened *opened) {
    dv_tensors_release(opened->tensors);
    dv_json_release(opened->config);
    dv_free(opened->file_name);
    memset(opened, 0, sizeof *opened);
}

/* ---- one source ---- */

static davy_result check_source(const davy_source *s, uint32_t i) {
    const int given = (s->path != NULL) + (s->data != NULL) + (s->read != NULL);
    if (s->role < DAVY_SOURCE_AUTO || s->role > DAVY_SOURCE_DIRECTORY) {
        return dv_fail(DAVY_E_INVALID, "source %u: role is %d, expected DAVY_SOURCE_*", (unsigned)i, (int)s->role);
    }
    if (s->role == DAVY_SOURCE_TOKENIZER || s->role == DAVY_SOURCE_PREPROCESSOR) {
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "source %u: tokenizer and preprocessor are not sources; davy reads them beside the weights",
                       (unsigned)i);
    }
    if (given > 1 || (given == 0 && s->name == NULL)) {
        return dv_fail(DAVY_E_INVALID, "source %u: expected exactly one of path, data and read, or only a name",
                       (unsigned)i);
    }
    if (s->role == DAVY_SOURCE_DIRECTORY && (s->path == NULL || dv_path_stat(s->path) != DV_PATH_FOLDER)) {
        return dv_fail(s->path == NULL ? DAVY_E_INVALID : DAVY_E_NOT_FOUND, "source %u: %s is not a folder",
                       (unsigned)i, s->path != NULL ? s->path : "it");
    }
    return DAVY_OK;
}

static davy_result open_bytes(const davy_source *s, dv_source **out) {
    const char *name = s->name != NULL ? s->name : "(memory)";
    return s->data != NULL ? dv_source_open_memory(name, s->data, s->data_bytes, out)
                           : dv_source_open_reader(name, s->read, s->user, s->read_bytes, out);
}

static davy_result read_config(opening *o, dv_source *source) {
    const void *view = NULL;
    void *owned = NULL;
    const char *name = dv_source_name(source);
    const uint64_t bytes = dv_source_bytes(source);
    if (o->result.config != NULL) {
        return dv_fail(DAVY_E_INVALID, "%s: the sources have a second config; give one", name);
    }
    if (bytes > CONFIG_BYTES) {
        return dv_fail(DAVY_E_FORMAT, "%s: a config of %" PRIu64 " bytes is too large", name, bytes);
    }
    davy_result r = dv_source_view(source, 0, bytes, &view, &owned);
    r = r < 0 ? r : dv_json_parse(view, bytes, name, &o->result.config);
    dv_free(owned);
    return r;
}

/* JSON starts with a brace and has no zero bytes. A safetensors file starts with a 64-bit length: its first byte may equal a
 * brace, but its high bytes are zero. */
static davy_result looks_like_json(dv_source *source, bool *out) {
    const void *view = NULL;
    void *owned = NULL;
    const uint64_t n = dv_source_bytes(source) < 8 ? dv_source_bytes(source) : 8;
    *out = false;
    if (n < 2) {
        return DAVY_OK;
    }
    const davy_result r = dv_source_view(source, 0, n, &view, &owned);
    if (r == DAVY_OK) {
        const char *p = view;
        uint64_t i = 0;
        while (i < n && (p[i] == ' ' || p[i] == '\t' || p[i] == '\r' || p[i] == '\n')) {
            i++;
        }
        *out = i < n && p[i] == '{' && memchr(p, '\0', (size_t)n) == NULL;
    }
    dv_free(owned);
    return r;
}

/* ---- several weight sources ---- */

/* Prefix for one half of a tiny autoencoder: "encoder." or "decoder.". These files number their layers from 0, without a
 * prefix. The decoder's layer 0 is an activation without weights. NULL: not such a half, or its names have a prefix. */
static const char *half_prefix(const dv_tensors *t) {
    for (int64_t i = 0; i < t->count; i++) {
        const char c = t->refs[i].name[0];
        if (c < '0' || c > '9') {
            return NULL;
        }
    }
    return t->count == 0 ? NULL : dv_tensors_find(t, "0.weight") != NULL ? "encoder." : "decoder.";
}

/* Owns t in every case, also on an error. */
static davy_result add_weights(opening *o, dv_tensors *t, const char *name) {
    dv_opened *res = &o->result;
    davy_result r = dv_tensors_unwrap(t);
    const char *prefix = half_prefix(t);
    if (r < 0) {
        dv_tensors_release(t);
        return r;
    }
    if (o->weights++ == 0) {
        res->tensors = t;
        o->prefix = prefix;
        res->file_name = dv_strdup(dv_path_name(name));
        return res->file_name != NULL ? DAVY_OK : nomem(name);
    }
    if (o->blends) {
        r = o->weights == 2 ? dv_tensors_blend(res->tensors, t, o->blend)
                            : dv_fail(DAVY_E_OPTION, "model: blend needs exactly two weight files, found more");
    } else if (o->weights == 2 && o->prefix != NULL && prefix != NULL && strcmp(o->prefix, prefix) != 0) {
        dv_tensors *both = dv_calloc(1, sizeof *both);
        if (both == NULL) {
            dv_tensors_release(t);
            return nomem(name);
        }
        both->format = res->tensors->format;
        r = dv_tensors_merge(both, res->tensors, o->prefix);
        dv_tensors_release(res->tensors);
        res->tensors = both;
        r = r < 0 ? r : dv_tensors_merge(both, t, prefix);
    } else {
        r = dv_tensors_merge(res->tensors, t, "");
    }
    dv_tensors_release(t);
    return r;
}

static davy_result add_path(opening *o, const char *path, davy_source_role role) {
    dv_source *source = NULL;
    dv_tensors *t = NULL;
    bool json = role == DAVY_SOURCE_CONFIG;
    davy_result r = DAVY_OK;
    const bool index = strlen(path) > 11 && strcmp(path + strlen(path) - 11, ".index.json") == 0;
    if (dv_path_stat(path) != DV_PATH_FOLDER && !index) {
        r = dv_source_open_path(path, o->map, &source);
        r = r < 0 || role != DAVY_SOURCE_AUTO ? r : looks_like_json(source, &json);
        r = r < 0 || !json ? r : read_config(o, source);
        o->result.bytes += r < 0 || json ? 0 : dv_source_bytes(source);
        r = r < 0 || json ? r : dv_tensors_open(source, &o->options, &t);
        dv_source_release(source);
    } else {
        r = dv_tensors_open_path(path, o->map, &o->options, &t);
    }
    if (r < 0 || json) {
        return r;
    }
    if (o->first_path == NULL && (o->first_path = dv_strdup(path)) == NULL) {
        dv_tensors_release(t);
        return nomem(path);
    }
    return add_weights(o, t, path);
}

static davy_result add_bytes(opening *o, const davy_source *s) {
    dv_source *source = NULL;
    dv_tensors *t = NULL;
    bool json = s->role == DAVY_SOURCE_CONFIG;
    davy_result r = open_bytes(s, &source);
    if (r < 0) {
        return r;
    }
    r = s->role != DAVY_SOURCE_AUTO ? r : looks_like_json(source, &json);
    if (r == DAVY_OK && json) {
        r = read_config(o, source);
    } else if (r == DAVY_OK) {
        o->result.bytes += dv_source_bytes(source);
        r = dv_tensors_open(source, &o->options, &t);
        r = r < 0 ? r : add_weights(o, t, dv_source_name(source));
    }
    dv_source_release(source);
    return r;
}

static davy_result add_source(opening *o, uint32_t i, uint32_t stride) {
    davy_source s;
    const void *at = (const char *)o->desc->sources + (size_t)i * stride;
    davy_result r = dv_sized_in(at, sizeof s, sizeof s, "source", &s);
    r = r < 0 ? r : check_source(&s, i);
    if (r < 0) {
        return r;
    }
    if (s.data != NULL || s.read != NULL) {
        return add_bytes(o, &s);
    }
    if (s.path != NULL) {
        return add_path(o, s.path, s.role);
    }
    char *path = NULL;
    r = dv_context_find_model(o->ctx, s.name, &path);
    r = r < 0 ? r : add_path(o, path, s.role);
    dv_free(path);
    return r;
}

static davy_result read_blend(opening *o) {
    const dv_options options = {o->desc->options, o->desc->n_options};
    const davy_result r = dv_options_get_number(options, "blend", &o->blend, &o->blends);
    if (r == DAVY_OK && o->blends && !(o->blend >= 0.0 && o->blend <= 1.0)) {
        return dv_fail(DAVY_E_OPTION, "model: blend is %g, expected 0 to 1", o->blend);
    }
    return r;
}

/* If no config was given, reads a config.json beside the weights. */
static davy_result find_config(opening *o) {
    char *path = NULL;
    dv_source *source = NULL;
    davy_result r = DAVY_OK;
    if (o->result.config == NULL && o->first_path != NULL) {
        r = dv_tensors_config_path(o->first_path, &path);
    }
    if (r < 0 || path == NULL) {
        return r;
    }
    r = dv_source_open_path(path, false, &source);
    r = r < 0 ? r : read_config(o, source);
    dv_source_release(source);
    dv_free(path);
    return r;
}

static davy_result add_all(opening *o) {
    const davy_model_desc *d = o->desc;
    uint32_t stride = d->source_stride;
    davy_result r = DAVY_OK;
    if (stride == 0) {
        memcpy(&stride, d->sources, sizeof stride);
    }
    if (stride < sizeof(davy_source) || stride % 8 != 0) {
        return dv_fail(DAVY_E_STRUCT, "model: source_stride is %u, expected at least %zu and a multiple of 8",
                       (unsigned)stride, sizeof(davy_source));
    }
    for (uint32_t i = 0; r == DAVY_OK && i < d->n_sources; i++) {
        r = add_source(o, i, stride);
        if (r == DAVY_OK && d->progress != NULL && d->n_sources > 1 &&
            d->progress(d->progress_user, "open", i + 1, d->n_sources) != 0) {
            r = dv_fail(DAVY_E_CANCELLED, "model: cancelled while opening its files");
        }
    }
    if (r == DAVY_OK && o->weights == 0) {
        r = dv_fail(DAVY_E_INVALID, "model: the sources have a config but no weights; add a weight file");
    }
    if (r == DAVY_OK && o->blends && o->weights < 2) {
        r = dv_fail(DAVY_E_OPTION, "model: blend needs exactly two weight files, found one");
    }
    return r < 0 ? r : find_config(o);
}

davy_result dv_sources_open(davy_context *ctx, const davy_model_desc *desc, dv_opened *out) {
    if (desc->sources == NULL || desc->n_sources == 0 || desc->n_sources > MAX_SOURCES) {
        return dv_fail(DAVY_E_INVALID, "model: %u sources, expected 1 to %d", (unsigned)desc->n_sources,
                       (int)MAX_SOURCES);
    }
    opening o = {.ctx = ctx,
                 .desc = desc,
                 .options = {.no_pickle = (desc->flags & DAVY_MODEL_NO_PICKLE) != 0},
                 .map = (desc->flags & DAVY_MODEL_NO_MMAP) == 0};
    davy_result r = read_blend(&o);
    r = r < 0 ? r : add_all(&o);
    dv_free(o.first_path);
    if (r < 0) {
        dv_opened_clear(&o.result);
        return r;
    }
    *out = o.result;
    return DAVY_OK;
}
