/* bench_case.c - one measurement: a model, an input of noise, a warm-up, repeated runs, the middle of their times. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugins/cli/bench.h"
#include "plugins/cli/say.h"
#include "plugins/cli/session.h"
#include "plugins/cli/sys.h"

enum { RUNS_MIN = 5, RUNS_MAX = 40 };

static const struct {
    const char *name;
    bench_arch arch;
    uint32_t tasks;
    const char *shipped;
} archs[] = {
    {"live2", BENCH_LIVE2, CLI_UPSCALE, "davy-live-x2"},   {"live4", BENCH_LIVE4, CLI_UPSCALE, "davy-live-x4"},
    {"compact", BENCH_COMPACT, CLI_UPSCALE, NULL},         {"rrdb", BENCH_RRDB, CLI_UPSCALE, NULL},
    {"taesd", BENCH_TAESD, CLI_ENCODE | CLI_DECODE, NULL}, {"sdxl", BENCH_SDXL, CLI_ENCODE | CLI_DECODE, NULL},
};

static int size_of(const char *text, uint32_t *width, uint32_t *height) {
    char *end = NULL;
    unsigned long w = strtoul(text, &end, 10);
    unsigned long h = w;
    if (*end == 'x') {
        h = strtoul(end + 1, &end, 10);
    }
    if (text[0] < '1' || text[0] > '9' || *end != 0 || w > 65536 || h == 0 || h > 65536) {
        return -1;
    }
    *width = (uint32_t)w;
    *height = (uint32_t)h;
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
    if (!found || c.precision <= DAVY_DTYPE_AUTO || size_of(words[2], &c.width, &c.height) != 0) {
        return -1;
    }
    snprintf(c.name, sizeof c.name, "%s", name);
    *out = c;
    return 0;
}

/* What a case runs on. */
typedef struct subject {
    const bench_case *c;
    cli_session session;
    void *weights;
    cli_picture picture;
    cli_picture result;
    cli_array latent;
    davy_run run;
    davy_plan_info plan;
} subject;

static int open_subject(subject *s, const cli_args *a) {
    uint64_t bytes = 0;
    int r = cli_session_load(&s->session);
    if (r == CLI_OK) {
        r = cli_session_context(&s->session, a);
    }
    if (r != CLI_OK) {
        return r;
    }
    davy_source source = {.struct_size = sizeof source, .name = archs[s->c->arch].shipped};
    if (source.name == NULL) {
        s->weights = bench_weights(s->c->arch, s->c->task == CLI_ENCODE, &bytes);
        if (s->weights == NULL) {
            return cli_fail(s->c->name, "out of memory");
        }
        source.name = "random.safetensors";
        source.data = s->weights;
        source.data_bytes = bytes;
    }
    const davy_model_desc desc = {
        .struct_size = sizeof desc, .sources = &source, .n_sources = 1, .compute = s->c->precision};
    return cli_session_open_model(&s->session, &desc, s->c->name);
}

/* Noise over a slope: no flat areas, all values. */
static void fill_picture(cli_picture *p) {
    uint8_t *pixels = p->pixels;
    const size_t n = cli_picture_stride(p) * p->height;
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        pixels[i] = (uint8_t)((i / 3 % p->width * 160 / p->width) + (state >> 25));
    }
}

static void fill_latent(cli_array *a) {
    float *v = a->data;
    uint32_t state = 1;
    for (size_t i = 0; i < a->bytes / 4; i++) {
        state = state * 1664525u + 1013904223u;
        v[i] = (float)(state >> 8) * (2.0f / 16777216.0f) - 1.0f;
    }
}

static davy_tensor latent_tensor(const subject *s) {
    return cli_tensor_of_array(&s->latent, DAVY_LAYOUT_HWC, DAVY_CHANNELS_LATENT);
}

/* Makes input and output and asks the library for the plan. */
static int prepare(subject *s) {
    const davy_model_info *m = &s->session.info;
    const davy_op ops[] = {DAVY_OP_UPSCALE, DAVY_OP_VAE_ENCODE, DAVY_OP_VAE_DECODE};
    const int op = s->c->task == CLI_UPSCALE ? 0 : s->c->task == CLI_ENCODE ? 1 : 2;
    cli_picture p = {.width = s->c->width, .height = s->c->height, .channels = 3, .bits = 8};
    s->picture = p;
    s->result = p;
    if (op == 0) {
        s->result.width = p.width * (uint32_t)m->scale_num / (uint32_t)m->scale_den;
        s->result.height = p.height * (uint32_t)m->scale_num / (uint32_t)m->scale_den;
    } else {
        const cli_array a = {
            .ndim = 3,
            .shape = {m->latent_channels, (int64_t)p.height / m->spatial_factor, (int64_t)p.width / m->spatial_factor}};
        s->latent = a;
        if (cli_array_alloc_f32(&s->latent) != 0) {
            return cli_fail(s->c->name, "the size does not suit the model");
        }
        fill_latent(&s->latent);
    }
    if (cli_picture_alloc(&s->picture) != 0 || cli_picture_alloc(&s->result) != 0) {
        return cli_fail(s->c->name, "out of memory");
    }
    fill_picture(&s->picture);
    const davy_tensor in = op == 2 ? latent_tensor(s) : cli_tensor_of_picture(&s->picture);
    const davy_query query = {.struct_size = sizeof query, .op = ops[op], .input = &in, .run = &s->run};
    s->plan.struct_size = sizeof s->plan;
    const davy_result r = s->session.api->plan_query(s->session.model, &query, &s->plan);
    return r < 0 ? cli_session_fail(&s->session, s->c->name, r) : CLI_OK;
}

