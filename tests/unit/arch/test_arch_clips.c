/* test_arch_clips.c - the video autoencoders: the detected network of a file, the shape of every tensor, the clip
 * lengths, and equal state between all slices of a clip. Names and shapes are those of the golden cases. */
#include "core/arch/arch.h"
#include "core/plan/plan.h"

#include "tests/unit/arch/clip_networks.h"
#include "tests/lib/gpus.h"
#include "tests/lib/manifest_names.h"

typedef union config_bytes {
    char bytes[DV_ARCH_CONFIG_BYTES];
    int64_t align;
    void *align_too;
} config_bytes;

static davy_result configure(const dv_tensors *t, const char *config, const char *file_name, const dv_arch **arch,
                             config_bytes *cfg) {
    dv_json *json = NULL;
    if (config != NULL) {
        CHECKF(dv_json_parse(config, strlen(config), "config.json", &json) == DAVY_OK, "%s", last_error());
    }
    const dv_probe probe = {.tensors = t, .config = json, .file_name = file_name};
    memset(cfg, 0, sizeof *cfg);
    davy_result r = dv_arch_detect(&probe, NULL, arch);
    r = r == DAVY_OK ? (*arch)->config(&probe, cfg) : r;
    dv_json_release(json);
    return r;
}

typedef struct slice {
    dv_stage stage;
    int64_t frames, h, w;
    bool continues, keeps;
} slice;

/* Returns NULL on an error, which is in *r. */
static dv_graph *build(const dv_tensors *t, const slice *s, davy_result *r) {
    const dv_arch *arch = NULL;
    config_bytes cfg;
    dv_graph *g = NULL;
    *r = configure(t, NULL, "", &arch, &cfg);
    *r = *r == DAVY_OK ? dv_graph_create(t, &g) : *r;
    if (*r == DAVY_OK) {
        g->pictures = s->frames;
        g->continues = s->continues;
        g->keeps = s->keeps;
        *r = arch->build(&cfg, s->stage, s->h, s->w, g);
    }
    if (*r != DAVY_OK) {
        dv_graph_release(g);
        return NULL;
    }
    return g;
}

/* ---- facts ---- */

static bool same_rule(const dv_clip_rule *a, const dv_clip_rule *b) {
    return a->first == b->first && a->step == b->step && a->first_out == b->first_out && a->step_out == b->step_out &&
           a->second == b->second && a->spare == b->spare;
}

static void test_facts(const network *n, const dv_tensors *t) {
    const dv_arch *arch = NULL;
    config_bytes cfg;
    davy_model_info info = {0};
    dv_clip_rule encode = {0};
    dv_clip_rule decode = {0};
    if (!CHECKF(configure(t, NULL, n->file_name, &arch, &cfg) == DAVY_OK, "%s: %s", n->name, last_error())) {
        return;
    }
    arch->info(&cfg, &info);
    arch->clip(&cfg, DV_STAGE_ENCODE, &encode);
    arch->clip(&cfg, DV_STAGE_DECODE, &decode);
    CHECKF(strcmp(arch->name, n->arch) == 0 && strcmp(info.variant, n->variant) == 0, "%s: %s, '%s'", n->file_name,
           arch->name, info.variant);
    CHECKF(info.spatial_factor == n->factor && info.size_multiple == n->factor, "%s: factor %d", n->name,
           (int)info.spatial_factor);
    const double off = (double)info.latent_scale - n->scale;
    CHECKF(off < 1e-6 && off > -1e-6, "%s: scale %g", n->name, (double)info.latent_scale);
    CHECKF(same_rule(&encode, &n->encode) && same_rule(&decode, &n->decode), "%s: frames", n->name);
}

/* ---- tensors ---- */

static bool both_build(const network *n, const dv_tensors *t) {
    bool both = true;
    for (int k = 0; k < 2; k++) {
        const dv_clip_rule *rule = k == 0 ? &n->encode : &n->decode;
        const int64_t side = k == 0 ? 2 * n->factor : 8;
        const slice whole = {.stage = k == 0 ? DV_STAGE_ENCODE : DV_STAGE_DECODE,
                             .frames = rule->first + rule->step,
                             .h = side,
                             .w = side};
        davy_result r;
        dv_graph *g = build(t, &whole, &r);
        CHECKF(g != NULL || r == DAVY_E_TENSOR || r == DAVY_E_SHAPE || r == DAVY_E_UNSUPPORTED || r == DAVY_E_ARCH,
               "%s: %d, %s", n->name, (int)r, last_error());
        both = both && g != NULL;
        dv_graph_release(g);
    }
    return both;
}

/* If a tensor is missing, or one of its sides differs, one of the stages reports an error. */
static void test_every_tensor(const network *n, dv_tensors *t) {
    CHECKF(both_build(n, t), "%s: %s", n->name, last_error());
    for (int64_t i = 0; i < t->count; i++) {
        const dv_tensor_ref kept = t->refs[i];
        dv_tensor_ref *ref = &t->refs[i];
        for (int32_t axis = 0; axis < kept.ndim; axis++) {
            ref->shape[axis] += 2;
            CHECKF(!both_build(n, t), "%s: axis %d of '%s' may be anything", n->name, (int)axis, kept.name);
            *ref = kept;
        }
        memmove(ref, ref + 1, (size_t)(t->count - i - 1) * sizeof *ref);
        t->count--;
        CHECKF(!both_build(n, t), "%s: no stage requires '%s'", n->name, kept.name);
        memmove(ref + 1, ref, (size_t)(t->count - i) * sizeof *ref);
        t->count++;
        *ref = kept;
    }
}

