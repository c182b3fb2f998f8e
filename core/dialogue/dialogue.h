/* dialogue.h - davy_dialogue: turns of pictures, text and an answer, and the events that report them. dv_caption runs one turn
 * for each picture. Structs passed in are full-size (sized.h). */
#ifndef DV_DIALOGUE_H
#define DV_DIALOGUE_H

#include "core/host/model.h"

/* params NULL: defaults. */
davy_result dv_dialogue_open(davy_model *model, const davy_caption_params *params, davy_dialogue **out);
void dv_dialogue_release(davy_dialogue *d); /* NULL: nothing */
davy_context *dv_dialogue_context(const davy_dialogue *d);

davy_result dv_dialogue_image(davy_dialogue *d, const davy_tensor *image);
davy_result dv_dialogue_text(davy_dialogue *d, davy_role role, const char *utf8);
/* params NULL: those given to open. run: never NULL. job NULL: blocks. */
davy_result dv_dialogue_generate(davy_dialogue *d, const davy_caption_params *params, const davy_run *run,
                                 davy_job **job);
davy_result dv_dialogue_read(davy_dialogue *d, davy_token_event *out, uint64_t timeout_ns);
davy_result dv_dialogue_answer(davy_dialogue *d, davy_text **out);
davy_result dv_dialogue_rewind(davy_dialogue *d, int32_t keep_turns);
davy_result dv_dialogue_info(davy_dialogue *d, davy_dialogue_info *out);

typedef struct dv_caption_args {
    davy_model *model;
    uint32_t n;
    const davy_tensor *images;         /* full-size copies */
    const davy_caption_params *params; /* NULL: defaults */
    const davy_run *run;               /* never NULL */
    davy_job **job;                    /* NULL: blocks */
    davy_text **out;
} dv_caption_args;

davy_result dv_caption(const dv_caption_args *args);

#endif
