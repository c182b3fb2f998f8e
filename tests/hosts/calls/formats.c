/* formats.c - the same picture as input and output in every layout, dtype, value range, channel order and pitch of davy.h. The
 * result must be the same picture: with the same bits if both sides are F32, else within the dtype's precision. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/hosts/host.h"

enum { WIDTH = 23, HEIGHT = 19, SCALE = 2 };

static const davy_api *api;
static davy_context *ctx;
static davy_model *model;

#define RGB  DAVY_CHANNELS_RGB
#define BGR  DAVY_CHANNELS_BGR
#define UNIT DAVY_RANGE_UNIT

static const view_format plain = {"f32 nhwc", DAVY_DTYPE_F32, DAVY_LAYOUT_NHWC, RGB, UNIT, 0, 0, 0};

/* name, dtype, layout, channels, range, row_gap, upside_down, unaligned */
static const view_format float_formats[] = {
    {"f32 hwc", DAVY_DTYPE_F32, DAVY_LAYOUT_HWC, RGB, UNIT, 0, 0, 0},
    {"f32 hwc, channels and range left to davy", DAVY_DTYPE_F32, DAVY_LAYOUT_HWC, 0, DAVY_RANGE_AUTO, 0, 0, 0},
    {"f32 chw", DAVY_DTYPE_F32, DAVY_LAYOUT_CHW, RGB, UNIT, 0, 0, 0},
    {"f32 nchw", DAVY_DTYPE_F32, DAVY_LAYOUT_NCHW, RGB, UNIT, 0, 0, 0},
    {"f32 nthwc", DAVY_DTYPE_F32, DAVY_LAYOUT_NTHWC, RGB, UNIT, 0, 0, 0},
    {"f32 ncthw", DAVY_DTYPE_F32, DAVY_LAYOUT_NCTHW, RGB, UNIT, 0, 0, 0},
    {"f32 hwc bgr", DAVY_DTYPE_F32, DAVY_LAYOUT_HWC, BGR, UNIT, 0, 0, 0},
    {"f32 chw bgr, gaps", DAVY_DTYPE_F32, DAVY_LAYOUT_CHW, BGR, UNIT, 20, 0, 0},
    {"f32 hwc, gaps", DAVY_DTYPE_F32, DAVY_LAYOUT_HWC, RGB, UNIT, 36, 0, 0},
    {"f32 hwc, upside down", DAVY_DTYPE_F32, DAVY_LAYOUT_HWC, RGB, UNIT, 0, 1, 0},
    {"f32 nchw, upside down, gaps", DAVY_DTYPE_F32, DAVY_LAYOUT_NCHW, RGB, UNIT, 4, 1, 0},
    {"f32 hwc signed", DAVY_DTYPE_F32, DAVY_LAYOUT_HWC, RGB, DAVY_RANGE_SIGNED_UNIT, 0, 0, 0},
    {"f16 hwc", DAVY_DTYPE_F16, DAVY_LAYOUT_HWC, RGB, UNIT, 0, 0, 0},
    {"f16 nchw bgr signed", DAVY_DTYPE_F16, DAVY_LAYOUT_NCHW, BGR, DAVY_RANGE_SIGNED_UNIT, 0, 0, 0},
    {"bf16 chw", DAVY_DTYPE_BF16, DAVY_LAYOUT_CHW, RGB, UNIT, 0, 0, 0},
    {"bf16 hwc, gaps", DAVY_DTYPE_BF16, DAVY_LAYOUT_HWC, RGB, UNIT, 14, 0, 0},
};

