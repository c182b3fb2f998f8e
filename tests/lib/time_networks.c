/* time_networks.c - see time_networks.h. */
#include "tests/lib/time_networks.h"

int64_t channels;

dv_tensors *weights_causal(void) {
    dv_tensors *t = fake_new();
    fake_conv3d(t, "a", channels, 3, 3, 3);
    fake_norm(t, "n", channels);
    fake_conv3d(t, "b", channels, channels, 3, 3);
    fake_conv3d(t, "d", 24, channels, 3, 3);
    fake_conv3d(t, "u", 2 * 4 * channels, 24, 1, 1);
    fake_conv3d(t, "v", channels, channels, 3, 3);
    fake_conv3d(t, "o", 3, channels, 3, 1);
    fake_done(t);
    return t;
}

static void build_causal(dv_graph *g, dv_value x) {
    const dv_conv3d_opts down = {.step = 2, .stride = 2, .pad_bottom_right = true};
    const dv_conv3d_opts one = {.frames = 1, .k = 1};
    const dv_conv3d_opts mix = {.k = 1, .before = DV_BEFORE_ZERO};
    const dv_value a = dv_conv3d(g, x, "a", channels, NULL);
    dv_value b = dv_activation(g, dv_group_norm(g, a, "n", 4, 1e-6f), DVK_ACT_SILU, 0.0f);
    b = dv_add(g, 1.0f, dv_conv3d(g, b, "b", channels, NULL), 1.0f, a);
    const dv_value d = dv_conv3d(g, b, "d", 24, &down);
    dv_value u = dv_pixel_shuffle(g, dv_conv3d(g, d, "u", 2 * 4 * channels, &one), 2, DV_NO_VALUE);
    u = dv_channels_to_frames(g, u, 2);
    if (!g->continues) {
        const int64_t n = dv_shape_of(g, u).n;
        const dv_value parts[2] = {dv_take_frames(g, u, 0, 1), n > 2 ? dv_take_frames(g, u, 2, n - 2) : DV_NO_VALUE};
        u = dv_join_frames(g, parts, n > 2 ? 2 : 1);
    }
    const dv_value v = dv_activation(g, dv_conv3d(g, u, "v", channels, NULL), DVK_ACT_SILU, 0.0f);
    dv_output(g, dv_conv3d(g, v, "o", 3, &mix));
}

static clip reference_causal(const dv_tensors *t, clip x) {
    const clip_conv a = {"a.weight", "a.bias", channels, 3, 3, 1, 1, 0, 0};
    const clip_conv b = {"b.weight", "b.bias", channels, 3, 3, 1, 1, 0, 0};
    const clip_conv d = {"d.weight", "d.bias", 24, 3, 3, 2, 2, 1, 0};
    const clip_conv u = {"u.weight", "u.bias", 2 * 4 * channels, 1, 1, 1, 1, 0, 0};
    const clip_conv v = {"v.weight", "v.bias", channels, 3, 3, 1, 1, 0, 0};
    const clip_conv o = {"o.weight", "o.bias", 3, 3, 1, 1, 1, 0, 1};
    const clip skip = clip_convolve(t, x, &a);
    clip y = clip_copy(&skip);
    clip_norm(t, &y, "n.weight", "n.bias", 4);
    clip_silu(&y);
    y = clip_convolve(t, y, &b);
    clip_add(&y, &skip);
    free(skip.data);
    y = clip_spread(clip_convolve(t, clip_convolve(t, y, &d), &u), 2, 1);
    y = clip_convolve(t, clip_drop(y, 1), &v);
    clip_silu(&y);
    return clip_convolve(t, y, &o);
}

/* The end of SeedVR2's decoder: time grows, then blocks with and without a shortcut convolution. */
static dv_tensors *weights_blocks(void) {
    dv_tensors *t = fake_new();
    fake_conv3d(t, "a", channels, 3, 3, 3);
    fake_conv3d(t, "r", channels, channels, 1, 1);
    fake_conv3d(t, "u", 2 * 4 * channels, channels, 1, 1);
    fake_conv3d(t, "v", 24, channels, 3, 3);
    fake_conv3d(t, "s", channels, 24, 1, 1);
    fake_norm(t, "n", 24);
    fake_conv3d(t, "b", channels, 24, 3, 3);
    fake_norm(t, "m", channels);
    fake_conv3d(t, "c", channels, channels, 3, 3);
    fake_norm(t, "k", channels);
    fake_conv3d(t, "d", channels, channels, 3, 3);
    fake_conv3d(t, "o", 3, channels, 3, 1);
    fake_done(t);
    return t;
}

