/* captions.c - see captions.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/captions/captions.h"
#include "plugins/cli/outfile.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"

static char *joined(const char *a, const char *b) {
    const size_t n = strlen(a) + strlen(b) + 1;
    char *out = malloc(n);
    if (out != NULL) {
        snprintf(out, n, "%s%s", a, b);
    }
    return out;
}

/* ---- keys: picture, model, questions ---- */

static int add_question(char **key, const char *question) {
    char *both = joined(*key, "\n");
    char *more = both != NULL ? joined(both, question != NULL ? question : "") : NULL;
    free(both);
    free(*key);
    *key = more;
    return more != NULL;
}

/* The key that a line about this picture would have. NULL: out of memory. */
static char *key_of_picture(const cli_captions *c, const char *picture) {
    char *key = joined("", picture);
    int ok = key != NULL && add_question(&key, c->model) && add_question(&key, c->args->prompt);
    for (int i = 0; ok && i < c->args->n_asks; i++) {
        ok = add_question(&key, c->args->asks[i]);
    }
    char *out = ok ? cli_utf8(key) : NULL;
    free(key);
    return out;
}

static const char *string_of(const cJSON *j, const char *name) {
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, name);
    return cJSON_IsString(v) ? v->valuestring : NULL;
}

static char *key_of_line(const cJSON *line) {
    char *key = joined("", string_of(line, "file"));
    int ok =
        key != NULL && add_question(&key, string_of(line, "model")) && add_question(&key, string_of(line, "prompt"));
    const cJSON *turn = NULL;
    cJSON_ArrayForEach(turn, cJSON_GetObjectItemCaseSensitive(line, "turns")) {
        ok = ok && add_question(&key, string_of(turn, "question"));
    }
    return key;
}

