/* latent.h - the last latent of a VAE filter, which other modules can borrow. It is davy's own buffer and is never copied. */
#ifndef DAVY_OBS_LATENT_H
#define DAVY_OBS_LATENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "abi/davy.h"
#include "sync.h"

typedef struct latent {
    davy_tensor tensor; /* must be first: borrowers get a pointer to it. F32, HWC, packed; `data` is in `buffer` */
    atomic_int holders;
    const davy_api *api;
    float scale, shift; /* a diffusion model sees (number - shift) * scale; scale 0: unknown */
    uint64_t frame;     /* number of the filter's frame */
    uint64_t ns;        /* time of the computation, as plugin_now_ns counts */
} latent;

typedef struct latent_shelf {
    plugin_lock lock; /* guards `last` */
    latent *last;
} latent_shelf;

void latent_shelf_open(latent_shelf *s);
void latent_shelf_close(latent_shelf *s);
/* Replaces the shelf's latent. The shelf takes over l. */
void latent_put(latent_shelf *s, latent *l);
/* Borrows the latent; NULL: none yet. The borrower gives it back with latent_return. */
latent *latent_borrow(latent_shelf *s);
void latent_return(latent *l);

#endif
