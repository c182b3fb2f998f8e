/* caption.h - davy caption at work: between cmd_caption.c, which goes through files and folders, answer.c, which asks
 * about one picture or video, and group.c, which asks about several pictures in one call. */
#ifndef DAVY_CLI_CAPTION_H
#define DAVY_CLI_CAPTION_H

#include "plugins/cli/captions/clip.h"
#include "plugins/cli/captions/captions.h"
#include "plugins/cli/session.h"

enum { CLI_GROUP_MAX = 32 };

typedef struct cli_group { /* pictures that are captioned together: that costs less than one after another */
    char *paths[CLI_GROUP_MAX];
    cli_picture pictures[CLI_GROUP_MAX];
    size_t n, bytes;
} cli_group;

typedef struct cli_captioner {
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
} cli_captioner;

double cli_caption_fps(const cli_args *a); /* of videos */
davy_caption_params cli_caption_params(const cli_args *a);

/* A picture, or a video: asks, prints and keeps the answers. */
int cli_caption_ask(cli_captioner *c, const char *path, const davy_tensor *image);
/* An answer that is there already. */
int cli_caption_keep(cli_captioner *c, const char *path, davy_text *text);

/* Takes the picture over, whatever comes of it; prints its failure. */
int cli_group_add(cli_group *g, const char *path, cli_picture *picture);
int cli_group_full(const cli_group *g); /* also: enough for the memory of a usual machine */
void cli_group_clear(cli_group *g);
/* Asks about all of them; the group is empty afterwards. */
int cli_group_ask(cli_captioner *c);

#endif
