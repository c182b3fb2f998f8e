/* golden_clip.c - see golden_clip.h. */
#include "golden_clip.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/os.h"
#include "core/clip/stream.h"
#include "golden_check.h"
#include "golden_compare.h"

static bool failed(const char *what) {
    davy_error_info info = {.struct_size = sizeof info};
    dv_error_get(&info);
    CHECKF(0, "%s: %s: %s", what, dv_result_name(info.code), info.message);
    return false;
}

static bool allocate(array *a) {
    a->data = calloc((size_t)array_count(a), sizeof *a->data);
    return CHECK(a->data != NULL);
}

static dvk_image frames_of(const array *a, int64_t first, int64_t count) {
    const int64_t plane = a->h * a->w * (int64_t)sizeof *a->data;
    return (dvk_image){.data = a->data + first * a->h * a->w,
                       .dtype = DVK_F32,
                       .channels = (int32_t)a->c,
                       .n = count,
                       .h = a->h,
                       .w = a->w,
                       .sn = plane,
                       .sh = a->w * (int64_t)sizeof *a->data,
                       .sw = sizeof *a->data,
                       .sc = a->t * plane,
                       .identity_map = 1};
}

/* Runs all frames of `in` in one call. If not whole, it makes two calls, which are computed in the shortest slices. */
static bool run_stream(dv_clip_stream *s, dv_stage stage, bool is_signed, bool whole, const array *in, array *out) {
    dv_clip_stream_info info;
    dv_clip_stream_info_get(s, &info);
    const dv_clip_rule rule = info.clip;
    const int64_t steps = (in->t - rule.first) / rule.step;
    *out = (array){.c = info.out_c, .t = rule.first_out + steps * rule.step_out, .h = info.out_h, .w = info.out_w};
    const int64_t split = whole || steps == 0 ? in->t : rule.first + (steps - 1) * rule.step;
    const int64_t split_out = split == in->t ? out->t : out->t - rule.step_out;
    if (!allocate(out)) {
        return false;
    }
    dv_work work = {.stage = stage,
                    .in_mul = is_signed ? 2.0f : 1.0f,
                    .in_add = is_signed ? -1.0f : 0.0f,
                    .out_mul = 1.0f,
                    .in = frames_of(in, 0, split),
                    .out = frames_of(out, 0, split_out)};
    if (dv_clip_stream_run(s, &work) != DAVY_OK) {
        return failed("stream");
    }
    work.in = frames_of(in, split, in->t - split);
    work.out = frames_of(out, split_out, out->t - split_out);
    return split == in->t || dv_clip_stream_run(s, &work) == DAVY_OK || failed("stream");
}

static bool compute(const clip_run *run, dv_stage stage, bool whole, const array *in, array *out) {
    dv_engine *e = dv_model_engine(run->model);
    dv_clip_rule rule = {0};
    dv_clip_stream *s = NULL;
    if (!CHECK(dv_engine_clip(e, stage, &rule))) {
        return false;
    }
    if (dv_clip_stream_open(e,
                            &(dv_clip_stream_desc){.stage = stage,
                                                   .h = in->h,
                                                   .w = in->w,
                                                   .frames = whole ? in->t : 0,
                                                   .slice = whole ? in->t : rule.first},
                            &s) != DAVY_OK) {
        return failed("stream");
    }
    const bool is_signed = stage == DV_STAGE_ENCODE && dv_engine_arch(e)->range == DAVY_RANGE_SIGNED_UNIT;
    const bool done = run_stream(s, stage, is_signed, whole, in, out);
    dv_clip_stream_release(s);
    return done;
}

/* A clip of the frames that `picture` holds top to bottom. The last one is repeated until the network accepts the number. */
static bool clip_of(const array *picture, int64_t frames, const dv_clip_rule *rule, array *out) {
    const int64_t h = picture->h / frames, plane = h * picture->w;
    *out = (array){.c = picture->c, .t = frames, .h = h, .w = picture->w};
    while (out->t < rule->first || (out->t - rule->first) % rule->step != 0) {
        out->t++;
    }
    if (!allocate(out)) {
        return false;
    }
    for (int64_t i = 0; i < out->c * out->t; i++) {
        const int64_t frame = i % out->t < frames ? i % out->t : frames - 1;
        memcpy(out->data + i * plane, picture->data + (i / out->t * frames + frame) * plane,
               (size_t)plane * sizeof *out->data);
    }
    return true;
}

static void encode(const clip_run *run, const char *path, const array *clip, bool whole) {
    array got = {0};
    array mean = {0};
    array logvar = {0};
    array encoded = {0};
    if (compute(run, DV_STAGE_ENCODE, whole, clip, &got)) {
        if (read_tensor(path, "encoded", &encoded)) {
            compare_arrays(run->precision, whole ? "encoded" : "encoded in slices", &got, &encoded);
        } else if (CHECK(read_tensor(path, "mean", &mean)) && CHECK(read_tensor(path, "logvar", &logvar)) &&
                   CHECK(got.c == 2 * mean.c)) {
            compare_moments(run->precision, whole ? "" : " in slices", &got, &mean, &logvar);
        }
    }
    array_free(&got);
    array_free(&mean);
    array_free(&logvar);
    array_free(&encoded);
}

