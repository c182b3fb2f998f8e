/* captions.h - storage of the answers: a file with one JSON line per picture, which a later run continues, and text files beside
 * the pictures. */
#ifndef DAVY_CLI_CAPTIONS_H
#define DAVY_CLI_CAPTIONS_H

#include <stddef.h>
#include <stdio.h>

#include <cJSON.h>

#include "plugins/cli/args.h"

typedef struct cli_captions {
    const cli_args *args;
    const char *model; /* the name in the lines */
    FILE *f;           /* NULL before the first line and after a failed write */
    long long kept;    /* bytes of complete lines in the file */
    int taken, made;   /* taken: the lock, see cli_take. made: this run created the file */
    char **done;       /* the lines as pairs of key and text, sorted by key */
    size_t n_done;
    char **written; /* text files of this run */
    size_t n_written, room;
} cli_captions;

/* These functions print their failures. open reads the file of --out and checks that it can be written. clear takes a zeroed
 * struct, too. */
int cli_captions_open(cli_captions *c, const cli_args *a, const char *model);
void cli_captions_clear(cli_captions *c);

/* Returns 1 if the requested files have the answers of the same model to the same questions about a picture, else 0. Writes a
 * missing text file from the line. Below 0: failed. */
int cli_captions_done(cli_captions *c, const char *picture);
/* Saves the answers about a picture. line: an object with "file" and "text". */
int cli_captions_add(cli_captions *c, const cJSON *line);

#endif
