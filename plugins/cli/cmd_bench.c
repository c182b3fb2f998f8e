/* cmd_bench.c - davy bench: runs cases one after another, saves the results and compares them with saved ones. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/bench/bench.h"
#include "plugins/cli/commands.h"
#include "plugins/cli/outfile.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"

static const char *const on_cpu[] = {
    "upscale-live4-640x360-fp32",   "upscale-live4-640x360-bf16",   "upscale-live2-640x360-fp32",
    "upscale-compact-640x360-fp32", "upscale-compact-640x360-bf16", "upscale-rrdb-128x128-fp32",
    "upscale-rrdb-128x128-bf16",    "decode-taesd-512x512-fp32",    "decode-taesd-512x512-bf16",
    "encode-taesd-512x512-fp32",    "decode-sdxl-256x256-fp32",     "decode-sdxl-256x256-bf16",
    "encode-sdxl-256x256-fp32",
};

static const char *const on_gpu[] = {
    "decode-vae_kl-1024-bf16",    "encode-vae_kl-1024-bf16",      "decode-vae_tae-1080p-fp16",
    "upscale-compact-720p-fp16",  "upscale-compact16-720p-fp16",  "upscale-span-1080p-fp16",
    "upscale-rrdb-512-fp16",      "upscale-live2-1080p-fp16",     "upscale-live4-720p-fp16",
    "upscale-drct-64x64x16-bf16", "upscale-swinir-64x64x16-bf16",
};

/* A comparison fails above this ratio of times. */
static const double slower = 1.10;

typedef struct job {
    const cli_args *args;
    const bench_case *c;
} job;

static int in_child(void *user, FILE *out) {
    const job *j = user;
    return bench_measure(j->args, j->c, out);
}

static double number(const cJSON *object, const char *name) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(v) ? v->valuedouble : 0.0;
}

static const char *word(const cJSON *object, const char *name) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsString(v) ? v->valuestring : "";
}

/* Reads saved results: one JSON object per line. NULL: failed, the error is printed. */
static cJSON *read_lines(const char *path) {
    if (cli_path_kind_of(path) == CLI_PATH_FOLDER || cli_path_kind_of(path) == CLI_PATH_OTHER) {
        cli_fail(path, "is not a file of saved results; name a file that --save wrote");
        return NULL;
    }
    FILE *f = cli_open_read(path);
    if (f == NULL) {
        cli_fail(path, "cannot be read: %s", strerror(errno));
        return NULL;
    }
    long end = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    rewind(f);
    char *text = end >= 0 ? malloc((size_t)end + 1) : NULL;
    const size_t n = text != NULL ? fread(text, 1, (size_t)end, f) : 0;
    fclose(f);
    cJSON *list = cJSON_CreateArray();
    if (text == NULL || list == NULL) {
        free(text);
        cJSON_Delete(list);
        cli_fail(path, "out of memory");
        return NULL;
    }
    text[n] = 0;
    for (char *line = text; *line != 0;) {
        char *next = line + strcspn(line, "\n");
        const size_t length = (size_t)(next - line);
        cJSON *item = length > 0 ? cJSON_ParseWithLength(line, length) : NULL;
        if (length > 0 && !cJSON_IsObject(item)) {
            cJSON_Delete(item);
            cJSON_Delete(list);
            free(text);
            cli_fail(path, "is not a file of saved results; name a file that --save wrote");
            return NULL;
        }
        if (item != NULL) {
            cJSON_AddItemToArray(list, item);
        }
        line = next + (*next == '\n');
    }
    free(text);
    return list;
}

/* The last saved result of a case. */
static const cJSON *find_case(const cJSON *list, const char *name) {
    const cJSON *found = NULL;
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, list) {
        if (strcmp(word(item, "case"), name) == 0) {
            found = item;
        }
    }
    return found;
}

/* Prints the comparison and returns whether the case became slower. */
static int compare(const cli_args *a, const cJSON *old, const cJSON *now) {
    const char *name = word(now, "case");
    const cJSON *before = find_case(old, name);
    const double was = before != NULL ? number(before, "median_ms") : 0.0;
    if (was <= 0.0) {
        cli_note(a->compare, "has no result of %s; it is not compared", name);
        return 0;
    }
    if (strcmp(word(before, "machine"), word(now, "machine")) != 0) {
        cli_note(a->compare, "%s was measured on another machine: %s", name, word(before, "machine"));
    }
    const char *device = word(before, "device_name"); /* older versions saved none */
    if (device[0] != 0 && strcmp(device, word(now, "device_name")) != 0) {
        cli_note(a->compare, "%s was measured on another device: %s", name, device);
    }
    const double ratio = number(now, "median_ms") / was;
    if (!a->json) {
        printf("%-34s %9.1f ms before, ratio %.3f%s\n", "", was, ratio, ratio > slower ? "  SLOWER" : "");
    }
    return ratio > slower;
}

