/* golden_clip.h - cases of video autoencoders: a whole clip, and the clip in the shortest slices. */
#ifndef DV_TESTS_GOLDEN_CLIP_H
#define DV_TESTS_GOLDEN_CLIP_H

#include "core/base/json.h"
#include "core/host/model.h"
#include "golden_io.h"

typedef struct clip_run {
    davy_model *model;
    const char *folder, *weights; /* of the case; of the files that weights.py wrote */
    davy_dtype precision;
} clip_run;

/* picture: the frames, from top to bottom. */
void clip_case(const clip_run *run, const dv_json *json, const array *picture);

#endif
