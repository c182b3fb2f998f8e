/* captioner.c - see captioner.h. */
#include "core/host/captioner.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/host/context.h"
#include "core/host/device.h"
#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/base/os.h"
#include "core/base/sized.h"

struct dv_weights_pin {
    _Atomic int64_t refs; /* one for the captioner, one for each pin */
    dv_vlm_model *model;
};

#define POLL_NS 5000000ull

typedef struct place {      /* a GPU, or the CPU */
    dv_mutex *lock;         /* guards the members below; released while loading, because loading calls the host */
    bool loading;           /* other threads wait, and poll for cancellation */
    dv_weights_pin *loaded; /* NULL: not loaded */
} place;

struct dv_captioner {
    const dv_services *services; /* of the context; the model holds a reference to it */
    char *path, *mmproj;         /* mmproj NULL: not given */
    const char *file;            /* last component; points into path */
    davy_dtype compute;
    bool no_map;
    dv_vlm_config config;
    dv_vlm_facts facts;
    place places[DV_GPUS_MAX];
    int32_t n_places;
};

/* ---- recognising ---- */

static bool is_gguf(const char *path) {
    return dv_path_stat(path) == DV_PATH_FILE && dv_ends_with(path, ".gguf");
}

/* The kind of a GGUF file. */
typedef enum gguf_part { GGUF_OTHER = 0, GGUF_TEXT, GGUF_VISION } gguf_part;

static davy_result part_of(const char *path, bool map, gguf_part *out) {
    const dv_open_options options = {.no_pickle = true};
    dv_tensors *t = NULL;
    *out = GGUF_OTHER;
    const davy_result r = dv_tensors_open_path(path, map, &options, &t);
    if (r < 0) {
        return r;
    }
    const char *arch = dv_tensors_meta(t, "general.architecture");
    *out = arch != NULL && strcmp(arch, "clip") == 0            ? GGUF_VISION
           : dv_tensors_meta(t, "tokenizer.ggml.model") != NULL ? GGUF_TEXT
                                                                : GGUF_OTHER;
    dv_tensors_release(t);
    return DAVY_OK;
}

typedef struct named { /* paths of the sources */
    const char *path[2];
    uint32_t n;
    bool map;
} named;

/* Returns false if the sources cannot be a captioning model: only paths, one or two, no config. */
static bool take_paths(const davy_model_desc *d, named *out) {
    uint32_t stride = d->source_stride;
    out->n = d->n_sources;
    out->map = (d->flags & DAVY_MODEL_NO_MMAP) == 0;
    if (d->sources == NULL || d->n_sources < 1 || d->n_sources > 2) {
        return false;
    }
    if (stride == 0) {
        memcpy(&stride, d->sources, sizeof stride);
    }
    for (uint32_t i = 0; i < d->n_sources && stride >= sizeof(davy_source); i++) {
        davy_source s;
        const void *at = (const char *)d->sources + (size_t)i * stride;
        const bool ok = dv_sized_in(at, sizeof s, sizeof s, "source", &s) == DAVY_OK;
        if (!ok || s.path == NULL || s.data != NULL || s.read != NULL || s.role == DAVY_SOURCE_CONFIG) {
            return false;
        }
        out->path[i] = s.path;
    }
    return out->path[0] != NULL;
}

/* Finds a text model and its mmproj in any order, or a text model alone. */
static davy_result find_gguf(const named *n, const char **text, const char **vision) {
    for (uint32_t i = 0; i < n->n; i++) {
        gguf_part part = GGUF_OTHER;
        const davy_result r = is_gguf(n->path[i]) ? part_of(n->path[i], n->map, &part) : DAVY_OK;
        if (r < 0) {
            return r;
        }
        *text = part == GGUF_TEXT ? n->path[i] : *text;
        *vision = part == GGUF_VISION ? n->path[i] : *vision;
    }
    if (*text == NULL && *vision != NULL) {
        return dv_fail(DAVY_E_ARCH, "%s: an mmproj holds only the vision tower; name the text model's GGUF file too",
                       dv_path_name(*vision));
    }
    return DAVY_OK;
}

