/* group.c - captions of several pictures in one call. Finished captions are saved even if the call fails or is interrupted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/captions/caption.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"

#define LOOK_NS 50000000ull

enum { GROUP_BYTES = 256 << 20 };

int cli_group_add(cli_group *g, const char *path, cli_picture *picture) {
    const size_t n = strlen(path) + 1;
    char *copy = malloc(n);
    if (copy == NULL) {
        cli_picture_free(picture);
        return cli_fail(path, "out of memory");
    }
    memcpy(copy, path, n);
    g->paths[g->n] = copy;
    g->pictures[g->n] = *picture;
    g->bytes += cli_picture_stride(picture) * picture->height;
    g->n++;
    *picture = (cli_picture){0};
    return CLI_OK;
}

int cli_group_full(const cli_group *g) {
    return g->n == CLI_GROUP_MAX || g->bytes >= GROUP_BYTES;
}

void cli_group_clear(cli_group *g) {
    for (size_t i = 0; i < g->n; i++) {
        free(g->paths[i]);
        cli_picture_free(&g->pictures[i]);
    }
    *g = (cli_group){.n = 0};
}

static davy_result follow(const cli_session *s, davy_job *job) {
    davy_result r = DAVY_PENDING;
    while (r == DAVY_PENDING) {
        davy_job_info info = {.struct_size = sizeof info};
        r = s->api->job_wait(job, LOOK_NS);
        if (cli_interrupted()) {
            s->api->job_cancel(job);
        }
        if (r == DAVY_PENDING && s->api->job_info(job, &info) >= 0) {
            cli_progress_update(info.stage, info.done, info.total);
        }
    }
    return r;
}

/* Captions the group. texts: the finished captions, NULL for the others. Prints nothing. An interrupt cancels it. */
static davy_result caption(const cli_captioner *c, davy_text **texts) {
    const cli_group *g = &c->group;
    const davy_api *api = c->session.api;
    davy_caption_params params = cli_caption_params(c->args);
    const davy_tensor *images[CLI_GROUP_MAX];
    davy_tensor tensors[CLI_GROUP_MAX];
    davy_job *job = NULL;
    params.flags |= DAVY_CAPTION_PARTIAL;
    for (size_t i = 0; i < g->n; i++) {
        tensors[i] = cli_tensor_of_picture(&g->pictures[i]);
        images[i] = &tensors[i];
    }
    davy_result r = api->caption(c->session.model, (uint32_t)g->n, images, &params, NULL, &job, texts);
    r = r < 0 ? r : follow(&c->session, job);
    api->job_release(job);
    return r;
}

/* If the call fails, the unfinished pictures are tried one by one, so that one bad picture costs its own answer only. */
int cli_group_ask(cli_captioner *c) {
    cli_group *g = &c->group;
    davy_text *texts[CLI_GROUP_MAX] = {NULL};
    int r = CLI_OK;
    char label[32];
    snprintf(label, sizeof label, "%zu pictures", g->n);
    cli_progress_begin(label);
    if (g->n > 1) {
        caption(c, texts);
    }
    cli_progress_end();
    for (size_t i = 0; i < g->n; i++) {
        const davy_tensor image = cli_tensor_of_picture(&g->pictures[i]);
        int one = CLI_OK;
        if (texts[i] != NULL) {
            one = cli_caption_keep(c, g->paths[i], texts[i]);
        } else if (!cli_interrupted()) {
            one = cli_caption_ask(c, g->paths[i], &image);
        }
        c->session.api->text_release(texts[i]);
        c->failed += one != CLI_OK;
        r = one != CLI_OK ? one : r;
    }
    cli_group_clear(g);
    return r;
}