static const view_format whole_formats[] = {
    {"u8 hwc", DAVY_DTYPE_U8, DAVY_LAYOUT_HWC, RGB, DAVY_RANGE_FULL, 0, 0, 0},
    {"u8 hwc, channels and range left to davy", DAVY_DTYPE_U8, DAVY_LAYOUT_HWC, 0, DAVY_RANGE_AUTO, 0, 0, 0},
    {"u8 chw", DAVY_DTYPE_U8, DAVY_LAYOUT_CHW, RGB, DAVY_RANGE_FULL, 0, 0, 0},
    {"u8 nhwc bgr", DAVY_DTYPE_U8, DAVY_LAYOUT_NHWC, BGR, DAVY_RANGE_FULL, 0, 0, 0},
    {"u8 nchw, gaps", DAVY_DTYPE_U8, DAVY_LAYOUT_NCHW, RGB, DAVY_RANGE_FULL, 5, 0, 0},
    {"u8 hwc bgr, upside down, gaps, odd address", DAVY_DTYPE_U8, DAVY_LAYOUT_HWC, BGR, DAVY_RANGE_FULL, 11, 1, 1},
    {"u16 hwc", DAVY_DTYPE_U16, DAVY_LAYOUT_HWC, RGB, DAVY_RANGE_FULL, 0, 0, 0},
    {"u16 nchw bgr, gaps", DAVY_DTYPE_U16, DAVY_LAYOUT_NCHW, BGR, DAVY_RANGE_FULL, 6, 0, 0},
};

/* Tolerance: half a step of the stored numbers as a picture value, plus a little for the arithmetic. */
static double half_step(const view_format *f) {
    const double signed_unit = f->range == DAVY_RANGE_SIGNED_UNIT ? 0.5 : 1;
    switch (f->dtype) {
    case DAVY_DTYPE_U8:
        return 0.5 / 255 + 2e-6;
    case DAVY_DTYPE_U16:
        return 0.5 / 65535 + 2e-6;
    case DAVY_DTYPE_F16:
        return signed_unit / 4096 + 2e-6;
    case DAVY_DTYPE_BF16:
        return signed_unit / 512 + 2e-6;
    default:
        return f->range == DAVY_RANGE_SIGNED_UNIT ? 1e-6 : 0;
    }
}

static int is_exact_input(const view_format *f) {
    return f->dtype != DAVY_DTYPE_U8 && f->dtype != DAVY_DTYPE_U16;
}

/* Upscales p through a view of format `in` into a view of format `out`. */
static picture through(const picture *p, const view_format *in, const view_format *out, const davy_run *run) {
    view src = view_new(in, p->n, p->h, p->w, p->c);
    view dst = view_new(out, p->n, SCALE * p->h, SCALE * p->w, p->c);
    view_store(&src, p);
    davy_tensor t = dst.tensor;
    const davy_result r = api->upscale(model, &src.tensor, &t, run, NULL);
    CHECKF(r == DAVY_OK, "%s -> %s: %s", in->name, out->name, host_error(api));
    CHECKF(memcmp(&t, &dst.tensor, sizeof t) == 0, "%s: the caller's output tensor was changed", out->name);
    CHECKF(view_trampled(&src) == 0 && view_trampled(&dst) == 0, "%s -> %s: bytes beside the pixels were written",
           in->name, out->name);
    picture got = view_load(&dst);
    view fresh = view_new(in, p->n, p->h, p->w, p->c);
    view_store(&fresh, p);
    CHECKF(memcmp(fresh.memory, src.memory, (size_t)src.bytes) == 0, "%s: the input was written to", in->name);
    view_free(&fresh);
    view_free(&src);
    view_free(&dst);
    return got;
}

/* Clamps the reference, as all ranges except RAW are clamped. */
static void compare(const picture *got, const picture *want, double bound, const char *in, const char *out) {
    const double e = picture_max_error(got, want);
    CHECKF(e <= bound, "%s -> %s: off by %.3g, allowed %.3g", in, out, e, bound);
}

