/* model.c - see model.h. The engine computes and holds the weights. This file has the lifetime, the host's options for the
 * latent, and the second try of a run that did not fit into memory. */
#include "core/host/model.h"

#include <stdatomic.h>
#include <string.h>

#include "core/host/context.h"
#include "core/host/sources.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/base/options.h"
#include "core/base/watch.h"

struct davy_model {
    _Atomic int64_t refs;
    _Atomic int32_t running; /* calls that use the weights now */
    davy_context *context;
    dv_engine *engine; /* one of these two */
    dv_captioner *captioner;
    davy_model_info info;
    char *name;
    dv_model_entry entry; /* link in the context's list */
};

/* ---- callbacks of the context ---- */

static davy_model *try_ref(davy_model *m) {
    int64_t n = atomic_load(&m->refs);
    while (n > 0 && !atomic_compare_exchange_weak(&m->refs, &n, n + 1)) {
    }
    return n > 0 ? m : NULL;
}

static void trim(davy_model *m) {
    if (m->engine != NULL) {
        dv_engine_trim(m->engine, 0);
    }
}

static void review(davy_model *m) {
    if (m->engine != NULL) {
        dv_engine_review(m->engine);
    }
}

static void unload_if_idle(davy_model *m) {
    if (m->captioner != NULL) {
        dv_captioner_unload_if_idle(m->captioner);
    } else if (atomic_load(&m->running) == 0) {
        dv_engine_unload(m->engine);
    }
}

static void enlist(davy_model *m) {
    static const dv_model_calls calls = {.try_ref = try_ref,
                                         .release = dv_model_release,
                                         .trim = trim,
                                         .unload_if_idle = unload_if_idle,
                                         .review = review};
    m->entry = (dv_model_entry){.model = m, .calls = &calls};
    dv_context_add_model(m->context, &m->entry);
}

/* ---- opening ---- */

static davy_result check_desc(const davy_model_desc *d) {
    static const char *const known[] = {"scaling_factor", "shift_factor", "tf32", "split", "blend", NULL};
    const uint32_t flags = DAVY_MODEL_NO_MMAP | DAVY_MODEL_NO_PICKLE;
    if (d->task < 0 || d->task > DAVY_TASK_CAPTION) {
        return dv_fail(DAVY_E_INVALID, "model: task is %d, expected 0 or DAVY_TASK_*", (int)d->task);
    }
    if (d->compute < 0 || d->compute > DAVY_DTYPE_FP8 || d->compute == DAVY_DTYPE_U8 || d->compute == DAVY_DTYPE_U16) {
        return dv_fail(DAVY_E_INVALID, "model: compute is %d, expected 0, F32, F16, BF16, INT8, INT4 or FP8",
                       (int)d->compute);
    }
    if ((d->flags & ~flags) != 0 || d->reserved0 != 0) {
        return dv_fail(DAVY_E_INVALID, "model: flags has unknown bits, or reserved0 is not 0");
    }
    return dv_options_check((dv_options){d->options, d->n_options}, known, "model");
}

/* Takes the latent's scale and shift from the host's options, for files that do not state them. */
static davy_result take_factors(const davy_model_desc *d, davy_model_info *info, const char *name) {
    const dv_options options = {d->options, d->n_options};
    double scale = 0.0;
    double shift = 0.0;
    bool has_scale = false;
    bool has_shift = false;
    davy_result r = dv_options_get_number(options, "scaling_factor", &scale, &has_scale);
    r = r < 0 ? r : dv_options_get_number(options, "shift_factor", &shift, &has_shift);
    if (r < 0 || (!has_scale && !has_shift)) {
        return r;
    }
    const bool fixed = info->latent_scale == 1.0f && info->latent_shift == 0.0f;
    if (info->latent_channels == 0 || fixed) {
        return dv_fail(DAVY_E_OPTION, "%s: scaling_factor and shift_factor are not allowed for %s", name,
                       fixed ? "a model with latents that are already scaled" : "a model without latents");
    }
    if (has_scale && !(scale > 0.0)) {
        return dv_fail(DAVY_E_OPTION, "%s: scaling_factor is %g, expected more than 0", name, scale);
    }
    info->latent_scale = has_scale ? (float)scale : info->latent_scale;
    info->latent_shift = has_shift ? (float)shift : info->latent_shift;
    return DAVY_OK;
}

/* TF32 is an option, because davy_dtype has no value for it. */
static davy_result take_tf32(const davy_model *m, const davy_model_desc *d, bool *out) {
    const dv_options options = {d->options, d->n_options};
    double value = 0.0;
    bool found = false;
    const davy_result r = dv_options_get_number(options, "tf32", &value, &found);
    *out = found && value != 0.0;
    if (r < 0 || !*out) {
        return r;
    }
    if (d->compute != DAVY_DTYPE_F32) {
        return dv_fail(DAVY_E_OPTION, "model: tf32 needs compute F32");
    }
    return dv_context_on_gpu(m->context)
               ? DAVY_OK
               : dv_fail(DAVY_E_UNSUPPORTED, "model: tf32 needs a GPU; the context computes on the CPU");
}

