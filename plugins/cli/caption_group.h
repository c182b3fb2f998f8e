/* caption_group.h - pictures of one run that are captioned in one call: several at once cost less than one after another. */
#ifndef DAVY_CLI_CAPTION_GROUP_H
#define DAVY_CLI_CAPTION_GROUP_H

#include "plugins/cli/session.h"

enum { CLI_GROUP_MAX = 32 };

typedef struct cli_group {
    char *paths[CLI_GROUP_MAX];
    cli_picture pictures[CLI_GROUP_MAX];
    size_t n, bytes;
} cli_group;

/* Takes the picture over, whatever comes of it; prints its failure. */
int cli_group_add(cli_group *g, const char *path, cli_picture *picture);
int cli_group_full(const cli_group *g); /* also: enough for the memory of a usual machine */
void cli_group_clear(cli_group *g);

/* One text for each, or, below 0, none. It prints nothing; an interrupt ends it. */
davy_result cli_group_caption(const cli_group *g, const cli_session *s, const davy_caption_params *params,
                              davy_text **texts);

#endif