/* ---- frames ---- */

/* The state that a slice leaves to the next one must be the state that the next one reads. */
static int64_t state_of(const dv_graph *g, dv_shape *out, int64_t cap) {
    int64_t n = 0;
    for (int64_t k = 0; k < g->n_nodes; k++) {
        const dv_node *node = &g->nodes[k];
        if (node->op == DV_OP_FRAMES && node->time.keep > 0 && n < cap) {
            out[n] = dv_shape_of(g, node->in[0]);
            out[n++].n = node->time.keep;
        }
    }
    return n;
}

static void test_slices(const network *n, const dv_tensors *t) {
    enum { MOST = 256 };
    for (int k = 0; k < 2; k++) {
        const dv_clip_rule *rule = k == 0 ? &n->encode : &n->decode;
        const int64_t side = k == 0 ? 2 * n->factor : 8;
        dv_shape state[3][MOST];
        int64_t count[3] = {0};
        for (int i = 0; i < 3; i++) { /* the shortest first slice, a longer one, a later one */
            const slice s = {.stage = k == 0 ? DV_STAGE_ENCODE : DV_STAGE_DECODE,
                             .frames = i == 2 ? rule->step : rule->first + 2 * i * rule->step,
                             .h = side,
                             .w = side,
                             .continues = i == 2,
                             .keeps = true};
            const int64_t out = i == 2 ? rule->step_out : rule->first_out + 2 * i * rule->step_out;
            davy_result r;
            dv_graph *g = build(t, &s, &r);
            if (CHECKF(g != NULL, "%s: %s", n->name, last_error())) {
                CHECKF(dv_shape_of(g, g->output).n == out, "%s: %d frames", n->name, (int)dv_shape_of(g, g->output).n);
                count[i] = state_of(g, state[i], MOST);
            }
            dv_graph_release(g);
        }
        for (int i = 1; i < 3; i++) {
            CHECKF(count[i] > 0 && count[i] == count[0] &&
                       memcmp(state[i], state[0], (size_t)count[0] * sizeof state[0][0]) == 0,
                   "%s: state of %d and %d parts", n->name, (int)count[0], (int)count[i]);
        }
    }
}

/* Every step has a kernel, also on a GPU. */
static void test_plans(const network *n, const dv_tensors *t) {
    static const dv_plan_options targets[] = {{.compute = DVK_F32},
                                              {.compute = DVK_BF16},
                                              {.caps = &turing, .compute = DVK_F16},
                                              {.caps = &hopper, .compute = DVK_F32},
                                              {.caps = &hopper, .compute = DVK_BF16},
                                              {.caps = &hopper, .compute = DVK_FP8}};
    for (int k = 0; k < 2 * 3 * 6; k++) { /* both stages; whole clip, first slice, later slice */
        const bool encoder = k / 18 == 0;
        const int part = k / 6 % 3;
        const dv_clip_rule *rule = encoder ? &n->encode : &n->decode;
        const int64_t side = encoder ? 2 * n->factor : 8;
        const slice s = {.stage = encoder ? DV_STAGE_ENCODE : DV_STAGE_DECODE,
                         .frames = part == 0   ? rule->first + rule->step
                                   : part == 1 ? rule->first
                                               : rule->step,
                         .h = side,
                         .w = side,
                         .continues = part == 2,
                         .keeps = part > 0};
        const dv_plan_options *options = &targets[k % 6];
        davy_result r;
        dv_graph *g = build(t, &s, &r);
        r = r == DAVY_OK && options->compute == DVK_F16 ? dv_rescale(g) : r;
        r = r == DAVY_OK ? dv_fuse(g) : r;
        if (!CHECKF(r == DAVY_OK, "%s: %s", n->name, last_error())) {
            dv_graph_release(g);
            continue;
        }
        dv_plan *plan = NULL;
        CHECKF(dv_plan_create(g, options, &plan) == DAVY_OK, "%s, %d: %s", n->name, k, last_error());
        dv_plan_release(plan);
    }
}

static void expect_refused(const network *n, const dv_tensors *t, slice s, davy_result code, const char *says) {
    davy_result r;
    dv_graph *g = build(t, &s, &r);
    CHECKF(g == NULL && r == code && strstr(last_error(), says) != NULL, "%s: %d, %s", n->name, (int)r, last_error());
    dv_graph_release(g);
}

