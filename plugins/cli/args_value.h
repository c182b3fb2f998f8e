/* args_value.h - between args.c, which has the table of options, and args_value.c, which reads their values. */
#ifndef DAVY_CLI_ARGS_VALUE_H
#define DAVY_CLI_ARGS_VALUE_H

#include <stddef.h>

#include "plugins/cli/args.h"

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

/* value: "" for a FLAG. 0; else CLI_USAGE, told on stderr. */
int cli_option_set(const cli_option *d, const char *value, cli_args *a);

#endif
