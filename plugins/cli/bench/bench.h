/* bench.h - the parts of davy bench: cases by name, weights made on the spot, one measurement, the profile's table. */
#ifndef DAVY_CLI_BENCH_H
#define DAVY_CLI_BENCH_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cJSON.h>

#include "plugins/cli/args.h"

typedef enum {
    BENCH_LIVE2,
    BENCH_LIVE4,
    BENCH_COMPACT,
    BENCH_COMPACT16,
    BENCH_RRDB,
    BENCH_SPAN,
    BENCH_SPANF3,
    BENCH_REALPLKSR,
    BENCH_OMNISR,
    BENCH_SWINIR,
    BENCH_DRCT,
    BENCH_HAT,
    BENCH_DAT,
    BENCH_SRFORMER,
    BENCH_RGT,
    BENCH_ATD,
    BENCH_TAE,
    BENCH_KL
} bench_arch;

typedef struct bench_case {
    char name[96];
    cli_command task; /* CLI_UPSCALE, CLI_ENCODE, CLI_DECODE */
    bench_arch arch;
    uint32_t width; /* of the picture: input of upscale and encode, output of decode */
    uint32_t height;
    uint32_t pictures;    /* upscaled in one call */
    davy_dtype precision; /* or CLI_TF32 */
} bench_case;

/* "upscale-compact-640x360-bf16", "upscale-drct-64x64x16-bf16", "decode-vae_tae-1080p-fp16"; 0, or -1: no such case. */
int bench_case_parse(const char *name, bench_case *out);

/* A .safetensors file in memory with random float16 weights under the architecture's own names; NULL: out of memory.
 * Not for the shipped models. encoder: which half of a tiny VAE. */
void *bench_weights(bench_arch arch, int encoder, uint64_t *bytes);

/* Measures the case in this process and prints its result to `out` as one line of JSON. Returns the exit status. */
int bench_measure(const cli_args *a, const bench_case *c, FILE *out);

/* "gpu" or "cpu" to `out`: where a context of these options computes. */
int bench_where(const cli_args *a, FILE *out);

/* The member "profile" of a result as tables on stdout: by kernel, then by step. runs: how many the times hold. */
void bench_print_profile(const cJSON *profile, double runs, double peak);

#endif
