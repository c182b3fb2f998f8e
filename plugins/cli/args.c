/* args.c - one table of options; each knows its commands and what kind of value it has. */
#include <stddef.h>
#include <string.h>

#include "plugins/cli/args_value.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"

enum {
    RUNS = CLI_UPSCALE | CLI_ENCODE | CLI_DECODE,
    WORKS = RUNS | CLI_BENCH,
    ALL = CLI_DEVICES | CLI_INSPECT | CLI_CAPTION | WORKS
};

static const cli_option options[] = {
    {"-o", TEXT, RUNS, offsetof(cli_args, output)},
    {"--output", TEXT, RUNS, offsetof(cli_args, output)},
    {"--model", MODEL, RUNS | CLI_CAPTION, 0},
    {"--scale", SCALE, CLI_UPSCALE, offsetof(cli_args, scale)},
    {"--device", TEXT, CLI_INSPECT | CLI_CAPTION | WORKS, offsetof(cli_args, device)},
    {"--precision", PRECISION, RUNS | CLI_CAPTION, offsetof(cli_args, precision)},
    {"--tile", TILE, WORKS, offsetof(cli_args, tile)},
    {"--overlap", COUNT, WORKS, offsetof(cli_args, overlap)},
    {"--memory", BYTES, CLI_CAPTION | WORKS, offsetof(cli_args, memory)},
    {"--threads", COUNT, CLI_CAPTION | WORKS, offsetof(cli_args, threads)},
    {"--seed", SEED, CLI_CAPTION | CLI_ENCODE, offsetof(cli_args, seed)},
    {"--raw", TEXT, RUNS, offsetof(cli_args, raw)},
    {"--split", TEXT, CLI_UPSCALE, offsetof(cli_args, split)},
    {"--codec", TEXT, CLI_UPSCALE | CLI_DECODE, offsetof(cli_args, codec)},
    {"--crf", PERCENT, CLI_UPSCALE | CLI_DECODE, offsetof(cli_args, crf)},
    {"--decoder", DECODER, CLI_UPSCALE | CLI_ENCODE, offsetof(cli_args, decoder)},
    {"--fps", RATE, CLI_DECODE, offsetof(cli_args, fps)},
    {"--frames", COUNT, CLI_DECODE, offsetof(cli_args, frames)},
    {"--audio", TEXT, CLI_DECODE, offsetof(cli_args, audio)},
    {"--sample", FLAG, CLI_ENCODE, offsetof(cli_args, sample)},
    {"--scaled", FLAG, CLI_ENCODE | CLI_DECODE, offsetof(cli_args, scaled)},
    {"--crop", FLAG, CLI_ENCODE, offsetof(cli_args, crop)},
    {"--quality", PERCENT, CLI_UPSCALE | CLI_DECODE, offsetof(cli_args, encoding.quality)},
    {"--lossless", FLAG, CLI_UPSCALE | CLI_DECODE, offsetof(cli_args, encoding.lossless)},
    {"--save", TEXT, CLI_BENCH, offsetof(cli_args, save)},
    {"--compare", TEXT, CLI_BENCH, offsetof(cli_args, compare)},
    {"--profile", FLAG, CLI_BENCH, offsetof(cli_args, profile)},
    {"--peak", PEAK, CLI_BENCH, offsetof(cli_args, peak)},
    {"--prompt", TEXT, CLI_CAPTION, offsetof(cli_args, prompt)},
    {"--system", TEXT, CLI_CAPTION, offsetof(cli_args, system)},
    {"--ask", ASK, CLI_CAPTION, 0},
    {"--stop", STOP, CLI_CAPTION, 0},
    {"--out", TEXT, CLI_CAPTION, offsetof(cli_args, out)},
    {"--sidecar", FLAG, CLI_CAPTION, offsetof(cli_args, sidecar)},
    {"--again", FLAG, CLI_CAPTION, offsetof(cli_args, again)},
    {"--max-tokens", COUNT, CLI_CAPTION, offsetof(cli_args, max_tokens)},
    {"--context", TOKENS, CLI_CAPTION, offsetof(cli_args, context)},
    {"--max-tiles", COUNT, CLI_CAPTION, offsetof(cli_args, max_tiles)},
    {"--max-pixels", PIXELS, CLI_CAPTION, offsetof(cli_args, max_pixels)},
    {"--temperature", HEAT, CLI_CAPTION, offsetof(cli_args, temperature)},
    {"--top-k", COUNT, CLI_CAPTION, offsetof(cli_args, top_k)},
    {"--top-p", SHARE, CLI_CAPTION, offsetof(cli_args, top_p)},
    {"--min-p", SHARE, CLI_CAPTION, offsetof(cli_args, min_p)},
    {"--repeat-penalty", PENALTY, CLI_CAPTION, offsetof(cli_args, repeat_penalty)},
    {"--no-repeat", COUNT, CLI_CAPTION, offsetof(cli_args, no_repeat)},
    {"--published", FLAG, CLI_CAPTION, offsetof(cli_args, published)},
    {"--thoughts", FLAG, CLI_CAPTION, offsetof(cli_args, thoughts)},
    {"--lookup", FLAG, CLI_CAPTION, offsetof(cli_args, lookup)},
    {"--no-lookup", FLAG, CLI_CAPTION, offsetof(cli_args, no_lookup)},
    {"--video", FLAG, CLI_CAPTION, offsetof(cli_args, video)},
    {"--video-fps", HEAT, CLI_CAPTION, offsetof(cli_args, video_fps)},
    {"--json", FLAG, ALL, offsetof(cli_args, json)},
    {"--quiet", FLAG, ALL, offsetof(cli_args, quiet)},
    {"--help", FLAG, ALL, offsetof(cli_args, help)},
    {"-h", FLAG, ALL, offsetof(cli_args, help)},
};

