/* sync.h - threads, a lock, a semaphore and a clock. libobs's own would need another of OBS's libraries on Windows. */
#ifndef DAVY_OBS_SYNC_H
#define DAVY_OBS_SYNC_H

#include <stdbool.h>
#include <stdint.h>

#if defined(_WIN32)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>
typedef SRWLOCK plugin_lock;
typedef HANDLE plugin_semaphore;
#define PLUGIN_LOCK_INIT SRWLOCK_INIT
#else
#include <pthread.h>
#include <semaphore.h>
typedef pthread_mutex_t plugin_lock;
typedef sem_t plugin_semaphore;
#define PLUGIN_LOCK_INIT PTHREAD_MUTEX_INITIALIZER
#endif

void plugin_lock_take(plugin_lock *lock);
void plugin_lock_give(plugin_lock *lock);

bool plugin_semaphore_open(plugin_semaphore *s);
void plugin_semaphore_close(plugin_semaphore *s);
void plugin_semaphore_post(plugin_semaphore *s);
void plugin_semaphore_wait(plugin_semaphore *s);

/* Starts a thread, which nothing needs to join. */
bool plugin_thread_start(void (*run)(void *), void *arg, const char *name);
/* Waits until all such threads have left the module's code. Called before the module is unloaded. */
void plugin_threads_end(void);
/* Lowers the priority of the calling thread (Linux: nice 10, Windows: below normal). On Linux the threads that it starts inherit it;
 * other systems change nothing. */
void plugin_thread_yield_to_others(void);
uint64_t plugin_now_ns(void);
void plugin_sleep_ms(uint32_t ms);
uint32_t plugin_cores(void);

#endif
