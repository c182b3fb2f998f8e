/* api.c - the function table. Each entry checks the host's arguments (NULL, struct sizes, a forked child) and copies sized
 * structs to full size. Then it calls the module that does the work, and logs a failure to the host. */
#include <string.h>

#include "core/api/extension.h"
#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/sized.h"
#include "core/base/text.h"
#include "core/calls/oneshot.h"
#include "core/calls/sequence.h"
#include "core/dialogue/dialogue.h"
#include "core/host/buffer.h"
#include "core/host/context.h"
#include "core/host/job.h"
#include "core/host/model.h"

#define TEXT_OF(x)      #x
#define DOTTED(a, b, c) TEXT_OF(a) "." TEXT_OF(b) "." TEXT_OF(c)

/* Copies a struct to full size. The smallest accepted struct_size is that of version 1.0. */
#define TAKE(type, in, out)  dv_sized_in((in), sizeof(type), sizeof(type), #type, (out))
#define CHECK_OUT(type, out) dv_sized_check((out), sizeof(type), #type)

static davy_result is_null(const char *what) {
    return dv_fail(DAVY_E_INVALID, "%s is NULL", what);
}

static bool is_misuse(davy_result r) {
    return r == DAVY_E_INVALID || r == DAVY_E_STRUCT || r == DAVY_E_STATE || r == DAVY_E_OPTION || r == DAVY_E_FORKED;
}

/* Every entry with a context ends here: logs a failure to the host. */
static davy_result done(const davy_context *ctx, const char *function, davy_result r) {
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
    dv_error_get(&info); /* saved first: an error about `out` would overwrite the record */
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
    const davy_result r = out == NULL ? is_null("out") : take_device_desc(desc, &d);
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
    const davy_result r = out == NULL ? is_null("out") : TAKE(davy_context_desc, desc, &d);
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
    return done(ctx, "context_memory", r);
}

static davy_result DAVY_CALL api_context_budget(davy_context *ctx, uint64_t device_bytes, uint64_t host_bytes) {
    const davy_result r = dv_context_check(ctx);
    if (r == DAVY_OK) {
        dv_context_set_budget(ctx, device_bytes, host_bytes);
    }
    return done(ctx, "context_budget", r);
}

static davy_result DAVY_CALL api_context_trim(davy_context *ctx, uint64_t keep_device_bytes, uint64_t keep_host_bytes) {
    const dv_keep keep = {.device_bytes = keep_device_bytes, .host_bytes = keep_host_bytes};
    const davy_result r = dv_context_check(ctx);
    if (r == DAVY_OK) {
        dv_context_trim(ctx, &keep, NULL);
    }
    return done(ctx, "context_trim", r);
}

/* ---- model ---- */

static davy_result check_model(const davy_model *m) {
    return m == NULL ? is_null("model") : dv_context_check(dv_model_context(m));
}

static const davy_context *context_of(const davy_model *m) {
    return m != NULL ? dv_model_context(m) : NULL;
}

static davy_result take_run(const davy_run *run, davy_run *out) {
    if (run == NULL) {
        *out = (davy_run){.struct_size = sizeof *out};
        return DAVY_OK;
    }
    return TAKE(davy_run, run, out);
}

static davy_result DAVY_CALL api_model_open(davy_context *ctx, const davy_model_desc *desc, davy_model **out) {
    davy_model_desc d;
    davy_result r = dv_context_check(ctx);
    r = r < 0 ? r : out == NULL ? is_null("out") : TAKE(davy_model_desc, desc, &d);
    r = r < 0 ? r : dv_model_open(ctx, &d, out);
    return done(ctx, "model_open", r);
}

static void DAVY_CALL api_model_release(davy_model *model) {
    dv_model_release(model);
}

static davy_result DAVY_CALL api_model_info(davy_model *model, davy_model_info *out) {
    davy_result r = check_model(model);
    r = r < 0 ? r : CHECK_OUT(davy_model_info, out);
    if (r == DAVY_OK) {
        dv_sized_out(out, dv_model_facts(model), sizeof *out);
    }
    return done(context_of(model), "model_info", r);
}

static davy_result DAVY_CALL api_model_load(davy_model *model, const davy_run *run, davy_job **job) {
    davy_run full;
    davy_result r = check_model(model);
    r = r < 0 ? r : take_run(run, &full);
    r = r < 0 ? r : dv_oneshot_load(model, &full, job);
    return done(context_of(model), "model_load", r);
}

