/* engine.h - one model on one device with the thread that runs it, shared by the filters that use the same.
 *
 * Nothing here blocks but engine_stop_all: loading, running and failing happen on the engine's thread. */
#ifndef DAVY_OBS_ENGINE_H
#define DAVY_OBS_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/davy.h"
#include "latent.h"

typedef struct engine engine;

typedef struct engine_key {
    davy_task task;    /* UPSCALE, VAE or CAPTION */
    char model[1024];  /* a file or folder; or the name of a shipped model, without '/' */
    char device[64];   /* as davy_context_desc.device */
    char precision[8]; /* "auto", "fp32", "fp16", "bf16" */
    float denoise;     /* 0 to 1: share of a model that has a milder sister beside it; below: of no importance */
} engine_key;

#define ENGINE_HAS_SISTER "general-x4v3" /* in the name of a file: denoise may be set */

typedef enum engine_state { ENGINE_LOADING = 0, ENGINE_READY, ENGINE_FAILED } engine_state;

/* What one filter has in common with the pictures it has handed out: it outlives the filter while one is under way. */
typedef struct client {
    atomic_int refs;
    atomic_uint_fast64_t newest; /* number of the last picture handed out */
    atomic_uint_fast64_t engine; /* number of the engine that has it; another one stops computing for the filter */
    atomic_bool gone;            /* cancel what runs */
    atomic_bool forget;          /* the filter no longer has the last result */
    atomic_int last_us;          /* of the last picture computed */
    atomic_int budget_us;        /* a picture may take so long */
    plugin_lock lock;            /* of why; held to copy only */
    char why[512];               /* the last picture could not be computed; "": it could */
    plugin_lock turn;            /* of all that follows: held by the engine that computes */
    uint8_t *seen, *done;        /* the pixels that came last; those whose result the filter has */
    size_t seen_bytes, done_bytes;
    uint64_t probed_ns; /* when a picture that was over the budget was last computed */
    float average_us;   /* 0: nothing has run */
    uint64_t ran_on;    /* number of the engine that made the result */
    uint64_t failed_on; /* of the one that could not, at failed_ns, of this size; 0: none */
    uint64_t failed_ns;
    uint32_t failed_width, failed_height;
    latent_shelf latent;
} client;

client *client_create(void); /* client.c */
void client_release(client *c);
/* What is wrong with its pictures; "": nothing. Whether that is news. */
bool client_say(client *c, const char *why);
/* false: nothing is wrong. */
bool client_why(client *c, char *out, size_t bytes);

typedef enum work_state { /* of a slot of a filter */
                          WORK_FREE = 0,
                          WORK_STAGED, /* graphics thread: being copied from the GPU */
                          WORK_QUEUED, /* the engine's from here */
                          WORK_DONE,   /* the graphics thread's again: a new picture */
                          WORK_SAME,   /* the picture is that of the last result */
                          WORK_PASSED, /* over the budget: show the picture as it is */
                          WORK_STALE,  /* a newer one came first */
                          WORK_FAILED,
                          WORK_SHOWN
} work_state;

/* What a VAE filter does to the latent between encoder and decoder, in this order. `noise` and the steps of `bits` are in
 * units of the numbers that a diffusion model sees, whose spread is about 1. */
typedef struct latent_change {
    float strength; /* factor; 1: none */
    float noise;    /* standard deviation of what is added, another one each frame; 0: none */
    int32_t bits;   /* rounded to 2^bits values from -4 to 4; 0: not */
} latent_change;

typedef enum work_format { WORK_SRGB8 = 0, WORK_LINEAR_F16, WORK_STRAIGHT8 } work_format;

/* A picture in, premultiplied RGBA as OBS draws it, and room for the picture it becomes. SRGB8: sRGB numbers of linear light
 * times alpha, bytes. LINEAR_F16: linear Rec.709 light, 1 is SDR white, halves; of HDR below 0 and above 1 too. STRAIGHT8:
 * sRGB numbers that alpha has not multiplied, in the memory of the engine's device, in order on a stream of it; of a VAE rows and
 * their number are padded (engine_multiple), and the result is written over what was there. */
typedef struct work {
    _Atomic(struct work *) next;
    atomic_int state; /* work_state */
    client *owner;
    uint64_t number;
    uint64_t engine; /* the number of the one that it was handed to */
    work_format format;
    uint32_t width, height, out_width, out_height;
    const uint8_t *in; /* mapped; rows in_stride bytes apart */
    uint8_t *out;
    uint32_t in_stride, out_stride;
    float sdr_white; /* of LINEAR_F16: nits; 0: no HDR, only finer than 8 bits */
    latent_change latent;
    void *stream;                           /* CUDA's, of STRAIGHT8 */
    bool (*wait)(void *with, void *stream); /* until what is on the stream is done; false: it failed */
    void *wait_with;
    struct caption_question *question; /* of a captioning engine, which gives it back (caption_answered) */
} work;

/* Never fails but for memory (NULL); the same key gives the same engine while somebody holds it. */
engine *engine_acquire(const engine_key *key);
void engine_hold(engine *e); /* e is held already */
void engine_release(engine *e);
engine_state engine_look(engine *e);
/* READY: output size = input size * num / den; of a VAE, the same. */
void engine_scale(const engine *e, int32_t *num, int32_t *den);
/* READY: sides of the pictures that it computes are multiples of this. */
int32_t engine_multiple(const engine *e);
uint32_t engine_padded(uint32_t size, int32_t multiple);
/* READY: N of cuda:N; -1: the CPU. */
int32_t engine_device(const engine *e);
/* What has failed is tried again, less and less often: now, as something has changed. */
void engine_hurry(engine *e);
/* One sentence, of less than ENGINE_TEXT bytes: FAILED: why; READY: what runs where. */
enum { ENGINE_TEXT = 512 };
void engine_text(const engine *e, char *out, size_t bytes);
/* Hands a picture over: w is the engine's until its state is beyond WORK_QUEUED. Lock-free. */
void engine_submit(engine *e, work *w);

/* All threads have ended after it. For the module's end. */
void engine_stop_all(void);

#endif