/* *out: folder of a captioning model's config.json; NULL: no config.json. */
static davy_result find_folder(const char *path, char **out) {
    char *config = NULL;
    dv_vlm_config c;
    *out = NULL;
    davy_result r = dv_tensors_config_path(path, &config);
    if (r < 0 || config == NULL) {
        return r;
    }
    char *folder = dv_path_folder(config);
    dv_free(config);
    if (folder == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    r = dv_vlm_config_open(folder, &c);
    if (r == DAVY_OK) {
        *out = folder;
        return DAVY_OK;
    }
    dv_free(folder);
    return r;
}

/* ---- opening ---- */

/* NULL: the CPU. */
static dv_gpu *gpu_of(const dv_services *s, int32_t gpu) {
    return s->n_gpus > 0 ? s->gpus[gpu] : NULL;
}

/* AUTO on a GPU: BF16 if the tensor cores support it (from sm_80 on), else F16. */
static davy_dtype compute_of(const dv_captioner *c) {
    const dv_gpu *gpu = gpu_of(c->services, 0);
    if (c->compute != DAVY_DTYPE_AUTO || gpu == NULL) {
        return c->compute;
    }
    return dv_gpu_caps(gpu)->sm >= 80 ? DAVY_DTYPE_BF16 : DAVY_DTYPE_F16;
}

static dv_vlm_open opening(const dv_captioner *c, int32_t gpu) {
    const davy_dtype d = compute_of(c);
    return (dv_vlm_open){.path = c->path,
                         .mmproj = c->mmproj,
                         .format = d == DAVY_DTYPE_INT8   ? DV_VLM_INT8
                                   : d == DAVY_DTYPE_INT4 ? DV_VLM_INT4
                                   : d == DAVY_DTYPE_BF16 ? DV_VLM_NARROW
                                   : d == DAVY_DTYPE_F16  ? DV_VLM_F16
                                                          : DV_VLM_AS_STORED,
                         .compute = d == DAVY_DTYPE_F32   ? DVK_F32
                                    : d == DAVY_DTYPE_F16 ? DVK_F16
                                                          : DVK_BF16,
                         .no_map = c->no_map,
                         .heap = c->services->heap,
                         .pool = c->services->pool,
                         .gpu = gpu_of(c->services, gpu),
                         .cpu = c->services->cpu};
}

static davy_result check(const davy_model_desc *d, const dv_services *services, const char *file) {
    const bool gpu = services->n_gpus > 0;
    if (d->arch != NULL && strcmp(d->arch, "vlm") != 0) {
        return dv_fail(DAVY_E_ARCH, "%s: arch is %s, but the file is a captioning model (vlm)", file, d->arch);
    }
    if (d->compute == DAVY_DTYPE_FP8 || (d->compute == DAVY_DTYPE_F16 && !gpu)) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: captioning on a %s needs F32, BF16, %sINT8 or INT4, not %s", file,
                       gpu ? "GPU" : "CPU", gpu ? "F16, " : "", d->compute == DAVY_DTYPE_F16 ? "F16" : "FP8");
    }
    return DAVY_OK;
}

