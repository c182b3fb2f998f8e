/* sys_posix.c - sys.h for Linux and other POSIX systems. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plugins/cli/sys.h"

enum { LOOK_MS = 100, LINKS_MAX = 40 };

static volatile sig_atomic_t caught_signal;

static void on_signal(int number) {
    if (caught_signal != 0) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    caught_signal = number;
}

void cli_hold_streams(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) == -1 && errno == EBADF) { /* open() returns the lowest free descriptor */
            (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
        }
    }
}

void cli_catch_interrupts(void) {
    const int polite[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof polite / sizeof polite[0]; i++) {
        struct sigaction old = {0};
        struct sigaction act = {0};
        act.sa_handler = on_signal;
        sigemptyset(&act.sa_mask);
        act.sa_flags = SA_RESTART;
        /* nohup and the shell's background jobs ignore some signals on purpose; these stay ignored. */
        if (sigaction(polite[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) {
            sigaction(polite[i], &act, NULL);
        }
    }
    signal(SIGXFSZ, SIG_IGN);
}

int cli_interrupted(void) {
    return (int)caught_signal;
}

cli_path_kind cli_path_kind_of(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) {
        return CLI_PATH_MISSING;
    }
    if (S_ISDIR(st.st_mode)) {
        return CLI_PATH_FOLDER;
    }
    return S_ISREG(st.st_mode) ? CLI_PATH_FILE : CLI_PATH_OTHER;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

char **cli_folder_names(const char *path, size_t *count) {
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return NULL;
    }
    size_t n = 0;
    size_t room = 64;
    char **names = malloc(room * sizeof *names);
    struct dirent *e = NULL;
    while (names != NULL && (e = readdir(dir)) != NULL) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        if (n == room) {
            char **more = realloc(names, 2 * room * sizeof *names);
            if (more == NULL) {
                break;
            }
            names = more;
            room *= 2;
        }
        names[n] = strdup(e->d_name);
        if (names[n] == NULL) {
            break;
        }
        n++;
    }
    closedir(dir);
    if (names == NULL || e != NULL) {
        cli_names_free(names, n);
        errno = ENOMEM;
        return NULL;
    }
    qsort(names, n, sizeof *names, by_name);
    *count = n;
    return names;
}

void cli_names_free(char **names, size_t count) {
    for (size_t i = 0; names != NULL && i < count; i++) {
        free(names[i]);
    }
    free(names);
}

int cli_make_folder(const char *path) {
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && cli_path_kind_of(path) == CLI_PATH_FOLDER)) {
        return 0;
    }
    return errno;
}

int cli_same_file(const char *a, const char *b) {
    struct stat x;
    struct stat y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int cli_take(const char *path) {
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return CLI_LOCKLESS;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        return fd;
    }
    const int taken = errno == EWOULDBLOCK;
    close(fd);
    return taken ? CLI_TAKEN : CLI_LOCKLESS;
}

void cli_let_go(int taken) {
    if (taken > 0) {
        close(taken);
    }
}

/* The target of a link as a path; a relative target is relative to the link's folder. */
static char *said_by_link(const char *path) {
    char to[PATH_MAX];
    const ssize_t n = readlink(path, to, sizeof to);
    const char *slash = strrchr(path, '/');
    const size_t before = n > 0 && to[0] != '/' && slash != NULL ? (size_t)(slash - path) + 1 : 0;
    char *out = n > 0 ? malloc(before + (size_t)n + 1) : NULL;
    if (out != NULL) {
        memcpy(out, path, before);
        memcpy(out + before, to, (size_t)n);
        out[before + (size_t)n] = 0;
    }
    return out;
}

char *cli_real_path(const char *path) {
    struct stat st;
    const int there = stat(path, &st) == 0;
    char *at = there && lstat(path, &st) == 0 && S_ISLNK(st.st_mode) ? realpath(path, NULL) : NULL;
    at = at != NULL ? at : strdup(path); /* realpath fails for links to pipes */
    for (int i = 0; !there && i < LINKS_MAX && at != NULL && lstat(at, &st) == 0 && S_ISLNK(st.st_mode); i++) {
        char *next = said_by_link(at);
        free(at);
        at = next;
    }
    return at;
}

int cli_pipe_open(const char *path) {
    return strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

int cli_pipe_read(int fd, void *data, int bytes) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (;;) {
        const int ready = poll(&p, 1, LOOK_MS); /* without a writer a pipe would read as ended */
        const ssize_t n = ready > 0 ? read(fd, data, (size_t)bytes) : -1;
        if (n >= 0) {
            return (int)n;
        }
        if (caught_signal != 0) {
            errno = EINTR;
            return -1;
        }
        if (ready != 0 && errno != EAGAIN && errno != EINTR) {
            return -1;
        }
    }
}

