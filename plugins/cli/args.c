/* args.c - the parser of the command line: a table with the commands and the kind of value of each option. A value must be
 * valid to its last character and within bounds. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/args.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"

typedef enum {
    FLAG,
    TEXT,
    MODEL,
    SCALE,
    COUNT,
    PERCENT,
    BYTES,
    SEED,
    TILE,
    PRECISION,
    PEAK,
    ASK,
    STOP,
    TOKENS,
    PENALTY,
    PIXELS,
    HEAT,
    RATE,
    SHARE,
    DECODER
} cli_kind;

typedef struct cli_option {
    const char *name;
    cli_kind kind;
    uint32_t commands;
    size_t offset; /* of the member of cli_args */
} cli_option;

/* Parses the whole text as an integer up to max. */
static int whole(const char *text, uint64_t max, uint64_t *out) {
    char *end = NULL;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != 0 || errno != 0 || v > max) {
        return -1;
    }
    *out = v;
    return 0;
}

static int bytes_of(const char *text, uint64_t *out) {
    char *end = NULL;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    uint32_t shift = 0;
    switch (*end) {
    case 'k':
    case 'K':
        shift = 10;
        break;
    case 'm':
    case 'M':
        shift = 20;
        break;
    case 'g':
    case 'G':
        shift = 30;
        break;
    default:
        break;
    }
    if (text[0] < '0' || text[0] > '9' || errno != 0 || end[shift != 0] != 0 || v == 0 || v > UINT64_MAX >> shift) {
        return -1;
    }
    *out = (uint64_t)v << shift;
    return 0;
}

static int from_zero(const char *text, double max, double *out) {
    char *end = NULL;
    double v = strtod(text, &end);
    if (end == text || *end != 0 || !(v >= 0.0 && v <= max)) {
        return -1;
    }
    *out = v;
    return 0;
}

static int set_count(const cli_option *d, const char *value, int32_t min, int32_t max, int32_t *out) {
    uint64_t n = 0;
    if (whole(value, (uint64_t)max, &n) != 0 || n < (uint64_t)min) {
        return cli_usage(d->name, "needs a whole number from %d to %d, not \"%s\"", min, max, value);
    }
    *out = (int32_t)n;
    return 0;
}

static int set_tile(const char *value, int32_t *out) {
    if (strcmp(value, "auto") == 0 || strcmp(value, "none") == 0) {
        *out = value[0] == 'a' ? 0 : -1;
        return 0;
    }
    uint64_t n = 0;
    if (whole(value, 1 << 20, &n) != 0 || n == 0) {
        return cli_usage("--tile", "needs auto, none or a number of pixels such as 256, not \"%s\"", value);
    }
    *out = (int32_t)n;
    return 0;
}

static int set_decoder(const cli_option *d, const char *value, int32_t *out) {
    static const char *const words[] = {"auto", "software", "hardware"}; /* CLI_DECODER_ */
    for (int32_t i = 0; i < 3; i++) {
        if (strcmp(value, words[i]) == 0) {
            *out = i;
            return 0;
        }
    }
    return cli_usage(d->name, "needs auto, hardware or software, not \"%s\"", value);
}

static int set_model(cli_args *a, const char *value) {
    if (a->n_models == CLI_MODELS_MAX) {
        return cli_usage("--model", "may be given at most %d times", CLI_MODELS_MAX);
    }
    a->models[a->n_models++] = value;
    return 0;
}

/* Adds a value of an option that may be repeated. */
static int add_text(const cli_option *d, const char *value, const char **texts, int most, int *n) {
    if (*n == most || value[0] == 0) {
        return cli_usage(d->name, value[0] == 0 ? "needs a text" : "may be given at most %d times", most);
    }
    texts[(*n)++] = value;
    return 0;
}

/* A number with a fraction. */
static int set_real(const cli_option *d, const char *value, double *out) {
    static const struct {
        cli_kind kind;
        double least, most;
        int zero; /* 0 is a valid value */
        const char *what;
    } bounds[] = {
        {SCALE, 0.0, 64.0, 0, "a factor above 0 and up to 64"}, {PEAK, 0.0, 1e9, 0, "a number of GFLOP/s"},
        {PENALTY, 0.01, 100.0, 0, "a number from 0.01 to 100"}, {HEAT, 0.0, 100.0, 1, "a number from 0 to 100"},
        {SHARE, 0.0, 1.0, 0, "a number above 0 and up to 1"},
    };
    size_t i = 0;
    while (bounds[i].kind != d->kind) {
        i++;
    }
    const int bad =
        from_zero(value, bounds[i].most, out) != 0 || *out < bounds[i].least || (*out == 0.0 && !bounds[i].zero);
    return bad ? cli_usage(d->name, "needs %s, not \"%s\"", bounds[i].what, value) : 0;
}