static davy_result make(davy_context *ctx, const davy_model_desc *desc, const char *path, const char *mmproj,
                        dv_captioner **out) {
    dv_captioner *c = dv_calloc(1, sizeof *c);
    if (c == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    c->services = dv_context_services(ctx);
    c->compute = desc->compute;
    c->no_map = (desc->flags & DAVY_MODEL_NO_MMAP) != 0;
    c->n_places = (int32_t)dv_max(1, c->services->n_gpus);
    bool locks = true;
    for (int32_t i = 0; i < c->n_places; i++) {
        c->places[i].lock = dv_mutex_create();
        locks = locks && c->places[i].lock != NULL;
    }
    c->path = dv_strdup(path);
    c->mmproj = mmproj != NULL ? dv_strdup(mmproj) : NULL;
    davy_result r = DAVY_OK;
    if (!locks || c->path == NULL || (mmproj != NULL && c->mmproj == NULL)) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    } else {
        for (size_t n = strlen(c->path); n > 1 && c->path[n - 1] == '/'; n--) {
            c->path[n - 1] = '\0'; /* removes trailing slashes, so that the last component is the folder's name */
        }
        c->file = dv_path_name(c->path);
        r = check(desc, c->services, c->file);
    }
    const dv_vlm_open o = opening(c, 0);
    r = r < 0 ? r : dv_vlm_model_describe(&o, &c->config, &c->facts);
    if (r < 0) {
        dv_captioner_release(c);
        return r;
    }
    *out = c;
    return DAVY_OK;
}

davy_result dv_captioner_open(davy_context *ctx, const davy_model_desc *desc, dv_captioner **out) {
    const bool requested = desc->task == DAVY_TASK_CAPTION;
    named n = {.n = 0};
    const char *text = NULL;
    const char *vision = NULL;
    char *folder = NULL;
    *out = NULL;
    if (desc->task != 0 && !requested) {
        return DAVY_OK;
    }
    if (!take_paths(desc, &n)) {
        return requested ? dv_fail(DAVY_E_UNSUPPORTED,
                                   "model: a captioning model needs the path of its folder, or the paths of "
                                   "its GGUF file and of its mmproj")
                         : DAVY_OK;
    }
    if (dv_path_stat(n.path[0]) == DV_PATH_NONE) {
        return requested ? dv_fail(DAVY_E_NOT_FOUND, "%s: no such file or folder", n.path[0]) : DAVY_OK;
    }
    davy_result r = find_gguf(&n, &text, &vision);
    if (r == DAVY_OK && text == NULL && n.n == 1) {
        r = find_folder(n.path[0], &folder);
        r = r == DAVY_E_ARCH && !requested ? DAVY_OK : r;
    }
    if (r == DAVY_OK && (text != NULL || folder != NULL)) {
        r = make(ctx, desc, text != NULL ? text : folder, vision, out);
    } else if (r == DAVY_OK && requested) {
        r = dv_fail(DAVY_E_ARCH,
                    "%s: not a captioning model; expected a folder with config.json, weights and tokenizer.json, "
                    "or a GGUF text model with its mmproj",
                    dv_path_name(n.path[0]));
    }
    dv_free(folder);
    return r;
}

void dv_captioner_release(dv_captioner *c) {
    if (c != NULL) {
        for (int32_t i = 0; i < c->n_places; i++) {
            dv_captioner_unpin(c->places[i].loaded);
            dv_mutex_release(c->places[i].lock);
        }
        dv_free(c->path);
        dv_free(c->mmproj);
        dv_free(c);
    }
}

const char *dv_captioner_file(const dv_captioner *c) {
    return c->file;
}

const dv_vlm_config *dv_captioner_config(const dv_captioner *c) {
    return &c->config;
}

bool dv_captioner_thinks(const dv_captioner *c) {
    return c->facts.thinks;
}

void dv_captioner_info(const dv_captioner *c, davy_model_info *out) {
    const dv_vlm_config *v = &c->config;
    *out = (davy_model_info){.struct_size = sizeof *out,
                             .task = DAVY_TASK_CAPTION,
                             .compute = compute_of(c) == DAVY_DTYPE_AUTO ? DAVY_DTYPE_BF16 : compute_of(c),
                             .features = v->vision.tower != DV_VLM_TOWER_NONE ? DAVY_MODEL_CAPTIONS : 0,
                             .parameters = c->facts.parameters,
                             .weight_bytes = c->facts.bytes,
                             .in_channels = 3,
                             .temporal_factor = 1,
                             .scale_num = 1,
                             .scale_den = 1,
                             .size_multiple = 1,
                             .context_tokens = (int32_t)dv_min(v->text.max_positions, INT32_MAX)};
    snprintf(out->arch, sizeof out->arch, "vlm");
    snprintf(out->variant, sizeof out->variant, "%s, %d layers of %d, vision %d of %d", dv_vlm_family_name(v->family),
             (int)v->text.layers, (int)v->text.hidden, (int)v->vision.layers, (int)v->vision.hidden);
}