void cli_pipe_close(int fd) {
    if (fd != STDIN_FILENO) {
        close(fd);
    }
}

FILE *cli_open_read(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? NULL : fdopen(fd, "rb");
}

FILE *cli_open_new(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return fd < 0 ? NULL : fdopen(fd, "wb");
}

FILE *cli_open_after(const char *path, long long bytes) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0 && (ftruncate(fd, (off_t)bytes) != 0 || lseek(fd, (off_t)bytes, SEEK_SET) < 0)) {
        int why = errno;
        close(fd);
        fd = -1;
        errno = why;
    }
    return fd < 0 ? NULL : fdopen(fd, "wb");
}

int cli_rename(const char *from, const char *to) {
    return rename(from, to) == 0 ? 0 : errno;
}

void cli_unlink(const char *path) {
    unlink(path);
}

char *cli_program_folder(void) {
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n < 0) {
        return NULL;
    }
    path[n] = 0;
    char *slash = strrchr(path, '/');
    if (slash != NULL) {
        *slash = 0;
    }
    return strdup(path);
}

void cli_remove_folder(const char *path) {
    rmdir(path);
}

void cli_file_stamp(const char *path, uint64_t *bytes, uint64_t *changed_ns) {
    struct stat st;
    const int there = stat(path, &st) == 0;
    *bytes = there ? (uint64_t)st.st_size : 0;
    *changed_ns = there ? (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec : 0;
}

unsigned long cli_process_id(void) {
    return (unsigned long)getpid();
}

int cli_terminal_columns(void) {
    if (!isatty(STDERR_FILENO)) {
        return 0;
    }
    struct winsize size = {0};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
        return 80;
    }
    return size.ws_col;
}

int cli_stdout_is_terminal(void) {
    return isatty(STDOUT_FILENO);
}

double cli_seconds(void) {
    struct timespec t = {0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void cli_clear_memory(void) {
#ifdef M_PERTURB
    mallopt(M_PERTURB, 0xff); /* malloc fills with the complement of this byte */
#endif
}

void cli_sleep(double seconds) {
    const struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

uint64_t cli_peak_memory(void) {
    struct rusage usage = {0};
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024u;
}

void cli_machine(char *text, size_t bytes) {
    char model[256] = "";
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[512];
    while (f != NULL && model[0] == 0 && fgets(line, sizeof line, f) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            snprintf(model, sizeof model, "%s", colon + 1 + strspn(colon + 1, " \t"));
            model[strcspn(model, "\n")] = 0;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    struct utsname u;
    if (uname(&u) != 0) {
        memset(&u, 0, sizeof u);
    }
    snprintf(text, bytes, "%s, %ld cores, %s %s", model[0] != 0 ? model : u.machine, sysconf(_SC_NPROCESSORS_ONLN),
             u.sysname, u.machine);
}

/* All data of the pipe, as one string. */
static char *read_all(FILE *f) {
    size_t n = 0;
    size_t room = 4096;
    char *text = malloc(room);
    while (text != NULL) {
        n += fread(text + n, 1, room - 1 - n, f);
        if (n < room - 1) {
            text[n] = 0;
            break;
        }
        char *more = realloc(text, 2 * room);
        if (more == NULL) {
            free(text);
            return NULL;
        }
        text = more;
        room *= 2;
    }
    return text;
}

int cli_isolated(int (*fn)(void *user, FILE *out), void *user, char **text) {
    int ends[2];
    *text = NULL;
    if (pipe(ends) != 0) {
        return -1;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        FILE *out = fdopen(ends[1], "w");
        int r = out != NULL ? fn(user, out) : 1;
        if (out != NULL && fclose(out) != 0) {
            r = 1;
        }
        fflush(NULL);
        _exit(r);
    }
    close(ends[1]);
    FILE *in = child > 0 ? fdopen(ends[0], "r") : NULL;
    if (in == NULL) {
        close(ends[0]);
    } else {
        *text = read_all(in);
        fclose(in);
    }
    int state = 0;
    if (child > 0) {
        while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
        }
    }
    if (child < 0 || !WIFEXITED(state)) {
        free(*text);
        *text = NULL;
        return -1;
    }
    return WEXITSTATUS(state);
}
