/* vendor.h - the requests about filters that vendor_filters.c answers for vendor.c. Any thread but the graphics thread. */
#ifndef DAVY_OBS_VENDOR_H
#define DAVY_OBS_VENDOR_H

#include <obs-module.h>

/* Sets "filters" to the status of all davy filters. */
void vendor_filters_status(obs_data_t *response);
/* The latent of a VAE filter. `source` is the name of the filter or of its source ("": any); the first filter with a latent wins. */
void vendor_filters_latent(const char *source, obs_data_t *response);

#endif
