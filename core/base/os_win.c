/* os_win.c - os.h on Windows (mingw-w64 or MSVC). Locks are slim reader/writer locks and condition variables, which
 * need no release. */
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#ifndef _WIN32_WINNT
#define _WIN32_WINNT 0x0601
#endif
#include <windows.h>

#include <process.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_MSC_VER)
#include <intrin.h>
#else
#include <cpuid.h>
#endif

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/os.h"

enum { THREAD_STACK_BYTES = 2 << 20 };

struct dv_mutex {
    SRWLOCK lock;
};

struct dv_cond {
    CONDITION_VARIABLE c;
};

struct dv_thread {
    HANDLE handle;
    void (*fn)(void *arg);
    void *arg;
};

/* ---- text ---- */

/* NULL: not UTF-8, or out of memory. dv_free. */
static wchar_t *to_wide(const char *s) {
    const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, s, -1, NULL, 0);
    wchar_t *w = n > 0 ? dv_calloc((uint64_t)n, sizeof *w) : NULL;
    if (w != NULL) {
        MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, s, -1, w, n);
    }
    return w;
}

static char *to_utf8(const wchar_t *w) {
    const int n = WideCharToMultiByte(CP_UTF8, 0, w, -1, NULL, 0, NULL, NULL);
    char *s = n > 0 ? dv_calloc((uint64_t)n, 1) : NULL;
    if (s != NULL) {
        WideCharToMultiByte(CP_UTF8, 0, w, -1, s, n, NULL, NULL);
    }
    return s;
}

/* ---- locks and threads ---- */

dv_mutex *dv_mutex_create(void) {
    dv_mutex *m = dv_calloc(1, sizeof *m);
    if (m != NULL) {
        InitializeSRWLock(&m->lock);
    }
    return m;
}

void dv_mutex_release(dv_mutex *m) {
    dv_free(m);
}

void dv_mutex_lock(dv_mutex *m) {
    AcquireSRWLockExclusive(&m->lock);
}

void dv_mutex_unlock(dv_mutex *m) {
    ReleaseSRWLockExclusive(&m->lock);
}

dv_cond *dv_cond_create(void) {
    dv_cond *c = dv_calloc(1, sizeof *c);
    if (c != NULL) {
        InitializeConditionVariable(&c->c);
    }
    return c;
}

void dv_cond_release(dv_cond *c) {
    dv_free(c);
}

void dv_cond_signal(dv_cond *c) {
    WakeConditionVariable(&c->c);
}

void dv_cond_broadcast(dv_cond *c) {
    WakeAllConditionVariable(&c->c);
}

bool dv_cond_wait(dv_cond *c, dv_mutex *m, uint64_t timeout_ns) {
    const uint64_t ms = timeout_ns / 1000000u + (timeout_ns % 1000000u != 0 ? 1 : 0);
    const bool forever = timeout_ns == UINT64_MAX;
    /* A very long finite wait ends early. Callers check the clock, because every wait may end early. */
    const DWORD wait = forever ? INFINITE : (DWORD)(ms < 0x7fffffffu ? ms : 0x7fffffffu);
    if (SleepConditionVariableSRW(&c->c, &m->lock, wait, 0)) {
        return true;
    }
    return forever || GetLastError() != ERROR_TIMEOUT;
}

static unsigned __stdcall thread_main(void *arg) {
    dv_thread *t = arg;
    t->fn(t->arg);
    return 0;
}

davy_result dv_thread_start(void (*fn)(void *arg), void *arg, const char *name, dv_thread **out) {
    dv_thread *t = dv_calloc(1, sizeof *t);
    if (t == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "thread %s: out of memory", name);
    }
    t->fn = fn;
    t->arg = arg;
    t->handle =
        (HANDLE)_beginthreadex(NULL, THREAD_STACK_BYTES, thread_main, t, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    if (t->handle == NULL) {
        const int native = errno;
        dv_free(t);
        return dv_fail_in(DAVY_E_NOMEM_HOST, DAVY_DOMAIN_OS, native, "thread %s could not be started: error %d", name,
                          native);
    }
    *out = t;
    return DAVY_OK;
}

void dv_thread_join(dv_thread *t) {
    if (t != NULL) {
        WaitForSingleObject(t->handle, INFINITE);
        CloseHandle(t->handle);
        dv_free(t);
    }
}

void dv_thread_yield(void) {
    SwitchToThread();
}

/* ---- the machine ---- */

uint64_t dv_now_ns(void) {
    LARGE_INTEGER now;
    LARGE_INTEGER per_second;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&per_second);
    const uint64_t f = (uint64_t)per_second.QuadPart;
    const uint64_t n = (uint64_t)now.QuadPart;
    return n / f * 1000000000u + n % f * 1000000000u / f;
}

void dv_sleep_ns(uint64_t ns) {
    LARGE_INTEGER due = {.QuadPart = -(LONGLONG)(ns / 100u + 1)};
    HANDLE timer = CreateWaitableTimerExW(NULL, NULL, 2 /* high resolution */, TIMER_ALL_ACCESS);
    if (timer != NULL && SetWaitableTimer(timer, &due, 0, NULL, NULL, FALSE)) {
        WaitForSingleObject(timer, INFINITE);
    } else { /* before Windows 10 1803 */
        Sleep((DWORD)(ns / 1000000u) + 1);
    }
    if (timer != NULL) {
        CloseHandle(timer);
    }
}

