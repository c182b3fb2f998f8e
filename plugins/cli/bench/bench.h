/* bench.h - the parts of davy bench: names of cases, random weights, one measurement, the table of a profile. */
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
    uint32_t width; /* of the picture: the input of upscale and encode, the output of decode */
    uint32_t height;
    uint32_t pictures;    /* in one call of upscale */
    davy_dtype precision; /* or CLI_TF32 */
} bench_case;

/* Parses a name such as "upscale-compact-640x360-bf16", "upscale-drct-64x64x16-bf16" or "decode-vae_tae-1080p-fp16". Returns 0,
 * or -1: not a case. */
int bench_case_parse(const char *name, bench_case *out);

/* Makes a .safetensors file in memory with random float16 weights under the architecture's tensor names. encoder: makes the
 * encoder of a tiny VAE, else the decoder. Not for the shipped models. NULL: out of memory. */
void *bench_weights(bench_arch arch, int encoder, uint64_t *bytes);

/* Measures a case in this process and writes the result to `out` as one line of JSON. Returns the exit status. */
int bench_measure(const cli_args *a, const bench_case *c, FILE *out);

/* Writes "gpu" or "cpu" to `out`: the device on which a context with these options computes. */
int bench_where(const cli_args *a, FILE *out);

/* Prints the member "profile" of a result as two tables: by kernel, by step. runs: number of runs in the times. */
void bench_print_profile(const cJSON *profile, double runs, double peak);

#endif
