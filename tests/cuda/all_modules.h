/* all_modules.h - every module of the build, by name; the mock finds any function in any module. */
#ifndef DV_TESTS_ALL_MODULES_H
#define DV_TESTS_ALL_MODULES_H

#include <string.h>

#include "kernels/cuda/cuda.h"

static const unsigned char nothing[] = "nothing";
static char module_names[] = DV_MODULES;
static dvk_cuda_module modules[sizeof module_names / 2]; /* a name and its comma are two at least */

static int32_t list_modules(void) {
    int32_t n = 0;
    for (char *name = strtok(module_names, ","); name != NULL; name = strtok(NULL, ",")) {
        modules[n++] = (dvk_cuda_module){name, nothing, nothing + sizeof nothing};
    }
    return n;
}

#endif
