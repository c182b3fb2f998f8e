/* made.h - captioning models of published shapes with random weights, so that no model files are needed. All tensors of a
 * model are the same noise in memory. The kernels and the bytes that they read are those of the real model. */
#ifndef DV_TESTS_MADE_H
#define DV_TESTS_MADE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/os.h"
#include "core/vlm/session.h"
#include "kernels/kernel.h"
#include "tests/lib/fake_weights.h"
#include "tests/lib/vlm_configs.h"

void must(davy_result r, const char *what);
void *need(void *p);

/* ---- models ---- */

uint32_t noise(uint32_t *state);

typedef struct made {
    bool qwen;
    const char *device, *precision;
} made;

/* Opens pool, device ("cpu": none) and weights; m->heap and m->cpu must be set. */
void made_begin(const made *o, int32_t threads, dv_vlm_model *m);

void made_end(dv_vlm_model *m);

#endif
