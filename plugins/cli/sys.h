/* sys.h - the services of the operating system that C does not have: interrupts, folders, rename, terminal, clock.
 * sys_posix.c implements it; a port to another system adds one file. Paths are UTF-8. */
#ifndef DAVY_CLI_SYS_H
#define DAVY_CLI_SYS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum { CLI_PATH_MISSING = 0, CLI_PATH_FILE, CLI_PATH_FOLDER, CLI_PATH_OTHER } cli_path_kind;

/* Occupies the descriptors of standard streams that were closed at the start. Else an output file could get such a descriptor,
 * and a note would be written into it. Using such a stream still fails. */
void cli_hold_streams(void);
/* Afterwards an interrupt (SIGINT, SIGTERM, SIGHUP) only sets a flag, so that the work can end cleanly; a second one kills the
 * program. A file beyond the size limit makes write() fail and does not kill the program. */
void cli_catch_interrupts(void);
/* 0, or the number of the signal that asked the program to stop. */
int cli_interrupted(void);

cli_path_kind cli_path_kind_of(const char *path);
/* The names in a folder, sorted, without "." and "..". NULL: failure (errno). Free with cli_names_free. */
char **cli_folder_names(const char *path, size_t *count);
void cli_names_free(char **names, size_t count);
/* Makes a folder. Returns 0, also if it exists, or errno. */
int cli_make_folder(const char *path);
/* Whether both paths name the same file or folder. */
int cli_same_file(const char *a, const char *b);
/* Locks a folder or a file for this process, until cli_let_go or the process ends. Returns a handle above 0; CLI_TAKEN: another
 * process has the lock; CLI_LOCKLESS: the file system has no locks. */
enum { CLI_TAKEN = -1, CLI_LOCKLESS = 0 };
int cli_take(const char *path);
void cli_let_go(int taken);
/* The target of a symbolic link, whether it exists or not; else a copy of path. NULL: out of memory. Free with free(). */
char *cli_real_path(const char *path);

/* Reads an input that can be read only once: "-", a pipe, a device. An interrupt ends the wait for data; a plain read() would
 * continue it. open returns a descriptor, or -1 (errno). read returns the number of bytes; 0: the end; -1: errno, EINTR after
 * an interrupt. */
int cli_pipe_open(const char *path);
int cli_pipe_read(int fd, void *data, int bytes);
void cli_pipe_close(int fd);

FILE *cli_open_read(const char *path);
/* Opens a new file for writing; fails if it exists. */
FILE *cli_open_new(const char *path);
/* Opens a file to write after its first `bytes`: creates it, or truncates it to this length. NULL: errno. */
FILE *cli_open_after(const char *path, long long bytes);
/* Renames a file, replacing the other one atomically. Returns 0, or errno. */
int cli_rename(const char *from, const char *to);
void cli_unlink(const char *path);
/* Removes a folder if it is empty. */
void cli_remove_folder(const char *path);
/* Size of a file in bytes and time of its last change in nanoseconds; both 0 if it does not exist. */
void cli_file_stamp(const char *path, uint64_t *bytes, uint64_t *changed_ns);
unsigned long cli_process_id(void);
/* The folder of the program. NULL: unknown. Free with free(). */
char *cli_program_folder(void);

/* Columns of the terminal on stderr; 0: stderr is not a terminal. */
int cli_terminal_columns(void);
int cli_stdout_is_terminal(void);
double cli_seconds(void);
void cli_sleep(double seconds);
/* Afterwards malloc returns zeroed memory, if the C library can do that. libx264 reads memory that it has not written; with
 * zeros it writes the same file every time. */
void cli_clear_memory(void);
/* Peak resident memory of this process, in bytes. */
uint64_t cli_peak_memory(void);
/* A line that describes the computer: processor, cores, system. */
void cli_machine(char *text, size_t bytes);

/* Runs fn(user, out) in a child process, so that one measurement does not affect the next, and returns its output in *text, to
 * be freed with free(). Returns fn's result, or -1 if the child died; *text is then NULL. */
int cli_isolated(int (*fn)(void *user, FILE *out), void *user, char **text);

#endif