static void decode(const clip_run *run, const array *latent, const array *expected, bool whole) {
    array got = {0};
    if (compute(run, DV_STAGE_DECODE, whole, latent, &got)) {
        compare_arrays(run->precision, whole ? "decoded" : "decoded in slices", &got, expected);
    }
    array_free(&got);
}

/* ---- a clip's first frame, or latent, as a single picture ---- */

static bool first_of(const array *clip, array *out) {
    const int64_t plane = clip->h * clip->w;
    *out = (array){.c = clip->c, .t = 1, .h = clip->h, .w = clip->w};
    if (!allocate(out)) {
        return false;
    }
    for (int64_t i = 0; i < clip->c; i++) {
        memcpy(out->data + i * plane, clip->data + i * clip->t * plane, (size_t)plane * sizeof *out->data);
    }
    return true;
}

static bool compute_picture(const clip_run *run, dv_stage stage, const array *in, array *out) {
    dv_engine *e = dv_model_engine(run->model);
    davy_plan_info info = {.struct_size = sizeof info};
    if (dv_engine_plan(e, &(dv_batch_desc){.stage = stage, .h = in->h, .w = in->w}, &info) != DAVY_OK) {
        return failed("plan");
    }
    *out = (array){.c = info.shape[2], .t = 1, .h = info.shape[0], .w = info.shape[1]};
    if (!allocate(out)) {
        return false;
    }
    const bool is_signed = stage == DV_STAGE_ENCODE && dv_engine_arch(e)->range == DAVY_RANGE_SIGNED_UNIT;
    const dv_work work = {.stage = stage,
                          .in_mul = is_signed ? 2.0f : 1.0f,
                          .in_add = is_signed ? -1.0f : 0.0f,
                          .out_mul = 1.0f,
                          .in = frames_of(in, 0, 1),
                          .out = frames_of(out, 0, 1)};
    return dv_model_run(run->model, &work) == DAVY_OK || failed("picture");
}

/* The first frame does not depend on later ones: as a single picture it must give the same result. */
static void pictures(const clip_run *run, const char *path, const array *clip, const array *latent,
                     const array *decoded) {
    array of[6] = {{0}}; /* frame, moments, mean, log-variance; latent, picture */
    array mean = {0};
    array logvar = {0};
    array expected = {0};
    if (read_tensor(path, "mean", &mean) && CHECK(read_tensor(path, "logvar", &logvar)) && first_of(clip, &of[0]) &&
        compute_picture(run, DV_STAGE_ENCODE, &of[0], &of[1]) && CHECK(of[1].c == 2 * mean.c) &&
        first_of(&mean, &of[2]) && first_of(&logvar, &of[3])) {
        compare_moments(run->precision, " of one picture", &of[1], &of[2], &of[3]);
    }
    if (first_of(latent, &of[4]) && first_of(decoded, &expected) &&
        compute_picture(run, DV_STAGE_DECODE, &of[4], &of[5])) {
        compare_arrays(run->precision, "decoded of one picture", &of[5], &expected);
    }
    for (int i = 0; i < 6; i++) {
        array_free(&of[i]);
    }
    array_free(&mean);
    array_free(&logvar);
    array_free(&expected);
}

void clip_case(const clip_run *run, const dv_json *json, const array *picture) {
    const dv_json *name = dv_json_get(json, "inputs");
    char *expected = dv_path_join(run->folder, "expected.safetensors");
    char *inputs = name != NULL ? dv_path_join(run->weights, dv_json_string(name)) : NULL;
    int64_t frames = 0;
    dv_clip_rule rule = {0};
    array clip = {0};
    array latent = {0};
    array decoded = {0};
    if (CHECK(expected != NULL && inputs != NULL) && CHECK(dv_json_int(dv_json_get(json, "frames"), &frames)) &&
        CHECK(frames > 0 && picture->h % frames == 0) && CHECK(read_tensor(inputs, "latent", &latent)) &&
        CHECK(read_tensor(expected, "decoded", &decoded)) &&
        CHECK(dv_engine_clip(dv_model_engine(run->model), DV_STAGE_ENCODE, &rule)) &&
        clip_of(picture, frames, &rule, &clip)) {
        for (int slices = 0; slices < 2; slices++) {
            encode(run, expected, &clip, slices == 0);
            decode(run, &latent, &decoded, slices == 0);
        }
        pictures(run, expected, &clip, &latent, &decoded);
    }
    array_free(&clip);
    array_free(&latent);
    array_free(&decoded);
    dv_free(expected);
    dv_free(inputs);
}
