/* sys.h - the few things the program needs from the system and C does not have: interrupts, folders, rename, the
 * terminal, the clock. sys_posix.c fills it; another system adds one file beside it. Paths are UTF-8. */
#ifndef DAVY_CLI_SYS_H
#define DAVY_CLI_SYS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum { CLI_PATH_MISSING = 0, CLI_PATH_FILE, CLI_PATH_FOLDER, CLI_PATH_OTHER } cli_path_kind;

/* Standard streams that were closed before the program began fail when used, but no file of ours gets their numbers: a note
 * would be written into it. */
void cli_hold_streams(void);
/* From here on an interrupt (Ctrl-C, a polite kill) only sets a flag, so that work can end cleanly; a second one kills.
 * Too-large files then fail in write() instead of killing the program. */
void cli_catch_interrupts(void);
/* 0, or the number of the signal that asked the program to stop. */
int cli_interrupted(void);

cli_path_kind cli_path_kind_of(const char *path);
/* Names in a folder, sorted, without "." and ".."; NULL on failure (errno). Free with cli_names_free. */
char **cli_folder_names(const char *path, size_t *count);
void cli_names_free(char **names, size_t count);
/* 0, or errno. An existing folder is no error. */
int cli_make_folder(const char *path);
/* Whether both names lead to one and the same file or folder. */
int cli_same_file(const char *a, const char *b);
/* Takes a folder or a file for this process, until cli_let_go or its end. A number for that, above 0; CLI_TAKEN: another one
 * has it; CLI_LOCKLESS: the file system knows no such thing. */
enum { CLI_TAKEN = -1, CLI_LOCKLESS = 0 };
int cli_take(const char *path);
void cli_let_go(int taken);
/* Where writing to `path` really goes: the target of a symbolic link, there or not yet, else a copy of path. NULL: out of
 * memory. */
char *cli_real_path(const char *path);

/* What can be read only once: "-", a pipe, a device. An interrupt ends the wait for it, which a plain read begins again. open: a
 * number for the others, or -1 (errno). read: some bytes; 0: the end; -1: errno, EINTR after an interrupt. */
int cli_pipe_open(const char *path);
int cli_pipe_read(int fd, void *data, int bytes);
void cli_pipe_close(int fd);

FILE *cli_open_read(const char *path);
/* A new file for writing; fails when it exists. */
FILE *cli_open_new(const char *path);
/* For writing behind the first `bytes` of a file, which is made where there is none and cut off there else. NULL:
 * errno. */
FILE *cli_open_after(const char *path, long long bytes);
/* Moves a file over another one in one step. 0, or errno. */
int cli_rename(const char *from, const char *to);
void cli_unlink(const char *path);
/* Only an empty one goes. */
void cli_remove_folder(const char *path);
/* Bytes of a file and when it was changed last; both 0 where there is none. */
void cli_file_stamp(const char *path, uint64_t *bytes, uint64_t *changed_ns);
unsigned long cli_process_id(void);
/* The folder the program lies in; NULL: unknown. free() */
char *cli_program_folder(void);

/* Columns of the terminal on stderr; 0: stderr is no terminal. */
int cli_terminal_columns(void);
int cli_stdout_is_terminal(void);
double cli_seconds(void);
void cli_sleep(double seconds);
/* From here on memory that malloc gives is zero, where the system's can do that. An encoder that decides by what it finds in
 * memory it has not written (libx264 does) then writes the same file every time. */
void cli_clear_memory(void);
/* The most memory this process has held, in bytes. */
uint64_t cli_peak_memory(void);
/* One line about the computer: processor, cores, system. */
void cli_machine(char *text, size_t bytes);

/* Runs fn(user, out) in a process of its own and hands back the line of text it wrote to `out`, so that one measurement
 * does not colour the next. Returns fn's result, or -1 when the process died; text is NULL then. Free the text. */
int cli_isolated(int (*fn)(void *user, FILE *out), void *user, char **text);

#endif
