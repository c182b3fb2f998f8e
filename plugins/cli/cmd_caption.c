/* cmd_caption.c - davy caption: what is on pictures, in words, and further questions about each of them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cJSON.h>

#include "plugins/cli/caption_group.h"
#include "plugins/cli/captions.h"
#include "plugins/cli/commands.h"
#include "plugins/cli/say.h"
#include "plugins/cli/session.h"
#include "plugins/cli/sys.h"

#define LOOK_NS 50000000ull

typedef struct captioner {
    const cli_args *args;
    cli_session session;
    davy_dialogue *dialogue;
    cli_captions files;
    int streams; /* answers go to a terminal as they come */
    int many;    /* pictures: their names are told */
    int silent;  /* answers go elsewhere than to the terminal or in another form */
    int groups;  /* several pictures in one call */
    cli_group group;
    size_t tried, failed, skipped;
} captioner;

/* ---- one answer ---- */

static void show_progress(captioner *c, davy_job *job) {
    davy_job_info info = {.struct_size = sizeof info};
    if (c->session.api->job_info(job, &info) >= 0 && info.state == DAVY_PENDING) {
        cli_progress_update(info.stage, info.done, info.total);
    }
}

/* Until the job has finished: pieces of the answer to a terminal, the bar before the first of them. */
static davy_result follow(captioner *c, davy_job *job) {
    const davy_api *api = c->session.api;
    davy_token_event e = {.struct_size = sizeof e};
    int spoke = 0;
    davy_result r = DAVY_PENDING;
    while (r != DAVY_END && r >= 0) {
        r = api->dialogue_read(c->dialogue, &e, LOOK_NS);
        if (cli_interrupted()) {
            api->job_cancel(job);
        }
        if (r == DAVY_OK && e.kind == DAVY_TOKEN_TEXT && c->streams) {
            cli_progress_end();
            fwrite(e.text, 1, (size_t)e.text_bytes, stdout);
            fflush(stdout);
            spoke = 1;
        } else if (r >= 0 && r != DAVY_END && !spoke) {
            show_progress(c, job);
        }
    }
    cli_progress_end();
    if (c->streams && spoke) {
        printf("\n");
    }
    return api->job_wait(job, UINT64_MAX);
}

static void add_numbers(cJSON *j, const davy_dialogue_info *i) {
    cJSON_AddNumberToObject(j, "prompt_tokens", i->prompt_tokens);
    cJSON_AddNumberToObject(j, "image_tokens", i->image_tokens);
    cJSON_AddNumberToObject(j, "generated_tokens", i->generated_tokens);
    cJSON_AddStringToObject(j, "end", i->end == DAVY_TURN_STOP ? "stop" : "length");
    cJSON_AddNumberToObject(j, "seconds_to_first_token", i->seconds_to_first_token);
    cJSON_AddNumberToObject(j, "tokens_per_second", i->tokens_per_second);
}

/* Asks what was added to the dialogue; the answer and its numbers go into j. */
static int answer(captioner *c, const char *path, cJSON *j) {
    const davy_api *api = c->session.api;
    const davy_run run = {.struct_size = sizeof run};
    davy_dialogue_info info = {.struct_size = sizeof info};
    davy_text *text = NULL;
    const char *utf8 = NULL;
    davy_job *job = NULL;
    davy_result r = api->dialogue_generate(c->dialogue, NULL, &run, &job);
    r = r < 0 ? r : follow(c, job);
    r = r < 0 ? r : api->dialogue_text(c->dialogue, &text);
    r = r < 0 ? r : api->text_get(text, &utf8, NULL);
    r = r < 0 ? r : api->dialogue_info(c->dialogue, &info);
    int result = CLI_OK;
    if (r < 0) {
        result = cli_session_fail(&c->session, path, r);
    } else {
        if ((info.flags & DAVY_DIALOGUE_SMALLER) != 0) {
            cli_note(path, "memory was short; the picture was looked at with fewer tiles or pixels");
        }
        if (!c->streams && !c->silent) {
            printf("%s\n", utf8);
        }
        cJSON_AddStringToObject(j, "text", utf8);
        add_numbers(j, &info);
    }
    api->text_release(text);
    api->job_release(job);
    return result;
}

