/* caption_group.c - see caption_group.h. */
#include "plugins/cli/caption_group.h"

#include <stdlib.h>
#include <string.h>

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

davy_result cli_group_caption(const cli_group *g, const cli_session *s, const davy_caption_params *params,
                              davy_text **texts) {
    const davy_tensor *images[CLI_GROUP_MAX];
    davy_tensor tensors[CLI_GROUP_MAX];
    davy_job *job = NULL;
    for (size_t i = 0; i < g->n; i++) {
        tensors[i] = cli_tensor_of_picture(&g->pictures[i]);
        images[i] = &tensors[i];
    }
    davy_result r = s->api->caption(s->model, (uint32_t)g->n, images, params, NULL, &job, texts);
    r = r < 0 ? r : follow(s, job);
    s->api->job_release(job);
    return r;
}
