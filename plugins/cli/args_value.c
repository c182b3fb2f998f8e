/* args_value.c - how the value of an option is read: all of the text, within bounds. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/args_value.h"
#include "plugins/cli/say.h"

/* A whole number within bounds, all of the text. */
static int whole(const char *text, uint64_t max, uint64_t *out) {
    char *end = NULL;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != 0 || errno != 0 || v > max) {
        return -1;
    }
    *out = v;
    return 0;
}

static int bytes_of(const char *text, uint64_t *out) {
    char *end = NULL;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    uint32_t shift = 0;
    switch (*end) {
    case 'k':
    case 'K':
        shift = 10;
        break;
    case 'm':
    case 'M':
        shift = 20;
        break;
    case 'g':
    case 'G':
        shift = 30;
        break;
    default:
        break;
    }
    if (text[0] < '0' || text[0] > '9' || errno != 0 || end[shift != 0] != 0 || v == 0 || v > UINT64_MAX >> shift) {
        return -1;
    }
    *out = (uint64_t)v << shift;
    return 0;
}

static int from_zero(const char *text, double max, double *out) {
    char *end = NULL;
    double v = strtod(text, &end);
    if (end == text || *end != 0 || !(v >= 0.0 && v <= max)) {
        return -1;
    }
    *out = v;
    return 0;
}

static int set_count(const cli_option *d, const char *value, int32_t min, int32_t max, int32_t *out) {
    uint64_t n = 0;
    if (whole(value, (uint64_t)max, &n) != 0 || n < (uint64_t)min) {
        return cli_usage(d->name, "needs a whole number from %d to %d, not \"%s\"", min, max, value);
    }
    *out = (int32_t)n;
    return 0;
}

static int set_tile(const char *value, int32_t *out) {
    if (strcmp(value, "auto") == 0 || strcmp(value, "none") == 0) {
        *out = value[0] == 'a' ? 0 : -1;
        return 0;
    }
    uint64_t n = 0;
    if (whole(value, 1 << 20, &n) != 0 || n == 0) {
        return cli_usage("--tile", "needs auto, none or a size, not \"%s\"", value);
    }
    *out = (int32_t)n;
    return 0;
}

static int set_decoder(const cli_option *d, const char *value, int32_t *out) {
    static const char *const words[] = {"auto", "software", "hardware"}; /* CLI_DECODER_ */
    for (int32_t i = 0; i < 3; i++) {
        if (strcmp(value, words[i]) == 0) {
            *out = i;
            return 0;
        }
    }
    return cli_usage(d->name, "needs auto, hardware or software, not \"%s\"", value);
}

static int set_model(cli_args *a, const char *value) {
    if (a->n_models == CLI_MODELS_MAX) {
        return cli_usage("--model", "given more than %d times", CLI_MODELS_MAX);
    }
    a->models[a->n_models++] = value;
    return 0;
}

/* One of several. */
static int add_text(const cli_option *d, const char *value, const char **texts, int most, int *n) {
    if (*n == most || value[0] == 0) {
        return cli_usage(d->name, value[0] == 0 ? "needs a text" : "given more than %d times", most);
    }
    texts[(*n)++] = value;
    return 0;
}

/* A number with a fraction. */
static int set_real(const cli_option *d, const char *value, double *out) {
    static const struct {
        cli_kind kind;
        double least, most;
        int zero; /* is one */
        const char *what;
    } bounds[] = {
        {SCALE, 0.0, 64.0, 0, "a factor above 0 and up to 64"}, {PEAK, 0.0, 1e9, 0, "a number of GFLOP/s"},
        {PENALTY, 0.01, 100.0, 0, "a number from 0.01 to 100"}, {HEAT, 0.0, 100.0, 1, "a number from 0 to 100"},
        {SHARE, 0.0, 1.0, 0, "a number above 0 and up to 1"},
    };
    size_t i = 0;
    while (bounds[i].kind != d->kind) {
        i++;
    }
    const int bad =
        from_zero(value, bounds[i].most, out) != 0 || *out < bounds[i].least || (*out == 0.0 && !bounds[i].zero);
    return bad ? cli_usage(d->name, "needs %s, not \"%s\"", bounds[i].what, value) : 0;
}

static int set_rate(const cli_option *d, const char *value, double *out) {
    return from_zero(value, CLI_FPS_MAX, out) == 0 && *out >= CLI_FPS_MIN
               ? 0
               : cli_usage(d->name, "needs frames a second from %g to %g, not \"%s\"", CLI_FPS_MIN, CLI_FPS_MAX, value);
}

static int set_precision(const cli_option *d, const char *value, davy_dtype *out) {
    *out = cli_precision_of(value);
    return *out >= 0 ? 0
                     : cli_usage(d->name, "needs auto, fp32, tf32, bf16, fp16, fp8, int8 or int4, not \"%s\"", value);
}

/* A large one, above 0 but for a seed. */
static int set_large(const cli_option *d, const char *value, uint64_t *out) {
    switch (d->kind) {
    case BYTES:
        return bytes_of(value, out) == 0 ? 0 : cli_usage(d->name, "needs a size such as 800M or 2G, not \"%s\"", value);
    case PIXELS:
        return whole(value, (uint64_t)1 << 40, out) == 0 && *out > 0
                   ? 0
                   : cli_usage(d->name, "needs a number of pixels, not \"%s\"", value);
    default:
        return whole(value, UINT64_MAX, out) == 0 ? 0 : cli_usage(d->name, "needs a whole number, not \"%s\"", value);
    }
}

int cli_option_set(const cli_option *d, const char *value, cli_args *a) {
    void *member = (char *)a + d->offset;
    switch (d->kind) {
    case FLAG:
        *(int32_t *)member = 1;
        return 0;
    case TEXT:
        *(const char **)member = value;
        return value[0] != 0 ? 0 : cli_usage(d->name, "needs a value");
    case MODEL:
        return set_model(a, value);
    case ASK:
        return add_text(d, value, a->asks, CLI_ASKS_MAX, &a->n_asks);
    case STOP:
        return add_text(d, value, a->stops, CLI_STOPS_MAX, &a->n_stops);
    case COUNT:
        return set_count(d, value, 1, 1 << 16, member);
    case PERCENT:
        return set_count(d, value, 1, 100, member);
    case TOKENS:
        return set_count(d, value, 1, INT32_MAX, member);
    case SCALE:
    case PEAK:
    case PENALTY:
    case HEAT:
    case SHARE:
        return set_real(d, value, member);
    case RATE:
        return set_rate(d, value, member);
    case BYTES:
    case PIXELS:
    case SEED:
        return set_large(d, value, member);
    case DECODER:
        return set_decoder(d, value, member);
    case TILE:
        return set_tile(value, member);
    default:
        return set_precision(d, value, member);
    }
}
