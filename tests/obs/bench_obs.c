/* bench_obs.c - measures pictures a second of a filter on a moving source in real libobs, and the load on the drawing thread. With
 * "check" it first shows a still picture and compares the upscaling filter's result with davy's.
 * usage: bench_obs MODULE DATA MODEL WIDTH HEIGHT SCALE SECONDS [PRECISION [FPS [check]]]   MODEL vae:FILE: the VAE filter */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <util/platform.h>
#include <util/profiler.h>

#include "obs_world.h"

/* CPU seconds of davy's threads. On a busy machine they are a better measure than elapsed time. */
static double processor_seconds(void) {
    double ticks = 0.0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *d = NULL; tasks != NULL && (d = readdir(tasks)) != NULL;) {
        char path[300];
        char name[64] = "";
        double user = 0.0;
        double system = 0.0;
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", d->d_name);
        FILE *f = fopen(path, "r");
        if (f != NULL &&
            fscanf(f, "%*d (%63[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lf %lf", name, &user, &system) == 3 &&
            strncmp(name, "davy", 4) == 0) {
            ticks += user + system;
        }
        if (f != NULL) {
            fclose(f);
        }
    }
    if (tasks != NULL) {
        closedir(tasks);
    }
    return ticks / (double)sysconf(_SC_CLK_TCK);
}

typedef struct bench {
    const char *model, *precision;
    bool vae;
    uint32_t width, height, scale, seconds, fps;
} bench;

static obs_source_t *filtered(const bench *b, obs_source_t *source) {
    return world_filter(source, b->vae ? "davy_vae_filter" : "davy_upscale_filter",
                        "{\"model\":\"%s\",\"scale\":%u,\"budget_ms\":1000000,\"precision\":\"%s\"}", b->model,
                        (unsigned)b->scale, b->precision);
}

static void measure(const bench *b) {
    uint8_t *rgba = malloc((size_t)b->width * b->height * 4);
    if (rgba == NULL) {
        return;
    }
    world_pattern(b->width, b->height, false, rgba);
    obs_source_t *source = world_pixels("moving", rgba, b->width, b->height, true);
    free(rgba);
    obs_source_t *filter = filtered(b, source);
    char status[700] = "";
    world_show(source);
    world_wait_done(filter, 2, 60);
    const long long before = world_number(filter, "done");
    const long long dropped = world_number(filter, "dropped");
    const double processor = processor_seconds();
    const uint64_t frames = world_drawn();
    const uint64_t start = os_gettime_ns();
    os_sleep_ms(b->seconds * 1000);
    world_wait_done(filter, before + 2, 240); /* for slow models */
    os_sleep_ms(1100);                        /* the filter updates its numbers once a second */
    const double used = processor_seconds() - processor;
    const double took = (double)(os_gettime_ns() - start) / 1e9;
    const long long done = world_number(filter, "done") - before;
    world_status(filter, status, sizeof status);
    printf("%s\n%ux%u x%u: %.2f pictures a second of %.1f that OBS drew, %lld dropped, %.1f ms each, %.3f CPU seconds "
           "each\n",
           status, (unsigned)b->width, (unsigned)b->height, (unsigned)b->scale, (double)done / took,
           (double)(world_drawn() - frames) / took, world_number(filter, "dropped") - dropped,
           (double)world_number(filter, "last_us") / 1000.0, done > 0 ? used / (double)done : 0.0);
    world_unfilter(source, filter);
    world_show(NULL);
    obs_source_release(source);
}

/* Whether the filter shows davy's result for a still picture. */
static bool check(const bench *b) {
    const size_t pixels = (size_t)b->width * b->height;
    uint8_t *rgba = malloc(pixels * 4);
    uint8_t *want = malloc(pixels * 4 * b->scale * b->scale);
    bool same = rgba != NULL && want != NULL;
    if (same) {
        double share = 1.0;
        world_pattern(b->width, b->height, false, rgba);
        same = world_davy("auto", b->model, b->precision, world_rgba(rgba, false, b->width, b->height),
                          world_rgba(want, false, b->width * b->scale, b->height * b->scale));
        obs_source_t *source = world_pixels("still", rgba, b->width, b->height, false);
        obs_source_t *filter = filtered(b, source);
        world_show(source);
        world_wait_done(filter, 1, 120);
        world_frame shown = world_grab(12);
        const int worst = world_compare(&shown, want, b->width * b->scale, b->height * b->scale, &share);
        printf("%ux%u x%u: %.4f %% of the values differ from davy's by more than 1, at most by %d%s\n",
               (unsigned)b->width, (unsigned)b->height, (unsigned)b->scale, 100.0 * share, worst,
               same ? "" : " (davy failed)");
        same = same && share <= 0.001;
        world_frame_free(&shown);
        world_unfilter(source, filter);
        world_show(NULL);
        obs_source_release(source);
    }
    free(rgba);
    free(want);
    return same;
}

int main(int argc, char **argv) {
    if (argc < 8) {
        fprintf(stderr, "usage: bench_obs MODULE DATA MODEL WIDTH HEIGHT SCALE SECONDS [PRECISION [FPS [check]]]\n");
        return 2;
    }
    bench b = {.vae = strncmp(argv[3], "vae:", 4) == 0,
               .width = (uint32_t)atoi(argv[4]),
               .height = (uint32_t)atoi(argv[5]),
               .scale = (uint32_t)atoi(argv[6]),
               .seconds = (uint32_t)atoi(argv[7]),
               .precision = argc > 8 ? argv[8] : "auto",
               .fps = argc > 9 ? (uint32_t)atoi(argv[9]) : 60};
    b.model = argv[3] + (b.vae ? 4 : 0);
    profiler_start();
    if (!world_open(b.width * b.scale, b.height * b.scale, b.fps, argv[1], argv[2])) {
        printf("skipped: no display or no OBS\n");
        return 0;
    }
    const bool same = argc <= 10 || check(&b);
    measure(&b);
    profiler_stop();
    profiler_snapshot_t *snap = profile_snapshot_create();
    profiler_print(snap);
    profile_snapshot_free(snap);
    profiler_free();
    const long left = world_close();
    printf("libobs counts %ld leaked allocations\n", left);
    return left != 0 || !same;
}
