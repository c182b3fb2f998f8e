/* obs_world.h - a small OBS for tests: real libobs with software OpenGL on a virtual display. It shows one source on a canvas and
 * returns the rendered frames as bytes. */
#ifndef DAVY_TESTS_OBS_WORLD_H
#define DAVY_TESTS_OBS_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include <obs.h>

#include "abi/davy.h"

typedef struct world_frame {
    uint32_t width, height;
    uint8_t *pixels; /* BGRA, rows packed. HDR: P010, a plane of luma and a plane of chroma, 16 bits a value */
} world_frame;

/* Starts libobs and loads the module. false: no display or no graphics; the tests are skipped. */
bool world_open(uint32_t width, uint32_t height, uint32_t fps, const char *module, const char *data);
/* The same with an HDR canvas: Rec. 2100, PQ, P010. */
bool world_open_hdr(uint32_t width, uint32_t height, uint32_t fps, const char *module, const char *data);
/* Changes the frame rate. Only before sources are created. */
bool world_rate(uint32_t fps);
/* Stops libobs. Returns the number of its leaked allocations. */
long world_close(void);

/* Sets the folder for the test's files. world_file returns a path in it, valid until the next call. */
void world_folder(const char *path);
const char *world_file(const char *name);

/* Loads one of OBS's own modules, such as "image-source". */
bool world_module(const char *name);
/* Sets the source that the output shows. */
void world_show(obs_source_t *source);
/* Returns the frame that is rendered `after` frames from now. The caller frees it with world_frame_free. */
world_frame world_grab(int after);
void world_frame_free(world_frame *f);
uint64_t world_frames(void); /* frames output so far; if drawing is late, OBS outputs the last frame again */
uint64_t world_drawn(void);
void world_wait_frames(uint64_t more);

/* An image_source. The caller releases it, like all sources below. */
obs_source_t *world_image(const char *name, const char *file);
/* A color_source. */
obs_source_t *world_colour(const char *name, uint32_t abgr, uint32_t width, uint32_t height);
/* A source that draws a new picture in each frame, as captures do. */
obs_source_t *world_moving(const char *name, uint32_t width, uint32_t height);
/* A source that shows these pixels: sRGB, opaque. scrolling: the picture moves to the left in each frame. */
obs_source_t *world_pixels(const char *name, const uint8_t *rgba, uint32_t width, uint32_t height, bool scrolling);
/* A source that draws the same picture in each frame, as captures of windows do. Size 0: it has nothing to show yet. */
obs_source_t *world_window(const char *name, uint32_t width, uint32_t height);
/* The same with a new width in each frame, as a window that is being resized. */
obs_source_t *world_growing(const char *name, uint32_t width, uint32_t height);
/* A source that shows the frames of obs_source_output_video, as players do. */
obs_source_t *world_player(const char *name);
/* Adds a filter to a source. settings: JSON, formatted like printf. Remove it with world_unfilter. */
obs_source_t *world_filter(obs_source_t *on, const char *id, const char *settings, ...)
    __attribute__((format(printf, 3, 4)));
void world_unfilter(obs_source_t *from, obs_source_t *filter);
/* Copies the status line of the filter's dialog. */
void world_status(obs_source_t *filter, char *out, size_t bytes);

/* A number of the filter's procedure davy_get_status. */
long long world_number(obs_source_t *filter, const char *what);
/* Waits until the filter has shown so many results, or until the time is up. The filter updates its count once a second. */
void world_wait_done(obs_source_t *filter, long long results, int seconds);

/* Presses and releases the hotkey of that name. false: no such hotkey. */
bool world_press(const char *hotkey);

/* A pattern with edges and gradients. alpha: with all alpha values. world_picture also writes it as a PNG file. */
void world_pattern(uint32_t width, uint32_t height, bool alpha, uint8_t *rgba);
bool world_picture(const char *path, uint32_t width, uint32_t height, bool alpha, uint8_t *rgba);
/* Writes a network that adds `brighter` (1: the full range) to each value. 0 makes an identity. */
bool world_network(const char *path, float brighter);
/* RGBA in host memory: bytes, or floats. */
davy_tensor world_rgba(void *pixels, bool floats, uint32_t width, uint32_t height);
/* Upscales with davy itself. model: a file, or the name of a shipped model. */
bool world_davy(const char *device, const char *model, const char *precision, davy_tensor in, davy_tensor out);
/* Compares the canvas's upper left corner with `rgba`. Returns the largest difference; share: of values that differ by more than 1. */
int world_compare(const world_frame *f, const uint8_t *rgba, uint32_t width, uint32_t height, double *share);
/* Returns the largest difference of two frames; share: of bytes that differ by more than `within`. */
int world_difference(const world_frame *a, const world_frame *b, int within, double *share);
bool world_save(const char *path, const world_frame *f);

#endif