static const struct {
    const char *name;
    cli_command command;
    int inputs_min;
    int inputs_max; /* -1: any number */
    const char *inputs;
} commands[] = {
    {"devices", CLI_DEVICES, 0, 0, "no file"},
    {"inspect", CLI_INSPECT, 1, 1, "one model file or folder"},
    {"upscale", CLI_UPSCALE, 1, 1, "one picture, video or folder"},
    {"encode", CLI_ENCODE, 1, 1, "one picture, video or folder"},
    {"decode", CLI_DECODE, 1, 1, "one latent file"},
    {"caption", CLI_CAPTION, 1, -1, "pictures, videos or folders"},
    {"bench", CLI_BENCH, 0, -1, "names of cases"},
};

static const struct {
    const char *name;
    davy_dtype dtype;
} precisions[] = {
    {"auto", DAVY_DTYPE_AUTO}, {"fp32", DAVY_DTYPE_F32},  {"bf16", DAVY_DTYPE_BF16}, {"fp16", DAVY_DTYPE_F16},
    {"int8", DAVY_DTYPE_INT8}, {"int4", DAVY_DTYPE_INT4}, {"fp8", DAVY_DTYPE_FP8},   {"tf32", CLI_TF32},
};

davy_dtype cli_precision_of(const char *word) {
    for (size_t i = 0; i < sizeof precisions / sizeof precisions[0]; i++) {
        if (strcmp(precisions[i].name, word) == 0) {
            return precisions[i].dtype;
        }
    }
    return -1;
}

const char *cli_precision_name(davy_dtype dtype) {
    for (size_t i = 0; i < sizeof precisions / sizeof precisions[0]; i++) {
        if (precisions[i].dtype == dtype) {
            return precisions[i].name;
        }
    }
    return "?";
}

const char *cli_command_name(cli_command command) {
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (commands[i].command == command) {
            return commands[i].name;
        }
    }
    return "?";
}

/* Reads argv[*i], an option, and its value: "--name value" or "--name=value". */
static int option(int argc, char **argv, int *i, cli_args *a) {
    const char *text = argv[*i];
    const char *equals = strncmp(text, "--", 2) == 0 ? strchr(text, '=') : NULL;
    const size_t n = equals != NULL ? (size_t)(equals - text) : strlen(text);
    for (size_t k = 0; k < sizeof options / sizeof options[0]; k++) {
        const cli_option *d = &options[k];
        if (strlen(d->name) != n || strncmp(d->name, text, n) != 0) {
            continue;
        }
        if ((d->commands & a->command) == 0) {
            return cli_usage(d->name, "is not an option of %s", cli_command_name(a->command));
        }
        if (d->kind == FLAG) {
            return equals == NULL ? cli_option_set(d, "", a) : cli_usage(d->name, "takes no value");
        }
        if (equals == NULL && *i + 1 >= argc) {
            return cli_usage(d->name, "needs a value");
        }
        return cli_option_set(d, equals != NULL ? equals + 1 : argv[++*i], a);
    }
    return cli_usage(text, "unknown option; see davy %s --help", cli_command_name(a->command));
}

static int find_command(const char *name) {
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* No file is written over that is still needed. A picture may become its own enlargement. */
static int check_files(const cli_args *a) {
    const char *in = a->inputs[0];
    if (a->command != CLI_UPSCALE && cli_same_file(in, a->output)) {
        return cli_usage(a->output, "is what is to be read; name another file");
    }
    if (a->raw != NULL && cli_same_file(in, a->raw)) {
        return cli_usage(a->raw, "is what is to be read; name another file for --raw");
    }
    if (a->raw != NULL && (strcmp(a->raw, a->output) == 0 || cli_same_file(a->raw, a->output))) {
        return cli_usage(a->raw, "-o and --raw name one file");
    }
    return 0;
}

int cli_args_parse(int argc, char **argv, cli_args *out) {
    cli_args a = {.encoding = {.quality = 95}};
    const int c = find_command(argv[1]);
    if (c < 0) {
        return cli_usage(argv[1], "unknown command; see davy --help");
    }
    a.command = commands[c].command;
    int literal = 0;
    for (int i = 2; i < argc; i++) {
        if (!literal && strcmp(argv[i], "--") == 0) {
            literal = 1;
        } else if (!literal && argv[i][0] == '-' && argv[i][1] != 0) {
            int r = option(argc, argv, &i, &a);
            if (r != 0) {
                return r;
            }
        } else {
            argv[2 + a.n_inputs++] = argv[i];
        }
    }
    a.inputs = (const char **)(void *)(argv + 2);
    *out = a;
    if (a.help) {
        return 0;
    }
    if (a.n_inputs < commands[c].inputs_min || (commands[c].inputs_max >= 0 && a.n_inputs > commands[c].inputs_max)) {
        return cli_usage(commands[c].name, "needs %s, got %d", commands[c].inputs, a.n_inputs);
    }
    if ((a.command & RUNS) != 0 && a.output == NULL) {
        return cli_usage(a.inputs[0], "no output named; add -o NAME");
    }
    if ((a.command & (CLI_ENCODE | CLI_DECODE)) != 0 && a.n_models == 0) {
        return cli_usage(a.inputs[0], "no VAE named; add --model FILE");
    }
    if (a.command == CLI_CAPTION && a.n_models == 0) {
        return cli_usage(a.inputs[0], "no model named; add --model FOLDER");
    }
    if (a.command == CLI_ENCODE && a.seed != 0 && !a.sample) {
        return cli_usage("--seed", "means nothing without --sample, which draws");
    }
    return (a.command & RUNS) != 0 ? check_files(&a) : 0;
}
