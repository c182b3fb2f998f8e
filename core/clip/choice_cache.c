/* choice_cache.c - how clips were computed that have been opened before: a choice weighs several plans, and a host opens
 * the same clip again and again. What was chosen holds while memory is what it was, or plenty: that its own weights have been
 * packed since makes it no worse beside the others. */
#include "core/clip/stream_priv.h"

enum { CACHED_CHOICES = 8, HEADROOM_FACTOR = 2 }; /* HEADROOM_FACTOR: times what the choice takes */

typedef struct clip_ask { /* what a choice depends on */
    dv_stage stage;
    int64_t h, w, frames, slice, streams;
    uint64_t packed, available;
} clip_ask;

typedef struct clip_memo {
    clip_ask ask;
    dv_slice_choice choice; /* need 0: nothing */
} clip_memo;

struct dv_clip_choice_cache {
    clip_memo memos[CACHED_CHOICES];
    int32_t next; /* to be replaced */
};

static clip_ask ask_of(const dv_clip_stream *s, int64_t frames, int64_t slice, uint64_t available) {
    return (clip_ask){.stage = s->stage,
                      .h = s->h,
                      .w = s->w,
                      .frames = frames,
                      .slice = slice,
                      .streams = s->group.streams,
                      .packed = dv_store_bytes(s->store),
                      .available = available};
}

static bool same_clip(const clip_ask *a, const clip_ask *b) {
    return a->stage == b->stage && a->h == b->h && a->w == b->w && a->frames == b->frames && a->slice == b->slice &&
           a->streams == b->streams;
}

/* Where memory is plenty, and was, it need not be what it was: though all of its weights were to be packed. */
static bool is_plenty(const clip_memo *m, const clip_ask *a) {
    const dv_slice_choice *c = &m->choice;
    const uint64_t less = a->available < m->ask.available ? a->available : m->ask.available;
    return !c->policy.offload_state && !c->lean && less / HEADROOM_FACTOR >= c->need - c->weights + c->weights_all;
}

/* The memory that weights and all else share is what it was. */
static bool is_the_same(const clip_memo *m, const clip_ask *a) {
    return a->available + a->packed == m->ask.available + m->ask.packed;
}

static bool get(const dv_clip_stream *s, const clip_ask *ask, clip_memo *out) {
    bool found = false;
    dv_mutex_lock(s->e->lock);
    for (int32_t i = 0; s->e->clips != NULL && i < CACHED_CHOICES && !found; i++) {
        *out = s->e->clips->memos[i];
        found = out->choice.need > 0 && same_clip(&out->ask, ask);
    }
    dv_mutex_unlock(s->e->lock);
    return found;
}

bool dv_clip_choice_find(const dv_clip_stream *s, int64_t frames, int64_t slice, uint64_t available,
                         dv_slice_choice *out) {
    const clip_ask ask = ask_of(s, frames, slice, available);
    clip_memo m;
    bool holds = get(s, &ask, &m);
    if (holds && !is_plenty(&m, &ask)) {
        holds = is_the_same(&m, &ask) && dv_clip_stream_measure(s, &m.choice) == DAVY_OK && m.choice.need <= available;
    }
    *out = holds ? m.choice : *out;
    return holds;
}

/* That of the same clip, or the oldest. */
static clip_memo *place_for(dv_clip_choice_cache *memos, const clip_ask *ask) {
    for (int32_t i = 0; i < CACHED_CHOICES; i++) {
        if (memos->memos[i].choice.need > 0 && same_clip(&memos->memos[i].ask, ask)) {
            return &memos->memos[i];
        }
    }
    clip_memo *m = &memos->memos[memos->next];
    memos->next = (memos->next + 1) % CACHED_CHOICES;
    return m;
}

/* Without memory for it, the next stream decides anew. */
void dv_clip_choice_keep(const dv_clip_stream *s, int64_t frames, int64_t slice, uint64_t available,
                         const dv_slice_choice *choice) {
    const clip_ask ask = ask_of(s, frames, slice, available);
    dv_engine *e = s->e;
    dv_mutex_lock(e->lock);
    if (e->clips == NULL) {
        e->clips = dv_calloc(1, sizeof *e->clips);
    }
    if (e->clips != NULL) {
        *place_for(e->clips, &ask) = (clip_memo){.ask = ask, .choice = *choice};
    }
    dv_mutex_unlock(e->lock);
}
