/* os_posix.c - os.h on Linux. All but a few lines run on any POSIX system.
 *
 * Threads block every signal, so that a host's handlers run on the host's threads. The numbers of processors and of bytes
 * of memory are those of the machine, or of the control group (a container's limit) if these are smaller. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/os.h"

enum { THREAD_STACK_BYTES = 2 << 20 };

struct dv_mutex {
    pthread_mutex_t m;
};

struct dv_cond {
    pthread_cond_t c;
};

struct dv_thread {
    pthread_t id;
    void (*fn)(void *arg);
    void *arg;
    char name[16];
};

/* strerror() may share a buffer between threads. */
static const char *errno_text(int code, char *buf, size_t bytes) {
    return strerror_r(code, buf, bytes);
}

/* ---- locks and threads ---- */

dv_mutex *dv_mutex_create(void) {
    dv_mutex *m = dv_calloc(1, sizeof *m);
    if (m != NULL && pthread_mutex_init(&m->m, NULL) != 0) {
        dv_free(m);
        return NULL;
    }
    return m;
}

void dv_mutex_release(dv_mutex *m) {
    if (m != NULL) {
        pthread_mutex_destroy(&m->m);
        dv_free(m);
    }
}

void dv_mutex_lock(dv_mutex *m) {
    pthread_mutex_lock(&m->m);
}

void dv_mutex_unlock(dv_mutex *m) {
    pthread_mutex_unlock(&m->m);
}

dv_cond *dv_cond_create(void) {
    dv_cond *c = dv_calloc(1, sizeof *c);
    if (c == NULL) {
        return NULL;
    }
    pthread_condattr_t attr;
    bool ok = pthread_condattr_init(&attr) == 0;
    if (ok) {
        ok = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 && pthread_cond_init(&c->c, &attr) == 0;
        pthread_condattr_destroy(&attr);
    }
    if (!ok) {
        dv_free(c);
        return NULL;
    }
    return c;
}

void dv_cond_release(dv_cond *c) {
    if (c != NULL) {
        pthread_cond_destroy(&c->c);
        dv_free(c);
    }
}

void dv_cond_signal(dv_cond *c) {
    pthread_cond_signal(&c->c);
}

void dv_cond_broadcast(dv_cond *c) {
    pthread_cond_broadcast(&c->c);
}

bool dv_cond_wait(dv_cond *c, dv_mutex *m, uint64_t timeout_ns) {
    const uint64_t now = dv_now_ns();
    const uint64_t forever = (uint64_t)1 << 62; /* 146 years of nanoseconds: later ends overflow time_t arithmetic */
    if (timeout_ns >= forever - now) {
        pthread_cond_wait(&c->c, &m->m);
        return true;
    }
    const uint64_t end = now + timeout_ns;
    const struct timespec ts = {.tv_sec = (time_t)(end / 1000000000u), .tv_nsec = (long)(end % 1000000000u)};
    return pthread_cond_timedwait(&c->c, &m->m, &ts) != ETIMEDOUT;
}

static void *thread_main(void *arg) {
    dv_thread *t = arg;
#if defined(__linux__)
    pthread_setname_np(pthread_self(), t->name);
#endif
    t->fn(t->arg);
    return NULL;
}

davy_result dv_thread_start(void (*fn)(void *arg), void *arg, const char *name, dv_thread **out) {
    dv_thread *t = dv_calloc(1, sizeof *t);
    if (t == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "thread %s: out of memory", name);
    }
    t->fn = fn;
    t->arg = arg;
    snprintf(t->name, sizeof t->name, "%s", name);
    sigset_t all;
    sigset_t old;
    pthread_attr_t attr;
    int err = pthread_attr_init(&attr);
    if (err == 0) {
        sigfillset(&all);
        pthread_attr_setstacksize(&attr, THREAD_STACK_BYTES);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        err = pthread_create(&t->id, &attr, thread_main, t);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        pthread_attr_destroy(&attr);
    }
    if (err != 0) {
        char buf[128];
        dv_free(t);
        return dv_fail_in(DAVY_E_NOMEM_HOST, DAVY_DOMAIN_OS, err, "thread %s could not be started: %s", name,
                          errno_text(err, buf, sizeof buf));
    }
    *out = t;
    return DAVY_OK;
}

void dv_thread_join(dv_thread *t) {
    if (t != NULL) {
        pthread_join(t->id, NULL);
        dv_free(t);
    }
}

void dv_thread_yield(void) {
    sched_yield();
}

/* ---- the machine ---- */

uint64_t dv_now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void dv_sleep_ns(uint64_t ns) {
    const struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&ts, NULL); /* a signal may end it early: callers check the time again */
}

uint64_t dv_process_id(void) {
    return (uint64_t)getpid();
}

