/* gpu_models.h - a context on the mock driver with two small models, and pictures for them. */
#ifndef DV_TESTS_GPU_MODELS_H
#define DV_TESTS_GPU_MODELS_H

#include "tests/hosts/gpu/gpu_mock.h"

#define LEGACY ((void *)1) /* CUDA's default stream */

enum { SIDE = 32 };

extern davy_context *ctx;
extern davy_model *model, *vae;

davy_tensor host_picture(int64_t channels, int64_t side);

/* The same in a buffer of the device. */
davy_tensor device_picture(int64_t channels, int64_t side, davy_buffer **buffer);

void models_begin(const char *device);
void models_end(const char *after);

#endif
