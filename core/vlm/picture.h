/* picture.h - from a picture to what a vision tower reads: sizes and token counts first (a plan, no pixels needed), then
 * normalised patches, in the tower's order. Numbers are those of the models' own preprocessors on Pillow. */
#ifndef DV_VLM_PICTURE_H
#define DV_VLM_PICTURE_H

#include "core/base/pixels.h"
#include "core/vlm/config.h"
#include "core/vlm/pil_resize.h"

typedef struct dv_picture_options { /* zeros: as the model's files say */
    int64_t max_pixels; /* at most so many reach the tower, of a picture or of a video's frames together; one tile or
                           one token is always left */
    int64_t max_tiles;  /* Idefics3: tiles and the whole picture together; 1: no splitting */
    bool keep_small;    /* Idefics3: small pictures are not enlarged beyond the next whole tile */
    bool fold_still;    /* Qwen: patches of a still hold its one frame; the tower adds its weights over the frames */
} dv_picture_options;

/* What a Qwen model needs not exceed for captions (1280 tokens of 28 x 28); its own limit makes 10549 tokens of 4K. */
enum { DV_PICTURE_CAPTION_PIXELS = 1003520 };
enum { DV_PICTURE_MAX_SIDE = 1 << 16, DV_PICTURE_MAX_FRAMES = 65536, DV_PICTURE_MAX_ASPECT = 200 };

typedef struct dv_picture_plan {
    int64_t width, height, frames; /* given; frames is 0 for a still */
    int64_t first_w, first_h;      /* after the first resize */
    int64_t resized_w, resized_h;  /* after the last: what patches, tiles or the crop are cut from */
    int64_t pad;                   /* side of the square it is padded to before all; 0: it is not */
    int64_t crop_x, crop_y;
    int32_t rows, cols;             /* of tiles; 0: not split */
    int64_t tiles;                  /* pictures of one size that the tower sees apart from each other; SMART: 1 */
    int64_t grid_t, grid_h, grid_w; /* patches; of each tile */
    int64_t patches;                /* of all tiles */
    int64_t patch_frames;           /* in a patch */
    int64_t patch_values;           /* floats of a patch: [colour][frame][y][x] */
    int64_t tokens;                 /* that take the place of the placeholders, of all tiles */
} dv_picture_plan;

typedef struct dv_picture_size {
    int64_t width, height, frames; /* frames 0: a still, else a video */
} dv_picture_size;

/* DAVY_E_SHAPE for pictures the model cannot take, DAVY_E_UNSUPPORTED for a video that it cannot take; the message says
 * why. */
davy_result dv_picture_plan_make(const dv_vlm_config *c, const dv_picture_options *o, const dv_picture_size *given,
                                 dv_picture_plan *out);

/* Options under which the same picture or video takes less than `plan` does, for trying again when memory ran out: half
 * the pixels, or one tile less. false: it cannot be smaller. */
bool dv_picture_smaller(const dv_vlm_config *c, const dv_picture_plan *plan, dv_picture_options *o);

typedef struct dv_picture_work {
    dv_pool *pool; /* NULL: this thread */
    uint32_t cpu;  /* DVK_CPU_* */
} dv_picture_work;

/* The patches, [plan->patches][plan->patch_values]. pictures: one, or plan->frames of them, all of the plan's size. */
davy_result dv_picture_prepare(const dv_vlm_config *c, const dv_picture_plan *plan, const dv_picture_work *work,
                               const dv_rgb8 *pictures, float *patches);

/* The same without the numbers that the bytes stand for, which are table[colour][byte]. */
davy_result dv_picture_bytes(const dv_vlm_config *c, const dv_picture_plan *plan, const dv_picture_work *work,
                             const dv_rgb8 *pictures, uint8_t *patches);
void dv_picture_table(const dv_vlm_config *c, float table[3][256]);

/* Which frames of a video of `total` frames at `fps` the model looks at: rising indices, room for
 * c->picture.video_max_frames; *n of them. */
davy_result dv_video_frames(const dv_vlm_config *c, int64_t total, double fps, int64_t *index, int64_t *n);
/* Time of temporal patch i of those frames, in seconds: the mean of its first and its last frame's. */
double dv_video_seconds(const dv_vlm_config *c, const int64_t *index, int64_t n, double fps, int64_t i);

/* Picture `index` of p as 8-bit RGB: what is transparent is white behind, 16-bit values lose their low byte (as Pillow
 * opens them), floats are rounded, grey becomes three equal colours. Host memory only. Free with dv_picture_free. */
davy_result dv_picture_load(const dv_pixels *p, int64_t index, dv_rgb8 *out);
void dv_picture_free(dv_rgb8 *p);

/* Parts. */
davy_result dv_picture_allocate(int64_t width, int64_t height, dv_rgb8 *out);

/* Cuts an 8-bit picture into patches of side `patch`, merge x merge neighbours behind one another; f frames of one size
 * go into each patch. table[colour][value] are the normalised numbers. */
typedef struct dv_patchify {
    const dv_rgb8 *frames;
    int64_t n_frames, patch, merge, grid_h, grid_w;
    const float (*table)[256];
    float *out;
    uint8_t *bytes; /* instead of out: as they are in the picture */
} dv_patchify;

#endif
