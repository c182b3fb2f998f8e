/* api_caption.c - the table's entries for captions and dialogues; see api.c. */
#include "core/api/api_priv.h"
#include "core/host/context.h"
#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/dialogue/dialogue.h"
#include "core/base/text.h"

static davy_result check_dialogue(const davy_dialogue *d) {
    return d == NULL ? dv_api_is_null("dialogue") : dv_context_check(dv_dialogue_context(d));
}

static davy_result done(const davy_dialogue *d, const char *function, davy_result r) {
    return dv_api_done(d != NULL ? dv_dialogue_context(d) : NULL, function, r);
}

/* *p: out, or NULL where there are none. */
static davy_result take_params(const davy_caption_params *params, davy_caption_params *out,
                               const davy_caption_params **p) {
    *p = params != NULL ? out : NULL;
    return params != NULL ? TAKE(davy_caption_params, params, out) : DAVY_OK;
}

static davy_result take_images(uint32_t n, const davy_tensor *const *images, davy_tensor **out) {
    davy_result r = images != NULL ? DAVY_OK : dv_api_is_null("images");
    *out = r == DAVY_OK ? dv_calloc(n > 0 ? n : 1, sizeof **out) : NULL;
    if (r == DAVY_OK && *out == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "caption: out of memory");
    }
    for (uint32_t i = 0; r == DAVY_OK && i < n; i++) {
        r = TAKE(davy_tensor, images[i], &(*out)[i]);
    }
    return r;
}

davy_result DAVY_CALL dv_api_caption(davy_model *model, uint32_t n, const davy_tensor *const *images,
                                     const davy_caption_params *params, const davy_run *run, davy_job **job,
                                     davy_text **out) {
    davy_caption_params full;
    const davy_caption_params *p = NULL;
    davy_tensor *tensors = NULL;
    davy_run how;
    davy_result r = dv_api_check_model(model);
    r = r < 0 ? r : out == NULL ? dv_api_is_null("out") : take_params(params, &full, &p);
    r = r < 0 ? r : dv_api_take_run(run, &how);
    r = r < 0 ? r : take_images(n, images, &tensors);
    r = r < 0 ? r : dv_caption(model, n, tensors, p, &how, job, out);
    dv_free(tensors);
    return dv_api_done(model != NULL ? dv_model_context(model) : NULL, "caption", r);
}

davy_result DAVY_CALL dv_api_dialogue_open(davy_model *model, const davy_caption_params *params, davy_dialogue **out) {
    davy_caption_params full;
    const davy_caption_params *p = NULL;
    davy_result r = dv_api_check_model(model);
    r = r < 0 ? r : out == NULL ? dv_api_is_null("out") : take_params(params, &full, &p);
    r = r < 0 ? r : dv_dialogue_open(model, p, out);
    return dv_api_done(model != NULL ? dv_model_context(model) : NULL, "dialogue_open", r);
}

davy_result DAVY_CALL dv_api_dialogue_add_image(davy_dialogue *dialogue, const davy_tensor *image) {
    davy_tensor full;
    davy_result r = check_dialogue(dialogue);
    r = r < 0 ? r : TAKE(davy_tensor, image, &full);
    r = r < 0 ? r : dv_dialogue_image(dialogue, &full);
    return done(dialogue, "dialogue_add_image", r);
}

davy_result DAVY_CALL dv_api_dialogue_add_text(davy_dialogue *dialogue, davy_role role, const char *utf8) {
    davy_result r = check_dialogue(dialogue);
    r = r < 0 ? r : dv_dialogue_text(dialogue, role, utf8);
    return done(dialogue, "dialogue_add_text", r);
}

davy_result DAVY_CALL dv_api_dialogue_generate(davy_dialogue *dialogue, const davy_caption_params *params,
                                               const davy_run *run, davy_job **job) {
    davy_caption_params full;
    const davy_caption_params *p = NULL;
    davy_run how;
    davy_result r = check_dialogue(dialogue);
    r = r < 0 ? r : take_params(params, &full, &p);
    r = r < 0 ? r : dv_api_take_run(run, &how);
    r = r < 0 ? r : dv_dialogue_generate(dialogue, p, &how, job);
    return done(dialogue, "dialogue_generate", r);
}

davy_result DAVY_CALL dv_api_dialogue_read(davy_dialogue *dialogue, davy_token_event *out, uint64_t timeout_ns) {
    davy_token_event event;
    davy_result r = check_dialogue(dialogue);
    r = r < 0 ? r : CHECK_OUT(davy_token_event, out);
    r = r < 0 ? r : dv_dialogue_read(dialogue, &event, timeout_ns);
    if (r == DAVY_OK) {
        dv_sized_out(out, &event, sizeof event);
    }
    return done(dialogue, "dialogue_read", r);
}

davy_result DAVY_CALL dv_api_dialogue_text(davy_dialogue *dialogue, davy_text **out) {
    davy_result r = check_dialogue(dialogue);
    r = r < 0 ? r : out == NULL ? dv_api_is_null("out") : dv_dialogue_answer(dialogue, out);
    return done(dialogue, "dialogue_text", r);
}

davy_result DAVY_CALL dv_api_dialogue_rewind(davy_dialogue *dialogue, int32_t keep_turns) {
    davy_result r = check_dialogue(dialogue);
    r = r < 0 ? r : dv_dialogue_rewind(dialogue, keep_turns);
    return done(dialogue, "dialogue_rewind", r);
}

davy_result DAVY_CALL dv_api_dialogue_info(davy_dialogue *dialogue, davy_dialogue_info *out) {
    davy_dialogue_info info;
    davy_result r = check_dialogue(dialogue);
    r = r < 0 ? r : CHECK_OUT(davy_dialogue_info, out);
    r = r < 0 ? r : dv_dialogue_info(dialogue, &info);
    if (r == DAVY_OK) {
        dv_sized_out(out, &info, sizeof info);
    }
    return done(dialogue, "dialogue_info", r);
}

void DAVY_CALL dv_api_dialogue_release(davy_dialogue *dialogue) {
    dv_dialogue_release(dialogue);
}

davy_result DAVY_CALL dv_api_caption_info(davy_text *text, davy_dialogue_info *out) {
    davy_result r = text != NULL ? DAVY_OK : dv_api_is_null("text");
    r = r < 0 ? r : CHECK_OUT(davy_dialogue_info, out);
    if (r == DAVY_OK && dv_text_info(text) == NULL) {
        r = dv_fail(DAVY_E_UNSUPPORTED, "text: not of a caption");
    }
    if (r == DAVY_OK) {
        dv_sized_out(out, dv_text_info(text), sizeof *out);
    }
    return dv_api_done(NULL, "caption_info", r);
}
