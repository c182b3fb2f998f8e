/* caption_options.c - checks and copies the caller's options for captions, and checks models, runs and pictures. */
#include <math.h>
#include <string.h>

#include "core/host/context.h"
#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/dialogue/dialogue_priv.h"

enum { MAX_STOPS = 64, MAX_STOP_BYTES = 1024 /* as in the text stream */ };
enum { DEFAULT_TOKENS = 256, DEFAULT_THINKING_TOKENS = 4096, MAX_TEXT = 1 << 20 };

#define PENALTY_MIN 0.01f /* as in the sampler */

static davy_result check_number(const char *name, float v, float hi) {
    return v >= 0.0f && v <= hi
               ? DAVY_OK /* false for NaN */
               : dv_fail(DAVY_E_INVALID, "caption_params: %s is %g, expected 0 to %g", name, (double)v, (double)hi);
}

static davy_result check_count(const char *name, int64_t v) {
    return v >= 0 ? DAVY_OK
                  : dv_fail(DAVY_E_INVALID, "caption_params: %s is %lld, expected 0 or more", name, (long long)v);
}

static davy_result check(const davy_caption_params *p) {
    const uint32_t lookup = DAVY_CAPTION_LOOKUP | DAVY_CAPTION_NO_LOOKUP;
    const uint32_t known = DAVY_CAPTION_PUBLISHED | DAVY_CAPTION_THOUGHTS | DAVY_CAPTION_PARTIAL | lookup;
    davy_result r = p->reserved0 == 0 && p->reserved1 == 0
                        ? DAVY_OK
                        : dv_fail(DAVY_E_INVALID, "caption_params: reserved0 and reserved1 must be 0");
    if (r == DAVY_OK && (p->flags & ~known) != 0) {
        r = dv_fail(DAVY_E_INVALID, "caption_params: flags are %#x, expected DAVY_CAPTION_*", (unsigned)p->flags);
    }
    if (r == DAVY_OK && (p->flags & lookup) == lookup) {
        r = dv_fail(DAVY_E_INVALID, "caption_params: flags has both LOOKUP and NO_LOOKUP; set one");
    }
    r = r < 0 ? r : check_number("temperature", p->temperature, 100.0f);
    r = r < 0 ? r : check_number("top_p", p->top_p, 1.0f);
    r = r < 0 ? r : check_number("repeat_penalty", p->repeat_penalty, 100.0f);
    if (r == DAVY_OK && p->repeat_penalty > 0.0f && p->repeat_penalty < PENALTY_MIN) {
        r = dv_fail(DAVY_E_INVALID, "caption_params: repeat_penalty is %g, expected 0 or %g to 100",
                    (double)p->repeat_penalty, (double)PENALTY_MIN);
    }
    r = r < 0 ? r : check_number("min_p", p->min_p, 1.0f);
    r = r < 0 ? r : check_count("no_repeat_ngram", p->no_repeat_ngram);
    if (r == DAVY_OK && !(p->video_fps >= 0 && p->video_fps <= 1e4)) {
        r = dv_fail(DAVY_E_INVALID, "caption_params: video_fps is %g, expected 0 to 10000", p->video_fps);
    }
    r = r < 0 ? r : check_count("max_tokens", p->max_tokens);
    r = r < 0 ? r : check_count("top_k", p->top_k);
    r = r < 0 ? r : check_count("max_pixels", p->max_pixels);
    r = r < 0 ? r : check_count("max_tiles", p->max_tiles);
    r = r < 0 ? r : check_count("context_tokens", p->context_tokens);
    if (r == DAVY_OK && (p->n_stop > MAX_STOPS || (p->n_stop > 0 && p->stop == NULL))) {
        r = dv_fail(DAVY_E_INVALID, "caption_params: n_stop is %u%s", (unsigned)p->n_stop,
                    p->n_stop > MAX_STOPS ? ", expected up to 64" : ", but stop is NULL");
    }
    return r;
}

static davy_result copy_text(const char *name, const char *text, char **out) {
    if (text == NULL) {
        return DAVY_OK;
    }
    const size_t n = strlen(text);
    if (n > MAX_TEXT || !dv_utf8_valid(text, n)) {
        return dv_fail(DAVY_E_INVALID, "%s: %s", name, n > MAX_TEXT ? "is longer than 1 MiB" : "is not valid UTF-8");
    }
    *out = dv_strdup(text);
    return *out != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
}