static void inputs(const picture *p, const picture *want, const view_format *formats, size_t n, double slack) {
    for (size_t i = 0; i < n; i++) {
        picture got = through(p, &formats[i], &plain, NULL);
        compare(&got, want, formats[i].range == DAVY_RANGE_SIGNED_UNIT && slack == 0 ? 1e-6 : slack, formats[i].name,
                "f32");
        picture_free(&got);
    }
}

static void outputs(const picture *p, const picture *want, const view_format *formats, size_t n) {
    for (size_t i = 0; i < n; i++) {
        picture got = through(p, &plain, &formats[i], NULL);
        compare(&got, want, half_step(&formats[i]), "f32", formats[i].name);
        picture_free(&got);
    }
}

/* All pairs of input and output formats, with a picture that fits both. */
static void crossed(const picture *exact, const picture *exact_up, const picture *bytes, const picture *bytes_up) {
    const size_t nf = sizeof float_formats / sizeof float_formats[0];
    const size_t nw = sizeof whole_formats / sizeof whole_formats[0];
    for (size_t i = 0; i < nf + nw; i++) {
        const view_format *in = i < nf ? &float_formats[i] : &whole_formats[i - nf];
        for (size_t k = 0; k < nf + nw; k++) {
            const view_format *out = k < nf ? &float_formats[k] : &whole_formats[k - nf];
            picture got = through(is_exact_input(in) ? exact : bytes, in, out, NULL);
            compare(&got, is_exact_input(in) ? exact_up : bytes_up, half_step(out) + 4e-6, in->name, out->name);
            picture_free(&got);
        }
    }
}

/* A batch equals its single pictures. */
static void batch(void) {
    static const davy_layout layouts[] = {DAVY_LAYOUT_NHWC, DAVY_LAYOUT_NCHW, DAVY_LAYOUT_NTHWC, DAVY_LAYOUT_NCTHW};
    picture three = picture_new(3, HEIGHT, WIDTH, 3);
    picture_fill(&three, 21);
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        view_format f = plain;
        f.layout = layouts[i];
        f.name = "batch";
        picture all = through(&three, &f, &f, NULL);
        for (int64_t n = 0; n < 3; n++) {
            const picture one = {1, HEIGHT, WIDTH, 3, three.v + n * HEIGHT * WIDTH * 3};
            const picture part = {1, SCALE * HEIGHT, SCALE * WIDTH, 3, all.v + n * SCALE * HEIGHT * SCALE * WIDTH * 3};
            picture want = through(&one, &plain, &plain, NULL);
            compare(&part, &want, 0, "one of a batch", "f32");
            picture_free(&want);
        }
        picture_free(&all);
    }
    picture_free(&three);
}

static picture first_channels(const picture *p, int64_t c) {
    picture q = picture_new(p->n, p->h, p->w, c);
    for (int64_t i = 0; i < picture_count(&q); i++) {
        q.v[i] = p->v[i / c * p->c + i % c];
    }
    return q;
}

static picture last_channel(const picture *p) {
    picture q = picture_new(p->n, p->h, p->w, 1);
    for (int64_t i = 0; i < picture_count(&q); i++) {
        q.v[i] = p->v[i * p->c + p->c - 1];
    }
    return q;
}

/* RGBA: the colours equal those without alpha; alpha equals a grey picture. A grey picture equals three equal colours,
 * converted back to grey. */
/* The grey value of a picture with three equal colours equals the result of the grey picture. */
static void grey_in_colours(const picture *grey, const picture *grey_up) {
    picture same = picture_new(1, HEIGHT, WIDTH, 3);
    for (int64_t i = 0; i < picture_count(&same); i++) {
        same.v[i] = grey->v[i / 3];
    }
    const davy_run unclamped = {.struct_size = sizeof unclamped};
    picture as_colour = through(&same, &plain, &plain, &unclamped);
    picture luma = picture_new(as_colour.n, as_colour.h, as_colour.w, 1);
    for (int64_t i = 0; i < picture_count(&luma); i++) {
        const float *v = as_colour.v + 3 * i;
        luma.v[i] = 0.299f * v[0] + 0.587f * v[1] + 0.114f * v[2];
    }
    CHECKF(picture_l2_error(grey_up, &luma) < 0.02, "grey is not the grey of its colours: %g",
           picture_l2_error(grey_up, &luma)); /* not the same bits: clamping is before or after the luma */
    picture_free(&same);
    picture_free(&as_colour);
    picture_free(&luma);
}

