/* dialogue_priv.h - the inside of a dialogue, for its two files. */
#ifndef DV_VLM_DIALOGUE_PRIV_H
#define DV_VLM_DIALOGUE_PRIV_H

#include "core/vlm/dialogue.h"

struct dv_dialogue {
    const dv_vlm_model *model;
    dv_dialogue_options options;
    dv_decoder *decoder;
    int32_t *history; /* [context]: the tokens in the cache */
    int64_t tokens, context;
    int64_t next;    /* position of the token after them */
    int32_t pending; /* drawn, not in the cache yet; -1: none */
    bool pending_stop;
    const float *logits;
};

#endif
