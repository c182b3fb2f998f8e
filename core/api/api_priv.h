/* api_priv.h - what the entries of the table share. */
#ifndef DV_API_PRIV_H
#define DV_API_PRIV_H

#include "core/host/model.h"
#include "core/base/sized.h"

/* Full-size copies: every struct of 1.0 has its 1.0 size as the least. */
#define TAKE(type, in, out)  dv_sized_in((in), sizeof(type), sizeof(type), #type, (out))
#define CHECK_OUT(type, out) dv_sized_check((out), sizeof(type), #type)

davy_result dv_api_is_null(const char *what);
/* Every entry that has a context ends here: the host's log hears about failures. */
davy_result dv_api_done(const davy_context *ctx, const char *function, davy_result r);
davy_result dv_api_check_model(const davy_model *m);
davy_result dv_api_take_run(const davy_run *run, davy_run *out);

/* api_job.c */
davy_result DAVY_CALL dv_api_text_get(davy_text *text, const char **utf8, uint64_t *bytes);
void DAVY_CALL dv_api_text_release(davy_text *text);
davy_result DAVY_CALL dv_api_job_wait(davy_job *job, uint64_t timeout_ns);
davy_result DAVY_CALL dv_api_job_info(davy_job *job, davy_job_info *out);
davy_result DAVY_CALL dv_api_job_cancel(davy_job *job);
davy_result DAVY_CALL dv_api_job_error(davy_job *job, davy_error_info *out);
void DAVY_CALL dv_api_job_release(davy_job *job);
davy_result DAVY_CALL dv_api_buffer_alloc(davy_context *ctx, davy_memory memory, uint64_t bytes, davy_buffer **out);
davy_result DAVY_CALL dv_api_buffer_tensor(davy_buffer *buffer, davy_tensor *out);
void DAVY_CALL dv_api_buffer_release(davy_buffer *buffer);

/* api_caption.c */
davy_result DAVY_CALL dv_api_caption(davy_model *model, uint32_t n, const davy_tensor *const *images,
                                     const davy_caption_params *params, const davy_run *run, davy_job **job,
                                     davy_text **out);
davy_result DAVY_CALL dv_api_dialogue_open(davy_model *model, const davy_caption_params *params, davy_dialogue **out);
davy_result DAVY_CALL dv_api_dialogue_add_image(davy_dialogue *dialogue, const davy_tensor *image);
davy_result DAVY_CALL dv_api_dialogue_add_text(davy_dialogue *dialogue, davy_role role, const char *utf8);
davy_result DAVY_CALL dv_api_dialogue_generate(davy_dialogue *dialogue, const davy_caption_params *params,
                                               const davy_run *run, davy_job **job);
davy_result DAVY_CALL dv_api_dialogue_read(davy_dialogue *dialogue, davy_token_event *out, uint64_t timeout_ns);
davy_result DAVY_CALL dv_api_dialogue_text(davy_dialogue *dialogue, davy_text **out);
davy_result DAVY_CALL dv_api_dialogue_rewind(davy_dialogue *dialogue, int32_t keep_turns);
davy_result DAVY_CALL dv_api_dialogue_info(davy_dialogue *dialogue, davy_dialogue_info *out);
void DAVY_CALL dv_api_dialogue_release(davy_dialogue *dialogue);
davy_result DAVY_CALL dv_api_caption_info(davy_text *text, davy_dialogue_info *out);

/* api_sequence.c */
davy_result DAVY_CALL dv_api_sequence_open(davy_model *model, const davy_sequence_desc *desc, davy_sequence **out);
davy_result DAVY_CALL dv_api_sequence_push(davy_sequence *sequence, const davy_tensor *in, uint64_t timeout_ns);
davy_result DAVY_CALL dv_api_sequence_pull(davy_sequence *sequence, davy_tensor *out, uint64_t timeout_ns);
davy_result DAVY_CALL dv_api_sequence_finish(davy_sequence *sequence);
davy_result DAVY_CALL dv_api_sequence_reset(davy_sequence *sequence);
davy_result DAVY_CALL dv_api_sequence_info(davy_sequence *sequence, davy_sequence_info *out);
void DAVY_CALL dv_api_sequence_release(davy_sequence *sequence);

#endif
