/* resample.h - resizes pictures with a Lanczos-3 filter, widened for shrinking to avoid aliasing. It filters the stored
 * (gamma-coded) values, as picture programs do. Transparent pixels do not bleed into opaque ones. */
#ifndef DAVY_CLI_RESAMPLE_H
#define DAVY_CLI_RESAMPLE_H

#include "plugins/cli/pictures/picture.h"

/* Makes `out` of width x height pixels, without the colour description. Returns 0; -1: out of memory; 1: interrupted. */
int cli_resample(const cli_picture *in, uint32_t width, uint32_t height, cli_picture *out);

#endif
