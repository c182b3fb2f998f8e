/* os_posix_file.c - the files and folders of os.h on POSIX systems.
 *
 * A mapped file that is truncated by someone else while davy reads it raises SIGBUS in the process: that is how mmap
 * works, and a library must not install a signal handler. Hosts that read from network drives or from files that may
 * change open models with DAVY_MODEL_NO_MMAP, which reads instead and turns the same event into E_IO. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/os.h"

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
    /* O_NONBLOCK: a named pipe must not hang the host. It means nothing to a regular file. */
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
    if (r != DAVY_OK) {
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
    /* Whole pages only: a neighbour may still be reading the ones at the ends. */
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
