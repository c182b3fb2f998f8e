/* test_os.c - files (mapped, read, truncated while open, with names outside ASCII), folders, paths, locks, clocks, the FP
 * mode. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/os.h"
#include "tests/lib/check.h"

#if defined(_WIN32)
#include <windows.h>
static bool make_folder(const char *path) {
    wchar_t wide[512];
    MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, 512);
    return CreateDirectoryW(wide, NULL) != 0;
}
static void remove_folder(const char *path) {
    wchar_t wide[512];
    MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, 512);
    RemoveDirectoryW(wide);
}
static void remove_file(const char *path) {
    wchar_t wide[512];
    MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, 512);
    DeleteFileW(wide);
}
static FILE *open_write(const char *path) {
    wchar_t wide[512];
    MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, 512);
    return _wfopen(wide, L"wb");
}
#else
#include <sys/stat.h>
#include <unistd.h>
static bool make_folder(const char *path) {
    return mkdir(path, 0700) == 0;
}
static void remove_folder(const char *path) {
    rmdir(path);
}
static void remove_file(const char *path) {
    unlink(path);
}
static FILE *open_write(const char *path) {
    return fopen(path, "wb");
}
#endif

static char *scratch; /* a folder of this test; its name has characters outside ASCII */

static char *write_file(const char *name, const void *data, size_t bytes) {
    char *path = dv_path_join(scratch, name);
    FILE *f = path != NULL ? open_write(path) : NULL;
    if (f == NULL || fwrite(data, 1, bytes, f) != bytes) {
        CHECKF(0, "cannot write %s", path);
    }
    if (f != NULL) {
        fclose(f);
    }
    return path;
}

static void test_paths(void) {
    static const struct {
        const char *folder, *name, *joined;
    } joins[] = {{"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"}};
    for (size_t i = 0; i < DV_ARRAY_LEN(joins); i++) {
        char *s = dv_path_join(joins[i].folder, joins[i].name);
        CHECKF(s != NULL && strcmp(s, joins[i].joined) == 0, "join: %s", s);
        dv_free(s);
    }
    static const struct {
        const char *path, *folder, *name;
    } splits[] = {{"/a/b.c", "/a", "b.c"}, {"b.c", ".", "b.c"}, {"/b", "/", "b"}, {"a//b", "a", "b"}, {"a/", "a", ""}};
    for (size_t i = 0; i < DV_ARRAY_LEN(splits); i++) {
        char *s = dv_path_folder(splits[i].path);
        CHECKF(s != NULL && strcmp(s, splits[i].folder) == 0, "folder of %s: %s", splits[i].path, s);
        CHECK(strcmp(dv_path_name(splits[i].path), splits[i].name) == 0);
        dv_free(s);
    }
}

static void test_read_and_map(void) {
    unsigned char data[20000];
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (unsigned char)(i * 7 + i / 256);
    }
    char *path = write_file("\xc3\xa4\xe6\xbc\xa2.bin", data, sizeof data);
    dv_file *f = NULL;
    if (CHECK(dv_file_open(path, &f) == DAVY_OK)) {
        unsigned char part[100];
        const void *map = NULL;
        CHECK(dv_file_bytes(f) == sizeof data);
        CHECK(dv_file_read(f, 12345, part, sizeof part) == DAVY_OK && memcmp(part, data + 12345, sizeof part) == 0);
        CHECK(dv_file_read(f, sizeof data - 99, part, 100) == DAVY_E_IO);
        CHECK(dv_file_read(f, UINT64_MAX, part, 2) == DAVY_E_IO);
        CHECK(dv_file_read(f, sizeof data, part, 0) == DAVY_OK);
        dv_file_done_with(f, 0, sizeof data); /* not mapped yet: nothing to do */
        CHECK(dv_file_map(f, &map) == DAVY_OK && map != NULL && memcmp(map, data, sizeof data) == 0);
        dv_file_done_with(f, 1, 12000);
        dv_file_done_with(f, 5000, UINT64_MAX);
        CHECK(memcmp(map, data, sizeof data) == 0);
        dv_file_close(f);
    }
    remove_file(path);
    dv_free(path);
}