static davy_result run_once(subject *s) {
    const davy_api *api = s->session.api;
    davy_tensor picture = cli_tensor_of_picture(&s->picture);
    davy_tensor result = cli_tensor_of_picture(&s->result);
    davy_tensor latent;
    switch (s->c->task) {
    case CLI_UPSCALE:
        return api->upscale(s->session.model, &picture, &result, &s->run, NULL);
    case CLI_ENCODE:
        latent = latent_tensor(s);
        return api->vae_encode(s->session.model, &picture, &latent, &s->run, NULL);
    default:
        latent = latent_tensor(s);
        return api->vae_decode(s->session.model, &latent, &result, &s->run, NULL);
    }
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static davy_result measure(subject *s, double *ms, int *runs) {
    davy_result r = run_once(s); /* loads the weights, warms the caches */
    double spent = 0.0;
    int n = 0;
    while (r >= 0 && (n < RUNS_MIN || spent < 2.0) && n < RUNS_MAX && (n < 3 || spent < 30.0)) {
        const double start = cli_seconds();
        r = run_once(s);
        const double t = cli_seconds() - start;
        ms[n++] = t * 1000.0;
        spent += t;
    }
    qsort(ms, (size_t)n, sizeof *ms, ascending);
    *runs = n;
    return r;
}

static void add_machine(cJSON *j, const subject *s, const cli_args *a) {
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
    cJSON_AddStringToObject(j, "device", a->device != NULL ? a->device : "auto");
    cJSON_AddNumberToObject(j, "threads", a->threads);
    cJSON_AddStringToObject(j, "date", date);
}

static cJSON *result_of(const subject *s, const cli_args *a, const double *ms, int runs) {
    cJSON *j = cJSON_CreateObject();
    const double median = runs % 2 != 0 ? ms[runs / 2] : (ms[runs / 2 - 1] + ms[runs / 2]) / 2.0;
    davy_memory_info memory = {.struct_size = sizeof memory};
    cJSON_AddStringToObject(j, "case", s->c->name);
    cJSON_AddStringToObject(j, "precision", cli_precision_name(s->c->precision));
    cJSON_AddNumberToObject(j, "runs", runs);
    cJSON_AddNumberToObject(j, "median_ms", median);
    cJSON_AddNumberToObject(j, "min_ms", ms[0]);
    cJSON_AddNumberToObject(j, "max_ms", ms[runs - 1]);
    cJSON_AddNumberToObject(j, "peak_bytes", (double)cli_peak_memory());
    if (s->session.api->context_memory(s->session.context, &memory) >= 0) {
        cJSON_AddNumberToObject(j, "davy_peak_bytes", (double)memory.host_peak_bytes);
    }
    cJSON_AddNumberToObject(j, "gflop", (double)s->plan.flops * 1e-9);
    cJSON_AddNumberToObject(j, "gflop_s", median > 0.0 ? (double)s->plan.flops * 1e-6 / median : 0.0);
    cJSON_AddNumberToObject(j, "tiles", (double)s->plan.tiles_x * s->plan.tiles_y);
    add_machine(j, s, a);
    return j;
}

/* --profile: the runs once more with the library's clocks on. */
static int add_profile(subject *s, cJSON *j) {
    const davy_profile_1 *profile = s->session.api->get_extension("davy.profile/1");
    const int runs = 3;
    if (profile == NULL) {
        return cli_fail("libdavy", "this library cannot profile");
    }
    davy_result r = profile->start(s->session.context);
    for (int i = 0; r >= 0 && i < runs; i++) {
        r = run_once(s);
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

int bench_measure(const cli_args *a, const bench_case *c, FILE *out) {
    subject s = {.c = c};
    double ms[RUNS_MAX];
    int runs = 0;
    s.run = cli_session_run(a);
    cli_progress_begin(c->name);
    int r = open_subject(&s, a);
    if (r == CLI_OK) {
        r = prepare(&s);
    }
    if (r == CLI_OK) {
        const davy_result code = measure(&s, ms, &runs);
        r = code < 0 ? cli_session_fail(&s.session, c->name, code) : CLI_OK;
    }
    if (r == CLI_OK) {
        cJSON *j = result_of(&s, a, ms, runs);
        if (a->profile) {
            r = add_profile(&s, j);
        }
        char *text = r == CLI_OK ? cJSON_PrintUnformatted(j) : NULL;
        if (text != NULL) {
            fputs(text, out);
        }
        cJSON_free(text);
        cJSON_Delete(j);
    }
    cli_progress_end();
    cli_session_close(&s.session);
    cli_picture_free(&s.picture);
    cli_picture_free(&s.result);
    cli_array_free(&s.latent);
    free(s.weights);
    return r;
}
