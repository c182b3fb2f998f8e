/* cli_copy.c - reads a picture with the command line's code and writes it again, so that tests can compare both files without a
 * network in between. usage: cli_copy IN OUT [lossless] */
#include "plugins/cli/pictures/picture.h"
#include "plugins/cli/say.h"

int main(int argc, char **argv) {
    const cli_encoding e = {.quality = 95, .lossless = argc > 3};
    cli_picture p = {0};
    if (argc < 3) {
        return cli_usage("cli_copy", "IN OUT [lossless]");
    }
    int r = cli_picture_load(argv[1], &p);
    if (r == CLI_OK) {
        r = cli_picture_save(argv[2], &p, &e);
    }
    cli_picture_free(&p);
    return r;
}
