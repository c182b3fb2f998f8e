/** @defgroup loader The loader
 *
 * davy_loader.h opens libdavy at run time and fetches its table. It is optional. It needs C99 or C++98 and nothing else.
 *
 * @code{.c}
 * davy_library davy;
 * if (davy_load(&davy, NULL, DAVY_ABI_1_0) != DAVY_OK) {
 *     puts(davy.error);
 * }
 * @endcode
 *
 * davy_load looks in these places, in this order. It never looks in the current folder.
 * 1. The path that the caller gives. If one is given, no other place counts.
 * 2. The environment variable DAVY_LIBRARY. If it is set, no other place counts.
 * 3. The folder of the program or shared library that this header was compiled into.
 * 4. The system's folders, under the library's own name.
 *
 * A host may define, before it includes this header, its own way to open libraries. It defines all three of
 * DAVY_LOADER_OPEN(path), which returns a handle as `void *`, DAVY_LOADER_SYMBOL(handle, name), which returns an address as
 * `void *`, and DAVY_LOADER_CLOSE(handle). DAVY_LOADER_LOG(text) receives the path of every file that is tried.
 *
 * Link with -ldl if the C library has dlopen in a library of its own.
 * @{ */
#ifndef DAVY_LOADER_H
#define DAVY_LOADER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "davy.h"

/** @file
 * Opens libdavy at run time. */

/** @def DAVY_LOADER_NAME
 * File name of the library on this system. */
#if defined(_WIN32)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>
#define DAVY_LOADER_NAME "davy-1.dll"
#else
#include <dlfcn.h>
#if defined(__APPLE__)
#define DAVY_LOADER_NAME "libdavy.1.dylib"
#else
#define DAVY_LOADER_NAME "libdavy.so.1"
#endif
#endif

#ifndef DAVY_LOADER_LOG
/** Receives the path of every file that davy_load tries. The host may define it; by default it does nothing. */
#define DAVY_LOADER_LOG(text) ((void)(text))
#endif

/** Sizes of the loader. */
enum {
    DAVY_LOADER_PATH_BYTES = 4096 /**< Longest path, its NUL included. */
};

/** A loaded library, filled by davy_load. */
typedef struct davy_library {
    void *handle;        /**< The system's handle of the library. */
    const davy_api *api; /**< The table of functions. NULL: not loaded. */
    char error[512];     /**< Why it was not loaded, one sentence. Empty: loaded. */
} davy_library;

/** Tests whether the library has a function that is newer than the version given to davy_load.
 *
 * @param api     The table.
 * @param member  Name of the function.
 * @return True: the table has the function, and the host may call it.
 * @threads Any. */
#define davy_has(api, member)                                                                                          \
    ((api)->struct_size >= offsetof(davy_api, member) + sizeof((api)->member) && (api)->member != NULL)

/** @} */

/* ---- the system ---- */

#if defined(_WIN32)

static inline void davy_loader_widen(const char *utf8, wchar_t *out, int room) {
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, utf8, -1, out, room) == 0) {
        out[0] = L'\0';
    }
}

static inline void davy_loader_narrow(const wchar_t *wide, char *out, int room) {
    if (WideCharToMultiByte(CP_UTF8, 0, wide, -1, out, room, NULL, NULL) == 0) {
        out[0] = '\0';
    }
}