static davy_result DAVY_CALL api_model_unload(davy_model *model, uint32_t flags) {
    davy_result r = check_model(model);
    if (r == DAVY_OK && flags != 0) {
        r = dv_fail(DAVY_E_INVALID, "model_unload: flags is 0x%x, expected 0", (unsigned)flags);
    }
    r = r < 0 ? r : dv_model_unload(model);
    return done(context_of(model), "model_unload", r);
}

/* ---- plan and one-shot work ---- */

static davy_result DAVY_CALL api_plan_query(davy_model *model, const davy_query *query, davy_plan_info *out) {
    davy_query q;
    davy_tensor in;
    davy_run run;
    davy_plan_info info;
    davy_result r = check_model(model);
    r = r < 0 ? r : CHECK_OUT(davy_plan_info, out);
    r = r < 0 ? r : TAKE(davy_query, query, &q);
    r = r < 0 ? r : TAKE(davy_tensor, q.input, &in);
    r = r < 0 ? r : take_run(q.run, &run);
    r = r < 0 ? r : dv_oneshot_plan(model, q.op, &in, &run, &info);
    if (r == DAVY_OK) {
        dv_sized_out(out, &info, sizeof info);
    }
    return done(context_of(model), "plan_query", r);
}

/* a holds the host's structs, not yet at full size. */
static davy_result oneshot(const dv_oneshot_args *a, const char *name) {
    davy_tensor in;
    davy_tensor out;
    davy_run run;
    davy_result r = check_model(a->model);
    r = r < 0 ? r : TAKE(davy_tensor, a->in, &in);
    r = r < 0 ? r : TAKE(davy_tensor, a->out, &out);
    r = r < 0 ? r : take_run(a->run, &run);
    const dv_oneshot_args full = {a->model, a->op, &in, &out, &run, a->job};
    r = r < 0 ? r : dv_oneshot(&full);
    if (r == DAVY_OK) {
        dv_sized_out(a->out, &out, sizeof out);
    }
    return done(context_of(a->model), name, r);
}

static davy_result DAVY_CALL api_vae_encode(davy_model *model, const davy_tensor *pixels, davy_tensor *latent,
                                            const davy_run *run, davy_job **job) {
    const dv_oneshot_args a = {model, DAVY_OP_VAE_ENCODE, pixels, latent, run, job};
    return oneshot(&a, "vae_encode");
}

static davy_result DAVY_CALL api_vae_decode(davy_model *model, const davy_tensor *latent, davy_tensor *pixels,
                                            const davy_run *run, davy_job **job) {
    const dv_oneshot_args a = {model, DAVY_OP_VAE_DECODE, latent, pixels, run, job};
    return oneshot(&a, "vae_decode");
}

static davy_result DAVY_CALL api_upscale(davy_model *model, const davy_tensor *in, davy_tensor *out,
                                         const davy_run *run, davy_job **job) {
    const dv_oneshot_args a = {model, DAVY_OP_UPSCALE, in, out, run, job};
    return oneshot(&a, "upscale");
}

/* ---- text ---- */

static davy_result DAVY_CALL api_text_get(davy_text *text, const char **utf8, uint64_t *bytes) {
    if (text == NULL || utf8 == NULL) {
        return is_null(text == NULL ? "text" : "utf8");
    }
    *utf8 = dv_text_utf8(text);
    if (bytes != NULL) {
        *bytes = strlen(*utf8);
    }
    return DAVY_OK;
}

static void DAVY_CALL api_text_release(davy_text *text) {
    dv_text_release(text);
}

/* ---- jobs ---- */

static davy_result check_job(const davy_job *job) {
    return job == NULL ? is_null("job") : dv_context_check(dv_job_context(job));
}

static davy_result DAVY_CALL api_job_wait(davy_job *job, uint64_t timeout_ns) {
    const davy_result r = check_job(job);
    return r < 0 ? r : dv_job_wait(job, timeout_ns);
}

static davy_result DAVY_CALL api_job_info(davy_job *job, davy_job_info *out) {
    davy_job_info info;
    davy_result r = check_job(job);
    r = r < 0 ? r : CHECK_OUT(davy_job_info, out);
    if (r == DAVY_OK) {
        dv_job_info(job, &info);
        dv_sized_out(out, &info, sizeof info);
    }
    return r;
}

static davy_result DAVY_CALL api_job_cancel(davy_job *job) {
    const davy_result r = check_job(job);
    if (r == DAVY_OK) {
        dv_job_cancel(job);
    }
    return r;
}