dv_value act_of_norm(dv_graph *g, dv_value x, const char *name) {
    return dv_activation(g, dv_group_norm(g, x, name, 4, 1e-6f), DVK_ACT_SILU, 0.0f);
}

static void build_blocks(dv_graph *g, dv_value x) {
    const dv_conv3d_opts one = {.frames = 1, .k = 1};
    const dv_conv3d_opts mix = {.k = 1, .before = DV_BEFORE_ZERO};
    dv_value a = dv_conv3d(g, x, "a", channels, NULL);
    a = dv_add(g, 1.0f, dv_conv3d(g, a, "r", channels, &one), 1.0f, a);
    dv_value u = dv_pixel_shuffle(g, dv_conv3d(g, a, "u", 2 * 4 * channels, &one), 2, DV_NO_VALUE);
    u = dv_channels_to_frames(g, u, 2);
    if (!g->continues) {
        const int64_t n = dv_shape_of(g, u).n;
        const dv_value parts[2] = {dv_take_frames(g, u, 0, 1), n > 2 ? dv_take_frames(g, u, 2, n - 2) : DV_NO_VALUE};
        u = dv_join_frames(g, parts, n > 2 ? 2 : 1);
    }
    const dv_value v = dv_conv3d(g, u, "v", 24, NULL);
    const dv_value s = dv_conv3d(g, v, "s", channels, &one);
    dv_value b = dv_conv3d(g, act_of_norm(g, v, "n"), "b", channels, NULL);
    b = dv_add(g, 1.0f, dv_conv3d(g, act_of_norm(g, b, "m"), "c", channels, NULL), 1.0f, s);
    b = dv_add(g, 1.0f, dv_conv3d(g, act_of_norm(g, b, "k"), "d", channels, NULL), 1.0f, b);
    dv_output(g, dv_conv3d(g, dv_activation(g, b, DVK_ACT_SILU, 0.0f), "o", 3, &mix));
}

clip clip_normed(const dv_tensors *t, const clip *x, const char *gamma, const char *beta) {
    clip y = clip_copy(x);
    clip_norm(t, &y, gamma, beta, 4);
    clip_silu(&y);
    return y;
}

static clip reference_blocks(const dv_tensors *t, clip x) {
    const clip_conv a = {"a.weight", "a.bias", channels, 3, 3, 1, 1, 0, 0};
    const clip_conv r = {"r.weight", "r.bias", channels, 1, 1, 1, 1, 0, 0};
    const clip_conv u = {"u.weight", "u.bias", 2 * 4 * channels, 1, 1, 1, 1, 0, 0};
    const clip_conv v = {"v.weight", "v.bias", 24, 3, 3, 1, 1, 0, 0};
    const clip_conv s = {"s.weight", "s.bias", channels, 1, 1, 1, 1, 0, 0};
    const clip_conv b = {"b.weight", "b.bias", channels, 3, 3, 1, 1, 0, 0};
    const clip_conv c = {"c.weight", "c.bias", channels, 3, 3, 1, 1, 0, 0};
    const clip_conv d = {"d.weight", "d.bias", channels, 3, 3, 1, 1, 0, 0};
    const clip_conv o = {"o.weight", "o.bias", 3, 3, 1, 1, 1, 0, 1};
    x = clip_convolve(t, x, &a);
    clip y = clip_convolve(t, clip_copy(&x), &r);
    clip_add(&y, &x);
    free(x.data);
    y = clip_convolve(t, clip_drop(clip_spread(clip_convolve(t, y, &u), 2, 1), 1), &v);
    const clip z = clip_convolve(t, clip_normed(t, &y, "n.weight", "n.bias"), &b);
    y = clip_convolve(t, y, &s);
    const clip w = clip_convolve(t, clip_normed(t, &z, "m.weight", "m.bias"), &c);
    clip_add(&y, &w);
    const clip last = clip_convolve(t, clip_normed(t, &y, "k.weight", "k.bias"), &d);
    clip_add(&y, &last);
    free(z.data);
    free(w.data);
    free(last.data);
    clip_silu(&y);
    return clip_convolve(t, y, &o);
}