/* Equal colour and alpha give equal results. */
static void grey_with_alpha(const picture *grey, const picture *grey_up) {
    view_format ga = plain;
    ga.channels = DAVY_CHANNELS_GRAYA;
    picture two = picture_new(1, HEIGHT, WIDTH, 2);
    for (int64_t i = 0; i < picture_count(&two); i++) {
        two.v[i] = grey->v[i / 2];
    }
    picture up = through(&two, &ga, &ga, NULL), first = first_channels(&up, 1), last = last_channel(&up);
    compare(&first, grey_up, 0, "grey with alpha", "its grey");
    compare(&last, grey_up, 0, "grey with alpha", "its alpha");
    picture_free(&two);
    picture_free(&up);
    picture_free(&first);
    picture_free(&last);
}

static void dropped_alpha(const picture *rgba, const view_format *format, const picture *colours) {
    view src = view_new(format, 1, HEIGHT, WIDTH, 4);
    view_store(&src, rgba);
    const davy_run drop = {.struct_size = sizeof drop, .flags = DAVY_RUN_DROP_ALPHA};
    davy_tensor out = {.struct_size = sizeof out};
    IS(api->upscale(model, &src.tensor, &out, &drop, NULL), DAVY_OK);
    davy_tensor seen = {.struct_size = sizeof seen};
    if (out.buffer != NULL && api->buffer_tensor(out.buffer, &seen) == DAVY_OK) {
        picture dropped = tensor_load(&seen);
        picture dropped_colours = first_channels(&dropped, 3);
        CHECKF(dropped.c == 3, "alpha was to be dropped, the result has %d channels", (int)dropped.c);
        compare(&dropped_colours, colours, 0, "rgba, alpha dropped", "rgb");
        picture_free(&dropped_colours);
        picture_free(&dropped);
    }
    api->buffer_release(out.buffer);
    view_free(&src);
}

static void alpha_and_grey(void) {
    picture rgba = picture_new(1, HEIGHT, WIDTH, 4);
    picture_fill(&rgba, 31);
    picture rgb = first_channels(&rgba, 3), alpha = last_channel(&rgba);
    view_format with_alpha = plain, grey = plain, bgra = plain;
    with_alpha.channels = DAVY_CHANNELS_RGBA;
    bgra.channels = DAVY_CHANNELS_BGRA;
    bgra.layout = DAVY_LAYOUT_CHW;
    grey.channels = DAVY_CHANNELS_GRAY;
    grey.layout = DAVY_LAYOUT_HW;
    picture got = through(&rgba, &with_alpha, &with_alpha, NULL);
    picture swapped = through(&rgba, &bgra, &bgra, NULL);
    picture colours = through(&rgb, &plain, &plain, NULL);
    picture grey_alpha = through(&alpha, &grey, &grey, NULL);
    picture got_colours = first_channels(&got, 3), got_alpha = last_channel(&got);
    compare(&swapped, &got, 0, "bgra", "bgra");
    compare(&got_colours, &colours, 0, "rgba", "its colours");
    compare(&got_alpha, &grey_alpha, 0, "rgba", "its alpha");
    grey_in_colours(&alpha, &grey_alpha);
    grey_with_alpha(&alpha, &grey_alpha);
    dropped_alpha(&rgba, &with_alpha, &colours);
    picture *all[] = {&rgba, &rgb, &alpha, &got, &swapped, &colours, &grey_alpha, &got_colours, &got_alpha};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        picture_free(all[i]);
    }
}

