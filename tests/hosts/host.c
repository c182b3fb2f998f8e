/* host.c - a minimal host. Counters are atomic because callbacks may come from library threads. */
#include "tests/hosts/host.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <windows.h>
#else
#include <time.h>
#endif

#include "abi/davy_loader.h"

const davy_api *host_load(void) {
    static davy_library library; /* never unloaded, because the library pins its mapping */
    if (library.api == NULL && davy_load(&library, NULL, DAVY_ABI_1_0) != 0) {
        fprintf(stderr, "the library could not be loaded: %s\n", library.error);
        exit(2);
    }
    return library.api;
}

const char *host_error(const davy_api *api) {
    static _Thread_local davy_error_info info;
    info = (davy_error_info){.struct_size = sizeof info};
    return api->last_error(&info) == DAVY_OK ? info.message : "last_error failed";
}

/* ---- callbacks ---- */

/* Each block has its size in front, so the host detects a free with another size. */
static void *DAVY_CALL lend(void *user, size_t bytes, size_t align) {
    host_state *s = user;
    const long long number = atomic_fetch_add(&s->allocations, 1);
    const long long limit = atomic_load(&s->fail_from);
    if (limit >= 0 && number >= limit) {
        return NULL;
    }
    const size_t front = align > 2 * sizeof(void *) ? align : 2 * sizeof(void *);
    unsigned char *raw = malloc(bytes + 2 * front);
    if (raw == NULL) {
        return NULL;
    }
    unsigned char *p = (unsigned char *)(((uintptr_t)raw + 2 * front - 1) / front * front);
    memcpy(p - sizeof(void *), &raw, sizeof(void *));
    memcpy(p - 2 * sizeof(void *), &bytes, sizeof bytes);
    atomic_fetch_add(&s->blocks, 1);
    const long long now = atomic_fetch_add(&s->bytes, (long long)bytes) + (long long)bytes;
    long long peak = atomic_load(&s->peak_bytes);
    while (now > peak && !atomic_compare_exchange_weak(&s->peak_bytes, &peak, now)) {
    }
    return p;
}

static void DAVY_CALL take_back(void *user, void *p, size_t bytes) {
    host_state *s = user;
    if (p == NULL) {
        return;
    }
    void *raw = NULL;
    size_t lent = 0;
    memcpy(&raw, (unsigned char *)p - sizeof(void *), sizeof raw);
    memcpy(&lent, (unsigned char *)p - 2 * sizeof(void *), sizeof lent);
    atomic_fetch_add(&s->wrong_frees, lent != bytes);
    atomic_fetch_sub(&s->blocks, 1);
    atomic_fetch_sub(&s->bytes, (long long)lent);
    free(raw);
}

static void DAVY_CALL hear(void *user, davy_log_level level, const char *utf8) {
    host_state *s = user;
    const size_t n = strlen(utf8);
    atomic_fetch_add(&s->messages, 1);
    atomic_fetch_add(&s->bad_messages, n == 0 || utf8[n - 1] == '\n' || level < DAVY_LOG_ERROR || level > s->level);
    if (s->echo) {
        printf("  log %d: %s\n", (int)level, utf8);
    }
}

void host_state_init(host_state *s) {
    memset(s, 0, sizeof *s);
    atomic_store(&s->fail_from, -1);
    s->level = DAVY_LOG_DEBUG;
}

davy_host host_callbacks(host_state *s) {
    return (davy_host){.struct_size = sizeof(davy_host),
                       .log_level = s->level,
                       .user = s,
                       .log = hear,
                       .alloc = lend,
                       .free = take_back};
}

/* ---- system ---- */

#if defined(_WIN32)
FILE *host_fopen(const char *path, const char *mode) {
    wchar_t wide_path[1024];
    wchar_t wide_mode[8];
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide_path, 1024) == 0 ||
        MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, mode, -1, wide_mode, 8) == 0) {
        return NULL;
    }
    return _wfopen(wide_path, wide_mode);
}