static int set_rate(const cli_option *d, const char *value, double *out) {
    return from_zero(value, CLI_FPS_MAX, out) == 0 && *out >= CLI_FPS_MIN
               ? 0
               : cli_usage(d->name, "needs a number of frames per second from %g to %g, not \"%s\"", CLI_FPS_MIN,
                           CLI_FPS_MAX, value);
}

static int set_precision(const cli_option *d, const char *value, davy_dtype *out) {
    *out = cli_precision_of(value);
    return *out >= 0 ? 0
                     : cli_usage(d->name, "needs auto, fp32, tf32, bf16, fp16, fp8, int8 or int4, not \"%s\"", value);
}

/* A number of up to 64 bits. Only a seed may be 0. */
static int set_large(const cli_option *d, const char *value, uint64_t *out) {
    switch (d->kind) {
    case BYTES:
        return bytes_of(value, out) == 0 ? 0 : cli_usage(d->name, "needs a size such as 800M or 2G, not \"%s\"", value);
    case PIXELS:
        return whole(value, (uint64_t)1 << 40, out) == 0 && *out > 0
                   ? 0
                   : cli_usage(d->name, "needs a number of pixels, not \"%s\"", value);
    default:
        return whole(value, UINT64_MAX, out) == 0 ? 0 : cli_usage(d->name, "needs a whole number, not \"%s\"", value);
    }
}

/* Stores the value of an option; "" for a FLAG. Returns 0, or prints an error and returns CLI_USAGE. */
static int cli_option_set(const cli_option *d, const char *value, cli_args *a) {
    void *member = (char *)a + d->offset;
    switch (d->kind) {
    case FLAG:
        *(int32_t *)member = 1;
        return 0;
    case TEXT:
        *(const char **)member = value;
        return value[0] != 0 ? 0 : cli_usage(d->name, "needs a value");
    case MODEL:
        return set_model(a, value);
    case ASK:
        return add_text(d, value, a->asks, CLI_ASKS_MAX, &a->n_asks);
    case STOP:
        return add_text(d, value, a->stops, CLI_STOPS_MAX, &a->n_stops);
    case COUNT:
        return set_count(d, value, 1, 1 << 16, member);
    case PERCENT:
        return set_count(d, value, 1, 100, member);
    case TOKENS:
        return set_count(d, value, 1, INT32_MAX, member);
    case SCALE:
    case PEAK:
    case PENALTY:
    case HEAT:
    case SHARE:
        return set_real(d, value, member);
    case RATE:
        return set_rate(d, value, member);
    case BYTES:
    case PIXELS:
    case SEED:
        return set_large(d, value, member);
    case DECODER:
        return set_decoder(d, value, member);
    case TILE:
        return set_tile(value, member);
    default:
        return set_precision(d, value, member);
    }
}

/* ---- the tables ---- */

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
    {"bench", CLI_BENCH, 0, -1, "the names of cases"},
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

/* Reads the option argv[*i] and its value: "--name value" or "--name=value". */
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

/* Rejects an output that is also the input. Only upscale may replace its own input. */
static int check_files(const cli_args *a) {
    const char *in = a->inputs[0];
    if (a->command != CLI_UPSCALE && cli_same_file(in, a->output)) {
        return cli_usage(a->output, "is also the input; name another output file");
    }
    if (a->raw != NULL && cli_same_file(in, a->raw)) {
        return cli_usage(a->raw, "is also the input; name another file for --raw");
    }
    if (a->raw != NULL && (strcmp(a->raw, a->output) == 0 || cli_same_file(a->raw, a->output))) {
        return cli_usage(a->raw, "is named by both -o and --raw; name two files");
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
        return cli_usage(a.inputs[0], "needs an output; add -o NAME");
    }
    if ((a.command & (CLI_ENCODE | CLI_DECODE)) != 0 && a.n_models == 0) {
        return cli_usage(a.inputs[0], "needs a VAE; add --model FILE");
    }
    if (a.command == CLI_CAPTION && a.n_models == 0) {
        return cli_usage(a.inputs[0], "needs a captioning model; add --model FOLDER");
    }
    if (a.command == CLI_ENCODE && a.seed != 0 && !a.sample) {
        return cli_usage("--seed", "has no effect without --sample; add --sample");
    }
    return (a.command & RUNS) != 0 ? check_files(&a) : 0;
}