/* Colours under full transparency do not appear near visible pixels, and do not change alpha. */
static void hidden_colours(void) {
    picture a = picture_new(1, HEIGHT, WIDTH, 4);
    picture_fill(&a, 37);
    for (int64_t i = 0; i < picture_count(&a); i += 4) {
        const int64_t x = i / 4 % WIDTH;
        a.v[i + 3] =
            x >= 4 && x < 16 ? 0.0f : 0.1f + 0.9f * a.v[i + 3]; /* no pixel is further than 8 from a visible one */
    }
    picture b = picture_new(1, HEIGHT, WIDTH, 4);
    for (int64_t i = 0; i < picture_count(&b); i++) {
        b.v[i] = i % 4 < 3 && a.v[i / 4 * 4 + 3] == 0.0f ? 1.0f - a.v[i] : a.v[i];
    }
    view_format rgba = plain;
    rgba.channels = DAVY_CHANNELS_RGBA;
    picture x = through(&a, &rgba, &rgba, NULL), y = through(&b, &rgba, &rgba, NULL);
    compare(&x, &y, 0, "hidden colours", "other hidden colours");
    picture_free(&a);
    picture_free(&b);
    picture_free(&x);
    picture_free(&y);
}

/* RAW is not clamped; every other range is. */
static void clamping(void) {
    picture p = picture_new(1, HEIGHT, WIDTH, 3);
    for (int64_t i = 0; i < picture_count(&p); i++) {
        p.v[i] = i % 2 == 0 ? 1.5f : -0.5f; /* outside 0..1: floats are not clamped on the way in */
    }
    view_format raw = plain;
    raw.range = DAVY_RANGE_RAW;
    picture free_range = through(&p, &plain, &raw, NULL), clamped = through(&p, &plain, &plain, NULL);
    int outside = 0, wrong = 0;
    for (int64_t i = 0; i < picture_count(&free_range); i++) {
        const float v = free_range.v[i];
        outside += v < 0 || v > 1;
        wrong += fabsf(clamped.v[i] - (v < 0 ? 0 : v > 1 ? 1 : v)) > 1e-6f;
    }
    CHECKF(outside > 0, "nothing of RAW lies outside 0..1");
    CHECKF(wrong == 0, "%d numbers of UNIT are not RAW's, clamped", wrong);
    picture_free(&free_range);
    picture_free(&clamped);
    picture_free(&p);
}

int main(void) {
    api = host_load();
    const davy_context_desc desc = {.struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .device = "cpu"};
    IS(api->context_create(&desc, &ctx), DAVY_OK);
    IS(host_open_small(api, ctx, &model), DAVY_OK);
    if (model == NULL) {
        return check_done();
    }
    picture exact = picture_new(1, HEIGHT, WIDTH, 3), bytes = picture_new(1, HEIGHT, WIDTH, 3);
    picture_fill(&exact, 11);
    picture_fill_8bit(&bytes, 12);
    picture exact_up = through(&exact, &plain, &plain, NULL), bytes_up = through(&bytes, &plain, &plain, NULL);
    inputs(&exact, &exact_up, float_formats, sizeof float_formats / sizeof float_formats[0], 0);
    inputs(&bytes, &bytes_up, whole_formats, sizeof whole_formats / sizeof whole_formats[0], 2e-6);
    outputs(&exact, &exact_up, float_formats, sizeof float_formats / sizeof float_formats[0]);
    outputs(&exact, &exact_up, whole_formats, sizeof whole_formats / sizeof whole_formats[0]);
    crossed(&exact, &exact_up, &bytes, &bytes_up);
    batch();
    alpha_and_grey();
    hidden_colours();
    clamping();
    picture_free(&exact);
    picture_free(&bytes);
    picture_free(&exact_up);
    picture_free(&bytes_up);
    api->model_release(model);
    api->context_release(ctx);
    return check_done();
}