#ifndef DAVY_LOADER_OPEN
static inline void *davy_loader_open(const char *path) {
    wchar_t wide[DAVY_LOADER_PATH_BYTES];
    wchar_t full[DAVY_LOADER_PATH_BYTES];
    davy_loader_widen(path, wide, DAVY_LOADER_PATH_BYTES);
    if (wcspbrk(wide, L"/\\") == NULL) { /* A bare name: folders of the system and the program. */
        return (void *)LoadLibraryExW(wide, NULL, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
    }
    if (GetFullPathNameW(wide, DAVY_LOADER_PATH_BYTES, full, NULL) == 0) {
        return NULL;
    }
    return (void *)LoadLibraryExW(full, NULL, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS | LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR);
}

static inline void *davy_loader_symbol(void *handle, const char *name) {
    FARPROC symbol = GetProcAddress((HMODULE)handle, name);
    void *out = NULL;
    memcpy(&out, &symbol, sizeof out);
    return out;
}

#define DAVY_LOADER_OPEN(path)           davy_loader_open(path)
#define DAVY_LOADER_SYMBOL(handle, name) davy_loader_symbol(handle, name)
#define DAVY_LOADER_CLOSE(handle)        FreeLibrary((HMODULE)(handle))
#endif

static inline void davy_loader_reason(char *out, size_t bytes) {
    snprintf(out, bytes, "Windows error %lu", (unsigned long)GetLastError());
}

static inline void davy_loader_variable(char *out, int room) {
    wchar_t wide[DAVY_LOADER_PATH_BYTES];
    const DWORD n = GetEnvironmentVariableW(L"DAVY_LIBRARY", wide, DAVY_LOADER_PATH_BYTES);
    out[0] = '\0';
    if (n > 0 && n < DAVY_LOADER_PATH_BYTES) {
        davy_loader_narrow(wide, out, room);
    }
}

/* The file of the module that this code was compiled into. */
static inline void davy_loader_module(char *out, int room) {
    static const char anchor = 0;
    wchar_t wide[DAVY_LOADER_PATH_BYTES];
    HMODULE module = NULL;
    const DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
    out[0] = '\0';
    if (GetModuleHandleExW(flags, (LPCWSTR)(const void *)&anchor, &module)) {
        const DWORD n = GetModuleFileNameW(module, wide, DAVY_LOADER_PATH_BYTES);
        if (n > 0 && n < DAVY_LOADER_PATH_BYTES) {
            davy_loader_narrow(wide, out, room);
        }
    }
}

#else

#ifndef DAVY_LOADER_OPEN
#define DAVY_LOADER_OPEN(path)           dlopen(path, RTLD_NOW | RTLD_LOCAL)
#define DAVY_LOADER_SYMBOL(handle, name) dlsym(handle, name)
#define DAVY_LOADER_CLOSE(handle)        dlclose(handle)
#endif

static inline void davy_loader_reason(char *out, size_t bytes) {
    const char *why = dlerror();
    snprintf(out, bytes, "%s", why != NULL ? why : "no reason given");
}

static inline void davy_loader_variable(char *out, int room) {
    const char *value = getenv("DAVY_LIBRARY");
    snprintf(out, (size_t)room, "%s", value != NULL ? value : "");
}

/* The file of the module that this code was compiled into. A header cannot set the feature macros that declare dladdr and
 * readlink. So it looks them up. */
static inline void davy_loader_module(char *out, int room) {
    static const char anchor = 0;
    struct {
        const char *file;
        void *base;
        const char *symbol;
        void *address;
    } info = {NULL, NULL, NULL, NULL}; /* laid out as Dl_info */
    int (*find)(const void *, void *) = NULL;
    long (*resolve)(const char *, char *, size_t) = NULL;
    void *self = dlopen(NULL, RTLD_NOW);
    void *symbol = self != NULL ? dlsym(self, "dladdr") : NULL;
    void *link = self != NULL ? dlsym(self, "readlink") : NULL;
    memcpy(&find, &symbol, sizeof find);
    memcpy(&resolve, &link, sizeof resolve);
    out[0] = '\0';
    if (find != NULL && find(&anchor, &info) != 0 && info.file != NULL) {
        if (strchr(info.file, '/') != NULL) {
            snprintf(out, (size_t)room, "%s", info.file);
        } else if (resolve != NULL) { /* the program, started without a folder */
            const long n = resolve("/proc/self/exe", out, (size_t)room - 1);
            out[n > 0 ? n : 0] = '\0';
        }
    }
    if (self != NULL) {
        dlclose(self);
    }
}

#endif

/* ---- the same everywhere ---- */

/* Tries one file. On failure it fills only lib->error. */
static inline davy_result davy_loader_try(davy_library *lib, const char *path, uint32_t min_abi) {
    char why[256];
    davy_get_api_fn get_api = NULL;
    davy_version_fn version = NULL;
    void *handle = NULL;
    void *symbol = NULL;
    DAVY_LOADER_LOG(path);
    handle = DAVY_LOADER_OPEN(path);
    if (handle == NULL) {
        davy_loader_reason(why, sizeof why);
        snprintf(lib->error, sizeof lib->error, "%.200s could not be loaded: %s", path, why);
        return DAVY_E_NOT_FOUND;
    }
    symbol = DAVY_LOADER_SYMBOL(handle, "davy_get_api");
    memcpy(&get_api, &symbol, sizeof get_api);
    symbol = DAVY_LOADER_SYMBOL(handle, "davy_version");
    memcpy(&version, &symbol, sizeof version);
    lib->api = get_api != NULL ? get_api(min_abi) : NULL;
    if (lib->api == NULL) {
        snprintf(lib->error, sizeof lib->error, "%.200s is %s %s, ABI %u.%u or newer of that major is needed", path,
                 version != NULL ? "davy" : "not davy,", version != NULL ? version() : "it lacks davy_get_api",
                 (unsigned)(min_abi >> 16), (unsigned)(min_abi & 0xffffu));
        DAVY_LOADER_CLOSE(handle);
        return DAVY_E_LIBRARY;
    }
    lib->handle = handle;
    lib->error[0] = '\0';
    return DAVY_OK;
}

/** @addtogroup loader
 * @{ */

/** Loads the library.
 *
 * @param[out] lib  Receives the library. The caller owns the struct. After an error only `error` is set.
 * @param path      File of the library, UTF-8. NULL: search.
 * @param min_abi   The oldest version you support, such as ::DAVY_ABI_1_0. Test for newer functions with davy_has.
 * @return ::DAVY_OK.
 * @errors ::DAVY_E_NOT_FOUND: no file could be loaded. ::DAVY_E_LIBRARY: the file is not davy, or is too old. Nothing needs
 *         releasing.
 * @threads Any; each with its own `lib`. */
static inline davy_result davy_load(davy_library *lib, const char *path, uint32_t min_abi) {
    char found[DAVY_LOADER_PATH_BYTES];
    size_t folder = 0;
    size_t i = 0;
    memset(lib, 0, sizeof *lib);
    if (path != NULL) {
        return davy_loader_try(lib, path, min_abi);
    }
    davy_loader_variable(found, DAVY_LOADER_PATH_BYTES);
    if (found[0] != '\0') {
        return davy_loader_try(lib, found, min_abi);
    }
    davy_loader_module(found, DAVY_LOADER_PATH_BYTES);
    for (i = 0; found[i] != '\0'; i++) {
        folder = found[i] == '/' || found[i] == '\\' ? i + 1 : folder;
    }
    if (folder > 0 && folder + sizeof DAVY_LOADER_NAME <= sizeof found) {
        davy_result r = DAVY_OK;
        memcpy(found + folder, DAVY_LOADER_NAME, sizeof DAVY_LOADER_NAME);
        r = davy_loader_try(lib, found, min_abi);
        if (r != DAVY_E_NOT_FOUND) { /* A file that exists but is unusable ends the search. */
            return r;
        }
    }
    return davy_loader_try(lib, DAVY_LOADER_NAME, min_abi);
}

/** Closes the handle and clears the struct. The library stays in memory, because it is linked so that it is never unmapped.
 *
 * Objects of the library stay valid.
 *
 * @param lib  The library of davy_load, or a struct of zeros.
 * @threads Any; not beside another use of `lib`. */
static inline void davy_unload(davy_library *lib) {
    if (lib->handle != NULL) {
        DAVY_LOADER_CLOSE(lib->handle);
    }
    memset(lib, 0, sizeof *lib);
}

/** @} */

#endif /* DAVY_LOADER_H */
