/* engine_work.h - what an engine's thread does with one picture. */
#ifndef DAVY_OBS_ENGINE_WORK_H
#define DAVY_OBS_ENGINE_WORK_H

#include "abi/davy.h"
#include "engine.h"

typedef struct engine_model {
    const davy_api *api;
    davy_model *model;
    uint64_t engine; /* its number */
    int32_t device;  /* N of cuda:N; -1: the CPU */
    const davy_model_info *info;
    davy_task task;
} engine_model;

/* DONE, SAME, PASSED, STALE or FAILED. */
work_state engine_work(const engine_model *m, work *w);

/* engine_key.c. The device that "auto" stands for, by name; N of cuda:N or -1. */
int32_t engine_name_device(const engine_key *key, const davy_api *api, char *out, size_t bytes);
davy_dtype engine_precision(const char *name);
/* The file that belongs to the key's; false: there is none. */
bool engine_sister(const engine_key *key, char *out, size_t bytes);
bool engine_other_half(const char *path, char *out, size_t bytes);

typedef struct engine_pixels { /* RGBA8 in the memory of the engine's device, in order on its stream */
    const uint8_t *data;
    uint32_t width, height, stride;
} engine_pixels;

davy_tensor engine_device_picture(const engine_model *m, const work *w, const engine_pixels *p);
/* One step of engine_work: SRGB8 or STRAIGHT8 through encoder and decoder (engine_vae.c). false: last_error has why. */
bool engine_vae(const engine_model *m, const work *w);
/* The same of a captioning engine: answers w->question about a picture of bytes and tells everybody (engine_caption.c). */
bool engine_caption(const engine_model *m, work *w);
/* Cancels when nobody will see what becomes of `user`, a work: its filter has gone, or asks another engine now. */
int32_t DAVY_CALL engine_unwanted(void *user, const char *stage, uint64_t done, uint64_t total);

/* Rows of pixels between OBS's numbers and the network's (light.c): RGBA that alpha has not multiplied. What is written is not
 * read: mapped memory of a GPU is slow at that. straight8: sRGB numbers. signal: floats, of HDR PQ of Rec.2020 light, else (sdr_white 0) sRGB numbers. */
void light_to_straight8(const uint8_t *from, uint8_t *to, uint32_t pixels);
void light_from_straight8(const uint8_t *from, uint8_t *to, uint32_t pixels);
void light_to_signal(const uint16_t *from, float *to, uint32_t pixels, float sdr_white);
void light_from_signal(const float *from, uint16_t *to, uint32_t pixels, float sdr_white);

#endif
