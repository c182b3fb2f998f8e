/* os_win.c - os.h on Windows (mingw-w64 or MSVC). Locks are slim reader/writer locks and condition variables, which
 * need no release. */
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#ifndef _WIN32_WINNT
#define _WIN32_WINNT 0x0601
#endif
#include <windows.h>

#include <malloc.h>
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
#include "core/base/os_win.h"

enum { THREAD_STACK_BYTES = 2 << 20, MAX_ONCE = 16 };

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

wchar_t *dv_to_wide(const char *s) {
    const int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, s, -1, NULL, 0);
    wchar_t *w = n > 0 ? dv_calloc((uint64_t)n, sizeof *w) : NULL;
    if (w != NULL) {
        MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, s, -1, w, n);
    }
    return w;
}

char *dv_to_utf8(const wchar_t *w) {
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
    /* A very long finite wait ends early; callers look at the clock themselves, as every wait may end early. */
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

void dv_once(void (*fn)(void)) {
    static SRWLOCK lock = SRWLOCK_INIT;
    static void (*ran[MAX_ONCE])(void);
    AcquireSRWLockExclusive(&lock);
    int i = 0;
    while (i < MAX_ONCE && ran[i] != NULL && ran[i] != fn) {
        i++;
    }
    if (i == MAX_ONCE || ran[i] == NULL) {
        fn();
        if (i < MAX_ONCE) {
            ran[i] = fn;
        }
    }
    ReleaseSRWLockExclusive(&lock);
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
    wchar_t *wname = dv_to_wide(name);
    wchar_t *value = NULL;
    char *out = NULL;
    const DWORD n = wname != NULL ? GetEnvironmentVariableW(wname, NULL, 0) : 0;
    if (n > 0 && (value = dv_calloc(n, sizeof *value)) != NULL && GetEnvironmentVariableW(wname, value, n) < n) {
        out = dv_to_utf8(value);
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
        char *utf8 = dv_to_utf8(path);
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
    wchar_t *wide = dv_to_wide(name);
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

void dv_library_close(void *library) {
    if (library != NULL) {
        FreeLibrary((HMODULE)library);
    }
}

/* ---- memory ---- */

void *dv_aligned_alloc(uint64_t bytes, uint64_t align) {
    return bytes > SIZE_MAX / 2 ? NULL : _aligned_malloc((size_t)bytes, (size_t)align);
}

void dv_aligned_free(void *p) {
    _aligned_free(p);
}