static davy_result DAVY_CALL api_job_error(davy_job *job, davy_error_info *out) {
    davy_error_info info;
    davy_result r = check_job(job);
    r = r < 0 ? r : CHECK_OUT(davy_error_info, out);
    r = r < 0 ? r : dv_job_error(job, &info);
    if (r == DAVY_OK) {
        dv_sized_out(out, &info, sizeof info);
    }
    return r;
}

static void DAVY_CALL api_job_release(davy_job *job) {
    dv_job_release(job);
}

/* ---- buffers ---- */

static davy_result DAVY_CALL api_buffer_alloc(davy_context *ctx, davy_memory memory, uint64_t bytes,
                                              davy_buffer **out) {
    davy_result r = dv_context_check(ctx);
    r = r < 0 ? r : out == NULL ? is_null("out") : dv_buffer_alloc(ctx, memory, bytes, out);
    return done(ctx, "buffer_alloc", r);
}

static davy_result DAVY_CALL api_buffer_tensor(davy_buffer *buffer, davy_tensor *out) {
    davy_result r = buffer == NULL ? is_null("buffer") : dv_context_check(dv_buffer_context(buffer));
    r = r < 0 ? r : CHECK_OUT(davy_tensor, out);
    if (r == DAVY_OK) {
        dv_sized_out(out, dv_buffer_tensor(buffer), sizeof *out);
    }
    return r;
}

static void DAVY_CALL api_buffer_release(davy_buffer *buffer) {
    dv_buffer_release(buffer);
}

/* ---- captions and dialogues ---- */

static davy_result check_dialogue(const davy_dialogue *d) {
    return d == NULL ? is_null("dialogue") : dv_context_check(dv_dialogue_context(d));
}

static davy_result dialogue_done(const davy_dialogue *d, const char *function, davy_result r) {
    return done(d != NULL ? dv_dialogue_context(d) : NULL, function, r);
}

/* *p: out, or NULL if params is NULL. */
static davy_result take_params(const davy_caption_params *params, davy_caption_params *out,
                               const davy_caption_params **p) {
    *p = params != NULL ? out : NULL;
    return params != NULL ? TAKE(davy_caption_params, params, out) : DAVY_OK;
}

static davy_result take_images(uint32_t n, const davy_tensor *const *images, davy_tensor **out) {
    davy_result r = images != NULL ? DAVY_OK : is_null("images");
    *out = r == DAVY_OK ? dv_calloc(n > 0 ? n : 1, sizeof **out) : NULL;
    if (r == DAVY_OK && *out == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "caption: out of memory");
    }
    for (uint32_t i = 0; r == DAVY_OK && i < n; i++) {
        r = TAKE(davy_tensor, images[i], &(*out)[i]);
    }
    return r;
}

static davy_result DAVY_CALL api_caption(davy_model *model, uint32_t n, const davy_tensor *const *images,
                                         const davy_caption_params *params, const davy_run *run, davy_job **job,
                                         davy_text **out) {
    davy_caption_params full;
    const davy_caption_params *p = NULL;
    davy_tensor *tensors = NULL;
    davy_run how;
    davy_result r = check_model(model);
    r = r < 0 ? r : out == NULL ? is_null("out") : take_params(params, &full, &p);
    r = r < 0 ? r : take_run(run, &how);
    r = r < 0 ? r : take_images(n, images, &tensors);
    const dv_caption_args args = {
        .model = model, .n = n, .images = tensors, .params = p, .run = &how, .job = job, .out = out};
    r = r < 0 ? r : dv_caption(&args);
    dv_free(tensors);
    return done(context_of(model), "caption", r);
}

static davy_result DAVY_CALL api_dialogue_open(davy_model *model, const davy_caption_params *params,
                                               davy_dialogue **out) {
    davy_caption_params full;
    const davy_caption_params *p = NULL;
    davy_result r = check_model(model);
    r = r < 0 ? r : out == NULL ? is_null("out") : take_params(params, &full, &p);
    r = r < 0 ? r : dv_dialogue_open(model, p, out);
    return done(context_of(model), "dialogue_open", r);
}

static davy_result DAVY_CALL api_dialogue_add_image(davy_dialogue *dialogue, const davy_tensor *image) {
    davy_tensor full;
    davy_result r = check_dialogue(dialogue);
    r = r < 0 ? r : TAKE(davy_tensor, image, &full);
    r = r < 0 ? r : dv_dialogue_image(dialogue, &full);
    return dialogue_done(dialogue, "dialogue_add_image", r);
}

