/* probe.c - the picture part of captioning for scripts: reads 8-bit pixels from stdin, writes the library's result to stdout.
 * compare_pictures.py compares it with Pillow and transformers. Usage:
 *
 *     probe resize FILTER W H TO_W TO_H [X0 Y0 X1 Y1]      RGB to RGB
 *     probe white W H                                      RGBA to RGB
 *     probe prepare FOLDER W H FRAMES PIXELS TILES         RGB to a line of numbers (tiles rows cols grid_t grid_h grid_w
 *                                                          patches values tokens) and float32 patches; FRAMES 0: a still */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/vlm/picture.h"
#include "kernels/kernel.h"

static int fail(void) {
    davy_error_info e = {.struct_size = sizeof e};
    dv_error_get(&e);
    fprintf(stderr, "%s\n", e.message);
    return 1;
}

static uint8_t *read_bytes(int64_t n) {
    uint8_t *p = dv_calloc((uint64_t)n, 1);
    if (p == NULL || fread(p, 1, (size_t)n, stdin) != (size_t)n) {
        fprintf(stderr, "expected %" PRId64 " bytes on stdin\n", n);
        exit(2);
    }
    return p;
}

static int resize(int argc, char **argv) {
    int64_t n[5];
    for (int i = 0; i < 5; i++) {
        n[i] = atoll(argv[i]);
    }
    float box[4];
    for (int i = 0; i < 4 && argc == 9; i++) {
        box[i] = strtof(argv[5 + i], NULL);
    }
    dv_rgb8 from = {.data = read_bytes(n[1] * n[2] * 3), .width = n[1], .height = n[2], .stride = 3 * n[1]};
    dv_rgb8 to = {0};
    dv_pool *pool = NULL;
    if (dv_picture_allocate(n[3], n[4], &to) < 0 || dv_pool_create(3, &pool) < 0) {
        return fail();
    }
    const dv_pil_options o = {
        .filter = (dv_pil_filter)n[0], .box = argc == 9 ? box : NULL, .pool = pool, .cpu = dvk_cpu_detect()};
    const davy_result r = dv_pil_resize(&o, &from, &to);
    if (r == DAVY_OK) {
        fwrite(to.data, 1, (size_t)(3 * n[3] * n[4]), stdout);
    }
    dv_picture_free(&from);
    dv_picture_free(&to);
    dv_pool_release(pool);
    return r < 0 ? fail() : 0;
}

static int white(char **argv) {
    const int64_t w = atoll(argv[0]);
    const int64_t h = atoll(argv[1]);
    uint8_t *rgba = read_bytes(4 * w * h);
    const dv_pixels p = {.dtype = DAVY_DTYPE_U8,
                         .channels = DAVY_CHANNELS_RGBA,
                         .range = DAVY_RANGE_FULL,
                         .n = 1,
                         .t = 1,
                         .h = h,
                         .w = w,
                         .c = 4,
                         .sh = 4 * w,
                         .sw = 4,
                         .sc = 1,
                         .data = (char *)rgba};
    dv_rgb8 rgb = {0};
    const davy_result r = dv_picture_load(&p, 0, &rgb);
    if (r == DAVY_OK) {
        fwrite(rgb.data, 1, (size_t)(3 * w * h), stdout);
    }
    dv_picture_free(&rgb);
    dv_free(rgba);
    return r < 0 ? fail() : 0;
}

static int prepare(char **argv) {
    dv_vlm_config c;
    dv_picture_plan p = {0};
    const int64_t w = atoll(argv[1]);
    const int64_t h = atoll(argv[2]);
    const int64_t frames = atoll(argv[3]);
    const dv_picture_options o = {.max_pixels = atoll(argv[4]), .max_tiles = atoll(argv[5])};
    davy_result r = dv_vlm_config_open(argv[0], &c);
    r = r < 0 ? r : dv_picture_plan_make(&c, &o, &(dv_picture_size){w, h, dv_max(frames, 0)}, &p);
    if (r < 0) {
        return fail();
    }
    const int64_t n = frames > 0 ? frames : 1;
    uint8_t *bytes = read_bytes(n * w * h * 3);
    dv_rgb8 *pictures = dv_calloc((uint64_t)n, sizeof *pictures);
    float *patches = dv_calloc((uint64_t)p.patches, (uint64_t)p.patch_values * sizeof *patches);
    dv_pool *pool = NULL;
    if (pictures == NULL || patches == NULL || dv_pool_create(2, &pool) < 0) {
        return fail();
    }
    for (int64_t i = 0; i < n; i++) {
        pictures[i] = (dv_rgb8){.data = bytes + i * w * h * 3, .width = w, .height = h, .stride = 3 * w};
    }
    const dv_picture_work work = {.pool = pool, .cpu = dvk_cpu_detect()};
    r = dv_picture_prepare(&c, &p, &work, pictures, patches);
    if (r == DAVY_OK) {
        printf("%" PRId64 " %d %d %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n", p.tiles,
               (int)p.rows, (int)p.cols, p.grid_t, p.grid_h, p.grid_w, p.patches, p.patch_values, p.tokens);
        fwrite(patches, sizeof *patches, (size_t)(p.patches * p.patch_values), stdout);
    }
    dv_pool_release(pool);
    dv_free(patches);
    dv_free(pictures);
    dv_free(bytes);
    return r < 0 ? fail() : 0;
}

int main(int argc, char **argv) {
    if (argc >= 7 && strcmp(argv[1], "resize") == 0) {
        return resize(argc - 2, argv + 2);
    }
    if (argc == 4 && strcmp(argv[1], "white") == 0) {
        return white(argv + 2);
    }
    if (argc == 8 && strcmp(argv[1], "prepare") == 0) {
        return prepare(argv + 2);
    }
    fprintf(stderr, "usage: see probe.c\n");
    return 2;
}