static void test_empty_file(void) {
    char *path = write_file("empty", "", 0);
    dv_file *f = NULL;
    const void *map = NULL;
    if (CHECK(dv_file_open(path, &f) == DAVY_OK)) {
        CHECK(dv_file_bytes(f) == 0 && dv_file_map(f, &map) == DAVY_OK && map != NULL);
        dv_file_close(f);
    }
    remove_file(path);
    dv_free(path);
    dv_file_close(NULL);
}

static void test_bad_files(void) {
    dv_file *f = NULL;
    davy_error_info info;
    char *path = dv_path_join(scratch, "not there");
    CHECK(dv_file_open(path, &f) == DAVY_E_NOT_FOUND && f == NULL);
    dv_error_get(&info);
    CHECK(strstr(info.message, path) != NULL && info.domain == DAVY_DOMAIN_OS && info.native != 0);
    CHECK(dv_file_open(scratch, &f) == DAVY_E_INVALID);
    CHECK(dv_path_stat(path) == DV_PATH_NONE && dv_path_stat(scratch) == DV_PATH_FOLDER);
    dv_free(path);
#if !defined(_WIN32)
    char *fifo = dv_path_join(scratch, "pipe");
    CHECK(mkfifo(fifo, 0600) == 0);
    CHECK(dv_file_open(fifo, &f) == DAVY_E_INVALID); /* and does not block */
    remove_file(fifo);
    dv_free(fifo);
    char *shrinking = write_file("shrinking", "0123456789", 10);
    char part[10];
    if (CHECK(dv_file_open(shrinking, &f) == DAVY_OK)) {
        CHECK(truncate(shrinking, 4) == 0);
        CHECK(dv_file_read(f, 0, part, 10) == DAVY_E_IO);
        dv_file_close(f);
    }
    remove_file(shrinking);
    dv_free(shrinking);
#endif
}

typedef struct listing {
    char text[256];
    int stop_after;
} listing;

static davy_result add_to_listing(void *user, const char *name) {
    listing *l = user;
    if (l->stop_after-- == 0) {
        return dv_fail(DAVY_E_CANCELLED, "enough");
    }
    strncat(l->text, name, sizeof l->text - strlen(l->text) - 1);
    strncat(l->text, " ", sizeof l->text - strlen(l->text) - 1);
    return DAVY_OK;
}

static void test_list(void) {
    static const char *const names[] = {"b.safetensors", "a", "\xc3\xbc"};
    char *paths[3];
    for (size_t i = 0; i < 3; i++) {
        paths[i] = write_file(names[i], "x", 1);
    }
    listing l = {.stop_after = -1};
    CHECK(dv_path_list(scratch, add_to_listing, &l) == DAVY_OK);
    CHECKF(strcmp(l.text, "a b.safetensors \xc3\xbc ") == 0, "listing: %s", l.text);
    listing stopped = {.stop_after = 1};
    CHECK(dv_path_list(scratch, add_to_listing, &stopped) == DAVY_E_CANCELLED && strcmp(stopped.text, "a ") == 0);
    CHECK(dv_path_list(paths[0], add_to_listing, &l) != DAVY_OK);
    for (size_t i = 0; i < 3; i++) {
        CHECK(dv_path_stat(paths[i]) == DV_PATH_FILE);
        remove_file(paths[i]);
        dv_free(paths[i]);
    }
    CHECK(dv_path_list("/no/such/folder", add_to_listing, &l) == DAVY_E_NOT_FOUND);
}

static void test_machine(void) {
    char name[128] = "";
    CHECK(dv_cpu_count() >= 1 && dv_cpu_count() < 4096);
    CHECK(dv_memory_total() > (uint64_t)64 << 20);
    CHECK(dv_memory_available() > 0);
    CHECK(dv_process_id() > 0);
    dv_cpu_name(name, sizeof name);
    CHECK(name[0] != '\0' && strchr(name, '\n') == NULL);
    char *folder = dv_library_folder();
    CHECK(folder != NULL && dv_path_stat(folder) == DV_PATH_FOLDER);
    dv_free(folder);
    char *path = dv_env("PATH");
    CHECK(path != NULL && path[0] != '\0');
    dv_free(path);
    CHECK(dv_env("DAVY_NO_SUCH_VARIABLE") == NULL);
    void *p = dv_aligned_alloc((uint64_t)20 << 20, 64);
    CHECK(p != NULL && (uintptr_t)p % 64 == 0);
    if (p != NULL) {
        memset(p, 1, (size_t)20 << 20);
    }
    dv_aligned_free(p);
    CHECK(dv_aligned_alloc(UINT64_MAX, 64) == NULL);
}

