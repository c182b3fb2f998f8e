/* answer.c - one picture or video: the question, the streamed answer, further questions, the JSON line. */
#include <stdio.h>
#include <stdlib.h>

#include <cJSON.h>

#include "plugins/cli/captions/caption.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"

#define LOOK_NS 50000000ull

double cli_caption_fps(const cli_args *a) {
    return a->video_fps > 0 ? a->video_fps : 2.0;
}

davy_caption_params cli_caption_params(const cli_args *a) {
    return (davy_caption_params){.struct_size = sizeof(davy_caption_params),
                                 .prompt = a->prompt,
                                 .system = a->system,
                                 .stop = a->stops,
                                 .n_stop = (uint32_t)a->n_stops,
                                 .max_tokens = a->max_tokens,
                                 .context_tokens = a->context,
                                 .temperature = (float)a->temperature,
                                 .top_p = (float)a->top_p,
                                 .min_p = (float)a->min_p,
                                 .repeat_penalty = (float)a->repeat_penalty,
                                 .no_repeat_ngram = a->no_repeat,
                                 .flags = (a->published ? (uint32_t)DAVY_CAPTION_PUBLISHED : 0) |
                                          (a->thoughts ? (uint32_t)DAVY_CAPTION_THOUGHTS : 0) |
                                          (a->lookup ? (uint32_t)DAVY_CAPTION_LOOKUP : 0) |
                                          (a->no_lookup ? (uint32_t)DAVY_CAPTION_NO_LOOKUP : 0),
                                 .top_k = a->top_k,
                                 .seed = a->seed,
                                 .max_pixels = (int64_t)a->max_pixels,
                                 .max_tiles = a->max_tiles,
                                 .video_fps = cli_caption_fps(a)};
}

/* ---- one answer ---- */

static void show_progress(cli_captioner *c, davy_job *job) {
    davy_job_info info = {.struct_size = sizeof info};
    if (c->session.api->job_info(job, &info) >= 0 && info.state == DAVY_PENDING) {
        cli_progress_update(info.stage, info.done, info.total);
    }
}

/* Waits until the job has finished. Prints the answer piece by piece to a terminal, and the bar before the first piece. */
static davy_result follow(cli_captioner *c, davy_job *job) {
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

/* Thoughts without an answer are a failure. They are not saved, so that a run with more tokens tries the picture again. */
static int check_answered(const char *path, const davy_dialogue_info *i) {
    if ((i->flags & DAVY_DIALOGUE_UNANSWERED) == 0) {
        return CLI_OK;
    }
    return cli_fail(path, "the answer ended inside the model's thoughts, after %d tokens; %s--thoughts prints them",
                    (int)i->generated_tokens,
                    i->end == DAVY_TURN_LENGTH ? "use more --max-tokens (or --context), or " : "");
}

/* Adds the answer and its numbers to j. Prints the answer unless it was streamed. */
static void show(const cli_captioner *c, const char *path, const char *utf8, const davy_dialogue_info *i, cJSON *j) {
    if ((i->flags & DAVY_DIALOGUE_SMALLER) != 0) {
        cli_note(path, "memory is short: the model saw fewer tiles or pixels; --memory sets the limit");
    }
    if ((i->flags & DAVY_DIALOGUE_SHORTER) != 0 && i->turns == 1) {
        cli_note(path, "memory is short: the context has %d tokens only; --memory sets the limit", (int)i->tokens_max);
    }
    if (!c->streams && !c->silent) {
        printf("%s\n", utf8);
    }
    cJSON_AddStringToObject(j, "text", utf8);
    add_numbers(j, i);
}

/* Generates the answer to the turn that was added to the dialogue, and adds it with its numbers to j. */
static int answer(cli_captioner *c, const char *path, cJSON *j) {
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
    } else if ((result = check_answered(path, &info)) == CLI_OK) {
        show(c, path, utf8, &info, j);
    }
    api->text_release(text);
    api->job_release(job);
    return result;
}

/* ---- one picture ---- */

static int ask_more(cli_captioner *c, const char *path, cJSON *j) {
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

static int write_line(cli_captioner *c, const cJSON *j) {
    char *line = c->args->json ? cli_json_text(j) : NULL;
    if (c->args->json && line == NULL) {
        return cli_fail("caption", "out of memory");
    }
    if (line != NULL) {
        printf("%s\n", line);
        fflush(stdout);
    }
    free(line);
    return cli_captions_add(&c->files, j);
}

static cJSON *begin_line(const cli_captioner *c, const char *path) {
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

static int end_line(cli_captioner *c, cJSON *j) {
    cJSON_AddStringToObject(j, "model", c->session.model_name);
    cJSON_AddStringToObject(j, "precision", cli_precision_name(c->session.info.compute));
    return write_line(c, j);
}

int cli_caption_ask(cli_captioner *c, const char *path, const davy_tensor *image) {
    const davy_api *api = c->session.api;
    davy_result r = api->dialogue_rewind(c->dialogue, 0);
    r = r < 0 ? r : api->dialogue_add_image(c->dialogue, image);
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

int cli_caption_keep(cli_captioner *c, const char *path, davy_text *text) {
    const davy_api *api = c->session.api;
    davy_dialogue_info info = {.struct_size = sizeof info};
    const char *utf8 = NULL;
    davy_result r = api->text_get(text, &utf8, NULL);
    r = r < 0 ? r : api->caption_info(text, &info);
    if (r < 0) {
        return cli_session_fail(&c->session, path, r);
    }
    int result = check_answered(path, &info);
    if (result != CLI_OK) {
        return result;
    }
    cJSON *j = begin_line(c, path);
    show(c, path, utf8, &info, j);
    result = end_line(c, j);
    cJSON_Delete(j);
    return result;
}