uint64_t host_now_ns(void) {
    LARGE_INTEGER now;
    LARGE_INTEGER second;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&second);
    return (uint64_t)((double)now.QuadPart * 1e9 / (double)second.QuadPart);
}

void host_sleep_ms(int ms) {
    Sleep((DWORD)ms);
}
#else
FILE *host_fopen(const char *path, const char *mode) {
    return fopen(path, mode);
}

uint64_t host_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void host_sleep_ms(int ms) {
    const struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}
#endif

int host_write_file(const char *path, const void *data, uint64_t bytes) {
    FILE *f = host_fopen(path, "wb");
    if (f == NULL) {
        return -1;
    }
    const int whole = fwrite(data, 1, (size_t)bytes, f) == bytes;
    return fclose(f) == 0 && whole ? 0 : -1;
}

/* ---- models and runs ---- */

davy_result host_open_files(const davy_api *api, davy_context *ctx, const synth_file *files, uint32_t n,
                            davy_model **out) {
    davy_source sources[4];
    memset(sources, 0, sizeof sources);
    for (uint32_t i = 0; i < n && i < 4; i++) {
        sources[i].struct_size = sizeof sources[i];
        sources[i].data = files[i].data;
        sources[i].data_bytes = files[i].bytes;
        sources[i].name = i == 0 ? "first.safetensors" : "second.safetensors";
    }
    const davy_model_desc desc = {.struct_size = sizeof desc, .sources = sources, .n_sources = n};
    return api->model_open(ctx, &desc, out);
}

davy_result host_open_path(const davy_api *api, davy_context *ctx, const char *path, davy_model **out) {
    const davy_source source = {.struct_size = sizeof source, .path = path};
    const davy_model_desc desc = {.struct_size = sizeof desc, .sources = &source, .n_sources = 1};
    return api->model_open(ctx, &desc, out);
}

davy_result host_open_small(const davy_api *api, davy_context *ctx, davy_model **out) {
    static synth_file file; /* davy_source.data must outlive the model */
    if (file.data == NULL) {
        file = synth_compact(16, 3, 2, 7);
    }
    return host_open_files(api, ctx, &file, 1, out);
}

davy_tensor host_tensor(const picture *p) {
    davy_tensor t = {.struct_size = sizeof t,
                     .memory = DAVY_MEMORY_HOST,
                     .dtype = DAVY_DTYPE_F32,
                     .layout = DAVY_LAYOUT_NHWC,
                     .ndim = 4,
                     .data = (uint64_t)(uintptr_t)p->v};
    t.shape[0] = p->n;
    t.shape[1] = p->h;
    t.shape[2] = p->w;
    t.shape[3] = p->c;
    return t;
}

picture host_result_picture(const davy_api *api, davy_model *m, davy_op op, const davy_tensor *in,
                            const davy_run *run) {
    const davy_query q = {.struct_size = sizeof q, .op = op, .input = in, .run = run};
    davy_plan_info plan = {.struct_size = sizeof plan};
    if (api->plan_query(m, &q, &plan) != DAVY_OK) {
        return (picture){0, 0, 0, 0, NULL};
    }
    return picture_new(plan.shape[0], plan.shape[1], plan.shape[2], plan.shape[3]);
}

davy_result host_upscale(const davy_api *api, davy_model *m, const picture *in, const davy_run *run, picture *out) {
    const davy_tensor src = host_tensor(in);
    *out = host_result_picture(api, m, DAVY_OP_UPSCALE, &src, run);
    if (out->v == NULL) {
        davy_error_info info = {.struct_size = sizeof info};
        return api->last_error(&info) == DAVY_OK ? info.code : DAVY_E_INTERNAL;
    }
    davy_tensor dst = host_tensor(out);
    const davy_result r = api->upscale(m, &src, &dst, run, NULL);
    if (r < 0) {
        picture_free(out);
    }
    return r;
}
