/* write.c - writes pictures to a video file or y4m at a constant rate, with the sound of another file if requested. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"
#include "plugins/cli/video/run.h"

enum { ALIGN = 64, RATE_MAX = 100000 };

struct cli_video_writer {
    const char *path;
    cli_video *sound; /* NULL: none */
    video_format format;
    video_scaler from_rgb;
    AVFrame *rgb;
    int64_t first, frames;
    int is_y4m;
    video_y4m y4m;
    cli_outfile file; /* for y4m */
    video_parts parts;
};

static int is_pipe(const char *path) {
    return strcmp(path, "-") == 0;
}

static int names_y4m(const char *path) {
    const size_t n = strlen(path);
    return is_pipe(path) || (n >= 4 && strcmp(path + n - 4, ".y4m") == 0);
}

/* The colour description of most videos of this height. */
static video_colour usual_colour(uint32_t height) {
    const int hd = height >= 720;
    return (video_colour){.matrix = hd ? AVCOL_SPC_BT709 : AVCOL_SPC_SMPTE170M,
                          .primaries = hd ? AVCOL_PRI_BT709 : AVCOL_PRI_SMPTE170M,
                          .transfer = hd ? AVCOL_TRC_BT709 : AVCOL_TRC_SMPTE170M,
                          .range = AVCOL_RANGE_MPEG,
                          .siting = AVCHROMA_LOC_LEFT};
}

static AVRational rate_of(const cli_video_wish *wish, const cli_video *sound) {
    const double fps = wish->fps > 0.0 ? wish->fps : sound != NULL ? cli_video_about(sound)->fps : 0.0;
    const AVRational rate = av_d2q(fps > 0.0 ? fps : 25.0, RATE_MAX);
    return rate.num > 0 && rate.den > 0 ? rate : (AVRational){25, 1};
}

static int settle_format(cli_video_writer *w, const cli_video_wish *wish) {
    video_format *f = &w->format;
    *f = (video_format){.w = (int)wish->width & ~1, .h = (int)wish->height & ~1, .pixels = AV_PIX_FMT_YUV420P};
    f->quality = wish->quality > 0 ? wish->quality : 16;
    f->rate = rate_of(wish, w->sound);
    f->time_base = av_inv_q(f->rate);
    f->upright = 1;
    f->sample_aspect = w->sound != NULL ? w->sound->stream->sample_aspect_ratio : (AVRational){1, 1};
    if (w->sound != NULL && w->sound->orientation >= 5 && f->sample_aspect.num > 0) {
        f->sample_aspect = av_inv_q(f->sample_aspect);
    }
    f->colour = w->sound != NULL ? w->sound->colour : usual_colour(wish->height);
    if (w->sound != NULL) { /* starts with the pictures of the other video */
        w->first = av_rescale_q(w->sound->first_pts, w->sound->stream->time_base, f->time_base);
    }
    if (((wish->width | wish->height) & 1) != 0) {
        cli_note(w->path, "%ux%u is odd; the last row or column is cut off, because 4:2:0 needs even sizes",
                 wish->width, wish->height);
    }
    const video_codec_wish codec = {.codec = wish->codec, .quality = wish->quality, .on_gpu = wish->on_gpu};
    return w->is_y4m ? CLI_OK : video_format_settle(w->path, 8, &codec, f);
}

static int open_y4m(cli_video_writer *w) {
    int r = CLI_OK;
    w->y4m = (video_y4m){.f = stdout, .path = w->path, .format = &w->format};
    if (!is_pipe(w->path)) {
        r = cli_outfile_open(&w->file, w->path);
        w->y4m.f = w->file.f;
    }
    return r == CLI_OK ? video_y4m_begin(&w->y4m) : r;
}

/* The file is joined from parts. The identity is unique, so that parts of another run are removed. */
static int open_parts(cli_video_writer *w) {
    char identity[96];
    snprintf(identity, sizeof identity, "process %lu, second %.6f", cli_process_id(), cli_seconds());
    int r = cli_outfile_probe(w->path);
    r = r == CLI_OK && w->sound != NULL ? video_join_check(w->sound, &w->format, w->path) : r;
    return r == CLI_OK ? video_parts_open(&w->parts, &w->format, w->path, identity) : r;
}

