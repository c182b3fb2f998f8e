/* threads_host.h - shared by the tests with several threads. */
#ifndef DV_TESTS_THREADS_HOST_H
#define DV_TESTS_THREADS_HOST_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/hosts/host.h"

extern const davy_api *api;
extern synth_file file;

davy_context *new_context(int32_t threads);
davy_model *new_model(davy_context *ctx);
int same(const picture *a, const picture *b);

#endif
