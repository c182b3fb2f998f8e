/* case.c - one measurement: a model, an input of noise, a warm-up, repeated runs, their median time. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugins/cli/bench/subject.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"

enum { RUNS_MIN = 5, RUNS_MAX = 40 };

static const struct {
    const char *name;
    bench_arch arch;
    uint32_t tasks;
    const char *shipped;
} archs[] = {
    {"live2", BENCH_LIVE2, CLI_UPSCALE, "davy-live-x2"},
    {"live4", BENCH_LIVE4, CLI_UPSCALE, "davy-live-x4"},
    {"compact", BENCH_COMPACT, CLI_UPSCALE, NULL},
    {"compact16", BENCH_COMPACT16, CLI_UPSCALE, NULL},
    {"rrdb", BENCH_RRDB, CLI_UPSCALE, NULL},
    {"span", BENCH_SPAN, CLI_UPSCALE, NULL},
    {"spanf3", BENCH_SPANF3, CLI_UPSCALE, NULL},
    {"realplksr", BENCH_REALPLKSR, CLI_UPSCALE, NULL},
    {"omnisr", BENCH_OMNISR, CLI_UPSCALE, NULL},
    {"swinir", BENCH_SWINIR, CLI_UPSCALE, NULL},
    {"drct", BENCH_DRCT, CLI_UPSCALE, NULL},
    {"hat", BENCH_HAT, CLI_UPSCALE, NULL},
    {"dat", BENCH_DAT, CLI_UPSCALE, NULL},
    {"srformer", BENCH_SRFORMER, CLI_UPSCALE, NULL},
    {"rgt", BENCH_RGT, CLI_UPSCALE, NULL},
    {"atd", BENCH_ATD, CLI_UPSCALE, NULL},
    {"vae_tae", BENCH_TAE, CLI_ENCODE | CLI_DECODE, NULL},
    {"taesd", BENCH_TAE, CLI_ENCODE | CLI_DECODE, NULL},
    {"vae_kl", BENCH_KL, CLI_ENCODE | CLI_DECODE, NULL},
    {"sdxl", BENCH_KL, CLI_ENCODE | CLI_DECODE, NULL},
};

const char *bench_shipped(bench_arch arch) {
    return arch == BENCH_LIVE2 ? archs[0].shipped : arch == BENCH_LIVE4 ? archs[1].shipped : NULL;
}

/* Parses "512", "640x360", "64x64x16" (16 pictures), or the height of a 16:9 picture: "1080p". */
static int size_of(const char *text, bench_case *c) {
    char *end = NULL;
    unsigned long w = strtoul(text, &end, 10);
    unsigned long h = w;
    unsigned long n = 1;
    if (*end == 'x') {
        h = strtoul(end + 1, &end, 10);
        n = *end == 'x' ? strtoul(end + 1, &end, 10) : 1;
    } else if (end[0] == 'p' && w % 9 == 0) {
        w = h / 9 * 16;
        end++;
    }
    if (text[0] < '1' || text[0] > '9' || *end != 0 || w > 65536 || h == 0 || n == 0 || n > 65536 / h ||
        (n > 1 && c->task != CLI_UPSCALE)) {
        return -1;
    }
    c->width = (uint32_t)w;
    c->height = (uint32_t)h;
    c->pictures = (uint32_t)n;
    return 0;
}

int bench_case_parse(const char *name, bench_case *out) {
    char words[4][24] = {{0}};
    char rest[2] = "";
    bench_case c = {.precision = -1};
    if (strlen(name) >= sizeof c.name ||
        sscanf(name, "%23[^-]-%23[^-]-%23[^-]-%23[^-]%1s", words[0], words[1], words[2], words[3], rest) != 4) {
        return -1;
    }
    const cli_command tasks[] = {CLI_UPSCALE, CLI_ENCODE, CLI_DECODE};
    for (size_t i = 0; i < 3; i++) {
        if (strcmp(words[0], cli_command_name(tasks[i])) == 0) {
            c.task = tasks[i];
        }
    }
    int found = 0;
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++) {
        if (strcmp(words[1], archs[i].name) == 0 && (archs[i].tasks & c.task) != 0) {
            c.arch = archs[i].arch;
            found = 1;
        }
    }
    c.precision = cli_precision_of(words[3]);
    if (!found || c.precision <= DAVY_DTYPE_AUTO || size_of(words[2], &c) != 0) {
        return -1;
    }
    snprintf(c.name, sizeof c.name, "%s", name);
    *out = c;
    return 0;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct times {
    double ms[RUNS_MAX];
    int n;
} times;

static double median(const times *t) {
    return t->n % 2 != 0 ? t->ms[t->n / 2] : (t->ms[t->n / 2 - 1] + t->ms[t->n / 2]) / 2.0;
}

/* The first run loads the weights and fills the caches. On a GPU the second run records the work that later runs replay. */
static davy_result measure(const bench_subject *s, davy_result (*run)(const bench_subject *s), double seconds,
                           times *t) {
    davy_result r = run(s);
    double spent = 0.0;
    int n = 0;
    for (int i = 0; r >= 0 && s->session.on_gpu && i < 2; i++) {
        r = run(s);
    }
    while (r >= 0 && (n < RUNS_MIN || spent < seconds) && n < RUNS_MAX && (n < 3 || spent < 30.0)) {
        const double start = cli_seconds();
        r = run(s);
        const double once = cli_seconds() - start;
        t->ms[n++] = once * 1000.0;
        spent += once;
    }
    qsort(t->ms, (size_t)n, sizeof *t->ms, ascending);
    t->n = n;
    return r;
}