/* ---- weights ---- */

int32_t dv_captioner_gpus(const dv_captioner *c) {
    return c->services->n_gpus > 0 ? c->n_places : 0;
}

/* Enters and leaves with the lock: waits until no other thread loads. */
static davy_result await_others(place *at, const dv_loading *loading) {
    davy_result r = DAVY_OK;
    while (r == DAVY_OK && at->loading) {
        dv_mutex_unlock(at->lock);
        dv_sleep_ns(POLL_NS);
        r = loading != NULL && loading->progress != NULL ? loading->progress(loading->user, 0, 1024) : DAVY_OK;
        dv_mutex_lock(at->lock);
    }
    return r;
}

static davy_result load(const dv_captioner *c, int32_t gpu, const dv_loading *loading, dv_weights_pin **out) {
    dv_vlm_open o = opening(c, gpu);
    dv_weights_pin *pin = dv_calloc(1, sizeof *pin);
    o.loading = loading != NULL ? *loading : o.loading;
    const davy_result r =
        pin != NULL ? dv_vlm_model_open(&o, &pin->model) : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    if (r < 0) {
        dv_free(pin);
        return r;
    }
    const char *note = dv_tokenizer_note(pin->model->tokenizer);
    if (note != NULL) {
        dv_logf(c->services->log, DAVY_LOG_INFO, "%s: %s", c->file, note);
    }
    atomic_init(&pin->refs, 1);
    *out = pin;
    return DAVY_OK;
}

davy_result dv_captioner_pin(dv_captioner *c, int32_t gpu, const dv_loading *loading, dv_weights_pin **out) {
    place *at = &c->places[gpu];
    dv_mutex_lock(at->lock);
    davy_result r = await_others(at, loading);
    if (r == DAVY_OK && at->loaded == NULL) {
        dv_weights_pin *pin = NULL;
        at->loading = true;
        dv_mutex_unlock(at->lock);
        r = load(c, gpu, loading, &pin);
        dv_mutex_lock(at->lock);
        at->loading = false;
        at->loaded = pin;
    }
    if (r == DAVY_OK) {
        atomic_fetch_add(&at->loaded->refs, 1);
        *out = at->loaded;
    }
    dv_mutex_unlock(at->lock);
    return r;
}

void dv_captioner_unpin(dv_weights_pin *pin) {
    if (pin != NULL && atomic_fetch_sub(&pin->refs, 1) == 1) {
        dv_vlm_model_release(pin->model);
        dv_free(pin);
    }
}

const dv_vlm_model *dv_pinned_model(const dv_weights_pin *pin) {
    return pin->model;
}

static void unload(dv_captioner *c, bool idle_only) {
    for (int32_t i = 0; i < c->n_places; i++) {
        place *at = &c->places[i];
        dv_mutex_lock(at->lock);
        dv_weights_pin *old = at->loaded;
        if (old != NULL && idle_only && atomic_load(&old->refs) > 1) {
            old = NULL;
        }
        at->loaded = old != NULL ? NULL : at->loaded;
        dv_mutex_unlock(at->lock);
        dv_captioner_unpin(old);
    }
}

void dv_captioner_unload(dv_captioner *c) {
    unload(c, false);
}

void dv_captioner_unload_if_idle(dv_captioner *c) {
    unload(c, true);
}
