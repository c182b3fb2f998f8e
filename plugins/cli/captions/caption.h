/* caption.h - the state of davy caption, shared by three files: cmd_caption.c goes through files and folders, answer.c asks
 * about one picture or video, group.c asks about several pictures in one call. */
#ifndef DAVY_CLI_CAPTION_H
#define DAVY_CLI_CAPTION_H

#include "plugins/cli/captions/clip.h"
#include "plugins/cli/captions/captions.h"
#include "plugins/cli/session.h"

enum { CLI_GROUP_MAX = 32 };

typedef struct cli_group { /* pictures captioned in one call, which is faster than one call each */
    char *paths[CLI_GROUP_MAX];
    cli_picture pictures[CLI_GROUP_MAX];
    size_t n, bytes;
} cli_group;

typedef struct cli_captioner {
    const cli_args *args;
    cli_session session;
    davy_dialogue *dialogue;
    cli_captions files;
    int streams; /* answers are streamed to a terminal */
    int many;    /* several pictures: their names are printed */
    int silent;  /* answers are not printed as text */
    int groups;  /* several pictures in one call */
    cli_group group;
    size_t tried, failed, skipped;
} cli_captioner;

double cli_caption_fps(const cli_args *a); /* frames per second of videos */
davy_caption_params cli_caption_params(const cli_args *a);

/* Asks about a picture or a video, prints and saves the answers. */
int cli_caption_ask(cli_captioner *c, const char *path, const davy_tensor *image);
/* Prints and saves an answer that a group call returned. */
int cli_caption_keep(cli_captioner *c, const char *path, davy_text *text);

/* Adds a picture. The group owns the pixels afterwards, also after a failure. Prints its failure. */
int cli_group_add(cli_group *g, const char *path, cli_picture *picture);
int cli_group_full(const cli_group *g); /* by number of pictures or by bytes */
void cli_group_clear(cli_group *g);
/* Asks about all pictures of the group and empties it. */
int cli_group_ask(cli_captioner *c);

#endif
