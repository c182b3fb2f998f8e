/* os_win_file.c - the files and folders of os.h on Windows. Paths are UTF-8 outside and UTF-16 inside; those too long
 * for the classic limit get the \\?\ prefix.
 *
 * A mapped file cannot be truncated by another program here, but one on a network drive that goes away raises an
 * exception in the process: DAVY_MODEL_NO_MMAP reads instead and turns the same event into E_IO. */
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#ifndef _WIN32_WINNT
#define _WIN32_WINNT 0x0601
#endif
#include <windows.h>

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/os.h"
#include "core/base/os_win.h"

enum { LONG_PATH = 240 };

struct dv_file {
    HANDLE handle;
    HANDLE mapping;
    void *map;
    uint64_t bytes;
};

static davy_result fail_os(davy_result code, DWORD native, const char *what, const char *path) {
    return dv_fail_in(code, DAVY_DOMAIN_OS, (int32_t)native, "%s: %s: Windows error %lu", path, what,
                      (unsigned long)native);
}

/* The form the system accepts at any length. NULL: not UTF-8, or out of memory. */
static wchar_t *to_wide_path(const char *path) {
    wchar_t *plain = dv_to_wide(path);
    if (plain == NULL || wcslen(plain) < LONG_PATH || wcsncmp(plain, L"\\\\", 2) == 0) {
        return plain;
    }
    wchar_t *full = NULL;
    const DWORD n = GetFullPathNameW(plain, 0, NULL, NULL);
    if (n > 0 && (full = dv_calloc((uint64_t)n + 4, sizeof *full)) != NULL) {
        memcpy(full, L"\\\\?\\", 4 * sizeof *full);
        GetFullPathNameW(plain, n, full + 4, NULL);
    }
    dv_free(plain);
    return full;
}

/* ---- files ---- */