static davy_result copy_stops(const davy_caption_params *p, dv_caption_options *a) {
    davy_result r = DAVY_OK;
    a->stop = dv_calloc(p->n_stop + 1u, sizeof *a->stop);
    if (a->stop == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    for (uint32_t i = 0; r == DAVY_OK && i < p->n_stop; i++) {
        if (p->stop[i] == NULL || p->stop[i][0] == '\0') {
            r = dv_fail(DAVY_E_INVALID, "caption_params: stop %u is %s", (unsigned)i,
                        p->stop[i] == NULL ? "NULL" : "empty");
        } else if (strlen(p->stop[i]) > MAX_STOP_BYTES) {
            r = dv_fail(DAVY_E_INVALID, "caption_params: stop %u is longer than %d bytes", (unsigned)i,
                        (int)MAX_STOP_BYTES);
        } else {
            r = copy_text("caption_params: stop", p->stop[i], &a->stop[i]);
        }
    }
    return r;
}

/* Fills values that the caller left at 0 from the model's published generation settings. */
static void publish(const dv_vlm_generation *g, davy_caption_params *p) {
    if (g->sample) {
        p->temperature = p->temperature > 0.0f ? p->temperature : (float)fmin(g->temperature, 100.0);
        p->top_p = p->top_p > 0.0f ? p->top_p : (float)g->top_p;
        p->top_k = p->top_k > 0 ? p->top_k : (int32_t)dv_min(g->top_k, INT32_MAX);
        p->min_p = p->min_p > 0.0f ? p->min_p : (float)g->min_p;
    }
    p->repeat_penalty = p->repeat_penalty > 0.0f ? p->repeat_penalty
                                                 : (float)fmax(fmin(g->repetition_penalty, 100.0), (double)PENALTY_MIN);
    p->no_repeat_ngram = p->no_repeat_ngram > 0 ? p->no_repeat_ngram : (int32_t)dv_min(g->no_repeat_ngram, INT32_MAX);
}

davy_result dv_caption_options_copy(const davy_caption_params *params, const davy_model *m, dv_caption_options *out) {
    const davy_caption_params none = {.struct_size = sizeof none};
    const davy_caption_params *p = params != NULL ? params : &none;
    dv_caption_options a = {.p = *p};
    davy_result r = check(p);
    if (r < 0) {
        *out = (dv_caption_options){.prompt = NULL};
        return r;
    }
    if ((p->flags & DAVY_CAPTION_PUBLISHED) != 0) {
        publish(&dv_captioner_config(dv_model_captioner(m))->generation, &a.p);
    }
    a.p.max_tokens = p->max_tokens > 0                            ? p->max_tokens
                     : dv_captioner_thinks(dv_model_captioner(m)) ? DEFAULT_THINKING_TOKENS
                                                                  : DEFAULT_TOKENS;
    a.p.top_p = a.p.top_p > 0.0f ? a.p.top_p : 1.0f;
    a.p.repeat_penalty = a.p.repeat_penalty > 0.0f ? a.p.repeat_penalty : 1.0f;
    r = copy_stops(p, &a);
    r = r < 0 ? r : copy_text("caption_params: prompt", p->prompt, &a.prompt);
    r = r < 0 ? r : copy_text("caption_params: system", p->system, &a.system);
    if (r < 0) {
        dv_caption_options_clear(&a);
    }
    *out = a;
    return r;
}

void dv_caption_options_clear(dv_caption_options *a) {
    for (uint32_t i = 0; a->stop != NULL && i < a->p.n_stop; i++) {
        dv_free(a->stop[i]);
    }
    dv_free(a->stop);
    dv_free(a->prompt);
    dv_free(a->system);
    *a = (dv_caption_options){.prompt = NULL};
}

davy_result dv_caption_check_run(const davy_run *run) {
    if (run->flags != 0 || run->stream != NULL || run->tile_width != 0 || run->tile_height != 0 ||
        run->tile_overlap != 0 || run->tile_frames != 0 || run->n_options != 0 || run->reserved0 != 0 ||
        run->reserved1 != 0) {
        return dv_fail(DAVY_E_INVALID, "run: captions do not support flags, stream, tiles or options; leave them 0");
    }
    return DAVY_OK;
}

davy_result dv_caption_check_model(const davy_model *m) {
    const davy_model_info *info = dv_model_facts(m);
    return dv_model_captioner(m) != NULL ? DAVY_OK
                                         : dv_fail(DAVY_E_UNSUPPORTED, "%s: %s (%s) is not a captioning model",
                                                   dv_model_name(m), info->arch, info->variant);
}

davy_result dv_caption_check_images(const davy_tensor *image, dv_pixels *out) {
    const davy_result r = dv_pixels_check(image, DV_PICTURE, DV_READS, "image", out);
    if (r < 0) {
        return r;
    }
    if (out->on_device) {
        return dv_fail(DAVY_E_UNSUPPORTED, "image: pictures to caption must be in host memory");
    }
    return out->n == 1 ? DAVY_OK : dv_fail(DAVY_E_SHAPE, "image: expected one picture, found %lld", (long long)out->n);
}

davy_result dv_caption_check_image(const davy_tensor *image, dv_pixels *out) {
    const davy_result r = dv_caption_check_images(image, out);
    return r < 0 || out->t == 1 ? r
                                : dv_fail(DAVY_E_SHAPE, "image: expected one picture, found %lld", (long long)out->t);
}
