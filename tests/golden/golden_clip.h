/* golden_clip.h - cases of video autoencoders: a clip whole, and in the shortest slices. */
#ifndef DV_TESTS_GOLDEN_CLIP_H
#define DV_TESTS_GOLDEN_CLIP_H

#include "core/base/json.h"
#include "core/host/model.h"
#include "golden_io.h"

typedef struct clip_run {
    davy_model *model;
    const char *folder, *weights; /* of the case; of what weights.py wrote */
    davy_dtype precision;
} clip_run;

/* picture: the frames, one below the other. */
void clip_case(const clip_run *run, const dv_json *json, const array *picture);

#endif
