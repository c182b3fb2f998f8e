/* fake_obs.h - what the played obs.dll is made of: its pictures lie in memory and, where FAKE_OBS_D3D11 is set, in textures of a
 * Direct3D device, which then hold what is true. */
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
    struct picture *next; /* of all there are */
} picture;

extern picture *pictures;
extern picture *target; /* what is drawn into; NULL: the screen */

/* fake_obs_d3d11.c; all do nothing where there is no device. */
bool d3d11_open(void);
void *d3d11_device(void);
void d3d11_make(picture *p); /* its texture, with its pixels */
void d3d11_discard(picture *p);
void d3d11_store(const picture *p); /* pixels to the texture */
void d3d11_load(picture *p);        /* and back */
/* Another device in place of this one: textures are empty, as after a driver's reset. */
bool d3d11_change(void);

#endif
