/* frames.h - pictures between a filter's source, an engine and the screen. Graphics thread only, inside OBS's graphics
 * context.
 *
 * A frame goes through one of four slots: drawn into a texture, copied from the GPU (staged), mapped a frame later so that
 * nobody waits for the copy, handed to the engine as mapped memory together with the mapped memory of a texture for the
 * result, unmapped when it is back, shown. Nothing is copied by the processor here. */
#ifndef DAVY_OBS_FRAMES_H
#define DAVY_OBS_FRAMES_H

#include <obs-module.h>

#include "engine.h"
#include "frames_gpu.h"

enum { FRAMES_SLOTS = 4 };

typedef struct frame_slot {
    work work;
    engine *engine; /* held while the work is its */
    gs_stagesurf_t *stage;
    gs_texture_t *result;
    gs_texture_t *before; /* the picture that the result is made of, where both will be mixed; else NULL */
    uint32_t width, height, out_width, out_height;
    enum gs_color_format color; /* of stage and result */
    enum gs_color_space space;  /* of the picture */
    bool mapped, result_mapped; /* stage, result */
    uint8_t *out;               /* of the mapped result */
    uint32_t out_stride;
    bool on_gpu; /* the work's memory is that of `gpu` */
    gpu_slot gpu;
} frame_slot;

typedef struct frames_mix { /* of a result and the picture it is made of */
    gs_effect_t *effect;
    gs_texrender_t *resized, *mixed;
    enum gs_color_format color; /* of both */
    float strength;             /* of what `mixed` holds; below 0: nothing */
    bool tried;
} frames_mix;

typedef struct frames {
    frame_slot slots[FRAMES_SLOTS];
    gs_texrender_t *drawn; /* this frame's picture, premultiplied */
    enum gs_color_format drawn_color;
    enum gs_color_space space;
    uint32_t width, height;
    uint64_t number;
    uint64_t unseen;   /* numbers up to it are of what was seen before a pause */
    int shown;         /* slot; -1: none */
    bool passing;      /* show the picture as it is */
    bool lacks_before; /* the result should be mixed, and cannot be */
    uint64_t done, dropped;
    gpu_path gpu;
    frames_mix mix;
} frames;

typedef struct frames_goal { /* what the engine makes of a picture */
    uint32_t width, height;
    float sdr_white;
    latent_change latent;
    float strength; /* of the result; the rest is the picture itself, resized */
    bool in_place;  /* on a GPU the result is written over the picture */
} frames_goal;

void frames_open(frames *f);
/* Waits for what the engine has; any thread, for destroy, after client.gone. */
void frames_wait(frames *f);
void frames_close(frames *f); /* after frames_wait */
/* The same, where the device that draws has gone and another will come: the next picture begins anew. */
void frames_lose(frames *f);

/* What is below the filter, onto the current target, as libobs's own filters draw it. */
void frames_draw_below(obs_source_t *filter);
/* The same into `drawn`. false: nothing to see. */
bool frames_draw(frames *f, obs_source_t *filter, uint32_t width, uint32_t height, enum gs_color_space space);
/* Takes back what the engine is done with; hands the next picture over. engine: READY, held by the caller. */
void frames_turn(frames *f, engine *e, client *c, const frames_goal *goal);
/* Only takes back: where no engine is ready. */
void frames_take_back(frames *f);
/* The same after a pause: nothing is shown of pictures from before it. */
void frames_pause(frames *f);
/* The result, else the picture as it is; NULL: neither. */
gs_texture_t *frames_texture(frames *f, float strength, enum gs_color_space *space);

/* The effect that resizes well, its sizes set (frames_mix.c). */
gs_effect_t *frames_resizer(uint32_t from_width, uint32_t from_height, uint32_t width, uint32_t height);
/* So much of `result`, the rest of `before`, resized; NULL: it cannot be done. */
gs_texture_t *frames_mixed(frames_mix *m, gs_texture_t *result, gs_texture_t *before, enum gs_color_space space,
                           float strength);
void frames_mix_close(frames_mix *m);

#endif