/* ---- one picture ---- */

static int ask_more(captioner *c, const char *path, cJSON *j) {
    cJSON *turns = c->args->n_asks > 0 ? cJSON_AddArrayToObject(j, "turns") : NULL;
    int r = CLI_OK;
    for (int i = 0; r == CLI_OK && i < c->args->n_asks; i++) {
        cJSON *turn = cJSON_CreateObject();
        cJSON_AddItemToArray(turns, turn);
        cJSON_AddStringToObject(turn, "question", c->args->asks[i]);
        if (!c->silent) {
            printf("> %s\n", c->args->asks[i]);
        }
        const davy_result added = c->session.api->dialogue_add_text(c->dialogue, DAVY_ROLE_USER, c->args->asks[i]);
        r = added < 0 ? cli_session_fail(&c->session, "--ask", added) : answer(c, path, turn);
    }
    return r;
}

static int write_line(captioner *c, const cJSON *j) {
    char *line = c->args->json ? cJSON_PrintUnformatted(j) : NULL;
    if (c->args->json && line == NULL) {
        return cli_fail("caption", "out of memory");
    }
    if (line != NULL) {
        printf("%s\n", line);
        fflush(stdout);
    }
    cJSON_free(line);
    return cli_captions_add(&c->files, j);
}

static cJSON *begin_line(const captioner *c, const char *path) {
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "file", path);
    if (c->args->prompt != NULL) {
        cJSON_AddStringToObject(j, "prompt", c->args->prompt);
    }
    if (c->many && !c->silent) {
        printf("%s: ", path);
        fflush(stdout);
    }
    return j;
}

static int end_line(captioner *c, cJSON *j) {
    cJSON_AddStringToObject(j, "model", c->session.model_name);
    cJSON_AddStringToObject(j, "precision", cli_precision_name(c->session.info.compute));
    return write_line(c, j);
}

static int look_and_ask(captioner *c, const char *path, const cli_picture *picture) {
    const davy_api *api = c->session.api;
    const davy_tensor image = cli_tensor_of_picture(picture);
    davy_result r = api->dialogue_rewind(c->dialogue, 0);
    r = r < 0 ? r : api->dialogue_add_image(c->dialogue, &image);
    if (r < 0) {
        return cli_session_fail(&c->session, path, r);
    }
    cJSON *j = begin_line(c, path);
    int result = answer(c, path, j);
    result = result != CLI_OK ? result : ask_more(c, path, j);
    result = result != CLI_OK ? result : end_line(c, j);
    cJSON_Delete(j);
    return result;
}

/* ---- several at once ---- */

static davy_caption_params params_of(const cli_args *a) {
    return (davy_caption_params){.struct_size = sizeof(davy_caption_params),
                                 .prompt = a->prompt,
                                 .system = a->system,
                                 .max_tokens = a->max_tokens,
                                 .temperature = (float)a->temperature,
                                 .top_p = (float)a->top_p,
                                 .min_p = (float)a->min_p,
                                 .no_repeat_ngram = a->no_repeat,
                                 .flags = (a->published ? (uint32_t)DAVY_CAPTION_PUBLISHED : 0) |
                                          (a->thoughts ? (uint32_t)DAVY_CAPTION_THOUGHTS : 0),
                                 .top_k = a->top_k,
                                 .seed = a->seed,
                                 .max_pixels = (int64_t)a->max_pixels,
                                 .max_tiles = a->max_tiles};
}

static int write_answer(captioner *c, const char *path, davy_text *text) {
    const char *utf8 = NULL;
    const davy_result r = c->session.api->text_get(text, &utf8, NULL);
    if (r < 0) {
        return cli_session_fail(&c->session, path, r);
    }
    cJSON *j = begin_line(c, path);
    cJSON_AddStringToObject(j, "text", utf8);
    if (!c->silent) {
        printf("%s\n", utf8);
    }
    const int result = end_line(c, j);
    cJSON_Delete(j);
    return result;
}

