/* dialogue.h - davy_dialogue: turns of pictures, words and an answer, and the events that tell of them; and caption, which is
 * a turn for each picture. Structs passed in are full-size (sized.h). */
#ifndef DV_TALK_H
#define DV_TALK_H

#include "core/host/model.h"

/* params NULL: defaults. */
davy_result dv_talk_open(davy_model *model, const davy_caption_params *params, davy_dialogue **out);
void dv_talk_release(davy_dialogue *d); /* NULL: nothing */
davy_context *dv_talk_context(const davy_dialogue *d);

davy_result dv_talk_image(davy_dialogue *d, const davy_tensor *image);
davy_result dv_talk_text(davy_dialogue *d, davy_role role, const char *utf8);
/* params NULL: those of open. run: never NULL. job NULL: blocks. */
davy_result dv_talk_generate(davy_dialogue *d, const davy_caption_params *params, const davy_run *run, davy_job **job);
davy_result dv_talk_read(davy_dialogue *d, davy_token_event *out, uint64_t timeout_ns);
davy_result dv_talk_answer(davy_dialogue *d, davy_text **out);
davy_result dv_talk_rewind(davy_dialogue *d, int32_t keep_turns);
davy_result dv_talk_info(davy_dialogue *d, davy_dialogue_info *out);

/* images: full-size copies. */
davy_result dv_caption(davy_model *model, uint32_t n, const davy_tensor *images, const davy_caption_params *params,
                       const davy_run *run, davy_job **job, davy_text **out);

#endif
