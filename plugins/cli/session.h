/* session.h - the library, a context and a model, opened from the command line's options, with errors, progress and interrupts
 * connected to the terminal. This is the only place that loads libdavy. */
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
    davy_device_info device; /* the device that computes, the first of several; filled for --json and bench only */
} cli_session;

/* The functions of this file print their failures. close takes a session in any state, also a zeroed one. */
int cli_session_load(cli_session *s);
int cli_session_context(cli_session *s, const cli_args *a);
/* Sets the members of a model description that choose the precision. */
void cli_model_precision(davy_dtype precision, davy_model_desc *desc);
/* Opens the models named on the command line, else the shipped model of this name. */
int cli_session_model(cli_session *s, const cli_args *a, const char *shipped, davy_task task);
/* The same from a description. name: for messages. */
int cli_session_open_model(cli_session *s, const davy_model_desc *desc, const char *name);
/* Describes the files named on the command line. sources: room for CLI_MODELS_MAX. */
void cli_model_desc(const cli_args *a, const char *shipped, davy_source *sources, davy_model_desc *out);
void cli_session_close(cli_session *s);

/* A message of the library without the name of its file, if that is `what`; the caller prints the name. */
const char *cli_without_name(const char *what, const char *message);
/* Prints the library's last error with the subject `what` and returns the exit status. */
int cli_session_fail(const cli_session *s, const char *what, davy_result r);

/* The options of a run: tiles, seed, progress bar and interrupts. */
davy_run cli_session_run(const cli_args *a);

/* A tensor over the pixels of a picture. */
davy_tensor cli_tensor_of_picture(const cli_picture *p);
/* A tensor of the given layout (HWC or CHW) over the memory of an array [1, c, h, w] or [c, h, w]. */
davy_tensor cli_tensor_of_array(const cli_array *a, davy_layout layout, davy_channels channels);

#endif
