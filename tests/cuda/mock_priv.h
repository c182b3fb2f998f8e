/* mock_priv.h - declarations shared by the files of the mock. */
#ifndef MOCK_PRIV_H
#define MOCK_PRIV_H

#include <stdbool.h>
#include <stddef.h>

#include "core/cuda/driver.h"
#include "tests/cuda/mock_driver.h"

#define MOCK_EXPORT __attribute__((visibility("default")))

struct CUmod_st {
    char name[32];
};

struct CUfunc_st {
    struct CUmod_st *module;
    char name[64];
    int dynamic_shared;
    struct CUfunc_st *next;
};

typedef struct step {
    enum { COPY, COPY_2D, CLEAR, LAUNCH, WAIT } kind;
    cu_address dst, src;
    size_t bytes;
    unsigned char value;
    cu_copy_2d copy;
    mock_launch launch;
    void (*call)(void *argument); /* LAUNCH of "host_call": the host function */
    void *argument;
    cu_stream stream; /* WAIT */
    int64_t until;
} step;

typedef struct steps {
    step *at;
    int64_t n, room;
} steps;

struct CUstream_st {
    steps pending;
    int64_t done;      /* finished steps of `pending` */
    int64_t mode;      /* capturing: its mode + 1 */
    bool broken;       /* the capture will fail */
    cu_stream capture; /* the capturing stream that this one waits for; its work is captured, too */
    cu_stream next;
};

struct CUevent_st {
    cu_stream stream;
    int64_t until;
    double device_ms;
    bool timing;
    cu_event next;
};

extern mock_state mock_it;
void mock_lock(void);
void mock_unlock(void);
/* Returns the sticky error, the error for a missing context, or 0. With 0 it has taken the lock. */
cu_result mock_enter(void);
cu_result mock_leave(cu_result r);
int mock_current_device(void); /* of the calling thread, which has a context */
/* NULL, 1 and 2 name one stream. */
cu_stream mock_stream_of(cu_stream s);
void mock_run_until(cu_stream s, int64_t until);

#endif
