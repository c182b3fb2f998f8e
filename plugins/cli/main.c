/* main.c - the command line of davy: reads the arguments and calls one command. It uses libdavy through the public ABI only,
 * as every other host does. */
#include <stdio.h>
#include <string.h>

#include "plugins/cli/commands.h"
#include "plugins/cli/say.h"
#include "plugins/cli/session.h"
#include "plugins/cli/sys.h"

static int version(void) {
    cli_session s;
    printf("davy %d.%d.%d\n", DAVY_VERSION_MAJOR, DAVY_VERSION_MINOR, DAVY_VERSION_PATCH);
    int r = cli_session_load(&s);
    if (r == CLI_OK) {
        printf("libdavy %s\n", s.api->version());
    }
    cli_session_close(&s);
    return r;
}

static int dispatch(const cli_args *a) {
    switch (a->command) {
    case CLI_DEVICES:
        return cli_devices(a);
    case CLI_INSPECT:
        return cli_inspect(a);
    case CLI_UPSCALE:
        return cli_upscale(a);
    case CLI_ENCODE:
        return cli_encode(a);
    case CLI_DECODE:
        return cli_decode(a);
    case CLI_BENCH:
        return cli_bench(a);
    default:
        return cli_caption(a);
    }
}

/* Output that did not reach standard output makes a successful command fail. */
static int printed(int r) {
    if ((fflush(stdout) != 0 || ferror(stdout)) && r == CLI_OK) {
        return cli_fail("standard output", "cannot be written; check the disk, or the program that reads it");
    }
    return r;
}

static int help(cli_command command) {
    fputs(cli_help(command), stdout);
    return printed(CLI_OK);
}

int main(int argc, char **argv) {
    cli_args a;
    cli_hold_streams();
    if (argc < 2) {
        return cli_usage("no command", "see davy --help");
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        return help(0);
    }
    if (strcmp(argv[1], "--version") == 0) {
        return printed(version());
    }
    if (strcmp(argv[1], "help") == 0) { /* "help upscale" means "upscale --help" */
        static char ask[] = "--help";
        if (argc != 3) {
            return help(0);
        }
        argv[1] = argv[2];
        argv[2] = ask;
    }
    int r = cli_args_parse(argc, argv, &a);
    if (r != CLI_OK) {
        return r;
    }
    if (a.help) {
        return help(a.command);
    }
    cli_set_quiet(a.quiet);
    cli_catch_interrupts();
    return printed(dispatch(&a));
}
