/* commands.h - one function for each command. Each prints its failures and returns the program's exit status. */
#ifndef DAVY_CLI_COMMANDS_H
#define DAVY_CLI_COMMANDS_H

#include "plugins/cli/args.h"
#include "plugins/cli/session.h"

int cli_devices(const cli_args *a);
int cli_inspect(const cli_args *a);
int cli_upscale(const cli_args *a);
/* The input is a video; the session has its model. */
int cli_upscale_video(cli_session *s, const cli_args *a);
int cli_encode(const cli_args *a);
int cli_decode(const cli_args *a);
int cli_caption(const cli_args *a);
int cli_bench(const cli_args *a);

#endif
