/* all_modules.c - see all_modules.h. */
#include "tests/cuda/all_modules.h"

#include <string.h>

#include "tests/lib/hooks.h"

static const unsigned char nothing[] = "nothing";
static char names[] = DV_MODULES;
static dvk_cuda_module modules[sizeof names / 2]; /* a name and its comma take at least two characters */

void use_all_modules(void) {
    int32_t n = 0;
    for (char *name = strtok(names, ","); name != NULL; name = strtok(NULL, ",")) {
        modules[n++] = (dvk_cuda_module){name, nothing, nothing + sizeof nothing};
    }
    dv_gpu_use_modules(modules, n);
}
