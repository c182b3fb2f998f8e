/* api.c - the table. Each entry checks what the host gave (NULL, struct sizes, a forked child), turns sized structs
 * into full-size ones, calls the module that does the work, and tells the host's log about failures. No logic lives
 * here. */
#include <string.h>

#include "core/api/api_priv.h"
#include "core/host/context.h"
#include "core/base/error.h"
#include "core/api/extension.h"
#include "core/host/job.h"
#include "core/calls/oneshot.h"

#define TEXT_OF(x)      #x
#define DOTTED(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

davy_result dv_api_is_null(const char *what) {
    return dv_fail(DAVY_E_INVALID, "%s is NULL", what);
}

static bool is_misuse(davy_result r) {
    return r == DAVY_E_INVALID || r == DAVY_E_STRUCT || r == DAVY_E_STATE || r == DAVY_E_OPTION || r == DAVY_E_FORKED;
}

davy_result dv_api_done(const davy_context *ctx, const char *function, davy_result r) {
    if (r >= 0 || ctx == NULL) {
        return r;
    }
    davy_error_info info;
    dv_error_get(&info);
    const davy_log_level level = is_misuse(r)                                   ? DAVY_LOG_MISUSE
                                 : r == DAVY_E_CANCELLED || r == DAVY_E_TIMEOUT ? DAVY_LOG_INFO
                                                                                : DAVY_LOG_ERROR;
    dv_logf(dv_context_services(ctx)->log, level, "%s: %s: %s", function, dv_result_name(r), info.message);
    return r;
}

/* ---- base ---- */

static const char *DAVY_CALL api_version(void) {
    return DOTTED(DAVY_VERSION_MAJOR, DAVY_VERSION_MINOR, DAVY_VERSION_PATCH);
}

static const char *DAVY_CALL api_result_name(davy_result r) {
    return dv_result_name(r);
}

static davy_result DAVY_CALL api_last_error(davy_error_info *out) {
    davy_error_info info;
    dv_error_get(&info); /* before a complaint about `out` takes its place: the record stays as it was */
    const davy_result r = CHECK_OUT(davy_error_info, out);
    dv_error_set(&info);
    if (r == DAVY_OK) {
        dv_sized_out(out, &info, sizeof info);
    }
    return r;
}

static const void *DAVY_CALL api_get_extension(const char *id) {
    if (id == NULL) {
        return NULL;
    }
    return strcmp(id, "davy.inspect/1") == 0   ? (const void *)&dv_ext_inspect
           : strcmp(id, "davy.profile/1") == 0 ? (const void *)&dv_ext_profile
                                               : NULL;
}

/* ---- devices ---- */

static davy_result take_device_desc(const davy_context_desc *desc, davy_context_desc *out) {
    *out = (davy_context_desc){.struct_size = sizeof *out};
    return desc == NULL ? DAVY_OK : TAKE(davy_context_desc, desc, out);
}

static davy_result DAVY_CALL api_device_count(const davy_context_desc *desc, int32_t *out) {
    davy_context_desc d;
    const davy_result r = out == NULL ? dv_api_is_null("out") : take_device_desc(desc, &d);
    if (r == DAVY_OK) {
        *out = dv_device_count(d.library_dir);
    }
    return r;
}

static davy_result DAVY_CALL api_device_info(const davy_context_desc *desc, int32_t index, davy_device_info *out) {
    davy_context_desc d;
    davy_device_info info;
    davy_result r = CHECK_OUT(davy_device_info, out);
    r = r < 0 ? r : take_device_desc(desc, &d);
    r = r < 0 ? r : dv_device_info(d.library_dir, index, &info);
    if (r == DAVY_OK) {
        dv_sized_out(out, &info, sizeof info);
    }
    return r;
}

/* ---- context ---- */

static davy_result DAVY_CALL api_context_create(const davy_context_desc *desc, davy_context **out) {
    davy_context_desc d;
    const davy_result r = out == NULL ? dv_api_is_null("out") : TAKE(davy_context_desc, desc, &d);
    return r < 0 ? r : dv_context_create(&d, out);
}

static void DAVY_CALL api_context_release(davy_context *ctx) {
    dv_context_release(ctx);
}

static davy_result DAVY_CALL api_context_memory(davy_context *ctx, davy_memory_info *out) {
    davy_memory_info info;
    davy_result r = dv_context_check(ctx);
    r = r < 0 ? r : CHECK_OUT(davy_memory_info, out);
    if (r == DAVY_OK) {
        dv_context_memory(ctx, &info);
        dv_sized_out(out, &info, sizeof info);
    }
    return dv_api_done(ctx, "context_memory", r);
}