/* SeedVR2's upsamplers, with and without growth in time. */
static dv_tensors *weights_grown(void) {
    dv_tensors *t = fake_new();
    fake_conv3d(t, "a", channels, 3, 3, 3);
    fake_conv3d(t, "r", channels, channels, 1, 1);
    fake_conv3d(t, "u.upscale_conv", 2 * 4 * channels, channels, 1, 1);
    fake_conv3d(t, "u.conv", channels, channels, 3, 3);
    fake_conv3d(t, "v.upscale_conv", 4 * channels, channels, 1, 1);
    fake_conv3d(t, "v.conv", channels, channels, 3, 3);
    fake_conv3d(t, "o", 3, channels, 3, 1);
    fake_done(t);
    return t;
}

static void build_grown(dv_graph *g, dv_value x) {
    const dv_conv3d_opts mix = {.k = 1, .before = DV_BEFORE_ZERO};
    const dv_conv3d_opts one = {.frames = 1, .k = 1};
    const dv_value a = dv_conv3d(g, x, "a", channels, NULL);
    const dv_value b = dv_add(g, 1.0f, dv_conv3d(g, a, "r", channels, &one), 1.0f, a);
    const dv_value u = dv_upsampler(g, b, "u", 2);
    dv_output(g, dv_conv3d(g, dv_upsampler(g, u, "v", 1), "o", 3, &mix));
}

/* The cells of upsampler.h. Takes ownership of x. */
static clip clip_cells(clip x, int64_t times) {
    clip y = clip_new(x.t * times, 2 * x.h, 2 * x.w, x.c / 4 / times);
    for (int64_t at = 0; at < clip_count(&y); at++) {
        const int64_t c = at % y.c, ox = at / y.c % y.w, oy = at / y.c / y.w % y.h, t = at / y.c / y.w / y.h;
        const int64_t from = ((oy % 2 * 2 + ox % 2) * times + t % times) * y.c + c;
        y.data[at] = clip_at(&x, t / times, oy / 2, ox / 2)[from];
    }
    free(x.data);
    return y;
}

static clip reference_grown(const dv_tensors *t, clip x) {
    const clip_conv a = {"a.weight", "a.bias", channels, 3, 3, 1, 1, 0, 0};
    const clip_conv u = {"u.upscale_conv.weight", "u.upscale_conv.bias", 2 * 4 * channels, 1, 1, 1, 1, 0, 0};
    const clip_conv p = {"u.conv.weight", "u.conv.bias", channels, 3, 3, 1, 1, 0, 0};
    const clip_conv v = {"v.upscale_conv.weight", "v.upscale_conv.bias", 4 * channels, 1, 1, 1, 1, 0, 0};
    const clip_conv q = {"v.conv.weight", "v.conv.bias", channels, 3, 3, 1, 1, 0, 0};
    const clip_conv o = {"o.weight", "o.bias", 3, 3, 1, 1, 1, 0, 1};
    const clip_conv r = {"r.weight", "r.bias", channels, 1, 1, 1, 1, 0, 0};
    const clip skip = clip_convolve(t, x, &a);
    x = clip_convolve(t, clip_copy(&skip), &r);
    clip_add(&x, &skip);
    free(skip.data);
    x = clip_convolve(t, clip_drop(clip_cells(clip_convolve(t, x, &u), 2), 1), &p);
    return clip_convolve(t, clip_convolve(t, clip_cells(clip_convolve(t, x, &v), 1), &q), &o);
}

