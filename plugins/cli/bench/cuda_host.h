/* cuda_host.h - the program as a host that has pictures in GPU memory already, for davy bench: a copy to the device and
 * waiting for its default stream, through the NVIDIA driver, which is opened at run time. index: as in cuda:N; somebody
 * has made the device's primary context. 0, or -1: it failed. */
#ifndef DAVY_CLI_CUDA_HOST_H
#define DAVY_CLI_CUDA_HOST_H

#include <stddef.h>
#include <stdint.h>

#define CLI_CUDA_STREAM ((void *)1) /* the default stream, as davy_run.stream takes it */

int cli_cuda_upload(int index, uint64_t to, const void *from, size_t bytes);

/* Returns when all work on the default stream is done; does not sleep meanwhile. */
int cli_cuda_finish(int index);

#endif
