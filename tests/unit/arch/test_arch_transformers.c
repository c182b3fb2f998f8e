/* test_arch_transformers.c - SwinIR, SRFormer, DRCT, HAT, DAT, RGT and ATD: their facts, their differences from
 * related networks, their tile sizes, and files in which one tensor does not fit the others. */
#include <string.h>

#include "core/base/error.h"
#include "tests/lib/check.h"
#include "tests/lib/last_error.h"
#include "tests/lib/fake_transformers.h"

static dv_tensors *swinir(void) {
    return fake_swinir(12, 2, 8, 0);
}

static dv_tensors *swinir_direct(void) {
    return fake_swinir(16, 2, 8, 1);
}

static dv_tensors *srformer(void) {
    return fake_srformer(12, 2, 6);
}

static dv_tensors *drct(void) {
    return fake_drct(12, 4, 8);
}

static dv_tensors *hat(void) {
    return fake_hat(12, 2, 8, 12);
}

static dv_tensors *dat(void) {
    return fake_dat(16, 2);
}

static dv_tensors *atd(void) {
    static const int64_t of[3] = {8, 5, 3};
    return fake_atd(12, 2, of);
}

static dv_tensors *rgt(void) {
    return fake_rgt(16, 2);
}

static const struct {
    const char *arch, *variant;
    dv_tensors *(*weights)(void);
    bool global;
    int64_t align;
} networks[] = {
    {"swinir", "12 features, 1 layers, window 8, pixel shuffle, x2", swinir, false, 8},
    {"swinir", "16 features, 1 layers, window 8, direct, x2", swinir_direct, false, 8},
    {"srformer", "12 features, 1 layers, window 6, pixel shuffle, x2", srformer, false, 6},
    {"drct", "12 features, 1 groups, window 8, x2", drct, false, 8},
    {"hat", "12 features, 1 groups, window 8, x2", hat, true, 8},
    {"dat", "16 features, 1 groups, split 8x32 assumed, x2", dat, true, 32},
    {"rgt", "16 features, 1 groups of 3, split 8x32 assumed, x2", rgt, true, 32},
    {"atd", "12 features, 1 groups, window 8, 5 tokens, x2", atd, true, 16},
};

enum { N_NETWORKS = (int)(sizeof networks / sizeof networks[0]) };

typedef struct described {
    const dv_arch *arch;
    davy_model_info info;
    davy_result result;
    int64_t cfg[DV_ARCH_CONFIG_BYTES / sizeof(int64_t)];
} described;

static described describe(const dv_tensors *t, int64_t split_h, int64_t split_w) {
    const dv_probe probe = {.tensors = t, .file_name = "", .split = {split_h, split_w}};
    described d = {0};
    d.result = dv_arch_detect(&probe, NULL, &d.arch);
    d.result = d.result == DAVY_OK ? d.arch->config(&probe, d.cfg) : d.result;
    if (d.result == DAVY_OK) {
        d.arch->info(d.cfg, &d.info);
    }
    return d;
}

static void test_facts(void) {
    for (int i = 0; i < N_NETWORKS; i++) {
        dv_tensors *t = networks[i].weights();
        const described d = describe(t, 0, 0);
        dv_reach reach = {0};
        dv_graph *g = fake_build(t, NULL, DV_STAGE_UPSCALE, 40, 33);
        if (CHECKF(d.result == DAVY_OK && g != NULL, "%s: %s", networks[i].variant, last_error())) {
            CHECKF(strcmp(d.arch->name, networks[i].arch) == 0 && strcmp(d.info.variant, networks[i].variant) == 0,
                   "%s: %s", d.arch->name, d.info.variant);
            CHECK(d.info.scale_num == 2 && d.info.size_multiple == 1 && d.info.in_channels == 3);
            CHECK(d.arch->wide != NULL && d.arch->wide(d.cfg));
            CHECK(dv_graph_reach(g, &reach) == DAVY_OK);
            /* few enough of HAT's blocks for tiles to share their means */
            CHECKF((reach.global || reach.n_means > 0) == networks[i].global && reach.align == networks[i].align &&
                       reach.num == 2 && reach.den == 1 && reach.halo > networks[i].align,
                   "%s: align %d halo %d", networks[i].variant, (int)reach.align, (int)reach.halo);
            const dv_shape s = dv_shape_of(g, g->output);
            CHECK(s.h == 80 && s.w == 66 && s.c == 3);
        }
        dv_graph_release(g);
        dv_tensors_release(t);
    }
}

/* ---- one wrong tensor ---- */

/* Tensors that a network may lack. */
static bool is_optional(const char *name) {
    static const char *const parts[] = {".qkv.bias",
                                        ".proj.bias",
                                        ".fc1.bias",
                                        ".fc2.bias",
                                        ".q.bias",
                                        ".kv.bias",
                                        ".k.bias",
                                        ".v.bias",
                                        ".wqkv.bias",
                                        ".wq.bias",
                                        ".wk.bias",
                                        ".wv.bias",
                                        "patch_embed.norm.weight",
                                        ".4.bias",
                                        ".3.bias"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strstr(name, parts[i]) != NULL) {
            return true;
        }
    }
    return false;
}

static void expect_refused(const dv_tensors *t, const char *what, const char *name, bool may) {
    dv_graph *g = fake_build(t, NULL, DV_STAGE_UPSCALE, 32, 32);
    if (g == NULL) {
        const bool says = strstr(last_error(), "'") != NULL || strstr(last_error(), "network") != NULL ||
                          strstr(last_error(), "tensors of no known family") != NULL ||
                          strstr(last_error(), "look like") != NULL;
        CHECKF(says, "%s %s: %s", name, what, last_error());
    } else {
        CHECKF(may, "%s %s, and it is built", name, what);
    }
    dv_graph_release(g);
}