/* As in TAEHV: blocks with a memory of one frame (zeros at first), and frames folded into channels and back. */
static dv_tensors *weights_memory(void) {
    dv_tensors *t = fake_new();
    fake_conv3d(t, "a", 12, 5, 1, 3);
    fake_conv3d(t, "m", 12, 24, 1, 3);
    fake_conv3d(t, "p", channels, 24, 1, 1);
    fake_conv3d(t, "q", channels, 2 * channels, 1, 3);
    fake_conv3d(t, "g", 2 * channels, channels, 1, 1);
    fake_conv3d(t, "r", 7, 3 * channels, 1, 3);
    fake_done(t);
    return t;
}

static void build_memory(dv_graph *g, dv_value x) {
    const dv_conv3d_opts one = {.frames = 1, .k = 1};
    const dv_conv3d_opts flat = {.frames = 1};
    const dv_value a = dv_conv3d(g, x, "a", 12, &flat);
    const dv_value am[2] = {a, dv_slice(g, dv_recall(g, a, 2, DV_BEFORE_ZERO), 0, 12)};
    dv_value m = dv_add(g, 1.0f, dv_conv3d(g, dv_concat(g, am, 2), "m", 12, &flat), 1.0f, a);
    m = dv_activation(g, m, DVK_ACT_RELU, 0.0f);
    const dv_value p = dv_conv3d(g, dv_frames_to_channels(g, m, 2), "p", channels, &one);
    const dv_value q = dv_conv3d(g, dv_recall(g, p, 2, DV_BEFORE_ZERO), "q", channels, &flat);
    const dv_value f = dv_channels_to_frames(g, dv_conv3d(g, q, "g", 2 * channels, &one), 2);
    dv_output(g, dv_conv3d(g, dv_recall(g, f, 3, DV_BEFORE_FIRST), "r", 7, &flat));
}

static clip clip_first_before(const clip *x, int64_t by) {
    clip y = clip_delay(x, by);
    for (int64_t t = 0; t < by; t++) {
        memcpy(clip_at(&y, t, 0, 0), x->data, (size_t)(x->h * x->w * x->c) * sizeof(float));
    }
    return y;
}

static clip reference_memory(const dv_tensors *t, clip x) {
    const clip_conv a = {"a.weight", "a.bias", 12, 1, 3, 1, 1, 0, 0};
    const clip_conv m = {"m.weight", "m.bias", 12, 1, 3, 1, 1, 0, 0};
    const clip_conv p = {"p.weight", "p.bias", channels, 1, 1, 1, 1, 0, 0};
    const clip_conv q = {"q.weight", "q.bias", channels, 1, 3, 1, 1, 0, 0};
    const clip_conv g = {"g.weight", "g.bias", 2 * channels, 1, 1, 1, 1, 0, 0};
    const clip_conv r = {"r.weight", "r.bias", 7, 1, 3, 1, 1, 0, 0};
    const clip skip = clip_convolve(t, x, &a);
    clip y = clip_convolve(t, clip_beside(clip_copy(&skip), clip_delay(&skip, 1)), &m);
    clip_add(&y, &skip);
    free(skip.data);
    for (int64_t i = 0; i < clip_count(&y); i++) {
        y.data[i] = y.data[i] > 0.0f ? y.data[i] : 0.0f;
    }
    y = clip_convolve(t, clip_gather(y, 2), &p);
    y = clip_convolve(t, clip_beside(clip_delay(&y, 1), y), &q);
    y = clip_spread(clip_convolve(t, y, &g), 2, 0);
    const clip two = clip_first_before(&y, 2);
    return clip_convolve(t, clip_beside(clip_beside(two, clip_first_before(&y, 1)), y), &r);
}

const network time_networks[] = {
    {"causal", 16, 3, 1, 2, 1, 2, weights_causal, build_causal, reference_causal, true, false},
    {"memory", 16, 5, 2, 2, 2, 2, weights_memory, build_memory, reference_memory, true, false},
    {"blocks", 16, 3, 1, 2, 1, 4, weights_blocks, build_blocks, reference_blocks, true, false},
    {"grown", 16, 3, 1, 1, 1, 2, weights_grown, build_grown, reference_grown, true, true},
    {"causal, gathered", 12, 3, 1, 2, 1, 2, weights_causal, build_causal, reference_causal, false, false},
    {"memory, gathered", 12, 5, 2, 2, 2, 2, weights_memory, build_memory, reference_memory, false, false},
};
