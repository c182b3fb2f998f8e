/* engine_work.h - the steps of an engine's thread for one picture. */
#ifndef DAVY_OBS_ENGINE_WORK_H
#define DAVY_OBS_ENGINE_WORK_H

#include "abi/davy.h"
#include "engine.h"

typedef struct engine_model {
    const davy_api *api;
    davy_model *model;
    uint64_t engine; /* the engine's number */
    int32_t device;  /* N of cuda:N; -1: the CPU */
    const davy_model_info *info;
    davy_task task;
} engine_model;

/* Computes a picture or skips it. Returns DONE, SAME, PASSED, STALE or FAILED. */
work_state engine_work(const engine_model *m, work *w);

/* engine_key.c. Writes the name of the key's device, resolving "auto". Returns N of cuda:N, or -1 for the CPU. */
int32_t engine_name_device(const engine_key *key, const davy_api *api, char *out, size_t bytes);
davy_dtype engine_precision(const char *name);
/* The second file that belongs to the key's file. false: there is none. */
bool engine_sister(const engine_key *key, char *out, size_t bytes);
bool engine_other_half(const char *path, char *out, size_t bytes);

typedef struct engine_pixels { /* RGBA8 in the memory of the engine's device, in order on its stream */
    const uint8_t *data;
    uint32_t width, height, stride;
} engine_pixels;

/* Describes such pixels. */
davy_tensor engine_device_picture(const engine_model *m, const work *w, const engine_pixels *p);
/* One step of engine_work: SRGB8 or STRAIGHT8 through encoder and decoder (engine_vae.c). false: last_error has the reason. */
bool engine_vae(const engine_model *m, const work *w);
/* The same for a captioning engine: answers w->question about an SRGB8 picture and sends the answer out (engine_caption.c). */
bool engine_caption(const engine_model *m, work *w);
/* Progress callback; `user` is a work. Cancels it if its filter was removed or uses another engine now. */
int32_t DAVY_CALL engine_unwanted(void *user, const char *stage, uint64_t done, uint64_t total);

/* These functions convert rows between OBS's premultiplied alpha and the network's straight alpha (light.c). They never read memory
 * that they write, because reading the mapped memory of a GPU is slow.
 *
 * straight8: sRGB bytes. signal: floats; PQ values of Rec.2020 light for HDR, sRGB values if sdr_white is 0. */
void light_to_straight8(const uint8_t *from, uint8_t *to, uint32_t pixels);
void light_from_straight8(const uint8_t *from, uint8_t *to, uint32_t pixels);
void light_to_signal(const uint16_t *from, float *to, uint32_t pixels, float sdr_white);
void light_from_signal(const float *from, uint16_t *to, uint32_t pixels, float sdr_white);

#endif
