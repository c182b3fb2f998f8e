/* fake_networks.c - see fake_networks.h. */
#include "tests/lib/fake_networks.h"

const char *fake_name(const char *fmt, ...) {
    static char names[4][256];
    static int next;
    char *name = names[next++ % 4];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof names[0], fmt, ap);
    va_end(ap);
    return name;
}

dv_tensors *fake_compact(int64_t nf, int convs, int64_t scale) {
    dv_tensors *t = fake_new();
    for (int i = 0; i <= convs + 1; i++) {
        const int64_t out = i == convs + 1 ? 3 * scale * scale : nf;
        fake_conv(t, fake_name("body.%d", 2 * i), out, i == 0 ? 3 : nf, 3, 1);
        if (i <= convs) {
            fake_vector(t, fake_name("body.%d.weight", 2 * i + 1), nf);
        }
    }
    fake_done(t);
    return t;
}

void fake_conv3xc(dv_tensors *t, const char *name, int64_t o, int64_t i, int parts) {
    if (!parts) {
        fake_conv(t, fake_name("%s.eval_conv", name), o, i, 3, 1);
        return;
    }
    fake_conv(t, fake_name("%s.sk", name), o, i, 1, 1);
    fake_conv(t, fake_name("%s.conv.0", name), 2 * i, i, 1, 1);
    fake_conv(t, fake_name("%s.conv.1", name), 2 * o, 2 * i, 3, 1);
    fake_conv(t, fake_name("%s.conv.2", name), o, 2 * o, 1, 1);
    fake_conv(t, fake_name("%s.eval_conv", name), o, i, 3, 1);
}

dv_tensors *fake_span(int64_t nf, int64_t scale, int parts, int no_norm) {
    dv_tensors *t = fake_new();
    fake_conv3xc(t, "conv_1", nf, 3, parts);
    for (int i = 0; i < 18; i++) {
        char name[64];
        snprintf(name, sizeof name, "block_%d.c%d_r", i / 3 + 1, i % 3 + 1);
        fake_conv3xc(t, name, nf, nf, parts);
    }
    fake_conv3xc(t, "conv_2", nf, nf, parts);
    fake_conv(t, "conv_cat", nf, 4 * nf, 1, 1);
    fake_conv(t, "upsampler.0", 3 * scale * scale, nf, 3, 1);
    if (no_norm) {
        fake_add(t, 0, NULL, "no_norm");
    }
    fake_done(t);
    return t;
}

dv_tensors *fake_rrdb(fake_rrdb_spec s) {
    static const char *const dense[] = {"model.1.sub.%d.RDB%d.conv%d.0", "body.%d.rdb%d.conv%d",
                                        "RRDB_trunk.%d.RDB%d.conv%d"};
    static const char *const side[] = {"model.1.sub.%d.RDB%d.conv1x1", "body.%d.rdb%d.conv1x1",
                                       "RRDB_trunk.%d.RDB%d.conv1x1"};
    static const char *const trunk[] = {"model.1.sub.%d", "conv_body", "trunk_conv"};
    static const char *const up[] = {"model.%d", "conv_up%d", "upconv%d"};
    static const char *const tail[] = {"", "conv_hr", "HRconv"};
    dv_tensors *t = fake_new();
    fake_conv(t, s.dialect == 0 ? "model.0" : "conv_first", s.nf, s.in, 3, 1);
    for (int i = 0; i < s.blocks * 15; i++) {
        const int c = i % 5;
        fake_conv(t, fake_name(dense[s.dialect], i / 15, i / 5 % 3 + 1, c + 1), c == 4 ? s.nf : s.gc, s.nf + c * s.gc,
                  3, 1);
        if (s.plus && c == 0) {
            fake_conv(t, fake_name(side[s.dialect], i / 15, i / 5 % 3 + 1), s.gc, s.nf, 1, 0);
        }
    }
    fake_conv(t, s.dialect == 0 ? fake_name(trunk[0], s.blocks) : trunk[s.dialect], s.nf, s.nf, 3, 1);
    for (int u = 1; u <= s.doublings; u++) {
        fake_conv(t, fake_name(up[s.dialect], s.dialect == 0 ? 3 * u : u), s.nf, s.nf, 3, 1);
    }
    fake_conv(t, s.dialect == 0 ? fake_name("model.%d", 3 * s.doublings + 2) : tail[s.dialect], s.nf, s.nf, 3, 1);
    fake_conv(t, s.dialect == 0 ? fake_name("model.%d", 3 * s.doublings + 4) : "conv_last", 3, s.nf, 3, 1);
    fake_done(t);
    return t;
}

static void fake_tae_block(dv_tensors *t, const char *at, int64_t n, int pool) {
    for (int i = 0; i < 3; i++) {
        fake_conv(t, fake_name("%s.conv.%d", at, 2 * i), n, n, 3, 1);
    }
    if (pool) {
        fake_conv(t, fake_name("%s.pool.0", at), 4 * n, n, 1, 0);
        fake_norm(t, fake_name("%s.pool.1", at), 4 * n);
        fake_conv(t, fake_name("%s.pool.3", at), n, 4 * n, 1, 0);
    }
}

