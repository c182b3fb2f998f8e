/* sync.c - see sync.h. */
#include "sync.h"

#include <stdatomic.h>
#include <stdlib.h>

typedef struct start {
    void (*run)(void *);
    void *arg;
    char name[16];
} start;

static start *start_of(void (*run)(void *), void *arg, const char *name) {
    start *s = calloc(1, sizeof *s);
    if (s != NULL) {
        s->run = run;
        s->arg = arg;
        for (size_t i = 0; i + 1 < sizeof s->name && name[i] != '\0'; i++) {
            s->name[i] = name[i];
        }
    }
    return s;
}

/* A module must not be unloaded while a thread still runs its code. Each ending thread therefore joins the thread that ended before
 * it, and plugin_threads_end joins the last one. */
static plugin_lock ends = PLUGIN_LOCK_INIT;
static atomic_int running;

#if defined(_WIN32)

static void join(HANDLE thread) {
    if (thread != NULL) {
        WaitForSingleObject(thread, INFINITE);
        CloseHandle(thread);
    }
}

void plugin_lock_take(plugin_lock *lock) {
    AcquireSRWLockExclusive(lock);
}

void plugin_lock_give(plugin_lock *lock) {
    ReleaseSRWLockExclusive(lock);
}

bool plugin_semaphore_open(plugin_semaphore *s) {
    *s = CreateSemaphoreW(NULL, 0, 0x7fffffff, NULL);
    return *s != NULL;
}

void plugin_semaphore_close(plugin_semaphore *s) {
    CloseHandle(*s);
}

void plugin_semaphore_post(plugin_semaphore *s) {
    ReleaseSemaphore(*s, 1, NULL);
}

void plugin_semaphore_wait(plugin_semaphore *s) {
    WaitForSingleObject(*s, INFINITE);
}

static HANDLE ended; /* guarded by ends */

static DWORD WINAPI enter(void *arg) {
    start s = *(start *)arg;
    HANDLE self = NULL;
    free(arg);
    s.run(s.arg);
    DuplicateHandle(GetCurrentProcess(), GetCurrentThread(), GetCurrentProcess(), &self, 0, FALSE,
                    DUPLICATE_SAME_ACCESS);
    plugin_lock_take(&ends);
    HANDLE before = ended;
    ended = self;
    plugin_lock_give(&ends);
    join(before);
    atomic_fetch_sub(&running, 1);
    return 0;
}

void plugin_threads_end(void) {
    while (atomic_load(&running) > 0) {
        plugin_sleep_ms(1);
    }
    join(ended);
    ended = NULL;
}

bool plugin_thread_start(void (*run)(void *), void *arg, const char *name) {
    start *s = start_of(run, arg, name);
    atomic_fetch_add(&running, 1);
    HANDLE thread = s != NULL ? CreateThread(NULL, 0, enter, s, 0, NULL) : NULL;
    if (thread == NULL) {
        free(s);
        atomic_fetch_sub(&running, 1);
        return false;
    }
    CloseHandle(thread);
    return true;
}

void plugin_thread_yield_to_others(void) {
    SetThreadPriority(GetCurrentThread(), THREAD_PRIORITY_BELOW_NORMAL);
}

uint64_t plugin_now_ns(void) {
    LARGE_INTEGER now;
    LARGE_INTEGER second;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&second);
    const uint64_t whole = (uint64_t)(now.QuadPart / second.QuadPart);
    const uint64_t rest = (uint64_t)(now.QuadPart % second.QuadPart);
    return whole * 1000000000u + rest * 1000000000u / (uint64_t)second.QuadPart;
}

void plugin_sleep_ms(uint32_t ms) {
    Sleep(ms);
}

uint32_t plugin_cores(void) {
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwNumberOfProcessors;
}

#else

#include <errno.h>
#include <sys/resource.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#include <time.h>
#include <unistd.h>

void plugin_lock_take(plugin_lock *lock) {
    pthread_mutex_lock(lock);
}

void plugin_lock_give(plugin_lock *lock) {
    pthread_mutex_unlock(lock);
}

bool plugin_semaphore_open(plugin_semaphore *s) {
    return sem_init(s, 0, 0) == 0;
}

void plugin_semaphore_close(plugin_semaphore *s) {
    sem_destroy(s);
}

void plugin_semaphore_post(plugin_semaphore *s) {
    sem_post(s);
}

void plugin_semaphore_wait(plugin_semaphore *s) {
    while (sem_wait(s) != 0 && errno == EINTR) {
    }
}

static pthread_t ended; /* guarded by ends */
static bool any_ended;

static void *enter(void *arg) {
    start s = *(start *)arg;
    free(arg);
#if defined(__linux__)
    extern int pthread_setname_np(pthread_t, const char *);
    pthread_setname_np(pthread_self(), s.name);
#endif
    s.run(s.arg);
    plugin_lock_take(&ends);
    const pthread_t before = ended;
    const bool any = any_ended;
    ended = pthread_self();
    any_ended = true;
    plugin_lock_give(&ends);
    if (any) {
        pthread_join(before, NULL);
    }
    atomic_fetch_sub(&running, 1);
    return NULL;
}

void plugin_threads_end(void) {
    while (atomic_load(&running) > 0) {
        plugin_sleep_ms(1);
    }
    if (any_ended) {
        pthread_join(ended, NULL);
        any_ended = false;
    }
}

bool plugin_thread_start(void (*run)(void *), void *arg, const char *name) {
    start *s = start_of(run, arg, name);
    pthread_t thread;
    atomic_fetch_add(&running, 1);
    if (s == NULL || pthread_create(&thread, NULL, enter, s) != 0) {
        free(s);
        atomic_fetch_sub(&running, 1);
        return false;
    }
    return true;
}

void plugin_thread_yield_to_others(void) {
#if defined(__linux__) /* where a thread has its own nice value */
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 10);
#endif
}

uint64_t plugin_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void plugin_sleep_ms(uint32_t ms) {
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

uint32_t plugin_cores(void) {
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

#endif
