/* add.c - what was added to a dialogue for its next turn: copies of the caller's pixels, as the models read them. */
#include "core/base/error.h"
#include "core/dialogue/dialogue_priv.h"

enum { MAX_PICTURES = 1024 };

static uint64_t bytes_of(const dv_rgb8 *p) {
    return (uint64_t)(p->height * p->stride);
}

static void drop_pictures(davy_dialogue *d, int64_t keep) {
    while (d->n_pictures > keep) {
        dv_rgb8 *p = &d->pictures[--d->n_pictures];
        dv_heap_unclaim(dv_dialogue_heap(d), DV_MEM_WORKSPACE, bytes_of(p));
        dv_picture_free(p);
    }
}

void dv_dialogue_drop(davy_dialogue *d) {
    drop_pictures(d, 0);
    while (d->n_clips > 0) {
        dv_free(d->clips[--d->n_clips].index);
    }
    dv_free(d->words);
    d->words = NULL;
}

/* Picture `index` of the tensor. */
static davy_result add(davy_dialogue *d, const dv_pixels *pixels, int64_t index) {
    const uint64_t bytes = (uint64_t)(pixels->h * pixels->w * 3);
    if (d->n_pictures >= MAX_PICTURES) {
        return dv_fail(DAVY_E_INVALID, "image: a turn has at most %d pictures", (int)MAX_PICTURES);
    }
    dv_rgb8 *grown = dv_grow(d->pictures, d->n_pictures + 1, &d->pictures_room, sizeof *grown);
    if (grown == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    d->pictures = grown;
    davy_result r = dv_heap_claim(dv_dialogue_heap(d), DV_MEM_WORKSPACE, bytes, "a picture to caption");
    if (r < 0) {
        return r;
    }
    r = dv_picture_load(pixels, index, &grown[d->n_pictures]);
    if (r < 0) {
        dv_heap_unclaim(dv_dialogue_heap(d), DV_MEM_WORKSPACE, bytes);
        return r;
    }
    d->n_pictures++;
    return DAVY_OK;
}

davy_result dv_dialogue_add_pixels(davy_dialogue *d, const dv_pixels *pixels) {
    return add(d, pixels, 0);
}

/* Only those frames stay that the model looks at. */
static davy_result add_frames(davy_dialogue *d, const dv_pixels *pixels, dv_clip *clip) {
    const dv_vlm_config *c = dv_captioner_config(dv_model_captioner(d->model));
    clip->first = d->n_pictures;
    clip->total = pixels->t;
    clip->fps = d->asking.p.video_fps > 0 ? d->asking.p.video_fps : c->picture.video_fps;
    clip->index = dv_calloc((uint64_t)dv_max(c->picture.video_max_frames, pixels->t), sizeof *clip->index);
    if (clip->index == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    davy_result r = dv_video_frames(c, clip->total, clip->fps, clip->index, &clip->n);
    for (int64_t i = 0; r == DAVY_OK && i < clip->n; i++) {
        r = add(d, pixels, clip->index[i]);
    }
    return r;
}

davy_result dv_dialogue_add_video(davy_dialogue *d, const dv_pixels *pixels) {
    dv_clip clip = {.index = NULL};
    const int64_t before = d->n_pictures;
    dv_clip *grown = dv_grow(d->clips, d->n_clips + 1, &d->clips_room, sizeof *grown);
    if (grown == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    d->clips = grown;
    const davy_result r = add_frames(d, pixels, &clip);
    if (r < 0) {
        drop_pictures(d, before);
        dv_free(clip.index);
        return r;
    }
    d->clips[d->n_clips++] = clip;
    return DAVY_OK;
}