/* Compares pairs by their first member. */
static int by_key(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The answer of an earlier run. NULL: none. */
static const char *find_done(const cli_captions *c, const char *key) {
    char *const *pair = c->n_done > 0 ? bsearch(&key, c->done, c->n_done, 2 * sizeof *c->done, by_key) : NULL;
    return pair != NULL ? pair[1] : NULL;
}

/* ---- existing answers ---- */

static int take_line(cli_captions *c, const cJSON *line) {
    char **grown = realloc(c->done, (c->n_done + 1) * 2 * sizeof *grown);
    c->done = grown != NULL ? grown : c->done;
    char *key = grown != NULL ? key_of_line(line) : NULL;
    char *text = key != NULL ? joined("", string_of(line, "text")) : NULL;
    if (text == NULL) {
        free(key);
        return cli_fail(c->args->out, "out of memory");
    }
    grown[2 * c->n_done] = key;
    grown[2 * c->n_done++ + 1] = text;
    return CLI_OK;
}

/* Reads the complete lines. A rest without a newline is an interrupted write; the next line replaces it. */
static int take_lines(cli_captions *c, const char *all, size_t bytes) {
    int r = CLI_OK;
    size_t number = 1;
    for (size_t at = 0; r == CLI_OK && at < bytes; number++) {
        const char *end = memchr(all + at, '\n', bytes - at);
        if (end == NULL) {
            break;
        }
        cJSON *line = cJSON_ParseWithLength(all + at, (size_t)(end - all) - at);
        if (string_of(line, "file") == NULL || string_of(line, "text") == NULL) {
            r = cli_fail(c->args->out, "line %zu is not a caption; the file is not changed, name another one", number);
        } else {
            r = take_line(c, line);
        }
        cJSON_Delete(line);
        at = (size_t)(end - all) + 1;
        c->kept = (long long)at;
    }
    if (r == CLI_OK && c->kept == 0 && bytes > 0 && all[0] != '{') {
        r = cli_fail(c->args->out, "holds no captions; the file is not changed, name another one");
    }
    return r;
}

static int read_lines(cli_captions *c) {
    FILE *f = cli_open_read(c->args->out);
    char *all = NULL;
    size_t bytes = 0;
    size_t room = 0;
    int r = f != NULL ? CLI_OK : cli_fail(c->args->out, "cannot be read: %s", strerror(errno));
    while (r == CLI_OK && !feof(f) && !ferror(f)) {
        room = room > 0 ? 2 * room : 1 << 16;
        char *grown = realloc(all, room);
        all = grown != NULL ? grown : all;
        if (grown != NULL) {
            bytes += fread(all + bytes, 1, room - bytes, f);
        } else {
            r = cli_fail(c->args->out, "out of memory");
        }
    }
    if (r == CLI_OK && ferror(f)) {
        r = cli_fail(c->args->out, "cannot be read");
    }
    r = r == CLI_OK ? take_lines(c, all, bytes) : r;
    free(all);
    if (f != NULL) {
        fclose(f);
    }
    return r;
}

/* Locks the file: two processes would overwrite each other's lines. */
static int take_file(cli_captions *c) {
    FILE *f = cli_open_new(c->args->out);
    c->made = f != NULL;
    if (f != NULL) {
        fclose(f);
    }
    c->taken = cli_take(c->args->out);
    c->made = c->made && c->taken != CLI_TAKEN;
    return c->taken != CLI_TAKEN
               ? CLI_OK
               : cli_fail(c->args->out, "another davy process writes this file; wait for it or name another file");
}

int cli_captions_open(cli_captions *c, const cli_args *a, const char *model) {
    const cli_captions none = {.args = a, .model = model};
    *c = none;
    if (a->out == NULL) {
        return CLI_OK;
    }
    const cli_path_kind kind = cli_path_kind_of(a->out);
    int r = cli_outfile_probe(a->out);
    if (r == CLI_OK && kind != CLI_PATH_OTHER) {
        r = take_file(c);
    }
    if (r == CLI_OK && kind == CLI_PATH_FILE && !a->again) {
        r = read_lines(c);
    }
    if (r == CLI_OK && c->n_done > 0) {
        qsort(c->done, c->n_done, 2 * sizeof *c->done, by_key);
    }
    return r;
}

void cli_captions_clear(cli_captions *c) {
    if (c->f != NULL) {
        fclose(c->f);
    }
    if (c->made && c->kept == 0) {
        cli_unlink(c->args->out);
    }
    cli_let_go(c->taken);
    for (size_t i = 0; i < 2 * c->n_done; i++) {
        free(c->done[i]);
    }
    for (size_t i = 0; i < c->n_written; i++) {
        free(c->written[i]);
    }
    free(c->done);
    free(c->written);
    memset(c, 0, sizeof *c);
}

/* ---- text files ---- */

/* album/cat.png becomes album/cat.txt. */
static char *text_name(const char *picture) {
    const char *slash = strrchr(picture, '/');
    const char *dot = strrchr(slash != NULL ? slash : picture, '.');
    const size_t n = dot != NULL && dot != picture && dot[-1] != '/' ? (size_t)(dot - picture) : strlen(picture);
    char *out = malloc(n + 5);
    if (out != NULL) {
        memcpy(out, picture, n);
        memcpy(out + n, ".txt", 5);
    }
    return out;
}

static int note_written(cli_captions *c, char *name) {
    for (size_t i = 0; i < c->n_written; i++) {
        if (strcmp(c->written[i], name) == 0) {
            return cli_fail(name, "holds the answer about another picture of the same name; rename one of them");
        }
    }
    if (c->n_written == c->room) {
        const size_t room = c->room > 0 ? 2 * c->room : 64;
        char **grown = realloc(c->written, room * sizeof *grown);
        if (grown == NULL) {
            return cli_fail(name, "out of memory");
        }
        c->written = grown;
        c->room = room;
    }
    c->written[c->n_written++] = name;
    return CLI_OK;
}

static int write_text(cli_captions *c, const char *picture, const char *text) {
    char *name = text_name(picture);
    int r = name != NULL ? note_written(c, name) : cli_fail(picture, "out of memory");
    if (r != CLI_OK) {
        free(name);
        return r;
    }
    cli_outfile o;
    r = cli_outfile_open(&o, name);
    if (r == CLI_OK) {
        fprintf(o.f, "%s\n", text);
        r = cli_outfile_commit(&o, name);
    }
    return r;
}

static int has_text(const char *picture) {
    char *name = text_name(picture);
    const int has = name != NULL && cli_path_kind_of(name) == CLI_PATH_FILE;
    free(name);
    return has;
}

/* ---- one picture ---- */

int cli_captions_done(cli_captions *c, const char *picture) {
    const cli_args *a = c->args;
    if (a->again || (a->out == NULL && !a->sidecar)) {
        return 0;
    }
    char *key = key_of_picture(c, picture);
    const char *text = key != NULL ? find_done(c, key) : NULL;
    free(key);
    if (a->out != NULL && text == NULL) {
        return 0;
    }
    if (!a->sidecar || has_text(picture)) {
        return 1;
    }
    return a->out == NULL ? 0 : write_text(c, picture, text) == CLI_OK ? 1 : -1;
}

/* One write per line, so that readers and a killed run find complete lines. After a failed write the file is reopened and
 * truncated to its complete lines. */
static int write_line(cli_captions *c, const cJSON *line) {
    const char *path = c->args->out;
    char *text = cli_json_text(line);
    errno = 0;
    if (c->f == NULL) {
        c->f = cli_path_kind_of(path) == CLI_PATH_OTHER ? fopen(path, "wb") : cli_open_after(path, c->kept);
    }
    const int n = c->f != NULL && text != NULL ? fprintf(c->f, "%s\n", text) : -1;
    const int ok = n > 0 && fflush(c->f) == 0;
    const int why = errno;
    if (ok) {
        c->kept += n;
    } else if (c->f != NULL) {
        fclose(c->f);
        c->f = NULL;
    }
    free(text);
    return ok ? CLI_OK : cli_fail(path, "cannot be written: %s", why != 0 ? strerror(why) : "out of memory");
}

int cli_captions_add(cli_captions *c, const cJSON *line) {
    int r = c->args->out != NULL ? write_line(c, line) : CLI_OK;
    if (r == CLI_OK && c->args->sidecar) {
        r = write_text(c, string_of(line, "file"), string_of(line, "text"));
    }
    return r;
}