static davy_result DAVY_CALL api_dialogue_add_text(davy_dialogue *dialogue, davy_role role, const char *utf8) {
    davy_result r = check_dialogue(dialogue);
    r = r < 0 ? r : dv_dialogue_text(dialogue, role, utf8);
    return dialogue_done(dialogue, "dialogue_add_text", r);
}

static davy_result DAVY_CALL api_dialogue_generate(davy_dialogue *dialogue, const davy_caption_params *params,
                                                   const davy_run *run, davy_job **job) {
    davy_caption_params full;
    const davy_caption_params *p = NULL;
    davy_run how;
    davy_result r = check_dialogue(dialogue);
    r = r < 0 ? r : take_params(params, &full, &p);
    r = r < 0 ? r : take_run(run, &how);
    r = r < 0 ? r : dv_dialogue_generate(dialogue, p, &how, job);
    return dialogue_done(dialogue, "dialogue_generate", r);
}

static davy_result DAVY_CALL api_dialogue_read(davy_dialogue *dialogue, davy_token_event *out, uint64_t timeout_ns) {
    davy_token_event event;
    davy_result r = check_dialogue(dialogue);
    r = r < 0 ? r : CHECK_OUT(davy_token_event, out);
    r = r < 0 ? r : dv_dialogue_read(dialogue, &event, timeout_ns);
    if (r == DAVY_OK) {
        dv_sized_out(out, &event, sizeof event);
    }
    return dialogue_done(dialogue, "dialogue_read", r);
}

static davy_result DAVY_CALL api_dialogue_text(davy_dialogue *dialogue, davy_text **out) {
    davy_result r = check_dialogue(dialogue);
    r = r < 0 ? r : out == NULL ? is_null("out") : dv_dialogue_answer(dialogue, out);
    return dialogue_done(dialogue, "dialogue_text", r);
}

static davy_result DAVY_CALL api_dialogue_rewind(davy_dialogue *dialogue, int32_t keep_turns) {
    davy_result r = check_dialogue(dialogue);
    r = r < 0 ? r : dv_dialogue_rewind(dialogue, keep_turns);
    return dialogue_done(dialogue, "dialogue_rewind", r);
}

static davy_result DAVY_CALL api_dialogue_info(davy_dialogue *dialogue, davy_dialogue_info *out) {
    davy_dialogue_info info;
    davy_result r = check_dialogue(dialogue);
    r = r < 0 ? r : CHECK_OUT(davy_dialogue_info, out);
    r = r < 0 ? r : dv_dialogue_info(dialogue, &info);
    if (r == DAVY_OK) {
        dv_sized_out(out, &info, sizeof info);
    }
    return dialogue_done(dialogue, "dialogue_info", r);
}

static void DAVY_CALL api_dialogue_release(davy_dialogue *dialogue) {
    dv_dialogue_release(dialogue);
}

static davy_result DAVY_CALL api_caption_info(davy_text *text, davy_dialogue_info *out) {
    davy_result r = text != NULL ? DAVY_OK : is_null("text");
    r = r < 0 ? r : CHECK_OUT(davy_dialogue_info, out);
    if (r == DAVY_OK && dv_text_info(text) == NULL) {
        r = dv_fail(DAVY_E_UNSUPPORTED, "text: it is not the text of a caption");
    }
    if (r == DAVY_OK) {
        dv_sized_out(out, dv_text_info(text), sizeof *out);
    }
    return done(NULL, "caption_info", r);
}

/* ---- sequences ---- */

static davy_result check_sequence(const davy_sequence *s) {
    return s == NULL ? is_null("sequence") : dv_context_check(dv_sequence_context(s));
}

static davy_result sequence_done(const davy_sequence *s, const char *function, davy_result r) {
    return done(s != NULL ? dv_sequence_context(s) : NULL, function, r);
}