/* Where the call fails each is tried by itself, so that one that cannot be done costs only its own answer. */
static int caption_group(captioner *c) {
    cli_group *g = &c->group;
    davy_text *texts[CLI_GROUP_MAX] = {NULL};
    const davy_caption_params p = params_of(c->args);
    int r = CLI_OK;
    char label[32];
    snprintf(label, sizeof label, "%zu pictures", g->n);
    cli_progress_begin(label);
    const int together = g->n > 1 && cli_group_caption(g, &c->session, &p, texts) >= 0;
    cli_progress_end();
    for (size_t i = 0; i < g->n && (together || !cli_interrupted()); i++) {
        const int one =
            together ? write_answer(c, g->paths[i], texts[i]) : look_and_ask(c, g->paths[i], &g->pictures[i]);
        c->session.api->text_release(texts[i]);
        c->failed += one != CLI_OK;
        r = one != CLI_OK ? one : r;
    }
    cli_group_clear(g);
    return r;
}

/* ---- one file ---- */

static int caption_one(captioner *c, const char *path) {
    cli_picture picture = {0};
    const char *slash = strrchr(path, '/');
    const int done = cli_captions_done(&c->files, path);
    c->tried++;
    if (done != 0) {
        c->skipped += done > 0;
        c->failed += done < 0;
        return done > 0 ? CLI_OK : CLI_FAILED;
    }
    int r = cli_picture_load(path, &picture);
    if (r == CLI_OK && c->groups) {
        r = cli_group_add(&c->group, path, &picture);
        c->failed += r != CLI_OK;
        return r == CLI_OK && cli_group_full(&c->group) ? caption_group(c) : r;
    }
    if (r == CLI_OK) {
        cli_progress_begin(slash != NULL ? slash + 1 : path);
        r = look_and_ask(c, path, &picture);
        cli_progress_end();
    }
    cli_picture_free(&picture);
    c->failed += r != CLI_OK;
    return r;
}

/* ---- all of them ---- */

static int is_picture(const char *path) {
    const cli_format f = cli_format_of_name(path);
    const int is = f == CLI_FORMAT_PNG || f == CLI_FORMAT_JPEG || f == CLI_FORMAT_WEBP;
    return is && cli_path_kind_of(path) == CLI_PATH_FILE;
}

static int caption_folder(captioner *c, const char *folder) {
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
        if (is_picture(path)) {
            found++;
            const int one = caption_one(c, path);
            r = one != CLI_OK ? one : r;
        } else if (!c->args->sidecar || strstr(names[i], ".txt") == NULL) {
            cli_note(path, "not a picture by its name; skipped");
        }
        free(path);
    }
    cli_names_free(names, count);
    return found > 0 || cli_interrupted() ? r : cli_fail(folder, "holds no pictures");
}

static int caption_all(captioner *c) {
    const cli_args *a = c->args;
    int r = CLI_OK;
    for (int i = 0; i < a->n_inputs && !cli_interrupted(); i++) {
        const cli_path_kind kind = cli_path_kind_of(a->inputs[i]);
        int one = CLI_OK;
        if (kind == CLI_PATH_FOLDER) {
            one = caption_folder(c, a->inputs[i]);
        } else if (kind != CLI_PATH_MISSING && cli_format_of_file(a->inputs[i]) == CLI_FORMAT_VIDEO) {
            one = cli_fail(a->inputs[i], "is a video; this build works on pictures only so far");
        } else {
            one = caption_one(c, a->inputs[i]);
        }
        r = one != CLI_OK ? one : r;
    }
    if (c->group.n > 0 && !cli_interrupted()) {
        const int last = caption_group(c);
        r = last != CLI_OK ? last : r;
    }
    if (cli_interrupted()) {
        return r > CLI_USAGE ? r : cli_stopped("caption");
    }
    return r;
}

static int open_dialogue(captioner *c) {
    const davy_caption_params p = params_of(c->args);
    const davy_result r = c->session.api->dialogue_open(c->session.model, &p, &c->dialogue);
    return r < 0 ? cli_session_fail(&c->session, "caption", r) : CLI_OK;
}

int cli_caption(const cli_args *a) {
    captioner c = {.args = a};
    c.many = a->n_inputs > 1 || cli_path_kind_of(a->inputs[0]) == CLI_PATH_FOLDER;
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
        cli_note(a->out != NULL ? a->out : "caption", "%zu of %zu pictures had their answers already", c.skipped,
                 c.tried);
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
