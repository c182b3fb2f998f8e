/* resample.h - pictures to another size with a Lanczos-3 filter, widened when shrinking so that nothing aliases. Works
 * on the stored (gamma-coded) numbers as picture programs do; transparent pixels do not bleed into opaque ones. */
#ifndef DAVY_CLI_RESAMPLE_H
#define DAVY_CLI_RESAMPLE_H

#include "plugins/cli/pictures/picture.h"

/* `out` gets width x height pixels; colour information stays with `in`. 0; -1: out of memory; 1: interrupted. */
int cli_resample(const cli_picture *in, uint32_t width, uint32_t height, cli_picture *out);

#endif
