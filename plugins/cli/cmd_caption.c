/* cmd_caption.c - davy caption: goes through pictures, folders and videos and asks a model about each. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/captions/caption.h"
#include "plugins/cli/commands.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"

/* ---- one file ---- */

static void show_progress(const char *path) {
    const char *slash = strrchr(path, '/');
    cli_progress_begin(slash != NULL && slash[1] != 0 ? slash + 1 : path);
}

/* Looks for an answer in existing files. Returns -1 if there is none; else the exit status. */
static int look_up(cli_captioner *c, const char *path) {
    const int done = cli_captions_done(&c->files, path);
    c->tried++;
    c->skipped += done > 0;
    c->failed += done < 0;
    return done == 0 ? -1 : done > 0 ? CLI_OK : CLI_FAILED;
}

static int caption_one(cli_captioner *c, const char *path) {
    cli_picture picture = {0};
    int r = look_up(c, path);
    if (r >= 0) {
        return r;
    }
    r = cli_picture_load(path, &picture);
    if (r == CLI_OK && c->groups) {
        r = cli_group_add(&c->group, path, &picture);
        c->failed += r != CLI_OK;
        return r == CLI_OK && cli_group_full(&c->group) ? cli_group_ask(c) : r;
    }
    if (r == CLI_OK) {
        show_progress(path);
        const davy_tensor image = cli_tensor_of_picture(&picture);
        r = cli_caption_ask(c, path, &image);
        cli_progress_end();
    }
    cli_picture_free(&picture);
    c->failed += r != CLI_OK;
    return r;
}

static int caption_video(cli_captioner *c, const char *path) {
    cli_clip clip;
    int r = look_up(c, path);
    if (r >= 0) {
        return r;
    }
    r = cli_clip_load(path, cli_caption_fps(c->args), &clip);
    if (r == CLI_OK) {
        const davy_tensor frames = cli_clip_tensor(&clip);
        show_progress(path);
        r = cli_caption_ask(c, path, &frames);
        cli_progress_end();
        cli_clip_free(&clip);
    }
    c->failed += r != CLI_OK;
    return r;
}

/* ---- all of them ---- */

/* NULL, or the note why a path is skipped. A missing file is not skipped: loading it prints the error. */
static const char *why_skipped(const char *path) {
    const cli_format f = cli_format_of_name(path);
    const cli_path_kind kind = cli_path_kind_of(path);
    return kind == CLI_PATH_FOLDER  ? "is skipped: a folder in the folder"
           : kind == CLI_PATH_OTHER ? "is skipped: a pipe or a device"
           : f == CLI_FORMAT_PNG || f == CLI_FORMAT_JPEG || f == CLI_FORMAT_WEBP
               ? NULL
               : "is skipped: the name does not end in .png, .jpg or .webp";
}

static int caption_folder(cli_captioner *c, const char *folder) {
    size_t count = 0;
    size_t found = 0;
    char **names = cli_folder_names(folder, &count);
    int r = CLI_OK;
    if (names == NULL) {
        return cli_fail(folder, "cannot be read: %s", strerror(errno));
    }
    for (size_t i = 0; i < count && !cli_interrupted(); i++) {
        const size_t n = strlen(folder) + strlen(names[i]) + 2;
        char *path = malloc(n);
        if (path == NULL) {
            r = cli_fail(names[i], "out of memory");
            c->failed++;
            continue;
        }
        snprintf(path, n, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", names[i]);
        const char *why = why_skipped(path);
        if (why == NULL) {
            found++;
            const int one = caption_one(c, path);
            r = one != CLI_OK ? one : r;
        } else if (!c->args->sidecar || strstr(names[i], ".txt") == NULL) {
            cli_note(path, "%s", why);
        }
        free(path);
    }
    cli_names_free(names, count);
    return found > 0 || cli_interrupted() ? r : cli_fail(folder, "holds no PNG, JPEG or WebP pictures");
}

static int caption_all(cli_captioner *c) {
    const cli_args *a = c->args;
    int r = CLI_OK;
    for (int i = 0; i < a->n_inputs && !cli_interrupted(); i++) {
        const cli_path_kind kind = cli_path_kind_of(a->inputs[i]);
        int one = CLI_OK;
        if (cli_is_video(a->inputs[i]) || (kind == CLI_PATH_FOLDER && a->video)) {
            one = caption_video(c, a->inputs[i]);
        } else if (kind == CLI_PATH_FOLDER) {
            one = caption_folder(c, a->inputs[i]);
        } else {
            one = caption_one(c, a->inputs[i]);
        }
        r = one != CLI_OK ? one : r;
    }
    if (c->group.n > 0 && !cli_interrupted()) {
        const int last = cli_group_ask(c);
        r = last != CLI_OK ? last : r;
    }
    if (cli_interrupted()) {
        return r > CLI_USAGE ? r : cli_stopped("caption");
    }
    return r;
}

static int open_dialogue(cli_captioner *c) {
    const davy_caption_params p = cli_caption_params(c->args);
    const davy_result r = c->session.api->dialogue_open(c->session.model, &p, &c->dialogue);
    return r < 0 ? cli_session_fail(&c->session, "caption", r) : CLI_OK;
}

int cli_caption(const cli_args *a) {
    cli_captioner c = {.args = a};
    c.many = a->n_inputs > 1 || (cli_path_kind_of(a->inputs[0]) == CLI_PATH_FOLDER && !a->video);
    c.silent = a->json || a->out != NULL || a->sidecar;
    c.streams = !c.silent && cli_stdout_is_terminal();
    c.groups = c.many && !c.streams && a->n_asks == 0;
    int r = cli_session_load(&c.session);
    if (r == CLI_OK) {
        r = cli_session_context(&c.session, a);
    }
    if (r == CLI_OK) {
        r = cli_session_model(&c.session, a, NULL, DAVY_TASK_CAPTION);
    }
    if (r == CLI_OK) {
        r = open_dialogue(&c);
    }
    if (r == CLI_OK) {
        r = cli_captions_open(&c.files, a, c.session.model_name);
    }
    if (r == CLI_OK) {
        r = caption_all(&c);
    }
    if (c.skipped > 0) {
        cli_note(a->out != NULL ? a->out : "caption",
                 "%zu of %zu pictures are skipped: they have answers; --again asks again", c.skipped, c.tried);
    }
    cli_group_clear(&c.group);
    cli_captions_clear(&c.files);
    if (c.session.api != NULL) {
        c.session.api->dialogue_release(c.dialogue);
    }
    if (c.failed > 0 && c.tried > 1 && !cli_interrupted()) {
        r = cli_fail("caption", "%zu of %zu pictures failed", c.failed, c.tried);
    }
    cli_session_close(&c.session);
    return r;
}