/* The first bytes of a small system file; false where there is none. */
static bool read_small(const char *path, char *buf, size_t bytes) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    size_t have = 0;
    ssize_t n = 0;
    while (have < bytes - 1 && (n = read(fd, buf + have, bytes - 1 - have)) > 0) {
        have += (size_t)n;
    }
    close(fd);
    buf[have] = '\0';
    return have > 0;
}

int32_t dv_cpu_count(void) {
    int64_t n = sysconf(_SC_NPROCESSORS_ONLN);
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        n = CPU_COUNT(&set);
    }
    char buf[64];
    char *rest = NULL;
    if (read_small("/sys/fs/cgroup/cpu.max", buf, sizeof buf)) { /* "200000 100000": two processors; "max 100000" */
        const int64_t quota = strtoll(buf, &rest, 10);
        const int64_t period = rest != buf ? strtoll(rest, NULL, 10) : 0;
        if (quota > 0 && period > 0) {
            n = dv_min(n, dv_div_up(quota, period));
        }
    }
#endif
    return (int32_t)dv_max(1, n);
}

uint64_t dv_memory_total(void) {
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page = sysconf(_SC_PAGESIZE);
    uint64_t total = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    char buf[64];
    if (read_small("/sys/fs/cgroup/memory.max", buf, sizeof buf)) {
        const uint64_t limit = strtoull(buf, NULL, 10); /* "max" reads as 0 */
        if (limit > 0 && limit < total) {
            total = limit;
        }
    }
    return total;
}

uint64_t dv_memory_available(void) {
    char buf[2048];
    if (read_small("/proc/meminfo", buf, sizeof buf)) {
        const char *at = strstr(buf, "MemAvailable:");
        if (at != NULL) {
            return strtoull(at + strlen("MemAvailable:"), NULL, 10) * 1024u;
        }
    }
    return dv_memory_total() / 2;
}

void dv_cpu_name(char *out, size_t bytes) {
    char buf[4096];
    snprintf(out, bytes, "CPU");
    if (!read_small("/proc/cpuinfo", buf, sizeof buf)) {
        return;
    }
    const char *at = strstr(buf, "model name");
    const char *value = at != NULL ? strchr(at, ':') : NULL;
    if (value != NULL) {
        value += strspn(value, ": \t");
        snprintf(out, bytes, "%.*s", (int)strcspn(value, "\n"), value);
    }
}

char *dv_env(const char *name) {
    const char *value = getenv(name);
    return value != NULL ? dv_strdup(value) : NULL;
}

char *dv_library_folder(void) {
    static const char anchor = 0; /* any address inside this library */
    Dl_info info;
    if (dladdr(&anchor, &info) == 0 || info.dli_fname == NULL) {
        return NULL;
    }
    char *full = realpath(info.dli_fname, NULL);
    if (full == NULL) {
        return NULL;
    }
    char *folder = dv_path_folder(full);
    free(full);
    return folder;
}

void dv_library_pin(void) {
    /* linked with -z nodelete */
}

void *dv_library_open(const char *name, char *why, size_t bytes) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    const char *text = library == NULL ? dlerror() : NULL;
    if (library == NULL && why != NULL) {
        snprintf(why, bytes, "%s", text != NULL ? text : "cannot be loaded");
    }
    return library;
}

void *dv_library_symbol(void *library, const char *name) {
    return dlsym(library, name);
}

/* ---- files and folders.
 *
 * If another program truncates a mapped file while davy reads it, the process gets SIGBUS. A library must not install a
 * signal handler for that. A host whose files are on network drives or may change opens models with DAVY_MODEL_NO_MMAP.
 * Files are then read and not mapped, and the same event is DAVY_E_IO. ---- */

struct dv_file {
    int fd;
    uint64_t bytes;
    void *map;
};

static davy_result fail_os(davy_result code, const char *what, const char *path) {
    const int native = errno;
    code = native == ENOMEM ? DAVY_E_NOMEM_HOST : code;
    char buf[128];
    return dv_fail_in(code, DAVY_DOMAIN_OS, native, "%s: %s: %s", path, what, strerror_r(native, buf, sizeof buf));
}

/* ---- files ---- */