/* "8x32", the size of a window: files of DAT and RGT may not state it. */
static davy_result take_split(const davy_model_desc *d, int64_t out[2]) {
    const dv_options options = {d->options, d->n_options};
    const char *text = dv_options_get(options, "split");
    const char *x = text != NULL ? strchr(text, 'x') : NULL;
    char height[8] = "";
    if (text == NULL) {
        return DAVY_OK;
    }
    if (x != NULL && x - text < (ptrdiff_t)sizeof height) {
        memcpy(height, text, (size_t)(x - text));
    }
    if (x == NULL || !dv_parse_int(height, 1, 64, &out[0]) || !dv_parse_int(x + 1, 1, 64, &out[1])) {
        return dv_fail(DAVY_E_OPTION, "option split: \"%s\" is not a window's height and width, such as 8x32", text);
    }
    return DAVY_OK;
}

static davy_result make_engine(davy_model *m, const davy_model_desc *desc, dv_opened *opened) {
    bool tf32 = false;
    int64_t split[2] = {0, 0};
    davy_result r = take_tf32(m, desc, &tf32);
    r = r < 0 ? r : take_split(desc, split);
    if (r < 0) {
        return r;
    }
    const dv_engine_desc ed = {.services = dv_context_services(m->context),
                               .tensors = opened->tensors,
                               .config = opened->config,
                               .file_name = opened->file_name,
                               .arch = desc->arch,
                               .compute = desc->compute,
                               .tf32 = tf32,
                               .split = {split[0], split[1]}};
    r = dv_engine_create(&ed, &m->engine);
    if (dv_is_short(r) && dv_model_make_room(m)) { /* creation with int8 runs a test picture */
        r = dv_engine_create(&ed, &m->engine);
    }
    if (r < 0) {
        return r;
    }
    opened->tensors = NULL; /* the engine owns them now */
    opened->config = NULL;
    dv_engine_info(m->engine, &m->info);
    if (split[0] > 0 && strcmp(m->info.arch, "dat") != 0 && strcmp(m->info.arch, "rgt") != 0) {
        return dv_fail(DAVY_E_OPTION, "%s: the option split is for dat and rgt, not for %s", opened->file_name,
                       m->info.arch);
    }
    m->info.struct_size = sizeof m->info;
    m->info.scale_num = (int32_t)dv_max(m->info.scale_num, 1);
    m->info.scale_den = (int32_t)dv_max(m->info.scale_den, 1);
    if (desc->task != 0 && desc->task != m->info.task) {
        return dv_fail(DAVY_E_ARCH, "%s: expected %s, but the weights are %s (%s)", opened->file_name,
                       desc->task == DAVY_TASK_VAE ? "a VAE" : "an upscaler",
                       m->info.task == DAVY_TASK_VAE ? "a VAE" : "an upscaler", m->info.arch);
    }
    return take_factors(desc, &m->info, opened->file_name);
}

static void destroy(davy_model *m) {
    davy_context *ctx = m->context;
    /* In a forked child the engine's lock stays locked if a run was active at the fork. Then its memory is not freed. */
    if (!dv_context_is_child(ctx) || atomic_load(&m->running) == 0) {
        dv_engine_release(m->engine);
        dv_captioner_release(m->captioner);
    }
    dv_free(m->name);
    dv_free(m);
    dv_context_release(ctx);
}

/* Owns the captioner from here on, also on an error. */
static davy_result open_captioner(davy_context *ctx, const davy_model_desc *desc, dv_captioner *captioner,
                                  davy_model **out) {
    davy_model *m = NULL;
    davy_result r = DAVY_OK;
    if (desc->n_options > 0) {
        r = dv_fail(DAVY_E_OPTION, "%s: a captioning model does not support the option %s",
                    dv_captioner_file(captioner), desc->options[0].key);
    } else if ((m = dv_calloc(1, sizeof *m)) == NULL || (m->name = dv_strdup(dv_captioner_file(captioner))) == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a model");
    }
    if (r < 0) {
        dv_captioner_release(captioner);
        dv_free(m);
        return r;
    }
    atomic_init(&m->refs, 1);
    m->context = dv_context_ref(ctx);
    m->captioner = captioner;
    dv_captioner_info(captioner, &m->info);
    dv_logf(dv_context_services(ctx)->log, DAVY_LOG_INFO, "%s: %s, %s", m->name, m->info.arch, m->info.variant);
    enlist(m);
    *out = m;
    return DAVY_OK;
}

davy_result dv_model_open(davy_context *ctx, const davy_model_desc *desc, davy_model **out) {
    dv_opened opened = {0};
    dv_captioner *captioner = NULL;
    davy_result r = check_desc(desc);
    r = r < 0 ? r : dv_captioner_open(ctx, desc, &captioner);
    if (captioner != NULL) {
        return open_captioner(ctx, desc, captioner, out);
    }
    r = r < 0 ? r : dv_sources_open(ctx, desc, &opened);
    if (r < 0) {
        return r;
    }
    davy_model *m = dv_calloc(1, sizeof *m);
    if (m == NULL) {
        dv_opened_clear(&opened);
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a model");
    }
    atomic_init(&m->refs, 1);
    m->context = dv_context_ref(ctx);
    r = make_engine(m, desc, &opened);
    if (r == DAVY_OK) {
        m->name = opened.file_name;
        opened.file_name = NULL;
        dv_logf(dv_context_services(ctx)->log, DAVY_LOG_INFO, "%s: %s, %s", m->name, m->info.arch, m->info.variant);
        enlist(m);
        *out = m;
    } else {
        destroy(m);
    }
    dv_opened_clear(&opened);
    return r;
}

