/* os.h - the operating system functions that davy uses. os_posix.c and os_win.c implement most of them. os_memory.c and
 * os_common.c hold the functions that are nearly the same on every system. */
#ifndef DV_OS_H
#define DV_OS_H

#include "core/base/common.h"

typedef struct dv_mutex dv_mutex;
typedef struct dv_cond dv_cond;
typedef struct dv_thread dv_thread;

dv_mutex *dv_mutex_create(void); /* NULL: out of memory */
void dv_mutex_release(dv_mutex *m);
void dv_mutex_lock(dv_mutex *m);
void dv_mutex_unlock(dv_mutex *m);

dv_cond *dv_cond_create(void);
void dv_cond_release(dv_cond *c);
void dv_cond_signal(dv_cond *c);
void dv_cond_broadcast(dv_cond *c);
/* false: timeout_ns passed. UINT64_MAX: for ever. */
bool dv_cond_wait(dv_cond *c, dv_mutex *m, uint64_t timeout_ns);

davy_result dv_thread_start(void (*fn)(void *arg), void *arg, const char *name, dv_thread **out);
void dv_thread_join(dv_thread *t); /* frees t */
void dv_thread_yield(void);        /* lets another thread run on this processor */

uint64_t dv_now_ns(void); /* monotonic */
void dv_sleep_ns(uint64_t ns);
uint64_t dv_process_id(void);
int32_t dv_cpu_count(void); /* processors this process may use */
uint64_t dv_memory_total(void);
uint64_t dv_memory_available(void);
void dv_cpu_name(char *out, size_t bytes);
/* Makes the calling thread flush denormals to zero, and returns the old mode for dv_fp_restore. A host's thread gets its
 * mode back before the host's code runs. */
uint32_t dv_fp_flush_denormals(void);
void dv_fp_restore(uint32_t mode);

/* The process's memory. All other files allocate through mem.h. dv_os_calloc returns zeros. NULL: out of memory. */
void *dv_os_calloc(size_t bytes);
void *dv_os_realloc(void *p, size_t bytes);
void dv_os_free(void *p);
void *dv_aligned_alloc(uint64_t bytes, uint64_t align);
void dv_aligned_free(void *p);

/* A read-only file. Paths are UTF-8. */
typedef struct dv_file dv_file;
davy_result dv_file_open(const char *path, dv_file **out); /* E_NOT_FOUND, E_IO; a folder is E_INVALID */
void dv_file_close(dv_file *f);
uint64_t dv_file_bytes(const dv_file *f);
davy_result dv_file_map(dv_file *f, const void **out);                            /* whole file, kept until close */
davy_result dv_file_read(dv_file *f, uint64_t offset, void *dst, uint64_t bytes); /* pread; any thread */
void dv_file_done_with(dv_file *f, uint64_t offset, uint64_t bytes); /* a mapped range is not needed soon */

typedef enum dv_path_kind { DV_PATH_NONE = 0, DV_PATH_FILE, DV_PATH_FOLDER } dv_path_kind;
dv_path_kind dv_path_stat(const char *path);
/* Calls fn for each entry's name, sorted, "." and ".." left out. A non-OK result ends the walk and is returned. */
davy_result dv_path_list(const char *folder, davy_result (*fn)(void *user, const char *name), void *user);
char *dv_path_join(const char *folder, const char *name); /* dv_free */
char *dv_path_folder(const char *path);                   /* dv_free */
const char *dv_path_name(const char *path);               /* last component, inside path */
/* Folder of the shared library (or program) this code is in; NULL where unknown. dv_free. */
char *dv_library_folder(void);
/* Keeps this library in memory until the process ends. On Linux the linker's -z nodelete already does. */
void dv_library_pin(void);
/* Opens another shared library, by path or by a name in the system's search path. It stays open. NULL: failed, and `why`
 * (may be NULL) has the system's message. */
void *dv_library_open(const char *name, char *why, size_t bytes);
void *dv_library_symbol(void *library, const char *name); /* NULL: no such symbol */
/* A copy of an environment variable, UTF-8; NULL where unset. dv_free. */
char *dv_env(const char *name);

#endif
