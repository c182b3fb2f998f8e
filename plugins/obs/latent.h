/* latent.h - the last latent of a VAE filter, lent to whoever asks: davy's own buffer, never copied. */
#ifndef DAVY_OBS_LATENT_H
#define DAVY_OBS_LATENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "abi/davy.h"
#include "sync.h"

typedef struct latent {
    davy_tensor tensor; /* first: what borrowers have is a pointer to it. F32, HWC, packed; `data` lies in `buffer` */
    atomic_int holders;
    const davy_api *api;
    float scale, shift; /* what a diffusion model sees is (number - shift) * scale; scale 0: not known */
    uint64_t frame;     /* of the filter's frames */
    uint64_t ns;        /* when it was made */
} latent;

typedef struct latent_shelf {
    plugin_lock lock; /* of `last`: to exchange it or to take hold of it */
    latent *last;
} latent_shelf;

void latent_shelf_open(latent_shelf *s);
void latent_shelf_close(latent_shelf *s);
/* The shelf's from here, in place of the one before. */
void latent_put(latent_shelf *s, latent *l);
/* NULL: there is none yet; latent_return. */
latent *latent_borrow(latent_shelf *s);
void latent_return(latent *l);

#endif
