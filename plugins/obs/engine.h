/* engine.h - an engine: one model on one device, with the thread that runs it. Filters with equal settings share an engine.
 *
 * Loading and running happen on the engine's thread. Of the functions here only engine_stop_all blocks. */
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
    char model[1024];  /* path of a file or folder, or the name of a shipped model (no '/') */
    char device[64];   /* as davy_context_desc.device */
    char precision[8]; /* "auto", "fp32", "fp16", "bf16" */
    float denoise;     /* 0 to 1: share of this model in a mixture with its milder variant; negative: no mixture */
} engine_key;

#define ENGINE_HAS_SISTER "general-x4v3" /* in a file's name: the model has a milder variant */

typedef enum engine_state { ENGINE_LOADING = 0, ENGINE_READY, ENGINE_FAILED } engine_state;

/* State that a filter shares with its submitted pictures. It outlives the filter until the last of them has returned. */
typedef struct client {
    atomic_int refs;
    atomic_uint_fast64_t newest; /* number of the picture submitted last */
    atomic_uint_fast64_t engine; /* number of the engine that got it; any other engine stops computing for the filter */
    atomic_bool gone;            /* cancel all running work */
    atomic_bool forget;          /* the filter has lost the last result: compute it again */
    atomic_int last_us;          /* time of the last computed picture, in microseconds */
    atomic_int budget_us;        /* time limit for a picture, in microseconds */
    plugin_lock lock;            /* guards why; held only to copy */
    char why[512];               /* error of the last picture; "": none */
    plugin_lock turn;            /* guards all members below; held by the engine that computes */
    uint8_t *seen, *done;        /* pixels of the last picture; pixels of the picture whose result the filter has */
    size_t seen_bytes, done_bytes;
    uint64_t probed_ns; /* when a picture was last computed */
    float average_us;   /* moving average of the time; 0: none yet */
    uint64_t ran_on;    /* number of the engine that made the last result */
    uint64_t failed_on; /* number of the engine that failed at failed_ns with a picture of this size; 0: none */
    uint64_t failed_ns;
    uint32_t failed_width, failed_height;
    latent_shelf latent;
} client;

client *client_create(void); /* client.c */
void client_release(client *c);
/* Stores the error of the filter's pictures ("": none). Returns true if the text is new. */
bool client_say(client *c, const char *why);
/* Copies that error. Returns false if there is none. */
bool client_why(client *c, char *out, size_t bytes);

typedef enum work_state { /* of a slot of a filter */
                          WORK_FREE = 0,
                          WORK_STAGED, /* on the graphics thread: being copied from the GPU */
                          WORK_QUEUED, /* owned by the engine */
                          WORK_DONE,   /* owned by the graphics thread again: a new result */
                          WORK_SAME,   /* equals the picture of the last result */
                          WORK_PASSED, /* not computed, mostly over the time limit: show the picture unchanged */
                          WORK_STALE,  /* cancelled: a newer picture came first */
                          WORK_FAILED,
                          WORK_SHOWN
} work_state;

/* Changes that a VAE filter makes to the latent between encoder and decoder, in this order. The unit of `noise` and `bits` is
 * that of a diffusion model's latent, whose standard deviation is about 1. */
typedef struct latent_change {
    float strength; /* factor; 1: unchanged */
    float noise;    /* standard deviation of the added noise, which is new in each frame; 0: none */
    int32_t bits;   /* round to 2^bits values from -4 to 4; 0: no rounding */
} latent_change;

typedef enum work_format { WORK_SRGB8 = 0, WORK_LINEAR_F16, WORK_STRAIGHT8 } work_format;

/* One picture in RGBA, and memory for its result. Formats:
 * - SRGB8: bytes, sRGB values of linear light times alpha, as OBS draws them.
 * - LINEAR_F16: half floats, linear Rec.709 light times alpha; 1 is SDR white. HDR has values below 0 and above 1 too.
 * - STRAIGHT8: bytes, sRGB values with straight alpha (not premultiplied), in the memory of the engine's device and in order on
 *   `stream`. For a VAE both sides are padded to engine_multiple, and the result overwrites the input. */
typedef struct work {
    _Atomic(struct work *) next;
    atomic_int state; /* work_state */
    client *owner;
    uint64_t number;
    uint64_t engine; /* number of the engine that it was submitted to */
    work_format format;
    uint32_t width, height, out_width, out_height;
    const uint8_t *in; /* mapped; rows in_stride bytes apart */
    uint8_t *out;
    uint32_t in_stride, out_stride;
    float sdr_white; /* of LINEAR_F16, in nits; 0: SDR of more than 8 bits */
    latent_change latent;
    void *stream;                           /* CUDA stream, of STRAIGHT8 */
    bool (*wait)(void *with, void *stream); /* waits for the stream's work; false: the work failed */
    void *wait_with;
    struct caption_question *question; /* of a captioning engine; the filter frees it */
} work;

/* Returns the engine of this key, created if necessary, and holds it. NULL: out of memory. Load errors show in its state. */
engine *engine_acquire(const engine_key *key);
void engine_hold(engine *e); /* the caller holds e already */
void engine_release(engine *e);
engine_state engine_look(engine *e);
/* READY only. Output size = input size * num / den; 1 / 1 for a VAE. */
void engine_scale(const engine *e, int32_t *num, int32_t *den);
/* READY only. Both sides of a picture must be multiples of this. */
int32_t engine_multiple(const engine *e);
uint32_t engine_padded(uint32_t size, int32_t multiple);
/* READY only. N of cuda:N; -1: the CPU. */
int32_t engine_device(const engine *e);
/* Makes a failed engine retry now, because a setting has changed. Without this call it retries after longer and longer waits. */
void engine_hurry(engine *e);
/* Less than ENGINE_TEXT bytes, without a full stop. FAILED: the reason. READY: model and device. */
enum { ENGINE_TEXT = 512 };
void engine_text(const engine *e, char *out, size_t bytes);
/* Submits a picture, lock-free. The engine owns w until w's state is beyond WORK_QUEUED. */
void engine_submit(engine *e, work *w);

/* Waits until all threads have ended. Called before the module is unloaded. */
void engine_stop_all(void);

#endif
