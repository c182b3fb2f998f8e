/* frames_gpu.h - pictures that stay on the GPU: OBS's textures and davy's memory, joined by interop.h. Graphics thread only,
 * but for gpu_path_device. */
#ifndef DAVY_OBS_FRAMES_GPU_H
#define DAVY_OBS_FRAMES_GPU_H

#include <obs-module.h>

#include "interop.h"

typedef struct gpu_path { /* of one filter; zeros: not looked for yet */
    interop *cuda;
    bool tried;
    gs_effect_t *effect;
    gs_texrender_t *straight; /* the picture as the network wants it */
    interop_texture straight_registered;
    gs_texrender_t *shown; /* the result as OBS wants it */
} gpu_path;

typedef struct gpu_slot { /* of one picture */
    uint64_t in, out;     /* device memory, RGBA rows packed */
    gs_texture_t *result;
    interop_texture result_registered;
    uint32_t width, height, out_width, out_height;
} gpu_slot;

/* Whether pictures for an engine on this device (N of cuda:N; -1: the CPU) can stay where they are. Looks once. */
bool gpu_path_serves(gpu_path *g, int32_t device);
void gpu_path_close(gpu_path *g);
/* `drawn` (GS_RGBA, as OBS blends) becomes numbers in s->in, some time after this call, on interop_stream. */
bool gpu_path_take(gpu_path *g, gpu_slot *s, gs_texture_t *drawn, uint32_t out_width, uint32_t out_height);
/* s->out becomes `shown`, a texture as OBS blends; once a result. */
bool gpu_path_show(gpu_path *g, gpu_slot *s);
void gpu_slot_close(gpu_path *g, gpu_slot *s);

#endif
