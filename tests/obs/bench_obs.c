/* bench_obs.c - how many pictures a second the upscaling filter makes of a moving source in real libobs, and what it takes of
 * the thread that draws. usage: bench_obs MODULE DATA MODEL WIDTH HEIGHT SCALE SECONDS [PRECISION] */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <util/platform.h>
#include <util/profiler.h>

#include "obs_world.h"

/* Seconds of processor time that davy's threads have had: on a busy machine this says more than time does. */
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

int main(int argc, char **argv) {
    if (argc < 8) {
        fprintf(stderr, "usage: bench_obs MODULE DATA MODEL WIDTH HEIGHT SCALE SECONDS [PRECISION]\n");
        return 2;
    }
    const uint32_t width = (uint32_t)atoi(argv[4]);
    const uint32_t height = (uint32_t)atoi(argv[5]);
    const uint32_t scale = (uint32_t)atoi(argv[6]);
    const uint32_t seconds = (uint32_t)atoi(argv[7]);
    profiler_start();
    if (!world_open(width * scale, height * scale, 60, argv[1], argv[2])) {
        printf("no display or no OBS here\n");
        return 0;
    }
    obs_source_t *source = world_moving("moving", width, height);
    obs_source_t *filter = world_filter(source, "davy_upscale_filter",
                                        "{\"model\":\"%s\",\"scale\":%u,\"budget_ms\":1000000,\"precision\":\"%s\"}",
                                        argv[3], (unsigned)scale, argc > 8 ? argv[8] : "auto");
    char status[700] = "";
    world_show(source);
    for (int i = 0; i < 1200 && world_number(filter, "done") < 2; i++) {
        os_sleep_ms(50);
    }
    const long long before = world_number(filter, "done");
    const double processor = processor_seconds();
    const uint64_t frames = world_frames();
    const uint64_t start = os_gettime_ns();
    os_sleep_ms(seconds * 1000);
    for (int i = 0; i < 4800 && world_number(filter, "done") < before + 2; i++) { /* where one takes longer */
        os_sleep_ms(50);
    }
    os_sleep_ms(1100); /* numbers are told once a second */
    const double used = processor_seconds() - processor;
    const double took = (double)(os_gettime_ns() - start) / 1e9;
    const long long done = world_number(filter, "done") - before;
    world_status(filter, status, sizeof status);
    printf("%s\n%ux%u x%u: %.2f pictures a second of %.1f that OBS drew, %.1f ms for one, %.3f s of a processor\n",
           status, (unsigned)width, (unsigned)height, (unsigned)scale, (double)done / took,
           (double)(world_frames() - frames) / took, (double)world_number(filter, "last_us") / 1000.0,
           done > 0 ? used / (double)done : 0.0);
    world_unfilter(source, filter);
    world_show(NULL);
    obs_source_release(source);
    profiler_stop();
    profiler_snapshot_t *snap = profile_snapshot_create();
    profiler_print(snap);
    profile_snapshot_free(snap);
    profiler_free();
    const long left = world_close();
    printf("libobs counts %ld allocations that are left\n", left);
    return left != 0;
}
