/* weights.c - see weights.h. Numbers from names are capped by the number of tensors. So a hostile name cannot make
 * an architecture loop forever. */
#include "core/block/weights.h"

#include <string.h>

bool dv_has(const dv_tensors *t, const char *names) {
    return dv_weight_find(t, names, "") != NULL;
}

int64_t dv_dim(const dv_tensors *t, const char *names, int32_t axis) {
    const dv_tensor_ref *ref = dv_weight_find(t, names, "");
    return ref != NULL && axis < ref->ndim ? ref->shape[axis] : 0;
}

/* The number at s if a '.' follows it; -1 otherwise, or if it is larger than in any real network. */
static int64_t index_at(const char *s) {
    int64_t value = 0;
    const char *p = s;
    for (; *p >= '0' && *p <= '9' && value < 1000000; p++) {
        value = value * 10 + (*p - '0');
    }
    return p > s && *p == '.' ? value : -1;
}

int64_t dv_sequence_length(const dv_tensors *t, const char *prefix) {
    const size_t len = strlen(prefix);
    int64_t length = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const char *name = t->refs[i].name;
        if (len > 0 && (strncmp(name, prefix, len) != 0 || name[len] != '.')) {
            continue;
        }
        length = dv_max(length, index_at(len > 0 ? name + len + 1 : name) + 1);
    }
    return length <= t->count ? length : 0;
}

bool dv_any_contains(const dv_tensors *t, const char *part) {
    for (int64_t i = 0; i < t->count; i++) {
        if (strstr(t->refs[i].name, part) != NULL) {
            return true;
        }
    }
    return false;
}

int64_t dv_square_root(int64_t n) {
    int64_t r = 0;
    while (r < 4096 && r * r < n) {
        r++;
    }
    return r * r == n ? r : 0;
}

bool dv_scale_and_channels(int64_t n, int64_t in, int64_t *scale, int64_t *channels) {
    const int64_t candidates[4] = {in, 3, 4, 1};
    for (int i = 0; i < 4; i++) {
        const int64_t c = candidates[i];
        const int64_t root = c > 0 && n > 0 && n % c == 0 ? dv_square_root(n / c) : 0;
        if (root > 0) {
            *scale = root;
            *channels = c;
            return true;
        }
    }
    return false;
}

static size_t until_bar(const char *s) {
    const char *bar = strchr(s, '|');
    return bar != NULL ? (size_t)(bar - s) : strlen(s);
}

const char *dv_names_join(char out[DV_NAMES_BYTES], const char *names, const char *suffixes) {
    size_t at = 0;
    for (const char *name = names; name != NULL; name = strchr(name, '|') != NULL ? strchr(name, '|') + 1 : NULL) {
        for (const char *suffix = suffixes; suffix != NULL;
             suffix = strchr(suffix, '|') != NULL ? strchr(suffix, '|') + 1 : NULL) {
            const size_t a = until_bar(name);
            const size_t b = until_bar(suffix);
            if (at + a + b + 2 > DV_NAMES_BYTES) {
                out[0] = '\0';
                return out;
            }
            if (at > 0) {
                out[at++] = '|';
            }
            memcpy(out + at, name, a);
            memcpy(out + at + a, suffix, b);
            at += a + b;
        }
    }
    out[at] = '\0';
    return out;
}
