/* say.h - messages on stderr: failures (one line, "davy: subject: reason"), notes and the progress bar; JSON on stdout. */
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

/* quiet: print no notes and no progress bar. Failures are always printed. */
void cli_set_quiet(int quiet);

/* Prints the line and returns CLI_FAILED, so that a caller can write: return cli_fail(path, "…"). */
int cli_fail(const char *what, const char *why, ...) CLI_PRINTF(2, 3);
/* The same for a wrong command line; returns CLI_USAGE. */
int cli_usage(const char *what, const char *why, ...) CLI_PRINTF(2, 3);
/* Prints that a run was interrupted and returns 128 + the signal's number, as shells do. */
int cli_stopped(const char *what);
/* Prints a note: the line after "note: ". */
void cli_note(const char *what, const char *why, ...) CLI_PRINTF(2, 3);

/* Replaces control characters by spaces, so that a name or a text from a file cannot control the terminal. */
void cli_plain(char *text);

/* A copy of a text as UTF-8, which JSON requires. Bytes that are not valid UTF-8 are read as Latin-1, because a file name may
 * contain any bytes. NULL: out of memory. Free with free(). */
char *cli_utf8(const char *text);
/* A value of cJSON as one line of UTF-8. NULL: out of memory. Free with free(). */
char *cli_json_text(const struct cJSON *value);
void cli_print_json(const struct cJSON *value);

/* The progress bar: begin sets the label, update draws, end erases. Without a terminal they do nothing. */
void cli_progress_begin(const char *label);
void cli_progress_update(const char *stage, uint64_t done, uint64_t total);
/* The same for the frames of a video. total 0: unknown. */
void cli_progress_frames(int64_t done, int64_t total, double fps);
void cli_progress_end(void);

#endif
