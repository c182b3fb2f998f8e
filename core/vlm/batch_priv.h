/* batch_priv.h - between batch.c, which knows who is in the cache, and batch_rows.c, which makes tokens. */
#ifndef DV_VLM_BATCH_PRIV_H
#define DV_VLM_BATCH_PRIV_H

#include "core/vlm/batch.h"
#include "core/vlm/batch_pages.h"
#include "core/vlm/decoder_batch.h"
#include "core/vlm/session_priv.h"

typedef struct dv_sequence {
    dv_feeding prompt;
    dv_session_picture *pictures;
    dv_generate generate;
    void *tag;
    dv_sampler *sampler;
    int32_t *said;
    int64_t n_said;
    int64_t after;  /* position of the token behind the prompt */
    int64_t cached; /* tokens in the cache, of the prompt and of what it said */
    int64_t slot;   /* its page table; -1: it waits */
    int64_t pages;
    int64_t rows; /* in the pass that is being put together */
    dv_session_end end;
    bool ended;
} dv_sequence;

struct dv_batch {
    const dv_vlm_model *model;
    dv_batch_options options; /* all of them set */
    dv_decoder *decoder;
    dv_pages pages;
    dv_sequence **list; /* by age */
    int64_t n, room;
    bool *slots;        /* taken */
    bool short_of_room; /* one was put back: nobody begins before another has ended */
    int64_t last_need;  /* pages of the prompt asked last */
    davy_result failed;
    dv_batch_counts counts;
};

/* Room in the cache for `tokens` of s, where need be of those who came after it; false: it had to give its own back. */
bool dv_batch_make_room(dv_batch *b, dv_sequence *s, int64_t tokens);
void dv_batch_leave_cache(dv_batch *b, dv_sequence *s);

/* The token after all that is in the cache. */
davy_result dv_batch_draw(dv_batch *b, dv_sequence *s, const float *logits);
/* One of everybody whose prompt has been read. */
davy_result dv_batch_say(dv_batch *b);

#endif