static void test_wrong_sizes(const network *n, const dv_tensors *t) {
    const int64_t side = 2 * n->factor;
    const slice uneven = {.stage = DV_STAGE_ENCODE, .frames = n->encode.first, .h = side, .w = side + 4};
    const slice upscale = {.stage = DV_STAGE_UPSCALE, .frames = 1, .h = side, .w = side};
    slice odd = {.stage = DV_STAGE_ENCODE, .frames = 3, .h = side, .w = side, .keeps = true};
    expect_refused(n, t, uneven, DAVY_E_SHAPE, "multiples of");
    expect_refused(n, t, odd, DAVY_E_SHAPE, "3 frames");
    odd.continues = true;
    expect_refused(n, t, odd, DAVY_E_SHAPE, "3 frames");
    expect_refused(n, t, upscale, DAVY_E_UNSUPPORTED, "upscale");
}

/* ---- halves, related networks ---- */

static void test_half(const network *n, bool encoder) {
    dv_tensors *t = names_of(n->name);
    const char *other = encoder ? "decoder." : "encoder.";
    int64_t kept = 0;
    for (int64_t i = 0; t != NULL && i < t->count; i++) {
        if (strncmp(t->refs[i].name, other, 8) == 0) {
            dv_free(t->refs[i].name);
        } else {
            t->refs[kept++] = t->refs[i];
        }
    }
    if (t == NULL) {
        return;
    }
    t->count = kept;
    const int64_t side = 2 * n->factor;
    const slice there = {.stage = encoder ? DV_STAGE_ENCODE : DV_STAGE_DECODE,
                         .frames = encoder ? n->encode.first : n->decode.first,
                         .h = side,
                         .w = side};
    davy_result r;
    dv_graph *g = build(t, &there, &r);
    CHECKF(g != NULL, "%s, one half: %s", n->name, last_error());
    dv_graph_release(g);
    slice missing = there;
    missing.stage = encoder ? DV_STAGE_DECODE : DV_STAGE_ENCODE;
    missing.frames = encoder ? 1 : n->encode.first;
    expect_refused(n, t, missing, DAVY_E_UNSUPPORTED, "only the");
    dv_tensors_release(t);
}

static dv_tensor_ref *tensor(dv_tensors *t, const char *name) {
    for (int64_t i = 0; i < t->count; i++) {
        if (strcmp(t->refs[i].name, name) == 0) {
            return &t->refs[i];
        }
    }
    CHECKF(0, "no tensor '%s'", name);
    return &t->refs[0];
}

static void test_relatives(void) {
    const dv_arch *arch = NULL;
    config_bytes cfg;
    dv_tensors *t = names_of("wan2_2"); /* Qwen-Image 2.1 has these names without a time axis */
    tensor(t, "decoder.head.2.weight")->shape[2] = 1;
    CHECKF(configure(t, NULL, "", &arch, &cfg) == DAVY_E_ARCH && strstr(last_error(), "Qwen-Image 2.1") != NULL, "%s",
           last_error());
    dv_tensors_release(t);
    t = names_of("lighttaehy1_5");
    CHECKF(configure(t, "{\"act_fn\":\"swish\"}", "", &arch, &cfg) == DAVY_E_UNSUPPORTED, "%s", last_error());
    davy_model_info info = {0};
    CHECK(configure(t, "{\"act_fn\":\"leaky_relu\"}", "", &arch, &cfg) == DAVY_OK);
    arch->info(&cfg, &info);
    CHECKF(strstr(info.variant, "leaky") != NULL, "%s", info.variant);
    CHECK(configure(t, "{\"act_fn\":\"relu\"}", "lighttaehy1_5.safetensors", &arch, &cfg) == DAVY_OK);
    arch->info(&cfg, &info);
    CHECKF(strstr(info.variant, "leaky") == NULL, "%s", info.variant);
    dv_tensors_release(t);
    t = names_of("taeltx_2"); /* H3's shapes, but eight frames per latent */
    tensor(t, "decoder.1.weight")->shape[1] = 24;
    tensor(t, "encoder.17.weight")->shape[0] = 24;
    tensor(t, "encoder.0.weight")->shape[1] = 12;
    tensor(t, "decoder.22.bias")->shape[0] = 12;
    CHECKF(configure(t, NULL, "", &arch, &cfg) == DAVY_E_SHAPE && strstr(last_error(), "4 frames per latent") != NULL,
           "%s", last_error());
    dv_tensors_release(t);
    t = names_of("wan2_1"); /* a decoder whose pictures have twice the size */
    tensor(t, "decoder.head.2.weight")->shape[0] = 12;
    CHECKF(configure(t, NULL, "", &arch, &cfg) == DAVY_E_UNSUPPORTED && strstr(last_error(), "12 channels") != NULL,
           "%s", last_error());
    dv_tensors_release(t);
}

int main(void) {
    for (int i = 0; i < N_NETWORKS; i++) {
        dv_tensors *t = names_of(networks[i].name);
        if (t == NULL) {
            continue;
        }
        test_facts(&networks[i], t);
        test_slices(&networks[i], t);
        test_plans(&networks[i], t);
        test_wrong_sizes(&networks[i], t);
        test_every_tensor(&networks[i], t);
        dv_tensors_release(t);
        test_half(&networks[i], true);
        test_half(&networks[i], false);
    }
    test_relatives();
    return check_done();
}
