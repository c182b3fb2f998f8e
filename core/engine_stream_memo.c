/* engine_stream_memo.c - how clips were computed that have been opened before: a choice weighs dozens of plans, and a host opens
 * the same clip again and again. What was chosen holds while the same weights are packed and memory is what it was, or
 * plenty. */
#include "core/stream_priv.h"

enum { MEMOS = 4, PLENTY = 2 }; /* PLENTY: times what the choice takes */

typedef struct clip_ask { /* what a choice depends on */
    dv_stage stage;
    int64_t h, w, frames, slice, streams;
    uint64_t packed, available;
} clip_ask;

struct dv_clip_memos {
    struct clip_memo {
        clip_ask ask;
        dv_slice_choice choice;
    } memos[MEMOS];
    int32_t next; /* to be replaced */
};

static clip_ask ask_of(const dv_clip_stream *s, int64_t frames, int64_t slice, uint64_t available) {
    return (clip_ask){.stage = s->stage,
                      .h = s->h,
                      .w = s->w,
                      .frames = frames,
                      .slice = slice,
                      .streams = s->company.streams,
                      .packed = dv_store_bytes(s->store),
                      .available = available};
}

/* Where memory is plenty, and was, it need not be what it was. */
static bool holds(const struct clip_memo *m, const clip_ask *a) {
    const clip_ask *b = &m->ask;
    const dv_slice_choice *c = &m->choice;
    const uint64_t less = a->available < b->available ? a->available : b->available;
    const bool plenty = !c->offload && !c->lean && less / PLENTY >= c->need;
    return c->need > 0 && (plenty || a->available == b->available) && a->stage == b->stage && a->h == b->h &&
           a->w == b->w && a->frames == b->frames && a->slice == b->slice && a->streams == b->streams &&
           a->packed == b->packed;
}

bool dv_clip_memo_find(const dv_clip_stream *s, int64_t frames, int64_t slice, uint64_t available,
                       dv_slice_choice *out) {
    const clip_ask ask = ask_of(s, frames, slice, available);
    bool found = false;
    dv_mutex_lock(s->e->lock);
    for (int32_t i = 0; s->e->clips != NULL && i < MEMOS && !found; i++) {
        const struct clip_memo *m = &s->e->clips->memos[i];
        found = holds(m, &ask);
        *out = found ? m->choice : *out;
    }
    dv_mutex_unlock(s->e->lock);
    return found;
}

/* Without memory for it, the next stream decides anew. */
void dv_clip_memo_keep(const dv_clip_stream *s, int64_t frames, int64_t slice, uint64_t available,
                       const dv_slice_choice *choice) {
    const clip_ask ask = ask_of(s, frames, slice, available);
    dv_engine *e = s->e;
    dv_mutex_lock(e->lock);
    if (e->clips == NULL) {
        e->clips = dv_calloc(1, sizeof *e->clips);
    }
    if (e->clips != NULL) {
        e->clips->memos[e->clips->next] = (struct clip_memo){.ask = ask, .choice = *choice};
        e->clips->next = (e->clips->next + 1) % MEMOS;
    }
    dv_mutex_unlock(e->lock);
}