davy_result dv_file_open(const char *path, dv_file **out) {
    const DWORD share = FILE_SHARE_READ | FILE_SHARE_DELETE;
    LARGE_INTEGER bytes = {.QuadPart = 0};
    dv_file *f = NULL;
    davy_result r = DAVY_OK;
    wchar_t *wide = to_wide_path(path);
    if (wide == NULL) {
        return dv_fail(DAVY_E_INVALID, "%s: the path is not UTF-8", path);
    }
    if (dv_path_stat(path) == DV_PATH_FOLDER) { /* CreateFile would call it an access violation */
        dv_free(wide);
        return dv_fail(DAVY_E_INVALID, "%s: is a folder, expected a file", path);
    }
    HANDLE handle = CreateFileW(wide, GENERIC_READ, share, NULL, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
    const DWORD err = GetLastError();
    dv_free(wide);
    if (handle == INVALID_HANDLE_VALUE) {
        const bool none = err == ERROR_FILE_NOT_FOUND || err == ERROR_PATH_NOT_FOUND || err == ERROR_INVALID_NAME;
        return fail_os(none ? DAVY_E_NOT_FOUND : DAVY_E_IO, err, "cannot be opened", path);
    }
    if (GetFileType(handle) != FILE_TYPE_DISK) {
        r = dv_fail(DAVY_E_INVALID, "%s: is not a regular file, expected a file", path);
    } else if (!GetFileSizeEx(handle, &bytes)) {
        r = fail_os(DAVY_E_IO, GetLastError(), "cannot be examined", path);
    } else if ((f = dv_calloc(1, sizeof *f)) == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", path);
    }
    if (r != DAVY_OK) {
        CloseHandle(handle);
        return r;
    }
    f->handle = handle;
    f->bytes = (uint64_t)bytes.QuadPart;
    *out = f;
    return DAVY_OK;
}

void dv_file_close(dv_file *f) {
    if (f == NULL) {
        return;
    }
    if (f->map != NULL) {
        UnmapViewOfFile(f->map);
    }
    if (f->mapping != NULL) {
        CloseHandle(f->mapping);
    }
    CloseHandle(f->handle);
    dv_free(f);
}

uint64_t dv_file_bytes(const dv_file *f) {
    return f->bytes;
}

davy_result dv_file_map(dv_file *f, const void **out) {
    static const char nothing[1] = {0};
    if (f->bytes == 0) {
        *out = nothing; /* an empty file cannot be mapped */
        return DAVY_OK;
    }
    if (f->mapping == NULL) {
        f->mapping = CreateFileMappingW(f->handle, NULL, PAGE_READONLY, 0, 0, NULL);
    }
    if (f->mapping != NULL && f->map == NULL) {
        f->map = MapViewOfFile(f->mapping, FILE_MAP_READ, 0, 0, 0);
    }
    if (f->map == NULL) {
        return fail_os(DAVY_E_IO, GetLastError(), "cannot be mapped", "file");
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
        const DWORD piece = (DWORD)(bytes < ((uint64_t)1 << 30) ? bytes : (uint64_t)1 << 30);
        OVERLAPPED where = {0}; /* an offset of its own: safe from any thread */
        where.Offset = (DWORD)(offset & 0xffffffffu);
        where.OffsetHigh = (DWORD)(offset >> 32);
        DWORD n = 0;
        if (!ReadFile(f->handle, at, piece, &n, &where)) {
            return fail_os(DAVY_E_IO, GetLastError(), "cannot be read", "file");
        }
        if (n == 0) {
            return dv_fail(DAVY_E_IO, "the file ended at byte %llu: it was truncated while it was open",
                           (unsigned long long)offset);
        }
        at += n;
        offset += n;
        bytes -= n;
    }
    return DAVY_OK;
}

void dv_file_done_with(dv_file *f, uint64_t offset, uint64_t bytes) {
    const uint64_t page = 4096;
    if (f->map == NULL || offset > f->bytes || bytes > f->bytes - offset) {
        return;
    }
    const uint64_t first = dv_align_up(offset, page);
    const uint64_t last = (offset + bytes) & ~(page - 1);
    if (last > first) {
        /* Unlocking pages that are not locked takes them out of the working set; the failure it reports is expected. */
        VirtualUnlock((char *)f->map + first, (SIZE_T)(last - first));
    }
}

/* ---- folders ---- */

dv_path_kind dv_path_stat(const char *path) {
    wchar_t *wide = to_wide_path(path);
    const DWORD attributes = wide != NULL ? GetFileAttributesW(wide) : INVALID_FILE_ATTRIBUTES;
    dv_free(wide);
    if (attributes == INVALID_FILE_ATTRIBUTES) {
        return DV_PATH_NONE;
    }
    return (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0 ? DV_PATH_FOLDER : DV_PATH_FILE;
}

typedef struct name_list {
    char **names;
    int64_t n;
    int64_t capacity;
} name_list;

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static davy_result add_name(name_list *list, const wchar_t *wide) {
    if (wcscmp(wide, L".") == 0 || wcscmp(wide, L"..") == 0) {
        return DAVY_OK;
    }
    char **names = dv_grow(list->names, list->n + 1, &list->capacity, sizeof *names);
    if (names == NULL) {
        return DAVY_E_NOMEM_HOST;
    }
    list->names = names;
    names[list->n] = dv_to_utf8(wide);
    if (names[list->n] == NULL) {
        return DAVY_E_NOMEM_HOST;
    }
    list->n++;
    return DAVY_OK;
}

static davy_result read_names(const char *folder, name_list *list) {
    WIN32_FIND_DATAW data;
    char *pattern = dv_path_join(folder, "*");
    wchar_t *wide = pattern != NULL ? to_wide_path(pattern) : NULL;
    dv_free(pattern);
    if (wide == NULL) {
        return dv_fail(DAVY_E_INVALID, "%s: the path is not UTF-8", folder);
    }
    HANDLE find = FindFirstFileW(wide, &data);
    DWORD err = GetLastError();
    dv_free(wide);
    if (find == INVALID_HANDLE_VALUE) {
        const bool none = err == ERROR_FILE_NOT_FOUND || err == ERROR_PATH_NOT_FOUND;
        return fail_os(none ? DAVY_E_NOT_FOUND : DAVY_E_IO, err, "cannot be opened", folder);
    }
    davy_result r = DAVY_OK;
    do {
        r = add_name(list, data.cFileName);
    } while (r == DAVY_OK && FindNextFileW(find, &data));
    err = GetLastError();
    FindClose(find);
    if (r != DAVY_OK) {
        return dv_fail(r, "%s: out of memory", folder);
    }
    return err == ERROR_NO_MORE_FILES ? DAVY_OK : fail_os(DAVY_E_IO, err, "cannot be listed", folder);
}

davy_result dv_path_list(const char *folder, davy_result (*fn)(void *user, const char *name), void *user) {
    name_list list = {0};
    davy_result r = read_names(folder, &list);
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
