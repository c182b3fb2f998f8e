/* profile.c - a list of (step, kernel) pairs under a lock. Runs add a few thousand entries a second at most, so a linear
 * search by hash is fast enough. An atomic flag holds whether the profile is on, so that a run takes no lock while it is off. */
#include "core/base/profile.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/base/os.h"

typedef struct line {
    uint64_t hash;
    char *step, *kernel;
    uint64_t calls, ns, flops, bytes;
} line;

struct dv_profile {
    dv_mutex *lock;
    _Atomic bool on;
    line *lines;
    int64_t count, capacity;
    dv_peak peak;
};

dv_profile *dv_profile_create(void) {
    dv_profile *p = dv_calloc(1, sizeof *p);
    if (p == NULL) {
        return NULL;
    }
    atomic_init(&p->on, false);
    p->lock = dv_mutex_create();
    if (p->lock == NULL) {
        dv_free(p);
        return NULL;
    }
    return p;
}

static void clear(dv_profile *p) {
    for (int64_t i = 0; i < p->count; i++) {
        dv_free(p->lines[i].step);
        dv_free(p->lines[i].kernel);
    }
    p->count = 0;
}

void dv_profile_release(dv_profile *p) {
    if (p != NULL) {
        clear(p);
        dv_free(p->lines);
        dv_mutex_release(p->lock);
        dv_free(p);
    }
}

void dv_profile_start(dv_profile *p) {
    dv_mutex_lock(p->lock);
    clear(p);
    atomic_store(&p->on, true);
    dv_mutex_unlock(p->lock);
}

void dv_profile_stop(dv_profile *p) {
    atomic_store(&p->on, false);
}

bool dv_profile_on(const dv_profile *p) {
    return atomic_load_explicit(&((dv_profile *)(uintptr_t)p)->on, memory_order_relaxed);
}

void dv_profile_set_peak(dv_profile *p, const dv_peak *peak) {
    p->peak = *peak;
}

static uint64_t hash_pair(const char *a, const char *b) {
    uint64_t h = 1469598103934665603ull;
    for (const char *c = a; *c != '\0'; c++) {
        h = (h ^ (uint64_t)(unsigned char)*c) * 1099511628211ull;
    }
    h = (h ^ 0xffu) * 1099511628211ull;
    for (const char *c = b; *c != '\0'; c++) {
        h = (h ^ (uint64_t)(unsigned char)*c) * 1099511628211ull;
    }
    return h;
}

/* Under the lock. NULL: out of memory; then only this step is missing from the table. */
static line *find_or_add(dv_profile *p, const char *step, const char *kernel) {
    const uint64_t hash = hash_pair(step, kernel);
    for (int64_t i = 0; i < p->count; i++) {
        line *l = &p->lines[i];
        if (l->hash == hash && strcmp(l->step, step) == 0 && strcmp(l->kernel, kernel) == 0) {
            return l;
        }
    }
    line *lines = dv_grow(p->lines, p->count + 1, &p->capacity, sizeof *lines);
    if (lines == NULL) {
        return NULL;
    }
    p->lines = lines;
    line fresh = {.hash = hash, .step = dv_strdup(step), .kernel = dv_strdup(kernel)};
    if (fresh.step == NULL || fresh.kernel == NULL) {
        dv_free(fresh.step);
        dv_free(fresh.kernel);
        return NULL;
    }
    lines[p->count] = fresh;
    return &lines[p->count++];
}

void dv_profile_add(dv_profile *p, const dv_profile_run *run) {
    if (!dv_profile_on(p)) {
        return;
    }
    dv_mutex_lock(p->lock);
    line *l = find_or_add(p, run->step, run->kernel);
    if (l != NULL) {
        l->calls++;
        l->ns += run->ns;
        l->flops += run->flops;
        l->bytes += run->bytes;
    }
    dv_mutex_unlock(p->lock);
}

static int most_time_first(const void *a, const void *b) {
    const line *p = a;
    const line *q = b;
    return p->ns != q->ns ? (p->ns < q->ns ? 1 : -1) : strcmp(p->step, q->step);
}

/* A JSON string with forbidden characters as \u00XX. NULL: out of memory. */
static char *quoted(const char *s) {
    char *out = dv_calloc(strlen(s) * 6 + 3, 1);
    if (out == NULL) {
        return NULL;
    }
    char *at = out;
    *at++ = '"';
    for (; *s != '\0'; s++) {
        if ((unsigned char)*s < 0x20 || *s == '"' || *s == '\\') {
            at += snprintf(at, 7, "\\u%04x", (unsigned)(unsigned char)*s);
        } else {
            *at++ = *s;
        }
    }
    *at = '"';
    return out;
}

/* A kernel computes on the tensor units unless its name contains "simt". */
static double peak_flops(const dv_peak *peak, const char *kernel) {
    const bool eight = strstr(kernel, "fp8") != NULL || strstr(kernel, "int8") != NULL;
    return strstr(kernel, "simt") != NULL   ? peak->simt
           : strstr(kernel, "tf32") != NULL ? peak->tensor / 2
           : eight                          ? peak->tensor * 2
                                            : peak->tensor;
}

/* Whole numbers only: no decimal point that a locale could change. */
static char *line_json(const line *l, const dv_peak *peak) {
    const unsigned long long gflops = (unsigned long long)peak_flops(peak, l->kernel); /* per ns is giga per second */
    const unsigned long long gbs = (unsigned long long)peak->bytes;
    char *step = quoted(l->step);
    char *kernel = quoted(l->kernel);
    char *out = NULL;
    char tail[96] = "}";
    if (gbs > 0) {
        snprintf(tail, sizeof tail, ",\"peak_gflops\":%llu,\"peak_gbs\":%llu}", gflops, gbs);
    }
    if (step != NULL && kernel != NULL) {
        out = dv_sprintf("{\"step\":%s,\"kernel\":%s,\"calls\":%llu,\"ms\":%llu.%06llu,\"flops\":%llu,\"bytes\":%llu%s",
                         step, kernel, (unsigned long long)l->calls, (unsigned long long)(l->ns / 1000000),
                         (unsigned long long)(l->ns % 1000000), (unsigned long long)l->flops,
                         (unsigned long long)l->bytes, tail);
    }
    dv_free(step);
    dv_free(kernel);
    return out;
}

static bool append(char **text, int64_t *length, int64_t *capacity, const char *more) {
    const int64_t n = (int64_t)strlen(more);
    char *grown = dv_grow(*text, *length + n + 1, capacity, 1);
    if (grown == NULL) {
        return false;
    }
    memcpy(grown + *length, more, (size_t)n + 1);
    *text = grown;
    *length += n;
    return true;
}

char *dv_profile_json(dv_profile *p) {
    char *text = NULL;
    int64_t length = 0;
    int64_t capacity = 0;
    dv_mutex_lock(p->lock);
    if (p->count > 0) {
        qsort(p->lines, (size_t)p->count, sizeof *p->lines, most_time_first);
    }
    bool ok = append(&text, &length, &capacity, "[");
    for (int64_t i = 0; ok && i < p->count; i++) {
        char *json = line_json(&p->lines[i], &p->peak);
        ok = json != NULL && append(&text, &length, &capacity, i > 0 ? ",\n" : "") &&
             append(&text, &length, &capacity, json);
        dv_free(json);
    }
    ok = ok && append(&text, &length, &capacity, "]");
    dv_mutex_unlock(p->lock);
    if (!ok) {
        dv_free(text);
        return NULL;
    }
    return text;
}