void fake_tae_half(dv_tensors *t, const char *prefix, int offset, int encoder, int large, int64_t z, int pool) {
    typedef struct layer {
        int at;
        char kind; /* c conv, n conv without bias, b block, p block with a pool in taef2 */
        int64_t out, in;
    } layer;
    const layer e8[] = {{0, 'c', 64, 3},   {1, 'b', 64, 64},  {2, 'n', 64, 64},  {3, 'b', 64, 64},
                        {4, 'b', 64, 64},  {5, 'b', 64, 64},  {6, 'n', 64, 64},  {7, 'b', 64, 64},
                        {8, 'b', 64, 64},  {9, 'b', 64, 64},  {10, 'n', 64, 64}, {11, 'p', 64, 64},
                        {12, 'p', 64, 64}, {13, 'p', 64, 64}, {14, 'c', z, 64},  {-1, 0, 0, 0}};
    const layer d8[] = {{1, 'c', 64, z},   {3, 'p', 64, 64},  {4, 'p', 64, 64},  {5, 'p', 64, 64},
                        {7, 'n', 64, 64},  {8, 'b', 64, 64},  {9, 'b', 64, 64},  {10, 'b', 64, 64},
                        {12, 'n', 64, 64}, {13, 'b', 64, 64}, {14, 'b', 64, 64}, {15, 'b', 64, 64},
                        {17, 'n', 64, 64}, {18, 'b', 64, 64}, {19, 'c', 3, 64},  {-1, 0, 0, 0}};
    const layer e32[] = {{0, 'c', 32, 3},   {2, 'c', 64, 32},  {4, 'b', 64, 64},  {5, 'n', 64, 64},  {6, 'b', 64, 64},
                         {7, 'b', 64, 64},  {8, 'b', 64, 64},  {9, 'n', 64, 64},  {10, 'b', 64, 64}, {11, 'b', 64, 64},
                         {12, 'b', 64, 64}, {13, 'n', 64, 64}, {14, 'b', 64, 64}, {15, 'b', 64, 64}, {16, 'b', 64, 64},
                         {17, 'c', z, 64},  {-1, 0, 0, 0}};
    const layer d32[] = {{1, 'c', 256, z},   {3, 'b', 256, 256}, {4, 'b', 256, 256}, {5, 'b', 256, 256},
                         {7, 'n', 128, 256}, {8, 'b', 128, 128}, {9, 'b', 128, 128}, {10, 'b', 128, 128},
                         {12, 'n', 64, 128}, {13, 'b', 64, 64},  {14, 'b', 64, 64},  {15, 'b', 64, 64},
                         {17, 'n', 64, 64},  {18, 'b', 64, 64},  {19, 'b', 64, 64},  {20, 'b', 64, 64},
                         {22, 'n', 64, 64},  {23, 'b', 64, 64},  {24, 'b', 64, 64},  {25, 'b', 64, 64},
                         {27, 'n', 64, 64},  {28, 'b', 64, 64},  {29, 'c', 3, 64},   {-1, 0, 0, 0}};
    for (const layer *l = encoder ? large ? e32 : e8 : large ? d32 : d8; l->at >= 0; l++) {
        char at[64];
        snprintf(at, sizeof at, "%s%d", prefix, l->at - offset);
        if (l->kind == 'b' || l->kind == 'p') {
            fake_tae_block(t, at, l->out, pool && l->kind == 'p');
        } else {
            fake_conv(t, at, l->out, l->in, 3, l->kind == 'c');
        }
    }
}

dv_tensors *fake_tae(int64_t z, int large, int pool) {
    dv_tensors *t = fake_new();
    fake_tae_half(t, "encoder.", 0, 1, large, z, pool);
    fake_tae_half(t, "decoder.", 0, 0, large, z, pool);
    fake_done(t);
    return t;
}

static void fake_resnet(dv_tensors *t, const char *at, int64_t o, int64_t i, int ldm) {
    fake_norm(t, fake_name("%s.norm1", at), i);
    fake_conv(t, fake_name("%s.conv1", at), o, i, 3, 1);
    fake_norm(t, fake_name("%s.norm2", at), o);
    fake_conv(t, fake_name("%s.conv2", at), o, o, 3, 1);
    if (o != i) {
        fake_conv(t, fake_name("%s.%s", at, ldm ? "nin_shortcut" : "conv_shortcut"), o, i, 1, 1);
    }
}