typedef struct handshake {
    dv_mutex *lock;
    dv_cond *cond;
    int turn;
} handshake;

static void answer(void *arg) {
    handshake *h = arg;
    dv_mutex_lock(h->lock);
    while (h->turn != 1) {
        dv_cond_wait(h->cond, h->lock, UINT64_MAX);
    }
    h->turn = 2;
    dv_cond_broadcast(h->cond);
    dv_mutex_unlock(h->lock);
}

static void test_locks(void) {
    handshake h = {.lock = dv_mutex_create(), .cond = dv_cond_create()};
    dv_thread *t = NULL;
    if (!CHECK(h.lock != NULL && h.cond != NULL) || !CHECK(dv_thread_start(answer, &h, "test", &t) == DAVY_OK)) {
        return;
    }
    dv_mutex_lock(h.lock);
    h.turn = 1;
    dv_cond_signal(h.cond);
    while (h.turn != 2) {
        dv_cond_wait(h.cond, h.lock, UINT64_MAX - 1);
    }
    const uint64_t t0 = dv_now_ns();
    while (dv_cond_wait(h.cond, h.lock, 20000000)) { /* may wake early, then waits again */
    }
    const uint64_t waited = dv_now_ns() - t0;
    CHECKF(waited >= 19000000, "waited %llu ns", (unsigned long long)waited);
    dv_mutex_unlock(h.lock);
    dv_thread_join(t);
    dv_cond_release(h.cond);
    dv_mutex_release(h.lock);
    dv_cond_release(NULL);
    dv_mutex_release(NULL);
    dv_thread_join(NULL);
}

static void test_library(void) {
#if defined(_WIN32)
    const char *name = "kernel32.dll";
    const char *symbol = "GetTickCount64";
#else
    const char *name = "libc.so.6";
    const char *symbol = "strtod";
#endif
    char why[200] = "";
    void *library = dv_library_open(name, why, sizeof why);
    if (CHECKF(library != NULL, "%s", why)) {
        CHECK(dv_library_symbol(library, symbol) != NULL && dv_library_symbol(library, "no_such_thing") == NULL);
    }
    CHECK(dv_library_open("no-such-library.so", why, sizeof why) == NULL && strstr(why, "no-such-library") != NULL);
    CHECK(dv_library_open("no-such-library.so", NULL, 0) == NULL);
    const uint64_t before = dv_now_ns();
    dv_sleep_ns(2000000);
    CHECK(dv_now_ns() - before >= 1900000);
}

static void test_fp_mode(void) {
#if defined(__x86_64__) || defined(_M_X64)
    volatile float tiny = 1e-38f;
    volatile float half = 0.25f;
    const uint32_t old = dv_fp_flush_denormals();
    const float flushed = tiny * half;
    dv_fp_restore(old);
    const float kept = tiny * half;
    CHECK(flushed == 0.0f && kept > 0.0f);
#else
    check_skip("no denormal mode on this processor");
#endif
}

int main(void) {
    const char *tmp = getenv("TMPDIR");
    scratch = dv_sprintf("%s/davy-\xc3\xa9-%llu", tmp != NULL ? tmp : "/tmp", (unsigned long long)dv_process_id());
    if (scratch == NULL || !CHECK(make_folder(scratch))) {
        return check_done();
    }
    test_paths();
    test_read_and_map();
    test_empty_file();
    test_bad_files();
    test_list();
    test_machine();
    test_locks();
    test_library();
    test_fp_mode();
    remove_folder(scratch);
    dv_free(scratch);
    return check_done();
}