static davy_result DAVY_CALL api_sequence_open(davy_model *model, const davy_sequence_desc *desc, davy_sequence **out) {
    davy_sequence_desc d;
    davy_tensor input;
    davy_tensor output;
    davy_run run;
    davy_result r = check_model(model);
    r = r < 0 ? r : out == NULL ? is_null("out") : TAKE(davy_sequence_desc, desc, &d);
    if (r == DAVY_OK && d.flags != 0) {
        r = dv_fail(DAVY_E_INVALID, "sequence_desc: flags is 0x%x, expected 0", (unsigned)d.flags);
    }
    r = r < 0 ? r : TAKE(davy_tensor, d.input, &input);
    r = r < 0 || d.output == NULL ? r : TAKE(davy_tensor, d.output, &output);
    r = r < 0 ? r : take_run(d.run, &run);
    if (r == DAVY_OK) {
        const dv_sequence_desc full = {.op = d.op,
                                       .input = &input,
                                       .output = d.output != NULL ? &output : NULL,
                                       .run = &run,
                                       .max_in_flight = d.max_in_flight};
        r = dv_sequence_open(model, &full, out);
    }
    return done(context_of(model), "sequence_open", r);
}

static davy_result DAVY_CALL api_sequence_push(davy_sequence *sequence, const davy_tensor *in, uint64_t timeout_ns) {
    davy_tensor full;
    davy_result r = check_sequence(sequence);
    r = r < 0 ? r : TAKE(davy_tensor, in, &full);
    r = r < 0 ? r : dv_sequence_push(sequence, &full, timeout_ns);
    return sequence_done(sequence, "sequence_push", r);
}

static davy_result DAVY_CALL api_sequence_pull(davy_sequence *sequence, davy_tensor *out, uint64_t timeout_ns) {
    davy_tensor full;
    davy_result r = check_sequence(sequence);
    r = r < 0 ? r : TAKE(davy_tensor, out, &full);
    r = r < 0 ? r : dv_sequence_pull(sequence, &full, timeout_ns);
    if (r == DAVY_OK) {
        dv_sized_out(out, &full, sizeof full);
    }
    return sequence_done(sequence, "sequence_pull", r);
}

static davy_result DAVY_CALL api_sequence_finish(davy_sequence *sequence) {
    const davy_result r = check_sequence(sequence);
    return sequence_done(sequence, "sequence_finish", r < 0 ? r : dv_sequence_finish(sequence));
}

static davy_result DAVY_CALL api_sequence_reset(davy_sequence *sequence) {
    const davy_result r = check_sequence(sequence);
    return sequence_done(sequence, "sequence_reset", r < 0 ? r : dv_sequence_reset(sequence));
}

static davy_result DAVY_CALL api_sequence_info(davy_sequence *sequence, davy_sequence_info *out) {
    davy_sequence_info info;
    davy_result r = check_sequence(sequence);
    r = r < 0 ? r : CHECK_OUT(davy_sequence_info, out);
    if (r == DAVY_OK) {
        dv_sequence_info(sequence, &info);
        dv_sized_out(out, &info, sizeof info);
    }
    return sequence_done(sequence, "sequence_info", r);
}

static void DAVY_CALL api_sequence_release(davy_sequence *sequence) {
    dv_sequence_release(sequence);
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
    .text_get = api_text_get,
    .text_release = api_text_release,
    .job_wait = api_job_wait,
    .job_info = api_job_info,
    .job_cancel = api_job_cancel,
    .job_error = api_job_error,
    .job_release = api_job_release,
    .buffer_alloc = api_buffer_alloc,
    .buffer_tensor = api_buffer_tensor,
    .buffer_release = api_buffer_release,
    .caption = api_caption,
    .dialogue_open = api_dialogue_open,
    .dialogue_add_image = api_dialogue_add_image,
    .dialogue_add_text = api_dialogue_add_text,
    .dialogue_generate = api_dialogue_generate,
    .dialogue_read = api_dialogue_read,
    .dialogue_text = api_dialogue_text,
    .dialogue_rewind = api_dialogue_rewind,
    .dialogue_info = api_dialogue_info,
    .dialogue_release = api_dialogue_release,
    .sequence_open = api_sequence_open,
    .sequence_push = api_sequence_push,
    .sequence_pull = api_sequence_pull,
    .sequence_finish = api_sequence_finish,
    .sequence_reset = api_sequence_reset,
    .sequence_info = api_sequence_info,
    .sequence_release = api_sequence_release,
    .caption_info = api_caption_info,
};

const davy_api *DAVY_CALL davy_get_api(uint32_t abi_version) {
    const bool major = abi_version >> 16 == DAVY_ABI_VERSION >> 16;
    const bool minor = (abi_version & 0xffffu) <= ((uint32_t)DAVY_ABI_VERSION & 0xffffu);
    return major && minor ? &table : NULL;
}

const char *DAVY_CALL davy_version(void) {
    return api_version();
}