static davy_result DAVY_CALL api_context_budget(davy_context *ctx, uint64_t device_bytes, uint64_t host_bytes) {
    const davy_result r = dv_context_check(ctx);
    if (r == DAVY_OK) {
        dv_context_set_budget(ctx, device_bytes, host_bytes);
    }
    return dv_api_done(ctx, "context_budget", r);
}

static davy_result DAVY_CALL api_context_trim(davy_context *ctx, uint64_t keep_device_bytes, uint64_t keep_host_bytes) {
    const dv_keep keep = {.device_bytes = keep_device_bytes, .host_bytes = keep_host_bytes};
    const davy_result r = dv_context_check(ctx);
    if (r == DAVY_OK) {
        dv_context_trim(ctx, &keep, NULL);
    }
    return dv_api_done(ctx, "context_trim", r);
}

/* ---- model ---- */

davy_result dv_api_check_model(const davy_model *m) {
    return m == NULL ? dv_api_is_null("model") : dv_context_check(dv_model_context(m));
}

static const davy_context *context_of(const davy_model *m) {
    return m != NULL ? dv_model_context(m) : NULL;
}

davy_result dv_api_take_run(const davy_run *run, davy_run *out) {
    if (run == NULL) {
        *out = (davy_run){.struct_size = sizeof *out};
        return DAVY_OK;
    }
    return TAKE(davy_run, run, out);
}

static davy_result DAVY_CALL api_model_open(davy_context *ctx, const davy_model_desc *desc, davy_model **out) {
    davy_model_desc d;
    davy_result r = dv_context_check(ctx);
    r = r < 0 ? r : out == NULL ? dv_api_is_null("out") : TAKE(davy_model_desc, desc, &d);
    r = r < 0 ? r : dv_model_open(ctx, &d, out);
    return dv_api_done(ctx, "model_open", r);
}

static void DAVY_CALL api_model_release(davy_model *model) {
    dv_model_release(model);
}

static davy_result DAVY_CALL api_model_info(davy_model *model, davy_model_info *out) {
    davy_result r = dv_api_check_model(model);
    r = r < 0 ? r : CHECK_OUT(davy_model_info, out);
    if (r == DAVY_OK) {
        dv_sized_out(out, dv_model_facts(model), sizeof *out);
    }
    return dv_api_done(context_of(model), "model_info", r);
}

static davy_result DAVY_CALL api_model_load(davy_model *model, const davy_run *run, davy_job **job) {
    davy_run full;
    davy_result r = dv_api_check_model(model);
    r = r < 0 ? r : dv_api_take_run(run, &full);
    r = r < 0 ? r : dv_oneshot_load(model, &full, job);
    return dv_api_done(context_of(model), "model_load", r);
}

static davy_result DAVY_CALL api_model_unload(davy_model *model, uint32_t flags) {
    davy_result r = dv_api_check_model(model);
    if (r == DAVY_OK && flags != 0) {
        r = dv_fail(DAVY_E_INVALID, "model_unload: flags is 0x%x, expected 0", (unsigned)flags);
    }
    r = r < 0 ? r : dv_model_unload(model);
    return dv_api_done(context_of(model), "model_unload", r);
}

/* ---- plan and one-shot work ---- */

static davy_result DAVY_CALL api_plan_query(davy_model *model, const davy_query *query, davy_plan_info *out) {
    davy_query q;
    davy_tensor in;
    davy_run run;
    davy_plan_info info;
    davy_result r = dv_api_check_model(model);
    r = r < 0 ? r : CHECK_OUT(davy_plan_info, out);
    r = r < 0 ? r : TAKE(davy_query, query, &q);
    r = r < 0 ? r : TAKE(davy_tensor, q.input, &in);
    r = r < 0 ? r : dv_api_take_run(q.run, &run);
    r = r < 0 ? r : dv_oneshot_plan(model, q.op, &in, &run, &info);
    if (r == DAVY_OK) {
        dv_sized_out(out, &info, sizeof info);
    }
    return dv_api_done(context_of(model), "plan_query", r);
}

typedef struct oneshot_args {
    davy_model *model;
    davy_op op;
    const char *name;
    const davy_tensor *in;
    davy_tensor *out;
    const davy_run *run;
    davy_job **job;
} oneshot_args;

