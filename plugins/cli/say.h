/* say.h - everything the program tells the person: failures (one line, "davy: what: why"), notes, the progress bar. */
#ifndef DAVY_CLI_SAY_H
#define DAVY_CLI_SAY_H

#include <stdint.h>

struct cJSON;

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

#if defined(__GNUC__)
#define CLI_PRINTF(a, b) __attribute__((format(printf, a, b)))
#else
#define CLI_PRINTF(a, b)
#endif

/* --quiet: no notes and no progress bar; failures are always told. */
void cli_set_quiet(int quiet);

/* Prints the line and returns CLI_FAILED, so that errors are one statement: return cli_fail(path, "…"). */
int cli_fail(const char *what, const char *why, ...) CLI_PRINTF(2, 3);
/* The same for a wrong command line: returns CLI_USAGE. */
int cli_usage(const char *what, const char *why, ...) CLI_PRINTF(2, 3);
/* What happened to an interrupted run: prints the line and returns 128 + the signal's number, as shells do. */
int cli_stopped(const char *what);
/* Something worth knowing that is no failure. */
void cli_note(const char *what, const char *why, ...) CLI_PRINTF(2, 3);

/* Control characters become spaces: a name or a text out of a file drives no terminal and stays on its line. */
void cli_plain(char *text);

/* A copy of a text as JSON has to be, UTF-8: what is none is read as Latin-1. Names of files may be anything. NULL: out of
 * memory. free() */
char *cli_utf8(const char *text);
/* A value of cJSON on one line, and in UTF-8. NULL: out of memory. free() */
char *cli_json_text(const struct cJSON *value);
void cli_print_json(const struct cJSON *value);

/* The bar: begin names what is worked on; update draws; end wipes it. Without a terminal they do nothing. */
void cli_progress_begin(const char *label);
void cli_progress_update(const char *stage, uint64_t done, uint64_t total);
/* The same for frames of a video; total 0: not known. */
void cli_progress_frames(int64_t done, int64_t total, double fps);
void cli_progress_end(void);

#endif
