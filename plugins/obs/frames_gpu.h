/* frames_gpu.h - pictures that stay on the GPU: OBS's textures and davy's memory, joined by interop.h. Graphics thread only,
 *  */
#ifndef DAVY_OBS_FRAMES_GPU_H
#define DAVY_OBS_FRAMES_GPU_H

#include <obs-module.h>

#include "interop.h"

typedef struct gpu_path { /* of one filter; zeros: not looked for yet */
    interop *cuda;
    bool tried;
    const char *broken; /* why pictures of no engine can stay; NULL: they can */
    const char *why;    /* the same, of the engine that was asked about last */
    gs_effect_t *effect;
    gs_texrender_t *straight; /* the picture as the network wants it */
    interop_texture straight_registered;
    gs_texrender_t *shown; /* the result as OBS wants it */
} gpu_path;

typedef struct gpu_shape {  /* of a picture and its result, both RGBA */
    uint32_t width, height; /* padded: at the right and below with what stands at the edge */
    uint32_t out_width, out_height;
    bool in_place; /* the result is written over the picture */
} gpu_shape;

typedef struct gpu_slot { /* of one picture */
    gpu_shape shape;
    void *line;       /* a CUstream for the work on it */
    uint64_t in, out; /* device memory, rows packed; in place: the same */
    gs_texture_t *result;
    interop_texture result_registered;
} gpu_slot;

/* Whether pictures for an engine on this device (N of cuda:N; -1: the CPU) can stay where they are; else g->why. Looks once. */
bool gpu_path_serves(gpu_path *g, int32_t device);
void gpu_path_close(gpu_path *g);
/* `drawn` (GS_RGBA, as OBS blends) becomes numbers in s->in, in order on s->line. */
bool gpu_path_take(gpu_path *g, gpu_slot *s, gs_texture_t *drawn, const gpu_shape *shape);
/* s->out becomes `shown`, a texture as OBS blends; once a result. */
bool gpu_path_show(gpu_path *g, gpu_slot *s);
void gpu_slot_close(gpu_path *g, gpu_slot *s);

#endif