static davy_result oneshot(const oneshot_args *a) {
    davy_tensor in;
    davy_tensor out;
    davy_run run;
    davy_result r = dv_api_check_model(a->model);
    r = r < 0 ? r : TAKE(davy_tensor, a->in, &in);
    r = r < 0 ? r : TAKE(davy_tensor, a->out, &out);
    r = r < 0 ? r : dv_api_take_run(a->run, &run);
    r = r < 0 ? r : dv_oneshot(a->model, a->op, &in, &out, &run, a->job);
    if (r == DAVY_OK) {
        dv_sized_out(a->out, &out, sizeof out);
    }
    return dv_api_done(context_of(a->model), a->name, r);
}

static davy_result DAVY_CALL api_vae_encode(davy_model *model, const davy_tensor *pixels, davy_tensor *latent,
                                            const davy_run *run, davy_job **job) {
    const oneshot_args a = {model, DAVY_OP_VAE_ENCODE, "vae_encode", pixels, latent, run, job};
    return oneshot(&a);
}

static davy_result DAVY_CALL api_vae_decode(davy_model *model, const davy_tensor *latent, davy_tensor *pixels,
                                            const davy_run *run, davy_job **job) {
    const oneshot_args a = {model, DAVY_OP_VAE_DECODE, "vae_decode", latent, pixels, run, job};
    return oneshot(&a);
}

static davy_result DAVY_CALL api_upscale(davy_model *model, const davy_tensor *in, davy_tensor *out,
                                         const davy_run *run, davy_job **job) {
    const oneshot_args a = {model, DAVY_OP_UPSCALE, "upscale", in, out, run, job};
    return oneshot(&a);
}

/* ---- exports ---- */

static const davy_api table = {
    .struct_size = sizeof(davy_api),
    .abi_version = DAVY_ABI_VERSION,
    .version = api_version,
    .result_name = api_result_name,
    .last_error = api_last_error,
    .get_extension = api_get_extension,
    .device_count = api_device_count,
    .device_info = api_device_info,
    .context_create = api_context_create,
    .context_release = api_context_release,
    .context_memory = api_context_memory,
    .context_budget = api_context_budget,
    .context_trim = api_context_trim,
    .model_open = api_model_open,
    .model_release = api_model_release,
    .model_info = api_model_info,
    .model_load = api_model_load,
    .model_unload = api_model_unload,
    .plan_query = api_plan_query,
    .vae_encode = api_vae_encode,
    .vae_decode = api_vae_decode,
    .upscale = api_upscale,
    .text_get = dv_api_text_get,
    .text_release = dv_api_text_release,
    .job_wait = dv_api_job_wait,
    .job_info = dv_api_job_info,
    .job_cancel = dv_api_job_cancel,
    .job_error = dv_api_job_error,
    .job_release = dv_api_job_release,
    .buffer_alloc = dv_api_buffer_alloc,
    .buffer_tensor = dv_api_buffer_tensor,
    .buffer_release = dv_api_buffer_release,
    .caption = dv_api_caption,
    .dialogue_open = dv_api_dialogue_open,
    .dialogue_add_image = dv_api_dialogue_add_image,
    .dialogue_add_text = dv_api_dialogue_add_text,
    .dialogue_generate = dv_api_dialogue_generate,
    .dialogue_read = dv_api_dialogue_read,
    .dialogue_text = dv_api_dialogue_text,
    .dialogue_rewind = dv_api_dialogue_rewind,
    .dialogue_info = dv_api_dialogue_info,
    .dialogue_release = dv_api_dialogue_release,
    .sequence_open = dv_api_sequence_open,
    .sequence_push = dv_api_sequence_push,
    .sequence_pull = dv_api_sequence_pull,
    .sequence_finish = dv_api_sequence_finish,
    .sequence_reset = dv_api_sequence_reset,
    .sequence_info = dv_api_sequence_info,
    .sequence_release = dv_api_sequence_release,
    .caption_info = dv_api_caption_info,
};

const davy_api *DAVY_CALL davy_get_api(uint32_t abi_version) {
    const bool major = abi_version >> 16 == DAVY_ABI_VERSION >> 16;
    const bool minor = (abi_version & 0xffffu) <= ((uint32_t)DAVY_ABI_VERSION & 0xffffu);
    return major && minor ? &table : NULL;
}

const char *DAVY_CALL davy_version(void) {
    return api_version();
}