static void print_result(const cli_args *a, const cJSON *j, const char *line) {
    if (a->json) {
        printf("%s\n", line);
    } else {
        const double host = number(j, "host_ms"); /* on a GPU only */
        if (host > 0.0) {
            printf("%-34s %9.3f ms  (%.3f to %.3f, %.0f runs; %.2f from and to host memory)  %7.1f TFLOP/s  %6.0f MiB "
                   "on %s\n",
                   word(j, "case"), number(j, "median_ms"), number(j, "min_ms"), number(j, "max_ms"), number(j, "runs"),
                   host, number(j, "gflop_s") * 1e-3, number(j, "device_peak_bytes") / 1048576.0, word(j, "device"));
        } else {
            printf("%-34s %9.1f ms  (%.1f to %.1f, %.0f runs)  %7.1f GFLOP/s  %6.0f MiB\n", word(j, "case"),
                   number(j, "median_ms"), number(j, "min_ms"), number(j, "max_ms"), number(j, "runs"),
                   number(j, "gflop_s"), number(j, "peak_bytes") / 1048576.0);
        }
        if (a->profile) {
            bench_print_profile(cJSON_GetObjectItemCaseSensitive(j, "profile"), number(j, "profile_runs"), a->peak);
        }
    }
    fflush(stdout);
}

/* Runs all cases. *slow: number of cases that became slower. save: receives the result lines, or NULL. */
static int run_cases(const cli_args *a, const bench_case *cases, size_t n, const cJSON *old, FILE *save, size_t *slow) {
    int result = CLI_OK;
    for (size_t i = 0; i < n && !cli_interrupted(); i++) {
        job j = {a, &cases[i]};
        char *line = NULL;
        const int r = cli_isolated(in_child, &j, &line);
        cJSON *parsed = r == CLI_OK && line != NULL ? cJSON_Parse(line) : NULL;
        if (r < 0) {
            result = cli_fail(cases[i].name, "the measuring process died");
        } else if (parsed == NULL) {
            result = r != CLI_OK ? r : cli_fail(cases[i].name, "the measuring process returned no result");
        } else {
            print_result(a, parsed, line);
            *slow += old != NULL && compare(a, old, parsed);
            if (save != NULL) {
                fprintf(save, "%s\n", line);
            }
        }
        cJSON_Delete(parsed);
        free(line);
    }
    return cli_interrupted() && result <= CLI_USAGE ? cli_stopped("bench") : result;
}

static int bench_all(const cli_args *a, const bench_case *cases, size_t n) {
    cli_outfile o = {0};
    size_t slow = 0;
    cJSON *old = NULL;
    if (a->compare != NULL) {
        old = read_lines(a->compare);
        if (old == NULL) {
            return CLI_FAILED;
        }
    }
    int r = a->save != NULL ? cli_outfile_open(&o, a->save) : CLI_OK;
    if (r == CLI_OK) {
        r = run_cases(a, cases, n, old, o.f, &slow);
        if (a->save != NULL && r > CLI_USAGE) {
            cli_outfile_abandon(&o);
        } else if (a->save != NULL) {
            /* results are kept even if another case failed */
            const int saved = cli_outfile_commit(&o, a->save);
            r = r == CLI_OK ? saved : r;
        }
    }
    cJSON_Delete(old);
    if (r == CLI_OK && slow > 0) {
        r = cli_fail(a->compare, "%zu of %zu cases are more than 10 %% slower now", slow, n);
    }
    return r;
}

static int where_in_child(void *user, FILE *out) {
    const cli_args *a = user;
    return bench_where(a, out);
}

/* The standard cases for the device that will compute. A child process asks for the device, because an opened GPU driver does
 * not survive the fork into the measuring processes. */
static int standard_cases(const cli_args *a, const char *const **names, size_t *n) {
    cli_args copy = *a;
    char *where = NULL;
    const int r = cli_isolated(where_in_child, &copy, &where);
    const int gpu = where != NULL && strcmp(where, "gpu") == 0;
    free(where);
    *names = gpu ? on_gpu : on_cpu;
    *n = gpu ? sizeof on_gpu / sizeof on_gpu[0] : sizeof on_cpu / sizeof on_cpu[0];
    return r < 0 ? cli_fail("bench", "the process that looks for the device died") : r;
}

int cli_bench(const cli_args *a) {
    const char *const *names = a->inputs;
    size_t n = (size_t)a->n_inputs;
    int r = n > 0 ? CLI_OK : standard_cases(a, &names, &n);
    bench_case *cases = r == CLI_OK ? calloc(n, sizeof *cases) : NULL;
    if (cases == NULL) {
        return r != CLI_OK ? r : cli_fail("bench", "out of memory");
    }
    for (size_t i = 0; i < n; i++) {
        if (bench_case_parse(names[i], &cases[i]) != 0) {
            free(cases);
            return cli_usage(names[i],
                             "unknown case; a name looks like upscale-compact-640x360-fp32, see davy bench --help");
        }
    }
    r = bench_all(a, cases, n);
    free(cases);
    return r;
}
