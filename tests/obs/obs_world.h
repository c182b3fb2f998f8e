/* obs_world.h - a small OBS: real libobs with software OpenGL on a virtual display, one scene on a canvas, whose frames come
 * back as bytes. */
#ifndef DAVY_TESTS_OBS_WORLD_H
#define DAVY_TESTS_OBS_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include <obs.h>

#include "abi/davy.h"

typedef struct world_frame {
    uint32_t width, height;
    uint8_t *pixels; /* BGRA, rows packed; of an HDR world P010: brightness, then colours, 16 bits each */
} world_frame;

/* false: no display, no libobs graphics: the tests are skipped. */
bool world_open(uint32_t width, uint32_t height, uint32_t fps, const char *module, const char *data);
/* The same with an HDR canvas: Rec. 2100, PQ, P010. */
bool world_open_hdr(uint32_t width, uint32_t height, uint32_t fps, const char *module, const char *data);
/* Frames a second from now on; before there are sources. */
bool world_rate(uint32_t fps);
/* Number of allocations of libobs's that are left. */
long world_close(void);

/* The folder that a test may fill, and a path in it; good until the next call. */
void world_folder(const char *path);
const char *world_file(const char *name);

/* Loads a module of OBS's own ("image-source"). */
bool world_module(const char *name);
/* What the output shows: the scene's source with everything in it. */
void world_show(obs_source_t *source);
/* The frame that is rendered `after` frames from now; world_frame_free. */
world_frame world_grab(int after);
void world_frame_free(world_frame *f);
uint64_t world_frames(void); /* handed out so far: where drawing is late, the last one once more */
uint64_t world_drawn(void);
void world_wait_frames(uint64_t more);

/* An image_source; the caller releases it. */
obs_source_t *world_image(const char *name, const char *file);
/* A color_source. */
obs_source_t *world_colour(const char *name, uint32_t abgr, uint32_t width, uint32_t height);
/* A source that draws another picture each frame, by itself, as captures do. */
obs_source_t *world_moving(const char *name, uint32_t width, uint32_t height);
/* One that shows these pixels: sRGB numbers, opaque; `scrolling`: further to the left each frame. */
obs_source_t *world_pixels(const char *name, const uint8_t *rgba, uint32_t width, uint32_t height, bool scrolling);
/* One that draws by itself, the same picture always, as captures of windows do; of size 0: there is nothing to see yet. */
obs_source_t *world_window(const char *name, uint32_t width, uint32_t height);
/* The same, of another width each frame, as a window is while somebody draws at its edge. */
obs_source_t *world_growing(const char *name, uint32_t width, uint32_t height);
/* One that shows the frames that obs_source_output_video gives it, as players do. */
obs_source_t *world_player(const char *name);
/* A filter on a source, settings as JSON (of which %s and %d are filled in); world_unfilter. */
obs_source_t *world_filter(obs_source_t *on, const char *id, const char *settings, ...)
    __attribute__((format(printf, 3, 4)));
void world_unfilter(obs_source_t *from, obs_source_t *filter);
/* The status line that the filter's dialog would show. */
void world_status(obs_source_t *filter, char *out, size_t bytes);

/* A number of the filter's procedure davy_get_status. */
long long world_number(obs_source_t *filter, const char *what);
/* Until it has shown so many results (which it tells once a second), or time is up. */
void world_wait_done(obs_source_t *filter, long long results, int seconds);

/* Presses the hotkey of that name and lets it go. false: there is none. */
bool world_press(const char *hotkey);

/* A pattern with edges, gradients and, where asked for, every alpha; as a PNG, too. */
void world_pattern(uint32_t width, uint32_t height, bool alpha, uint8_t *rgba);
bool world_picture(const char *path, uint32_t width, uint32_t height, bool alpha, uint8_t *rgba);
/* A network of three channels that adds `brighter` (1: all of it) to each number; of zero it changes nothing. */
bool world_network(const char *path, float brighter);
/* RGBA in host memory: bytes, or floats. */
davy_tensor world_rgba(void *pixels, bool floats, uint32_t width, uint32_t height);
/* What davy itself makes of such pixels. model: a file, or the name of a shipped one. */
bool world_davy(const char *device, const char *model, const char *precision, davy_tensor in, davy_tensor out);
/* The colours in the canvas's corner and those of `rgba`: the largest difference, and the share that differs by more than 1. */
int world_compare(const world_frame *f, const uint8_t *rgba, uint32_t width, uint32_t height, double *share);
/* The largest difference, and the share of bytes that differ by more than `within`. */
int world_difference(const world_frame *a, const world_frame *b, int within, double *share);
bool world_save(const char *path, const world_frame *f);

#endif
