/* captions.h - where answers go: a file of JSON lines, one a picture, that grows line by line and is gone on with where a
 * run before stopped; and text files beside the pictures. */
#ifndef DAVY_CLI_CAPTIONS_H
#define DAVY_CLI_CAPTIONS_H

#include <stddef.h>
#include <stdio.h>

#include <cJSON.h>

#include "plugins/cli/args.h"

typedef struct cli_captions {
    const cli_args *args;
    const char *model; /* as lines name it */
    FILE *f;           /* NULL before the first line, and behind one that could not be written */
    long long kept;    /* bytes of whole lines that are there */
    int taken, made;   /* the file, by this process: see cli_take; it was not there before */
    char **done;       /* of those lines: key, then text; sorted by key */
    size_t n_done;
    char **written; /* text files of this run */
    size_t n_written, room;
} cli_captions;

/* All print their failure. Reads what --out holds and asks whether it could be written. clear takes zeros, too. */
int cli_captions_open(cli_captions *c, const cli_args *a, const char *model);
void cli_captions_clear(cli_captions *c);

/* Whether nothing is left to do for a picture: the files that were asked for have the answers to the same questions of the
 * same model. A text file that is missing is written from the line. Below 0: failed. */
int cli_captions_done(cli_captions *c, const char *picture);
/* A picture's answers; `line` is an object with "file" and "text". */
int cli_captions_add(cli_captions *c, const cJSON *line);

#endif
