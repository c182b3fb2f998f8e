/* outfile.h - a file that appears complete or not at all: written beside its place as NAME.tmp-PID, then renamed. A long NAME is
 * shortened. */
#ifndef DAVY_CLI_OUTFILE_H
#define DAVY_CLI_OUTFILE_H

#include <stdio.h>

typedef struct cli_outfile {
    FILE *f;
    char *place;     /* the final path */
    char *temporary; /* NULL: written in place (a pipe or a device cannot be renamed) */
} cli_outfile;

/* These functions print their failures. Call commit or abandon exactly once after a successful open. */
int cli_outfile_open(cli_outfile *o, const char *path);
int cli_outfile_commit(cli_outfile *o, const char *path);
void cli_outfile_abandon(cli_outfile *o);

/* Removes the temporary files that killed runs left beside `path`. No other process may be writing `path`. */
void cli_outfile_sweep(const char *path);

/* Checks before the long work that `path` can be written. Leaves no file. */
int cli_outfile_probe(const char *path);

#endif
