/* subject.h - what a case of davy bench runs on: a model, an input of noise and room for the result, in host memory
 * and, where a GPU computes, in its memory. */
#ifndef DAVY_CLI_BENCH_SUBJECT_H
#define DAVY_CLI_BENCH_SUBJECT_H

#include "plugins/cli/bench/bench.h"
#include "plugins/cli/session.h"

typedef struct bench_subject {
    const bench_case *c;
    cli_session session;
    void *weights;
    cli_picture picture;
    cli_picture result;
    cli_array latent;
    davy_buffer *in_device; /* on a GPU the input and the result lie there */
    davy_buffer *out_device;
    int device;
    davy_run run;
    davy_plan_info plan;
} bench_subject;

/* The shipped model of an architecture; NULL: it has none. */
const char *bench_shipped(bench_arch arch);

/* c and run are set. open prints its failure; close takes a subject in any state. */
int bench_open(bench_subject *s, const cli_args *a);
void bench_close(bench_subject *s);

/* One run: where the pictures are; always from and to host memory; as a host of a GPU does it, on its own stream. */
davy_result bench_run(const bench_subject *s);
davy_result bench_run_in_host(const bench_subject *s);
davy_result bench_run_ordered(const bench_subject *s);

#endif