davy_model *dv_model_ref(davy_model *m) {
    atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    return m;
}

void dv_model_release(davy_model *m) {
    if (m != NULL && atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) == 1) {
        dv_context_remove_model(m->context, &m->entry);
        destroy(m);
    }
}

davy_context *dv_model_context(const davy_model *m) {
    return m->context;
}

dv_engine *dv_model_engine(const davy_model *m) {
    return m->engine;
}

dv_captioner *dv_model_captioner(const davy_model *m) {
    return m->captioner;
}

const davy_model_info *dv_model_facts(const davy_model *m) {
    return &m->info;
}

const char *dv_model_name(const davy_model *m) {
    return m->name;
}

/* ---- work ---- */

bool dv_model_make_room(const davy_model *m) {
    static const dv_keep nothing;
    davy_error_info saved;
    dv_error_get(&saved);
    const bool freed = dv_context_trim(m->context, &nothing, m);
    dv_error_set(&saved);
    return freed;
}

typedef struct task {
    dv_engine *engine;
    dv_clip_tiles *clip; /* NULL: pictures */
    const dvk_image *tail;
    const dv_work *work; /* NULL: only load the weights */
    const dv_control *control;
} task;

static davy_result attempt(const task *t) {
    return t->clip != NULL   ? dv_clip_tiles_run(t->clip, t->work, t->tail)
           : t->work != NULL ? dv_engine_run(t->engine, t->work)
                             : dv_engine_load(t->engine, t->control);
}

static davy_result run_with_retries(davy_model *m, const task *t) {
    atomic_fetch_add(&m->running, 1);
    davy_result r = attempt(t);
    if (dv_is_short(r) && dv_model_make_room(m)) {
        r = attempt(t);
    }
    while (dv_is_short(r) && t->clip != NULL && dv_clip_tiles_shrink(t->clip)) {
        r = attempt(t);
    }
    atomic_fetch_sub(&m->running, 1);
    return r;
}

davy_result dv_model_pin(davy_model *m, int32_t gpu, const dv_loading *loading, dv_weights_pin **out) {
    davy_result r = dv_captioner_pin(m->captioner, gpu, loading, out);
    return dv_is_short(r) && dv_model_make_room(m) ? dv_captioner_pin(m->captioner, gpu, loading, out) : r;
}

static davy_result on_loaded(void *user, uint64_t done, uint64_t total) {
    dv_watch *w = user;
    w->total = total > 0 ? (double)total : 1.0;
    w->done = (double)done;
    return dv_watch_poll(w);
}

static davy_result load_captioner(davy_model *m, const dv_control *control) {
    dv_weights_pin *pin = NULL;
    dv_watch watch;
    const dv_loading loading = {.progress = on_loaded, .user = &watch};
    dv_watch_begin(&watch, control, "load", 1);
    const davy_result r = dv_model_pin(m, 0, &loading, &pin);
    dv_captioner_unpin(pin);
    return r < 0 ? r : dv_watch_end(&watch);
}

davy_result dv_model_load(davy_model *m, const dv_control *control) {
    if (m->captioner != NULL) {
        return load_captioner(m, control);
    }
    const task t = {.engine = m->engine, .control = control};
    return run_with_retries(m, &t);
}

davy_result dv_model_run(davy_model *m, const dv_work *work) {
    const task t = {.engine = m->engine, .work = work};
    return run_with_retries(m, &t);
}

davy_result dv_model_clip_open(davy_model *m, const dv_clip_tiles_desc *desc, dv_clip_tiles **out) {
    atomic_fetch_add(&m->running, 1);
    davy_result r = dv_clip_tiles_open(m->engine, desc, out);
    if (dv_is_short(r) && dv_model_make_room(m)) {
        r = dv_clip_tiles_open(m->engine, desc, out);
    }
    if (r < 0) {
        atomic_fetch_sub(&m->running, 1);
    }
    return r;
}

davy_result dv_model_clip_run(davy_model *m, dv_clip_tiles *clip, const dv_work *work, const dvk_image *tail) {
    const task t = {.engine = m->engine, .clip = clip, .work = work, .tail = tail};
    return run_with_retries(m, &t);
}

void dv_model_clip_close(davy_model *m, dv_clip_tiles *clip) {
    if (clip != NULL) {
        dv_clip_tiles_release(clip);
        atomic_fetch_sub(&m->running, 1);
    }
}

davy_result dv_model_unload(davy_model *m) {
    if (m->captioner != NULL) {
        dv_captioner_unload(m->captioner);
        return DAVY_OK;
    }
    return dv_engine_unload(m->engine);
}