uint64_t dv_process_id(void) {
    return GetCurrentProcessId();
}

int32_t dv_cpu_count(void) {
    DWORD_PTR mine = 0;
    DWORD_PTR all = 0;
    int32_t n = 0;
    if (GetProcessAffinityMask(GetCurrentProcess(), &mine, &all)) {
        for (; mine != 0; mine &= mine - 1) {
            n++;
        }
    }
    return n > 0 ? n : 1;
}

uint64_t dv_memory_total(void) {
    MEMORYSTATUSEX m = {.dwLength = sizeof m};
    return GlobalMemoryStatusEx(&m) ? m.ullTotalPhys : 0;
}

uint64_t dv_memory_available(void) {
    MEMORYSTATUSEX m = {.dwLength = sizeof m};
    return GlobalMemoryStatusEx(&m) ? m.ullAvailPhys : 0;
}

#if defined(__x86_64__) || defined(_M_X64)
static void cpuid(uint32_t leaf, uint32_t out[4]) {
#if defined(_MSC_VER)
    int regs[4];
    __cpuid(regs, (int)leaf);
    memcpy(out, regs, sizeof regs);
#else
    __cpuid(leaf, out[0], out[1], out[2], out[3]);
#endif
}

void dv_cpu_name(char *out, size_t bytes) {
    uint32_t regs[4] = {0};
    char brand[49] = "CPU";
    cpuid(0x80000000u, regs);
    if (regs[0] >= 0x80000004u) {
        for (uint32_t i = 0; i < 3; i++) {
            cpuid(0x80000002u + i, regs);
            memcpy(brand + i * sizeof regs, regs, sizeof regs);
        }
        brand[48] = '\0';
    }
    snprintf(out, bytes, "%s", brand + strspn(brand, " "));
}
#else
void dv_cpu_name(char *out, size_t bytes) {
    snprintf(out, bytes, "CPU");
}
#endif

char *dv_env(const char *name) {
    wchar_t *wname = to_wide(name);
    wchar_t *value = NULL;
    char *out = NULL;
    const DWORD n = wname != NULL ? GetEnvironmentVariableW(wname, NULL, 0) : 0;
    if (n > 0 && (value = dv_calloc(n, sizeof *value)) != NULL && GetEnvironmentVariableW(wname, value, n) < n) {
        out = to_utf8(value);
    }
    dv_free(value);
    dv_free(wname);
    return out;
}

char *dv_library_folder(void) {
    static const char anchor = 0; /* any address inside this library */
    const DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
    enum { ROOM = 32768 }; /* no path is longer */
    HMODULE module = NULL;
    char *folder = NULL;
    if (!GetModuleHandleExW(flags, (LPCWSTR)(const void *)&anchor, &module)) {
        return NULL;
    }
    wchar_t *path = dv_calloc(ROOM, sizeof *path);
    const DWORD n = path != NULL ? GetModuleFileNameW(module, path, ROOM) : 0;
    if (n > 0 && n < ROOM) {
        char *utf8 = to_utf8(path);
        folder = utf8 != NULL ? dv_path_folder(utf8) : NULL;
        dv_free(utf8);
    }
    dv_free(path);
    return folder;
}

void dv_library_pin(void) {
    static const char anchor = 0;
    const DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN;
    HMODULE module = NULL;
    GetModuleHandleExW(flags, (LPCWSTR)(const void *)&anchor, &module);
}

void *dv_library_open(const char *name, char *why, size_t bytes) {
    wchar_t *wide = to_wide(name);
    const bool path = strpbrk(name, "/\\") != NULL;
    const DWORD flags = path ? LOAD_WITH_ALTERED_SEARCH_PATH : LOAD_LIBRARY_SEARCH_DEFAULT_DIRS;
    HMODULE library = wide != NULL ? LoadLibraryExW(wide, NULL, flags) : NULL;
    if (library == NULL && why != NULL) {
        snprintf(why, bytes, "%s: error %lu", name, (unsigned long)GetLastError());
    }
    dv_free(wide);
    return (void *)library;
}

void *dv_library_symbol(void *library, const char *name) {
    const FARPROC found = GetProcAddress((HMODULE)library, name);
    void *symbol = NULL;
    memcpy(&symbol, &found, sizeof symbol);
    return symbol;
}

/* ---- files and folders. Paths are UTF-8 in os.h and UTF-16 in the system's calls. A path that may exceed MAX_PATH gets
 * the \\?\ prefix.
 *
 * Windows does not let another program truncate a mapped file. But if a file's network drive disconnects, reading the map
 * raises an exception in the process. With DAVY_MODEL_NO_MMAP files are read, and the same event is DAVY_E_IO. ---- */

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

/* A path in the form that the system accepts at any length. NULL: not UTF-8, or out of memory. */
static wchar_t *to_wide_path(const char *path) {
    wchar_t *plain = to_wide(path);
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
    if (dv_path_stat(path) == DV_PATH_FOLDER) { /* CreateFile would report "access denied" */
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
    if (r < 0) {
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
        /* Unlocking pages that are not locked removes them from the working set. The call then reports a failure. */
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
    names[list->n] = to_utf8(wide);
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
    if (r < 0) {
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
