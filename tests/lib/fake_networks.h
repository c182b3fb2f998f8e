/* fake_networks.h - tensor names and shapes of the supported networks, at any width, as in a file. They follow the
 * layer tables of docs/arch. */
#ifndef DV_TESTS_FAKE_NETWORKS_H
#define DV_TESTS_FAKE_NETWORKS_H

#include "core/arch/arch.h"
#include "tests/lib/fake_weights.h"

const char *fake_name(const char *fmt, ...);
dv_tensors *fake_compact(int64_t nf, int convs, int64_t scale);

/* parts: the tensors of training; otherwise only eval_conv. */
void fake_conv3xc(dv_tensors *t, const char *name, int64_t o, int64_t i, int parts);

dv_tensors *fake_span(int64_t nf, int64_t scale, int parts, int no_norm);

typedef struct fake_rrdb_spec {
    int dialect; /* 0 old, 1 BasicSR, 2 BSRGAN */
    int64_t nf, gc;
    int blocks, doublings;
    int64_t in;
    int plus;
} fake_rrdb_spec;

dv_tensors *fake_rrdb(fake_rrdb_spec s);

/* One half. The two sizes of chains are written by hand. */
void fake_tae_half(dv_tensors *t, const char *prefix, int offset, int encoder, int large, int64_t z, int pool);

dv_tensors *fake_tae(int64_t z, int large, int pool);

typedef struct fake_kl_spec {
    int names; /* 0 ldm, 1 diffusers, 2 old diffusers */
    int64_t z;
    int quant, levels;
    int64_t enc[4], dec[4]; /* widths by level */
} fake_kl_spec;

dv_tensors *fake_kl(fake_kl_spec s);

/* The usual networks: 32 growth channels; four levels of 128, 256, 512, 512; the decoder's are scaled to `width`. */
dv_tensors *fake_usual_rrdb(int dialect, int64_t nf, int blocks, int doublings, int64_t in);

dv_tensors *fake_usual_kl(int names, int64_t z, int quant, int64_t width);

/* Detects and builds; NULL with the reason in the error record. */
dv_graph *fake_build(const dv_tensors *t, const char *arch_name, dv_stage stage, int64_t h, int64_t w);

#endif