static void add_machine(cJSON *j, const bench_subject *s, const cli_args *a) {
    char machine[256];
    char date[32] = "";
    const time_t now = time(NULL);
    cli_machine(machine, sizeof machine);
    const struct tm *t = gmtime(&now);
    if (t != NULL) {
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", t);
    }
    cJSON_AddStringToObject(j, "machine", machine);
    cJSON_AddStringToObject(j, "davy", s->session.api->version());
    cJSON_AddStringToObject(j, "device", s->session.device.selector);
    cJSON_AddStringToObject(j, "device_name", s->session.device.name);
    cJSON_AddNumberToObject(j, "threads", a->threads);
    cJSON_AddStringToObject(j, "date", date);
}

/* host: times with pictures in host memory, on a GPU only. */
static cJSON *result_of(const bench_subject *s, const cli_args *a, const times *t, const times *host) {
    cJSON *j = cJSON_CreateObject();
    const double middle = median(t);
    davy_memory_info memory = {.struct_size = sizeof memory};
    cJSON_AddStringToObject(j, "case", s->c->name);
    cJSON_AddStringToObject(j, "precision", cli_precision_name(s->c->precision));
    cJSON_AddNumberToObject(j, "runs", t->n);
    cJSON_AddNumberToObject(j, "median_ms", middle);
    cJSON_AddNumberToObject(j, "min_ms", t->ms[0]);
    cJSON_AddNumberToObject(j, "max_ms", t->ms[t->n - 1]);
    if (host->n > 0) {
        cJSON_AddNumberToObject(j, "host_ms", median(host));
    }
    cJSON_AddNumberToObject(j, "peak_bytes", (double)cli_peak_memory());
    if (s->session.api->context_memory(s->session.context, &memory) >= 0) {
        cJSON_AddNumberToObject(j, "davy_peak_bytes", (double)memory.host_peak_bytes);
        if (s->session.on_gpu) {
            cJSON_AddNumberToObject(j, "device_peak_bytes", (double)memory.device_peak_bytes);
        }
    }
    cJSON_AddNumberToObject(j, "gflop", (double)s->plan.flops * 1e-9);
    cJSON_AddNumberToObject(j, "gflop_s", middle > 0.0 ? (double)s->plan.flops * 1e-6 / middle : 0.0);
    cJSON_AddNumberToObject(j, "tiles", (double)s->plan.tiles_x * s->plan.tiles_y);
    add_machine(j, s, a);
    return j;
}

/* --profile: repeats the runs with the library's profiler. */
static int add_profile(bench_subject *s, cJSON *j) {
    const davy_profile_1 *profile = s->session.api->get_extension("davy.profile/1");
    const int runs = 3;
    if (profile == NULL) {
        return cli_fail("libdavy", "has no davy.profile/1; install the libdavy of this program");
    }
    davy_result r = profile->start(s->session.context);
    for (int i = 0; r >= 0 && i < runs; i++) {
        r = bench_run(s);
    }
    davy_text *text = NULL;
    const char *utf8 = NULL;
    uint64_t bytes = 0;
    if (r >= 0) {
        r = profile->stop(s->session.context, &text);
    }
    if (r >= 0) {
        r = s->session.api->text_get(text, &utf8, &bytes);
    }
    if (r >= 0) {
        cJSON_AddNumberToObject(j, "profile_runs", runs);
        cJSON_AddItemToObject(j, "profile", cJSON_Parse(utf8));
    }
    s->session.api->text_release(text);
    return r < 0 ? cli_session_fail(&s->session, s->c->name, r) : CLI_OK;
}

int bench_where(const cli_args *a, FILE *out) {
    cli_session s;
    int r = cli_session_load(&s);
    if (r == CLI_OK) {
        r = cli_session_context(&s, a);
    }
    if (r == CLI_OK) {
        fputs(s.on_gpu ? "gpu" : "cpu", out);
    }
    cli_session_close(&s);
    return r;
}

static int measure_all(bench_subject *s, const cli_args *a, FILE *out) {
    times device = {.n = 0};
    times host = {.n = 0};
    davy_result code = measure(s, s->in_device != NULL ? bench_run_ordered : bench_run_in_host, 2.0, &device);
    if (code >= 0 && s->in_device != NULL) {
        code = measure(s, bench_run_in_host, 0.5, &host);
    }
    if (code < 0) {
        return cli_session_fail(&s->session, s->c->name, code);
    }
    cJSON *j = result_of(s, a, &device, &host);
    int r = a->profile ? add_profile(s, j) : CLI_OK;
    char *text = r == CLI_OK ? cJSON_PrintUnformatted(j) : NULL;
    if (text != NULL) {
        fputs(text, out);
    }
    cJSON_free(text);
    cJSON_Delete(j);
    return r;
}

int bench_measure(const cli_args *a, const bench_case *c, FILE *out) {
    bench_subject s = {.c = c};
    s.run = cli_session_run(a);
    cli_progress_begin(c->name);
    int r = bench_open(&s, a);
    if (r == CLI_OK) {
        r = measure_all(&s, a, out);
    }
    cli_progress_end();
    bench_close(&s);
    return r;
}
