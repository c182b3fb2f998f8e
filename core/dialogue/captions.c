/* captions.c - the same question about many pictures: together where that can be, else a turn for each, in one conversation
 * that begins anew. */
#include <string.h>

#include "core/host/buffer.h"
#include "core/host/context.h"
#include "core/base/error.h"
#include "core/host/job.h"
#include "core/dialogue/dialogue_priv.h"
#include "core/base/text.h"

enum { MAX_PICTURES = 1 << 20 };

typedef struct caption {
    davy_dialogue *dialogue;
    uint32_t n;
    dv_pixels *pixels;
    davy_buffer **buffers; /* one reference each; NULL: the caller's memory */
    davy_text **texts, **out;
    davy_run run;
    uint64_t deadline_ns;
} caption;

static void release(void *arg) {
    caption *c = arg;
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->buffers != NULL) {
            dv_buffer_release(c->buffers[i]);
        }
        if (c->texts != NULL) {
            dv_text_release(c->texts[i]);
        }
    }
    dv_free(c->pixels);
    dv_free(c->buffers);
    dv_free(c->texts);
    dv_dialogue_release(c->dialogue);
    dv_free(c);
}

static davy_result one(caption *c, uint32_t i, davy_job *job) {
    davy_dialogue *d = c->dialogue;
    dv_turn t = {.asking = &d->asking,
                 .run = c->run,
                 .deadline_ns = c->deadline_ns,
                 .job = job,
                 .base = (uint64_t)i * DV_TURN_PARTS,
                 .total = (uint64_t)c->n * DV_TURN_PARTS};
    davy_result r = dv_dialogue_add_pixels(d, &c->pixels[i]);
    r = r < 0 ? r : dv_dialogue_turn(d, &t);
    dv_dialogue_clear_events(d);
    if (r == DAVY_OK && t.smaller) {
        dv_logf(dv_context_services(dv_dialogue_context(d))->log, DAVY_LOG_WARN,
                "picture %u of %u: memory was short; it was looked at with fewer tiles or pixels", (unsigned)i + 1u,
                (unsigned)c->n);
    }
    r = r < 0 ? r : dv_dialogue_answer(d, &c->texts[i]);
    if (r == DAVY_OK) {
        davy_dialogue_info info;
        dv_dialogue_info(d, &info);
        dv_text_tell(c->texts[i], &info);
    }
    return r < 0 ? r : dv_dialogue_rewind(d, 0);
}

static davy_result together(caption *c, davy_job *job) {
    dv_captions all = {.dialogue = c->dialogue, .n = c->n, .pixels = c->pixels, .texts = c->texts};
    atomic_init(&all.next, 0);
    atomic_init(&all.stop, false);
    all.turn = (dv_turn){.asking = &c->dialogue->asking,
                         .run = c->run,
                         .deadline_ns = c->deadline_ns,
                         .job = job,
                         .total = (uint64_t)c->n * DV_TURN_PARTS,
                         .shared = true};
    return dv_caption_together(&all);
}

static davy_result run(void *arg, davy_job *job) {
    caption *c = arg;
    davy_result r = c->n > 1 ? together(c, job) : DAVY_OK;
    for (uint32_t i = 0; r == DAVY_OK && i < c->n; i++) {
        r = c->texts[i] != NULL ? DAVY_OK : one(c, i, job);
        if (r < 0 && c->n > 1) {
            r = dv_fail_prefix("picture %u of %u", (unsigned)i + 1u, (unsigned)c->n);
        }
    }
    if (r == DAVY_OK || (c->dialogue->asking.p.flags & DAVY_CAPTION_PARTIAL) != 0) {
        memcpy(c->out, c->texts, c->n * sizeof(davy_text *));
        memset(c->texts, 0, c->n * sizeof(davy_text *));
    }
    return r;
}

static davy_result take_images(caption *c, const davy_tensor *images) {
    davy_result r = DAVY_OK;
    c->pixels = dv_calloc(c->n, sizeof *c->pixels);
    c->buffers = dv_calloc(c->n, sizeof(davy_buffer *));
    c->texts = dv_calloc(c->n, sizeof(davy_text *));
    if (c->pixels == NULL || c->buffers == NULL || c->texts == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    for (uint32_t i = 0; r == DAVY_OK && i < c->n; i++) {
        r = dv_dialogue_check_image(&images[i], &c->pixels[i]);
        if (r < 0 && c->n > 1) {
            r = dv_fail_prefix("picture %u of %u", (unsigned)i + 1u, (unsigned)c->n);
        }
        if (r == DAVY_OK && images[i].buffer != NULL) {
            c->buffers[i] = dv_buffer_ref(images[i].buffer);
        }
    }
    return r;
}

davy_result dv_caption(davy_model *model, uint32_t n, const davy_tensor *images, const davy_caption_params *params,
                       const davy_run *how, davy_job **job, davy_text **out) {
    if (n < 1 || n > MAX_PICTURES) {
        return dv_fail(DAVY_E_INVALID, "caption: n is %u, expected 1 to %d", (unsigned)n, (int)MAX_PICTURES);
    }
    davy_result r = dv_dialogue_check_run(how);
    caption *c = r == DAVY_OK ? dv_calloc(1, sizeof *c) : NULL;
    if (c == NULL) {
        return r < 0 ? r : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    c->n = n;
    c->out = out;
    c->run = *how;
    c->deadline_ns = dv_dialogue_deadline(how);
    r = dv_dialogue_open(model, params, &c->dialogue);
    r = r < 0 ? r : take_images(c, images);
    if (r < 0 || job == NULL) {
        r = r < 0 ? r : run(c, NULL);
        release(c);
        return r;
    }
    const dv_job_desc desc = {
        .priority = how->priority, .deadline_ns = c->deadline_ns, .run = run, .release = release, .arg = c};
    r = dv_job_submit(dv_context_jobs(dv_model_context(model)), &desc, job);
    if (r < 0) {
        release(c);
    }
    return r;
}
