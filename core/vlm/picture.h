/* picture.h - converts a picture to the input of a vision tower: a plan with sizes and token counts, without pixels, then
 * normalised patches in the tower's order. All values equal those of the models' own preprocessors with Pillow. */
#ifndef DV_VLM_PICTURE_H
#define DV_VLM_PICTURE_H

#include "core/base/pixels.h"
#include "core/vlm/config.h"
#include "core/vlm/pil_resize.h"

typedef struct dv_picture_options { /* 0: value from the model's files */
    int64_t max_pixels; /* most pixels for the tower, of a picture or of all frames of a video; at least one tile or one
                           token remains */
    int64_t max_tiles;  /* Idefics3: most tiles including the whole picture; 1: no splitting */
    bool keep_small;    /* Idefics3: small pictures are not enlarged beyond the next whole tile */
    bool fold_still;    /* Qwen: patches of a still hold one frame; the tower sums its weights over the frames */
} dv_picture_options;

/* Default limit of Qwen models for captions: 1280 tokens of 28 x 28 pixels. With the model's own limit a 4K picture has 10549
 * tokens. */
enum { DV_PICTURE_CAPTION_PIXELS = 1003520 };
enum { DV_PICTURE_MAX_SIDE = 1 << 16, DV_PICTURE_MAX_FRAMES = 65536, DV_PICTURE_MAX_ASPECT = 200 };

typedef struct dv_picture_plan {
    int64_t width, height, frames; /* given; frames is 0 for a still */
    int64_t first_w, first_h;      /* after the first resize */
    int64_t resized_w, resized_h;  /* after the last resize; patches, tiles or the crop are cut from this size */
    int64_t pad;                   /* side of the square to which it is padded first; 0: no padding */
    int64_t crop_x, crop_y;
    int32_t rows, cols;             /* of tiles; 0: not split */
    int64_t tiles;                  /* pictures of equal size that the tower processes independently; SMART: 1 */
    int64_t grid_t, grid_h, grid_w; /* patches of each tile along each axis */
    int64_t patches;                /* patches of all tiles */
    int64_t patch_frames;           /* frames in a patch */
    int64_t patch_values;           /* floats of a patch: [colour][frame][y][x] */
    int64_t tokens;                 /* vectors of all tiles; each replaces one placeholder */
} dv_picture_plan;

typedef struct dv_picture_size {
    int64_t width, height, frames; /* frames 0: a still, else a video */
} dv_picture_size;

/* DAVY_E_SHAPE: the model does not support the picture's size. DAVY_E_UNSUPPORTED: the model does not support videos. */
davy_result dv_picture_plan_make(const dv_vlm_config *c, const dv_picture_options *o, const dv_picture_size *given,
                                 dv_picture_plan *out);

/* Reduces the options so that the same picture or video needs less memory than `plan`: half the pixels, or one tile less. Used
 * to retry if memory is short. Returns false if it cannot be smaller. */
bool dv_picture_smaller(const dv_vlm_config *c, const dv_picture_plan *plan, dv_picture_options *o);

typedef struct dv_picture_work {
    dv_pool *pool; /* NULL: this thread */
    uint32_t cpu;  /* DVK_CPU_* */
} dv_picture_work;

/* patches: [plan->patches][plan->patch_values]. pictures: one, or plan->frames of them, all of the plan's size. */
davy_result dv_picture_prepare(const dv_vlm_config *c, const dv_picture_plan *plan, const dv_picture_work *work,
                               const dv_rgb8 *pictures, float *patches);

/* The same as bytes; a byte stands for the value table[colour][byte] of dv_picture_table. */
davy_result dv_picture_bytes(const dv_vlm_config *c, const dv_picture_plan *plan, const dv_picture_work *work,
                             const dv_rgb8 *pictures, uint8_t *patches);
void dv_picture_table(const dv_vlm_config *c, float table[3][256]);

/* Selects the frames that the model reads from a video of `total` frames at `fps`. index: *n rising frame numbers, with room
 * for c->picture.video_max_frames. */
davy_result dv_video_frames(const dv_vlm_config *c, int64_t total, double fps, int64_t *index, int64_t *n);
/* Time of temporal patch i of these frames in seconds: the mean of its first and its last frame. */
double dv_video_seconds(const dv_vlm_config *c, const int64_t *index, int64_t n, double fps, int64_t i);

/* Converts picture `index` of p to 8-bit RGB. Transparent pixels get a white background. 16-bit values lose their low byte, as
 * in Pillow. Floats are rounded. Grey becomes three equal colours. Host memory only. Free with dv_picture_free. */
davy_result dv_picture_load(const dv_pixels *p, int64_t index, dv_rgb8 *out);
void dv_picture_free(dv_rgb8 *p);

/* Parts. */
davy_result dv_picture_allocate(int64_t width, int64_t height, dv_rgb8 *out);

/* Cuts 8-bit frames of equal size into patches of side `patch`, with merge x merge neighbours adjacent. Each patch holds all
 * n_frames. table[colour][value]: the normalised values. */
typedef struct dv_patchify {
    const dv_rgb8 *frames;
    int64_t n_frames, patch, merge, grid_h, grid_w;
    const float (*table)[256];
    float *out;
    uint8_t *bytes; /* instead of out: the picture's bytes, not normalised */
} dv_patchify;

#endif
