/* cuda_host.h - copies to a GPU and waits for it, so that davy bench can act as a host with pictures in GPU memory. The NVIDIA
 * driver is opened at run time. index: as in cuda:N; the device's primary context must exist. Results: 0, or -1: failed. */
#ifndef DAVY_CLI_CUDA_HOST_H
#define DAVY_CLI_CUDA_HOST_H

#include <stddef.h>
#include <stdint.h>

#define CLI_CUDA_STREAM ((void *)1) /* the default stream, as in davy_run.stream */

int cli_cuda_upload(int index, uint64_t to, const void *from, size_t bytes);

/* Returns when all work on the default stream is done. */
int cli_cuda_finish(int index);

#endif