static void remove_ref(dv_tensors *t, int64_t at, dv_tensor_ref *kept) {
    *kept = t->refs[at];
    memmove(&t->refs[at], &t->refs[at + 1], (size_t)(t->count - at - 1) * sizeof *t->refs);
    t->count--;
}

static void insert_ref(dv_tensors *t, int64_t at, const dv_tensor_ref *kept) {
    memmove(&t->refs[at + 1], &t->refs[at], (size_t)(t->count - at) * sizeof *t->refs);
    t->refs[at] = *kept;
    t->count++;
}

static void test_wrong_tensors(void) {
    for (int i = 0; i < N_NETWORKS; i++) {
        dv_tensors *t = networks[i].weights();
        for (int64_t k = 0; k < t->count; k++) {
            dv_tensor_ref *ref = &t->refs[k];
            /* Another number of heads may fit; pictures of four channels may fit, too. */
            const bool may = strstr(ref->name, "relative_position_bias_table") != NULL ||
                             strcmp(ref->name, "conv_first.weight") == 0;
            for (int32_t axis = 0; axis < ref->ndim; axis++) {
                const int64_t right = ref->shape[axis];
                ref->shape[axis] = right + 1;
                expect_refused(t, "of another shape", ref->name, may && axis == 1);
                ref->shape[axis] = (int64_t)1 << 40;
                expect_refused(t, "of an impossible shape", ref->name, false);
                ref->shape[axis] = 0;
                expect_refused(t, "that is empty", ref->name, false);
                ref->shape[axis] = right;
            }
            dv_tensor_ref kept;
            remove_ref(t, k, &kept);
            expect_refused(t, "missing", kept.name, is_optional(kept.name));
            insert_ref(t, k, &kept);
        }
        dv_graph *g = fake_build(t, NULL, DV_STAGE_UPSCALE, 32, 32);
        CHECKF(g != NULL, "%s: %s", networks[i].variant, last_error());
        dv_graph_release(g);
        dv_tensors_release(t);
    }
}

/* ---- related networks ---- */

static void expect_named(dv_tensors *t, const char *says) {
    const described d = describe(t, 0, 0);
    CHECKF(d.result == DAVY_E_ARCH && strstr(last_error(), says) != NULL, "%s: %s", says, last_error());
    dv_tensors_release(t);
}

static dv_tensors *with(dv_tensors *t, const char *name) {
    fake_vector(t, name, 4);
    fake_done(t);
    return t;
}

static void test_kin(void) {
    expect_named(with(swinir(), "patch_embed.proj.weight"), "Swin2SR");
    dv_tensors *t = with(swinir(), "absolute_pos_embed");
    CHECKF(describe(t, 0, 0).result == DAVY_E_UNSUPPORTED && strstr(last_error(), "absolute positions") != NULL, "%s",
           last_error());
    dv_tensors_release(t);
}

/* The training buffers in a file decide whether DRCT and SRFormer shift their windows. */
static void expect_shift_by(dv_tensors *t, const char *shift, bool shifts) {
    dv_graph *g = fake_build(t, NULL, DV_STAGE_UPSCALE, 32, 32);
    char *dump = g != NULL ? dv_graph_dump(g) : NULL;
    CHECK(dump != NULL && (strstr(dump, shift) != NULL) == shifts);
    dv_free(dump);
    dv_graph_release(g);
    dv_tensors_release(t);
}

static void expect_shift(dv_tensors *t, bool shifts) {
    expect_shift_by(t, "shift 4,4", shifts);
}

static void test_shift(void) {
    static const char index[] = "layers.0.residual_group.blocks.0.attn.aligned_relative_position_index";
    static const char mask[] = "layers.0.residual_group.blocks.1.attn_mask";
    expect_shift_by(srformer(), "shift 2,2", true);
    expect_shift_by(with(srformer(), index), "shift 2,2", false);
    expect_shift_by(with(with(srformer(), index), mask), "shift 2,2", true);
    expect_shift(drct(), true);
    expect_shift(with(drct(), "layers.0.swin2.attn_mask"), true);
    expect_shift(with(drct(), "layers.0.swin2.attn.relative_position_index"), false);
    expect_shift(with(with(drct(), "layers.0.swin2.attn.relative_position_index"), "layers.0.swin2.attn_mask"), true);
}

static void test_split(void) {
    dv_tensors *t = dat();
    described d = describe(t, 4, 16);
    CHECKF(d.result == DAVY_OK && strstr(d.info.variant, "split 4x16,") != NULL, "%s", d.info.variant);
    d = describe(t, 8, 12);
    CHECKF(d.result == DAVY_E_UNSUPPORTED && strstr(last_error(), "8 x 12") != NULL, "%s", last_error());
    const int64_t offsets[2] = {15 * 63, 2};
    fake_add(t, 2, offsets, "layers.0.blocks.0.attn.attns.0.rpe_biases");
    fake_done(t);
    d = describe(t, 0, 0);
    CHECKF(d.result == DAVY_OK && strstr(d.info.variant, "split 8x32,") != NULL, "%s", d.info.variant);
    const int64_t pixels[2] = {14 * 18, 14 * 18}; /* 27 * 35 offsets fit, too */
    fake_add(t, 2, pixels, "layers.0.blocks.0.attn.attns.0.relative_position_index");
    fake_done(t);
    d = describe(t, 0, 0);
    CHECKF(d.result == DAVY_E_UNSUPPORTED && strstr(last_error(), "14 x 18") != NULL, "%s", last_error());
    dv_tensors_release(t);
}

int main(void) {
    test_facts();
    test_wrong_tensors();
    test_kin();
    test_shift();
    test_split();
    return check_done();
}
