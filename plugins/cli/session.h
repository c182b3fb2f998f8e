/* session.h - the library, a context and a model as the commands use them: opened from the command line's options,
 * errors told in the program's way, progress and interrupts wired up. The only place that loads libdavy. */
#ifndef DAVY_CLI_SESSION_H
#define DAVY_CLI_SESSION_H

#include "abi/davy.h"
#include "abi/davy_loader.h"
#include "plugins/cli/args.h"
#include "plugins/cli/pictures/picture.h"
#include "plugins/cli/latents/safetensors_io.h"

typedef struct cli_session {
    davy_library library;
    const davy_api *api;
    davy_context *context;
    davy_model *model;
    davy_model_info info;
    const char *model_name; /* for messages */
    int on_gpu;
    davy_device_info device; /* what computes, of several the first; known with --json and to bench */
} cli_session;

/* All print their failure. close takes a session in any state, also a zeroed one. */
int cli_session_load(cli_session *s);
int cli_session_context(cli_session *s, const cli_args *a);
/* The description of a precision for model_open. */
void cli_model_precision(davy_dtype precision, davy_model_desc *desc);
/* The models named on the command line, else the shipped one of this name. */
int cli_session_model(cli_session *s, const cli_args *a, const char *shipped, davy_task task);
/* The same for a ready description; name is for messages. */
int cli_session_open_model(cli_session *s, const davy_model_desc *desc, const char *name);
/* The description for the files named on the command line; `sources` has room for CLI_MODELS_MAX. */
void cli_model_desc(const cli_args *a, const char *shipped, davy_source *sources, davy_model_desc *out);
void cli_session_close(cli_session *s);

/* Most of the library's messages begin with the file they are about: the message without it, when it is `what`. */
const char *cli_without_name(const char *what, const char *message);
/* Prints the library's last error about `what` and returns the exit status. */
int cli_session_fail(const cli_session *s, const char *what, davy_result r);

/* Options of a run: tiles, seed, progress bar, interrupts. */
davy_run cli_session_run(const cli_args *a);

/* A picture, or a part of it read as RGB when it has alpha, as a tensor on its own memory. */
davy_tensor cli_tensor_of_picture(const cli_picture *p);
/* [c, h, w] float32 memory of an array [1, c, h, w] seen as a tensor of the given layout (HWC or CHW). */
davy_tensor cli_tensor_of_array(const cli_array *a, davy_layout layout, davy_channels channels);

#endif
