/* fake_obs.h - declarations for the parts of the mock obs.dll. Its pictures are in memory. With FAKE_OBS_D3D11 they are also textures of a
 * Direct3D device, and the textures then have the current pixels. */
#ifndef DAVY_TESTS_FAKE_OBS_H
#define DAVY_TESTS_FAKE_OBS_H

#include <stdbool.h>
#include <stdint.h>

#define API __declspec(dllexport)

typedef struct picture { /* a texture, a target or a stage */
    uint32_t width, height;
    int format;
    uint8_t *pixels;
    void *texture;        /* ID3D11Texture2D, or NULL */
    struct picture *next; /* in the list of all pictures */
} picture;

extern picture *pictures;
extern picture *target; /* the render target; NULL: the screen */

/* fake_obs_d3d11.c. All functions do nothing without a device. */
bool d3d11_open(void);
void *d3d11_device(void);
void d3d11_make(picture *p); /* creates its texture with its pixels */
void d3d11_discard(picture *p);
void d3d11_store(const picture *p); /* copies pixels to the texture */
void d3d11_load(picture *p);        /* copies them back */
/* Replaces the device. All textures are empty afterwards, as after a reset of the driver. */
bool d3d11_change(void);

#endif
