/* args.h - the command line as a struct. */
#ifndef DAVY_CLI_ARGS_H
#define DAVY_CLI_ARGS_H

#include <stdint.h>

#include "abi/davy.h"
#include "plugins/cli/pictures/picture.h"

typedef enum {
    CLI_DEVICES = 1,
    CLI_INSPECT = 2,
    CLI_UPSCALE = 4,
    CLI_ENCODE = 8,
    CLI_DECODE = 16,
    CLI_CAPTION = 32,
    CLI_BENCH = 64
} cli_command;

enum { CLI_MODELS_MAX = 8, CLI_ASKS_MAX = 32, CLI_STOPS_MAX = 64 /* limits of the library */ };
#define CLI_FPS_MIN 1e-3
#define CLI_FPS_MAX 1e4
enum { CLI_TF32 = 0x100 }; /* a precision without a davy_dtype: fp32 with the model option tf32 */

typedef struct cli_args {
    cli_command command;
    const char **inputs; /* arguments that are not options, in order; points into argv */
    int n_inputs;
    const char *output;
    const char *models[CLI_MODELS_MAX]; /* several files of one model (encoder and decoder, shards) */
    int n_models;
    double scale; /* 0: the model's own */
    const char *device;
    davy_dtype precision; /* or CLI_TF32 */
    int32_t tile;         /* 0: automatic, -1: never */
    int32_t overlap;      /* 0: automatic */
    uint64_t memory;
    int32_t threads;
    uint64_t seed;
    const char *raw;
    const char *split; /* model option of this name */
    const char *codec; /* of a video; NULL: chosen for the file */
    int32_t crf;       /* its quality; 0: the default */
    int32_t decoder;   /* CLI_DECODER_* of video.h */
    double fps;        /* decode: of a video; 0: the latent file's */
    int32_t frames;    /* decode: number of frames of a video; 0: the latent file's */
    const char *audio; /* decode: the video whose sound is copied */
    cli_encoding encoding;
    const char *save;
    const char *compare;
    double peak;        /* GFLOP/s */
    const char *prompt; /* caption; NULL: the library's */
    const char *system;
    const char *asks[CLI_ASKS_MAX]; /* further questions */
    int n_asks;
    const char *stops[CLI_STOPS_MAX]; /* an answer ends before one of them */
    int n_stops;
    const char *out;    /* JSON lines */
    int32_t sidecar;    /* a text file beside each picture */
    int32_t again;      /* answers in existing files are ignored */
    int32_t max_tokens; /* 0, here and below: the library's */
    int32_t max_tiles;
    int32_t context; /* tokens of a conversation */
    int32_t top_k;
    uint64_t max_pixels;
    double temperature;
    double top_p;
    double min_p;
    double repeat_penalty;
    int32_t no_repeat; /* tokens in a row */
    int32_t published; /* sampling as in the model's generation_config.json */
    int32_t thoughts;
    int32_t lookup, no_lookup; /* prompt-lookup speculative decoding: always, never */
    int32_t video;             /* the pictures of a folder are the frames of one video */
    double video_fps;
    int32_t json;
    int32_t quiet;
    int32_t sample;
    int32_t scaled;
    int32_t crop;
    int32_t profile;
    int32_t help;
} cli_args;

/* Parses argv; argv[1] is the command. Moves the inputs to the front of argv + 2. Returns 0, or prints an error and returns
 * CLI_USAGE. */
int cli_args_parse(int argc, char **argv, cli_args *out);

/* The help text of a command; command 0: of the program. */
const char *cli_help(cli_command command);

/* "upscale" for CLI_UPSCALE; "?" for an unknown one. */
const char *cli_command_name(cli_command command);
/* A word such as "fp32" to a compute type, or CLI_TF32, and back. -1: unknown word. */
davy_dtype cli_precision_of(const char *word);
const char *cli_precision_name(davy_dtype dtype);

#endif
