/* frames_gpu.h - pictures that stay on the GPU: interop.h copies between OBS's textures and davy's memory. Graphics thread only. */
#ifndef DAVY_OBS_FRAMES_GPU_H
#define DAVY_OBS_FRAMES_GPU_H

#include <obs-module.h>

#include "interop.h"

typedef struct gpu_path { /* of one filter; all zeros: not tried yet */
    interop *cuda;
    bool tried;
    const char *broken; /* why the path works with no engine; NULL: it works */
    const char *why;    /* why it does not work with the engine of the last gpu_path_serves; NULL: it works */
    gs_effect_t *effect;
    gs_texrender_t *straight; /* the picture in the network's values */
    interop_texture straight_registered;
    gs_texrender_t *shown; /* the result in OBS's values */
} gpu_path;

typedef struct gpu_shape {  /* of a picture and its result, both RGBA */
    uint32_t width, height; /* padded at the right and the bottom with the edge pixels */
    uint32_t out_width, out_height;
    bool in_place; /* the result is written over the picture */
} gpu_shape;

typedef struct gpu_slot { /* of one picture */
    gpu_shape shape;
    void *line;       /* CUstream of its work */
    uint64_t in, out; /* device memory, rows packed; in_place: equal */
    gs_texture_t *result;
    interop_texture result_registered;
} gpu_slot;

/* Whether pictures for an engine on this device (N of cuda:N; -1: the CPU) can stay on the GPU. false: g->why has the reason. */
bool gpu_path_serves(gpu_path *g, int32_t device);
void gpu_path_close(gpu_path *g);
/* Converts `drawn` (GS_RGBA, premultiplied) to the network's values in s->in, in order on s->line. */
bool gpu_path_take(gpu_path *g, gpu_slot *s, gs_texture_t *drawn, const gpu_shape *shape);
/* Converts s->out to g->shown, a premultiplied texture. Once for each result. */
bool gpu_path_show(gpu_path *g, gpu_slot *s);
void gpu_slot_close(gpu_path *g, gpu_slot *s);

#endif
