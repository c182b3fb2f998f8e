/* outfile.c - see outfile.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/outfile.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"

/* A file name has at most 255 bytes; a longer temporary name is shortened at its end. */
enum { NAME_BYTES = 224 };

static char *temporary_of(const char *place) {
    const char *slash = strrchr(place, '/');
    const size_t before = slash != NULL ? (size_t)(slash - place) + 1 : 0;
    const size_t name = strlen(place + before);
    const size_t n = before + (name < NAME_BYTES ? name : NAME_BYTES);
    char *out = malloc(n + 32);
    if (out != NULL) {
        snprintf(out, n + 32, "%.*s.tmp-%lu", (int)n, place, cli_process_id());
    }
    return out;
}

int cli_outfile_open(cli_outfile *o, const char *path) {
    memset(o, 0, sizeof *o);
    if (strcmp(path, "-") == 0) {
        return cli_fail(path, "only a video can go to standard output, as y4m; use ./- for a file of this name");
    }
    o->place = cli_real_path(path);
    if (o->place == NULL) {
        return cli_fail(path, "out of memory");
    }
    cli_path_kind kind = cli_path_kind_of(o->place);
    if (kind == CLI_PATH_FOLDER) {
        free(o->place);
        return cli_fail(path, "is a folder; name a file");
    }
    if (kind == CLI_PATH_OTHER) {
        o->f = fopen(o->place, "wb");
    } else {
        o->temporary = temporary_of(o->place);
        if (o->temporary != NULL) {
            cli_unlink(o->temporary); /* left by a killed process of the same id */
            o->f = cli_open_new(o->temporary);
        }
    }
    if (o->f == NULL) {
        int why = errno;
        free(o->temporary);
        free(o->place);
        memset(o, 0, sizeof *o);
        return cli_fail(path, "cannot be written: %s", strerror(why));
    }
    return CLI_OK;
}

void cli_outfile_abandon(cli_outfile *o) {
    if (o->f != NULL) {
        fclose(o->f);
    }
    if (o->temporary != NULL) {
        cli_unlink(o->temporary);
    }
    free(o->temporary);
    free(o->place);
    memset(o, 0, sizeof *o);
}

int cli_outfile_commit(cli_outfile *o, const char *path) {
    errno = 0;
    int bad = ferror(o->f);
    int why = errno;
    if (fclose(o->f) != 0) {
        bad = 1;
        why = errno;
    }
    o->f = NULL;
    if (!bad && o->temporary != NULL) {
        why = cli_rename(o->temporary, o->place);
        bad = why != 0;
    }
    if (bad) {
        cli_outfile_abandon(o);
        return cli_fail(path, "cannot be written: %s", why != 0 ? strerror(why) : "write error");
    }
    free(o->temporary);
    free(o->place);
    memset(o, 0, sizeof *o);
    return CLI_OK;
}

/* Whether `found` is NAME.tmp-NUMBER, a temporary name that open makes. */
static int is_left_of(const char *name, const char *found) {
    const size_t n = strlen(name);
    const char *rest = strncmp(found, name, n) == 0 ? found + n : "";
    return strncmp(rest, ".tmp-", 5) == 0 && rest[5] != 0 && rest[5 + strspn(rest + 5, "0123456789")] == 0;
}

static void sweep(char *folder, const char *place) {
    char *slash = strrchr(folder, '/');
    const size_t before = slash != NULL ? (size_t)(slash - folder) + 1 : 0; /* bytes of the folder in `place` */
    size_t count = 0;
    if (slash != NULL) {
        slash[slash == folder] = 0;
    }
    char **names = cli_folder_names(slash != NULL ? folder : ".", &count);
    for (size_t i = 0; names != NULL && i < count; i++) {
        const size_t room = before + strlen(names[i]) + 1;
        char *left = is_left_of(place + before, names[i]) ? malloc(room) : NULL;
        if (left != NULL) {
            snprintf(left, room, "%.*s%s", (int)before, place, names[i]);
            cli_unlink(left);
        }
        free(left);
    }
    cli_names_free(names, count);
}

void cli_outfile_sweep(const char *path) {
    char *place = cli_real_path(path);
    char *folder = place != NULL ? strdup(place) : NULL;
    if (folder != NULL) {
        sweep(folder, place);
    }
    free(folder);
    free(place);
}

int cli_outfile_probe(const char *path) {
    if (cli_path_kind_of(path) == CLI_PATH_OTHER) {
        return CLI_OK;
    }
    cli_outfile o;
    int r = cli_outfile_open(&o, path);
    if (r == CLI_OK) {
        cli_outfile_abandon(&o);
    }
    return r;
}