int cli_video_writer_open(const char *path, const cli_video_wish *wish, cli_video_writer **out) {
    av_log_set_level(AV_LOG_QUIET);
    cli_video_writer *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return cli_fail(path, "out of memory");
    }
    w->path = path;
    w->is_y4m = names_y4m(path);
    w->rgb = video_rgb_alloc(wish->width, wish->height, 8);
    int r = w->rgb != NULL ? CLI_OK : cli_fail(path, "out of memory");
    if (r == CLI_OK && wish->sound != NULL && w->is_y4m) {
        r = cli_fail(path, "y4m holds no sound; leave out --audio or name an .mp4 or .mkv file");
    }
    if (r == CLI_OK && wish->sound != NULL && cli_same_file(wish->sound, path)) {
        r = cli_fail(path, "is also the file of --audio; name another output file");
    }
    const cli_video_decoding plain = {.hardware = CLI_DECODER_SOFTWARE}; /* only one frame is decoded */
    r = r == CLI_OK && wish->sound != NULL ? cli_video_open(wish->sound, &plain, &w->sound) : r;
    r = r == CLI_OK ? settle_format(w, wish) : r;
    r = r == CLI_OK ? (w->is_y4m ? open_y4m(w) : open_parts(w)) : r;
    if (r != CLI_OK) {
        cli_video_writer_close(w, r);
        return r;
    }
    *out = w;
    return CLI_OK;
}

static AVFrame *frame_of(cli_video_writer *w) {
    const video_format *f = &w->format;
    AVFrame *frame = av_frame_alloc();
    if (frame == NULL) {
        return NULL;
    }
    frame->format = f->pixels;
    frame->width = f->w;
    frame->height = f->h;
    frame->pts = w->first + w->frames;
    frame->colorspace = f->colour.matrix;
    frame->color_primaries = f->colour.primaries;
    frame->color_trc = f->colour.transfer;
    frame->color_range = f->colour.range;
    frame->chroma_location = f->colour.siting;
    video_set_duration(frame, 1);
    if (av_frame_get_buffer(frame, ALIGN) < 0 || video_from_rgb(&w->from_rgb, w->rgb, &f->colour, frame) != 0) {
        av_frame_free(&frame);
    }
    return frame;
}

int cli_video_writer_put(cli_video_writer *w, const cli_picture *rgb) {
    video_rgb_of_picture(w->rgb, rgb);
    AVFrame *frame = frame_of(w);
    if (frame == NULL) {
        return cli_fail(w->path, "out of memory");
    }
    const int r =
        w->is_y4m ? video_y4m_put(&w->y4m, frame, NULL, w->frames) : video_parts_put(&w->parts, frame, NULL, w->frames);
    av_frame_free(&frame);
    w->frames++;
    return r;
}

static int finish(cli_video_writer *w) {
    if (!w->is_y4m) {
        const int r = video_parts_finish(&w->parts);
        return r == CLI_OK ? video_join(w->sound, &w->format, w->parts.folder, w->parts.done, w->path) : r;
    }
    if (is_pipe(w->path)) {
        return fflush(stdout) == 0 ? CLI_OK : cli_fail(w->path, "cannot be written: %s", strerror(errno));
    }
    const int r = cli_outfile_commit(&w->file, w->path);
    w->file.f = NULL;
    return r;
}

int cli_video_writer_close(cli_video_writer *w, int status) {
    status = status == CLI_OK ? finish(w) : status;
    if (w->file.f != NULL) {
        cli_outfile_abandon(&w->file);
    }
    video_parts_close(&w->parts, 0);
    video_scaler_free(&w->from_rgb);
    av_frame_free(&w->rgb);
    cli_video_close(w->sound);
    free(w);
    return status;
}
