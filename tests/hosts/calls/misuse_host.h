/* misuse_host.h - a host that does everything wrong. Each call must answer the right error with a sentence, touch no output, and
 * leave the context as useful as before, which is tried after each group. */
#ifndef DV_TESTS_MISUSE_HOST_H
#define DV_TESTS_MISUSE_HOST_H

#include "tests/hosts/host.h"

enum { WIDTH = 24, HEIGHT = 16 };

extern const davy_api *api;
extern davy_context *ctx;
extern davy_model *model;
extern picture in, out;

/* An error of this code, with a message that was written for it. */
#define FAILS(call, want)                                                                                              \
    do {                                                                                                               \
        IS(call, want);                                                                                                \
        davy_error_info failed = {.struct_size = sizeof failed};                                                       \
        api->last_error(&failed);                                                                                      \
        CHECKF(failed.code == (want) && strlen(failed.message) >= 8, "%s: no sentence: \"%s\"", #call,                 \
               failed.message);                                                                                        \
    } while (0)

void still_useful(const char *after);

/* 0: there is nothing to misuse. */
int misuse_begin(void);

int misuse_end(void);

#endif
