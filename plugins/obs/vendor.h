/* vendor.h - what vendor.c asks vendor_filters.c. Any thread but the graphics thread. */
#ifndef DAVY_OBS_VENDOR_H
#define DAVY_OBS_VENDOR_H

#include <obs-module.h>

/* "filters": all there are. */
void vendor_filters_status(obs_data_t *response);
/* The latent of the first VAE filter of that name, or on a source of that name ("": any), that has one. */
void vendor_filters_latent(const char *source, obs_data_t *response);

#endif
