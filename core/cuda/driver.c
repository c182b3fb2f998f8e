/* driver.c - finds and loads the driver. What was loaded stays loaded: the driver has threads of its own. A failure is
 * remembered together with the folder that was searched, so that asking again is cheap and another folder is tried. */
#include "core/cuda/driver.h"

#include <stdio.h>
#include <string.h>

#include "core/mem.h"
#include "core/os.h"

typedef struct symbol {
    const char *name;
    size_t offset;
    enum { FIRST, NEED, MAY } rank;
} symbol;

#define SYMBOL_FIRST(member, name, args) {name, offsetof(dv_driver, member), FIRST},
#define SYMBOL_NEED(member, name, args)  {name, offsetof(dv_driver, member), NEED},
#define SYMBOL_MAY(member, name, args)   {name, offsetof(dv_driver, member), MAY},
static const symbol symbols[] = {DV_CUDA_FUNCTIONS(SYMBOL_FIRST, SYMBOL_NEED, SYMBOL_MAY)};

static dv_mutex *lock;
static dv_driver driver; /* written under the lock, read only once `loaded` */
static bool loaded;
static bool failed;
static char *failed_dir;
static char failure[256];

static void make_lock(void) {
    lock = dv_mutex_create();
}

#if defined(_WIN32)
static const char *const driver_names[] = {"nvcuda.dll"};
#else
static const char *const driver_names[] = {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"};
#endif

static void *open_driver(const char *library_dir, char *why, size_t bytes) {
    char *given = dv_env("DAVY_CUDA_DRIVER");
    void *library = NULL;
    if (given != NULL && given[0] != '\0') {
        char system[160] = "";
        library = dv_library_open(given, system, sizeof system);
        if (library == NULL) {
            snprintf(why, bytes, "DAVY_CUDA_DRIVER: %s", system);
        }
        dv_free(given);
        return library;
    }
    dv_free(given);
    char *beside = library_dir != NULL ? dv_path_join(library_dir, driver_names[0]) : NULL;
    if (beside != NULL && dv_path_stat(beside) == DV_PATH_FILE) {
        library = dv_library_open(beside, NULL, 0);
    }
    dv_free(beside);
    for (size_t i = 0; i < DV_ARRAY_LEN(driver_names) && library == NULL; i++) {
        library = dv_library_open(driver_names[i], NULL, 0);
    }
    if (library == NULL) {
        snprintf(why, bytes, "no NVIDIA driver: %s was not found", driver_names[0]);
    }
    return library;
}

/* The name of the first one that is missing, or NULL. */
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

/* False: there is nothing to list either. */
static bool start(const char *library_dir, char *why, size_t bytes) {
    char name[64];
    void *library = open_driver(library_dir, why, bytes);
    if (library == NULL) {
        return false;
    }
    memset(&driver, 0, sizeof driver);
    const char *missing = resolve(library, true);
    if (missing != NULL) {
        snprintf(why, bytes, "the NVIDIA driver has no %s: it is too old or not complete", missing);
        return false;
    }
    int version = 0;
    cu_result r = driver.driver_version(&version);
    if (r == CU_OK) {
        r = driver.init(0);
    }
    if (r != CU_OK) {
        snprintf(why, bytes, "the NVIDIA driver did not start: %s",
                 dv_driver_error_name(&driver, r, name, sizeof name));
        return false;
    }
    driver.version = version;
    if (version < DV_DRIVER_VERSION_MIN) {
        snprintf(driver.reason, sizeof driver.reason,
                 "the NVIDIA driver is too old: it knows CUDA %d.%d, davy needs %d.%d or newer (driver 580)",
                 version / 1000, version % 1000 / 10, DV_DRIVER_VERSION_MIN / 1000, DV_DRIVER_VERSION_MIN % 1000 / 10);
    } else if ((missing = resolve(library, false)) != NULL) {
        snprintf(driver.reason, sizeof driver.reason, "the NVIDIA driver has no %s: it is not complete", missing);
    }
    return true;
}

static bool same_dir(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

const dv_driver *dv_driver_get(const char *library_dir, char *why, size_t bytes) {
    dv_once(make_lock);
    if (lock == NULL) {
        if (why != NULL) {
            snprintf(why, bytes, "out of memory");
        }
        return NULL;
    }
    dv_mutex_lock(lock);
    if (!loaded && !(failed && same_dir(failed_dir, library_dir))) {
        loaded = start(library_dir, failure, sizeof failure);
        failed = !loaded;
        dv_free(failed_dir);
        failed_dir = failed && library_dir != NULL ? dv_strdup(library_dir) : NULL;
    }
    if (!loaded && why != NULL) {
        snprintf(why, bytes, "%s", failure);
    }
    const bool ok = loaded;
    dv_mutex_unlock(lock);
    return ok ? &driver : NULL;
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