davy_result dv_file_open(const char *path, dv_file **out) {
    /* O_NONBLOCK: a named pipe must not block the host. It has no effect on a regular file. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return fail_os(errno == ENOENT || errno == ENOTDIR ? DAVY_E_NOT_FOUND : DAVY_E_IO, "cannot be opened", path);
    }
    davy_result r = DAVY_OK;
    struct stat st;
    dv_file *f = NULL;
    if (fstat(fd, &st) != 0) {
        r = fail_os(DAVY_E_IO, "cannot be examined", path);
    } else if (!S_ISREG(st.st_mode)) {
        r = dv_fail(DAVY_E_INVALID, "%s: is %s, expected a file", path,
                    S_ISDIR(st.st_mode) ? "a folder" : "not a regular file");
    } else if ((f = dv_calloc(1, sizeof *f)) == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", path);
    }
    if (r < 0) {
        close(fd);
        return r;
    }
    f->fd = fd;
    f->bytes = (uint64_t)st.st_size;
    *out = f;
    return DAVY_OK;
}

void dv_file_close(dv_file *f) {
    if (f == NULL) {
        return;
    }
    if (f->map != NULL) {
        munmap(f->map, (size_t)f->bytes);
    }
    close(f->fd);
    dv_free(f);
}

uint64_t dv_file_bytes(const dv_file *f) {
    return f->bytes;
}

davy_result dv_file_map(dv_file *f, const void **out) {
    static const char nothing[1] = {0};
    if (f->bytes == 0) {
        *out = nothing; /* mmap refuses length 0 */
        return DAVY_OK;
    }
    if (f->map == NULL) {
        void *p = f->bytes <= SIZE_MAX ? mmap(NULL, (size_t)f->bytes, PROT_READ, MAP_PRIVATE, f->fd, 0) : MAP_FAILED;
        if (p == MAP_FAILED) {
            return fail_os(DAVY_E_IO, "cannot be mapped", "file");
        }
        f->map = p;
    }
    *out = f->map;
    return DAVY_OK;
}

davy_result dv_file_read(dv_file *f, uint64_t offset, void *dst, uint64_t bytes) {
    if (offset > f->bytes || bytes > f->bytes - offset) {
        return dv_fail(DAVY_E_IO, "read of %llu bytes at %llu is past the end of the file (%llu bytes)",
                       (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)f->bytes);
    }
    char *at = dst;
    while (bytes > 0) {
        const size_t piece = (size_t)(bytes < ((uint64_t)1 << 30) ? bytes : (uint64_t)1 << 30);
        const ssize_t n = pread(f->fd, at, piece, (off_t)offset);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return fail_os(DAVY_E_IO, "cannot be read", "file");
        }
        if (n == 0) {
            return dv_fail(DAVY_E_IO, "the file ended at byte %llu: it was truncated while it was open",
                           (unsigned long long)offset);
        }
        at += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return DAVY_OK;
}

void dv_file_done_with(dv_file *f, uint64_t offset, uint64_t bytes) {
    const long page = sysconf(_SC_PAGESIZE);
    if (f->map == NULL || page <= 0 || offset > f->bytes || bytes > f->bytes - offset) {
        return;
    }
    /* Whole pages only: the pages at both ends may hold a neighbouring range that is still being read. */
    const uint64_t first = dv_align_up(offset, (uint64_t)page);
    const uint64_t last = (offset + bytes) & ~((uint64_t)page - 1);
    if (last > first) {
        madvise((char *)f->map + first, (size_t)(last - first), MADV_DONTNEED);
    }
}

/* ---- folders ---- */

dv_path_kind dv_path_stat(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) {
        return DV_PATH_NONE;
    }
    return S_ISDIR(st.st_mode) ? DV_PATH_FOLDER : S_ISREG(st.st_mode) ? DV_PATH_FILE : DV_PATH_NONE;
}

typedef struct name_list {
    char **names;
    int64_t n;
    int64_t capacity;
} name_list;

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static davy_result read_names(const char *folder, DIR *dir, name_list *list) {
    const struct dirent *entry = NULL;
    while (errno = 0, (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        char **names = dv_grow(list->names, list->n + 1, &list->capacity, sizeof *names);
        if (names == NULL) {
            return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", folder);
        }
        list->names = names;
        names[list->n] = dv_strdup(entry->d_name);
        if (names[list->n] == NULL) {
            return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", folder);
        }
        list->n++;
    }
    return errno == 0 ? DAVY_OK : fail_os(DAVY_E_IO, "cannot be listed", folder);
}

davy_result dv_path_list(const char *folder, davy_result (*fn)(void *user, const char *name), void *user) {
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        return fail_os(errno == ENOENT ? DAVY_E_NOT_FOUND : DAVY_E_IO, "cannot be opened", folder);
    }
    name_list list = {0};
    davy_result r = read_names(folder, dir, &list);
    closedir(dir);
    if (r == DAVY_OK && list.n > 1) {
        qsort(list.names, (size_t)list.n, sizeof *list.names, compare_names);
    }
    for (int64_t i = 0; r == DAVY_OK && i < list.n; i++) {
        r = fn(user, list.names[i]);
    }
    for (int64_t i = 0; i < list.n; i++) {
        dv_free(list.names[i]);
    }
    dv_free(list.names);
    return r;
}
