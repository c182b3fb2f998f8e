/* outfile.h - a file that appears whole or not at all: written beside its place as NAME.tmp-PID (of a long NAME its
 * beginning), then renamed. */
#ifndef DAVY_CLI_OUTFILE_H
#define DAVY_CLI_OUTFILE_H

#include <stdio.h>

typedef struct cli_outfile {
    FILE *f;
    char *place;     /* where it goes in the end */
    char *temporary; /* NULL: written in place (a pipe or a device has nothing to rename) */
} cli_outfile;

/* All of them print the failure. Call commit or abandon exactly once after a successful open. */
int cli_outfile_open(cli_outfile *o, const char *path);
int cli_outfile_commit(cli_outfile *o, const char *path);
void cli_outfile_abandon(cli_outfile *o);

/* What killed runs left beside `path` goes. Only for who knows that nobody else is writing it. */
void cli_outfile_sweep(const char *path);

/* Whether `path` could be written, asked before the long work; leaves nothing behind. */
int cli_outfile_probe(const char *path);

#endif
