/* safetensors_io.h - the .safetensors files that the commands exchange with other programs: latents and raw outputs. The library
 * reads weights itself. */
#ifndef DAVY_CLI_SAFETENSORS_IO_H
#define DAVY_CLI_SAFETENSORS_IO_H

#include <stddef.h>
#include <stdint.h>

#include "abi/davy.h"

typedef struct cli_array {
    const char *name; /* for writing */
    davy_dtype dtype; /* F32, F16, BF16 */
    int ndim;
    int64_t shape[6];
    void *data; /* packed */
    size_t bytes;
    const void *const *pieces; /* for writing: data in pieces of piece_bytes, in the order of the file; data is NULL */
    size_t piece_bytes;
} cli_array;

/* Reads the tensor `name`, else the only tensor of the file. Free the array with cli_array_free. Both print their failures. */
int cli_safetensors_read(const char *path, const char *name, cli_array *out);
int cli_safetensors_write(const char *path, const cli_array *arrays, size_t count);

typedef struct cli_text {
    const char *key, *value;
} cli_text;

/* The same with entries of "__metadata__". */
int cli_safetensors_write_about(const char *path, const cli_array *arrays, size_t count, const cli_text *about,
                                size_t n_about);
/* Reads an entry of "__metadata__". Returns 0, or -1: the file has none. Prints nothing. */
int cli_safetensors_about(const char *path, const char *key, char *value, size_t room);

/* Allocates F32 data for shape and ndim. Returns 0, or -1: out of memory. */
int cli_array_alloc_f32(cli_array *a);
void cli_array_free(cli_array *a);

#endif
