/* frames.h - pictures between a filter's source, an engine and the screen. Graphics thread only, inside OBS's graphics
 * context.
 *
 * A frame takes one of four slots and goes through these steps. The CPU copies nothing here.
 * 1. The source is drawn into a texture, and the texture is copied from the GPU (staged).
 * 2. One frame later the copy is mapped, so that no thread waits for it.
 * 3. The engine gets the mapped picture, and the mapped memory of a texture for the result.
 * 4. When the work has returned, both are unmapped, and the result is shown. */
#ifndef DAVY_OBS_FRAMES_H
#define DAVY_OBS_FRAMES_H

#include <obs-module.h>

#include "engine.h"
#include "frames_gpu.h"

enum { FRAMES_SLOTS = 4 };

typedef struct frame_slot {
    work work;
    engine *engine; /* held while it owns the work */
    gs_stagesurf_t *stage;
    gs_texture_t *result;
    gs_texture_t *before; /* the picture that the result is made from, if the two will be mixed; else NULL */
    uint32_t width, height, out_width, out_height;
    enum gs_color_format color; /* of stage and result */
    enum gs_color_space space;  /* of the picture */
    bool mapped, result_mapped; /* stage, result */
    uint8_t *out;               /* of the mapped result */
    uint32_t out_stride;
    bool on_gpu; /* the work uses the memory of `gpu` */
    gpu_slot gpu;
} frame_slot;

typedef struct frames_mix { /* mixes a result with the picture it is made from */
    gs_effect_t *effect;
    gs_texrender_t *resized, *mixed;
    enum gs_color_format color; /* of both */
    float strength;             /* of the mixture in `mixed`; negative: none yet */
    bool tried;
} frames_mix;

typedef struct frames {
    frame_slot slots[FRAMES_SLOTS];
    gs_texrender_t *drawn; /* this frame's picture, premultiplied */
    enum gs_color_format drawn_color;
    enum gs_color_space space;
    uint32_t width, height;
    uint64_t number;
    uint64_t unseen;   /* pictures with numbers up to this come from before a pause */
    int shown;         /* slot; -1: none */
    bool passing;      /* show the picture unchanged */
    bool lacks_before; /* the result cannot be mixed: its picture was not kept */
    uint64_t done, dropped;
    gpu_path gpu;
    frames_mix mix;
} frames;

typedef struct frames_goal { /* the engine's result */
    uint32_t width, height;
    float sdr_white;
    latent_change latent;
    float strength; /* share of the result; the rest is the picture itself, resized */
    bool in_place;  /* on a GPU the result is written over the picture */
} frames_goal;

void frames_open(frames *f);
/* Waits until the engine has returned all pictures. Set client.gone first. Any thread. */
void frames_wait(frames *f);
void frames_close(frames *f); /* after frames_wait */
/* Frees everything of a lost graphics device and keeps the counts. The next picture creates the resources again. */
void frames_lose(frames *f);

/* Draws the source below the filter onto the current target, as libobs's own filters do. */
void frames_draw_below(obs_source_t *filter);
/* Draws it into `drawn`. false: nothing was drawn. */
bool frames_draw(frames *f, obs_source_t *filter, uint32_t width, uint32_t height, enum gs_color_space space);
/* Takes finished pictures back and submits the next one. engine: READY, held by the caller. */
void frames_turn(frames *f, engine *e, client *c, const frames_goal *goal);
/* Only takes finished pictures back, while no engine is ready. */
void frames_take_back(frames *f);
/* The same after a pause. Results of pictures from before the pause are not shown. */
void frames_pause(frames *f);
/* The result, or else the unchanged picture. NULL: neither exists. */
gs_texture_t *frames_texture(frames *f, float strength, enum gs_color_space *space);

/* The effect for this resize, with its sizes set: area for smaller, bicubic for larger (frames_mix.c). */
gs_effect_t *frames_resizer(uint32_t from_width, uint32_t from_height, uint32_t width, uint32_t height);
/* A mixture: `strength` of `result`, the rest of the resized `before`. NULL: out of resources. */
gs_texture_t *frames_mixed(frames_mix *m, gs_texture_t *result, gs_texture_t *before, enum gs_color_space space,
                           float strength);
void frames_mix_close(frames_mix *m);

#endif
