/* subject.h - the data of a benchmark case: a model, an input of noise and a result, in host memory and, if a GPU computes, in
 * GPU memory. */
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
    davy_buffer *in_device; /* input and result in GPU memory; NULL on a CPU */
    davy_buffer *out_device;
    int device;
    davy_run run;
    davy_plan_info plan;
} bench_subject;

/* The name of the shipped model of an architecture; NULL: none. */
const char *bench_shipped(bench_arch arch);

/* The caller has set c and run. open prints its failure; close takes a subject in any state. */
int bench_open(bench_subject *s, const cli_args *a);
void bench_close(bench_subject *s);

/* One run: bench_run with pictures on the computing device, in_host with pictures in host memory, ordered on the host's GPU
 * stream. */
davy_result bench_run(const bench_subject *s);
davy_result bench_run_in_host(const bench_subject *s);
davy_result bench_run_ordered(const bench_subject *s);

#endif
