/* davy_loader.h - opens libdavy at run time and fetches its table; optional, header-only, C99 and C++98.
 *
 *     davy_library davy;
 *     if (davy_load(&davy, NULL, DAVY_ABI_1_0) != DAVY_OK) { puts(davy.error); … }
 *     davy.api->context_create(…);
 *
 * Where it looks: the path given, and only there; else $DAVY_LIBRARY, and only there; else the folder of the module
 * (program or shared library) this header was compiled into; else what the system finds under the library's own name.
 * Never the current folder. Paths are UTF-8.
 *
 * min_abi is the lowest version the host can live with, not that of the header; test for newer functions with davy_has.
 * A host may define, before including this header, all of DAVY_LOADER_OPEN(path) -> void *,
 * DAVY_LOADER_SYMBOL(handle, name) -> void * and DAVY_LOADER_CLOSE(handle), and DAVY_LOADER_LOG(text), which hears about
 * every file tried. Link with -ldl where the C library still has dlopen apart. */
#ifndef DAVY_LOADER_H
#define DAVY_LOADER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "davy.h"

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
#define DAVY_LOADER_LOG(text) ((void)(text))
#endif

enum { DAVY_LOADER_PATH_BYTES = 4096 };

typedef struct davy_library {
    void *handle;
    const davy_api *api; /* NULL: not loaded */
    char error[512];     /* why not, one sentence */
} davy_library;

/* Whether the library's table is long enough to have this function; it may then be called. */
#define davy_has(api, member)                                                                                          \
    ((api)->struct_size >= offsetof(davy_api, member) + sizeof((api)->member) && (api)->member != NULL)

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
    if (wcspbrk(wide, L"/\\") == NULL) { /* a bare name: the system's folders and the program's, not the current one */
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

/* File of the module this code is in. */
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

/* File of the module this code is in. dladdr and readlink are looked up, because a header cannot ask for the feature
 * macros that would declare them. */
static inline void davy_loader_module(char *out, int room) {
    static const char anchor = 0;
    struct {
        const char *file;
        void *base;
        const char *symbol;
        void *address;
    } info = {NULL, NULL, NULL, NULL}; /* as Dl_info */
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
        } else if (resolve != NULL) { /* the program itself, started by name alone */
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

/* One file. `lib` is filled on success; on failure only its error. */
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

/* path: NULL, or the library's file. On failure nothing needs releasing and lib->error says why. */
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
        if (r != DAVY_E_NOT_FOUND) { /* loaded, or there and unusable: saying so beats finding another one */
            return r;
        }
    }
    return davy_loader_try(lib, DAVY_LOADER_NAME, min_abi);
}

/* Forgets the library. The mapping stays: the library is linked so that it is never unmapped. */
static inline void davy_unload(davy_library *lib) {
    if (lib->handle != NULL) {
        DAVY_LOADER_CLOSE(lib->handle);
    }
    memset(lib, 0, sizeof *lib);
}

#endif /* DAVY_LOADER_H */