static void fake_kl_mid(dv_tensors *t, const char *side, int64_t n, int names) {
    static const char *const parts[3][5] = {{"norm", "q", "k", "v", "proj_out"},
                                            {"group_norm", "to_q", "to_k", "to_v", "to_out.0"},
                                            {"group_norm", "query", "key", "value", "proj_attn"}};
    char at[64];
    for (int i = 0; i < 2; i++) {
        snprintf(at, sizeof at, names == 0 ? "%s.mid.block_%d" : "%s.mid_block.resnets.%d", side,
                 names == 0 ? i + 1 : i);
        fake_resnet(t, at, n, n, names == 0);
    }
    snprintf(at, sizeof at, names == 0 ? "%s.mid.attn_1" : "%s.mid_block.attentions.0", side);
    fake_norm(t, fake_name("%s.%s", at, parts[names][0]), n);
    for (int i = 1; i < 5; i++) {
        const int64_t shape[4] = {n, n, 1, 1};
        fake_add(t, names == 0 ? 4 : 2, shape, "%s.%s.weight", at, parts[names][i]);
        fake_add(t, 1, shape, "%s.%s.bias", at, parts[names][i]);
    }
}

static void fake_kl_level(dv_tensors *t, const fake_kl_spec *s, int encoder, int level, int64_t in, int64_t out) {
    char at[64];
    const int last = s->levels - 1;
    for (int i = 0; i < (encoder ? 2 : 3); i++) {
        if (s->names == 0) {
            snprintf(at, sizeof at, encoder ? "encoder.down.%d.block.%d" : "decoder.up.%d.block.%d", level, i);
        } else if (encoder) {
            snprintf(at, sizeof at, "encoder.down_blocks.%d.resnets.%d", level, i);
        } else {
            snprintf(at, sizeof at, "decoder.up_blocks.%d.resnets.%d", last - level, i);
        }
        fake_resnet(t, at, out, i == 0 ? in : out, s->names == 0);
    }
    if (encoder && level < last) {
        fake_conv(
            t,
            fake_name(s->names == 0 ? "encoder.down.%d.downsample.conv" : "encoder.down_blocks.%d.downsamplers.0.conv",
                      level),
            out, out, 3, 1);
    } else if (!encoder && level > 0) {
        fake_conv(t,
                  s->names == 0 ? fake_name("decoder.up.%d.upsample.conv", level)
                                : fake_name("decoder.up_blocks.%d.upsamplers.0.conv", last - level),
                  out, out, 3, 1);
    }
}

dv_tensors *fake_kl(fake_kl_spec s) {
    dv_tensors *t = fake_new();
    const int last = s.levels - 1;
    fake_conv(t, "encoder.conv_in", s.enc[0], 3, 3, 1);
    fake_conv(t, "decoder.conv_in", s.dec[last], s.z, 3, 1);
    for (int i = 0; i < s.levels; i++) {
        fake_kl_level(t, &s, 1, i, s.enc[i > 0 ? i - 1 : 0], s.enc[i]);
        fake_kl_level(t, &s, 0, last - i, s.dec[i > 0 ? last - i + 1 : last], s.dec[last - i]);
    }
    fake_kl_mid(t, "encoder", s.enc[last], s.names);
    fake_kl_mid(t, "decoder", s.dec[last], s.names);
    fake_norm(t, s.names == 0 ? "encoder.norm_out" : "encoder.conv_norm_out", s.enc[last]);
    fake_norm(t, s.names == 0 ? "decoder.norm_out" : "decoder.conv_norm_out", s.dec[0]);
    fake_conv(t, "encoder.conv_out", 2 * s.z, s.enc[last], 3, 1);
    fake_conv(t, "decoder.conv_out", 3, s.dec[0], 3, 1);
    if (s.quant) {
        fake_conv(t, "quant_conv", 2 * s.z, 2 * s.z, 1, 1);
        fake_conv(t, "post_quant_conv", s.z, s.z, 1, 1);
    }
    fake_done(t);
    return t;
}

dv_tensors *fake_usual_rrdb(int dialect, int64_t nf, int blocks, int doublings, int64_t in) {
    const fake_rrdb_spec s = {
        .dialect = dialect, .nf = nf, .gc = 32, .blocks = blocks, .doublings = doublings, .in = in};
    return fake_rrdb(s);
}

dv_tensors *fake_usual_kl(int names, int64_t z, int quant, int64_t width) {
    const fake_kl_spec s = {.names = names,
                            .z = z,
                            .quant = quant,
                            .levels = 4,
                            .enc = {128, 256, 512, 512},
                            .dec = {width, 2 * width, 4 * width, 4 * width}};
    return fake_kl(s);
}

dv_graph *fake_build(const dv_tensors *t, const char *arch_name, dv_stage stage, int64_t h, int64_t w) {
    const dv_probe probe = {.tensors = t, .file_name = ""};
    const dv_arch *arch = NULL;
    dv_graph *g = NULL;
    union {
        char bytes[DV_ARCH_CONFIG_BYTES];
        int64_t align;
        double align_too;
        void *pointer;
    } cfg;
    memset(&cfg, 0, sizeof cfg);
    if (dv_arch_detect(&probe, arch_name, &arch) != DAVY_OK || arch->config(&probe, &cfg) != DAVY_OK ||
        dv_graph_create(t, &g) != DAVY_OK || arch->build(&cfg, stage, h, w, g) != DAVY_OK) {
        dv_graph_release(g);
        return NULL;
    }
    return g;
}
