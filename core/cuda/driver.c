/* driver.c - finds and loads the driver. A loaded driver is never unloaded, because it has threads of its own. If a driver was
 * found but does not work, the failure and the searched folder are remembered. If none was found, or memory ran out, the next
 * call searches again. */
#include "core/cuda/driver.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/base/os.h"

typedef struct symbol {
    const char *name;
    size_t offset;
    enum { FIRST, NEED, MAY } rank;
} symbol;

#define SYMBOL_FIRST(member, name, args) {name, offsetof(dv_driver, member), FIRST},
#define SYMBOL_NEED(member, name, args)  {name, offsetof(dv_driver, member), NEED},
#define SYMBOL_MAY(member, name, args)   {name, offsetof(dv_driver, member), MAY},
static const symbol symbols[] = {DV_CUDA_FUNCTIONS(SYMBOL_FIRST, SYMBOL_NEED, SYMBOL_MAY)};

static _Atomic(dv_mutex *) the_lock;
static dv_driver driver; /* written under the lock, read only after `loaded` is set */
static bool loaded;
static bool failed;
static char *failed_dir;
static char failure[256];

/* NULL: out of memory; a later call may succeed. */
static dv_mutex *get_lock(void) {
    dv_mutex *lock = atomic_load(&the_lock);
    if (lock == NULL) {
        dv_mutex *made = dv_mutex_create();
        if (made == NULL || atomic_compare_exchange_strong(&the_lock, &lock, made)) {
            return made;
        }
        dv_mutex_release(made); /* another thread was first */
    }
    return lock;
}

#if defined(_WIN32)
static const char *const driver_names[] = {"nvcuda.dll"};
#else
static const char *const driver_names[] = {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"};
#endif

static void *open_given(const char *path, char *why, size_t bytes) {
    char system[160] = "";
    void *library = dv_library_open(path, system, sizeof system);
    if (library == NULL) {
        snprintf(why, bytes, "DAVY_CUDA_DRIVER: %s", system);
    }
    return library;
}

static void *open_found(const char *beside, char *why, size_t bytes) {
    void *library = NULL;
    if (beside != NULL && dv_path_stat(beside) == DV_PATH_FILE) {
        library = dv_library_open(beside, NULL, 0);
    }
    for (size_t i = 0; i < DV_ARRAY_LEN(driver_names) && library == NULL; i++) {
        library = dv_library_open(driver_names[i], NULL, 0);
    }
    if (library == NULL) {
        snprintf(why, bytes, "no NVIDIA driver: %s was not found", driver_names[0]);
    }
    return library;
}

/* DAVY_E_NOMEM_HOST: no memory to read the variable or to build the path. */
static davy_result open_driver(const char *library_dir, void **library, char *why, size_t bytes) {
    const uint64_t failures = dv_alloc_failures();
    char *given = dv_env("DAVY_CUDA_DRIVER");
    char *beside = library_dir != NULL ? dv_path_join(library_dir, driver_names[0]) : NULL;
    davy_result r = dv_alloc_failures() == failures ? DAVY_OK : DAVY_E_NOMEM_HOST;
    if (r == DAVY_OK) {
        *library = given != NULL && given[0] != '\0' ? open_given(given, why, bytes) : open_found(beside, why, bytes);
        r = *library != NULL ? DAVY_OK : DAVY_E_DEVICE;
    } else {
        snprintf(why, bytes, "out of memory");
    }
    dv_free(beside);
    dv_free(given);
    return r;
}

/* Returns the name of the first missing function, or NULL. */
static const char *resolve(void *library, bool first) {
    for (size_t i = 0; i < DV_ARRAY_LEN(symbols); i++) {
        const symbol *s = &symbols[i];
        if ((s->rank == FIRST) != first) {
            continue;
        }
        void *found = dv_library_symbol(library, s->name);
        if (found == NULL && s->rank != MAY) {
            return s->name;
        }
        memcpy((char *)&driver + s->offset, &found, sizeof found);
    }
    return NULL;
}

static davy_result init_driver(char *why, size_t bytes) {
    char name[64];
    int version = 0;
    cu_result r = driver.driver_version(&version);
    if (r == CU_OK) {
        r = driver.init(0);
    }
    if (r != CU_OK) {
        snprintf(why, bytes, "the NVIDIA driver did not start: %s",
                 dv_driver_error_name(&driver, r, name, sizeof name));
        return r == CU_OUT_OF_MEMORY ? DAVY_E_NOMEM_HOST : DAVY_E_DEVICE;
    }
    driver.version = version;
    return DAVY_OK;
}

/* On failure, devices cannot even be listed. *lasting: a later call would fail again. */
static davy_result start(const char *library_dir, bool *lasting, char *why, size_t bytes) {
    void *library = NULL;
    *lasting = false;
    davy_result r = open_driver(library_dir, &library, why, bytes);
    if (r != DAVY_OK) {
        return r;
    }
    memset(&driver, 0, sizeof driver);
    const char *missing = resolve(library, true);
    if (missing != NULL) {
        snprintf(why, bytes, "the NVIDIA driver has no %s: it is too old or incomplete", missing);
        *lasting = true;
        return DAVY_E_DEVICE;
    }
    r = init_driver(why, bytes);
    *lasting = r == DAVY_E_DEVICE;
    if (r != DAVY_OK) {
        return r;
    }
    const int32_t version = driver.version;
    if (version < DV_DRIVER_VERSION_MIN) {
        snprintf(driver.reason, sizeof driver.reason,
                 "the NVIDIA driver is too old: it supports CUDA %d.%d, davy needs %d.%d or newer (driver 580)",
                 version / 1000, version % 1000 / 10, DV_DRIVER_VERSION_MIN / 1000, DV_DRIVER_VERSION_MIN % 1000 / 10);
    } else if ((missing = resolve(library, false)) != NULL) {
        snprintf(driver.reason, sizeof driver.reason, "the NVIDIA driver has no %s: it is incomplete", missing);
    }
    return DAVY_OK;
}

static bool same_dir(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static void remember_failure(const char *library_dir) {
    dv_free(failed_dir);
    failed_dir = library_dir != NULL ? dv_strdup(library_dir) : NULL;
    failed = library_dir == NULL || failed_dir != NULL;
}

davy_result dv_driver_get(const char *library_dir, const dv_driver **out, char *why, size_t bytes) {
    dv_mutex *lock = get_lock();
    if (lock == NULL) {
        snprintf(why, bytes, "out of memory");
        return DAVY_E_NOMEM_HOST;
    }
    davy_result r = DAVY_OK;
    bool lasting = false;
    dv_mutex_lock(lock);
    if (!loaded && failed && same_dir(failed_dir, library_dir)) {
        r = DAVY_E_DEVICE;
    } else if (!loaded) {
        r = start(library_dir, &lasting, failure, sizeof failure);
        loaded = r == DAVY_OK;
    }
    if (lasting) {
        remember_failure(library_dir);
    }
    if (r != DAVY_OK) {
        snprintf(why, bytes, "%s", failure);
    }
    dv_mutex_unlock(lock);
    *out = r == DAVY_OK ? &driver : NULL;
    return r;
}

const char *dv_driver_error_name(const dv_driver *cu, cu_result code, char *buf, size_t bytes) {
    const char *name = NULL;
    if (cu->error_name(code, &name) == CU_OK && name != NULL) {
        snprintf(buf, bytes, "%s", name);
    } else {
        snprintf(buf, bytes, "CUDA error %d", code);
    }
    return buf;
}
