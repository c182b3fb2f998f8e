/* help.c - the texts of --help. */
#include "plugins/cli/args.h"

#define COMMON                                                                                                         \
    "  --device D        auto, cpu, cuda, cuda:N, cuda:uuid=U, cuda:pci=P, or several: cuda:0,cuda:1 (auto: a\n"       \
    "                    GPU that can be used, else the CPU; the variable DAVY_DEVICE says otherwise)\n"               \
    "  --precision P     auto, fp32, bf16, int8; on a GPU also tf32, fp16, fp8 (auto: fp32 on a CPU; on a GPU\n"       \
    "                    fp16 to upscale, bf16 for a VAE or a transformer). fp8: fp16 with products of E4M3,\n"        \
    "                    visibly less exact. int8: fp16, on a CPU fp32, with products of integers in the\n"            \
    "                    layers that gain, 45 dB from it\n"                                                            \
    "  --tile T          auto, none, or a side in pixels of the input, of a latent in its own (auto: what fits\n"      \
    "                    the memory)\n"                                                                                \
    "  --overlap N       pixels that tiles share (as the network needs)\n"                                             \
    "  --memory BYTES    ceiling for weights and workspace, on a GPU in its memory; K, M, G are powers of 1024\n"      \
    "                    (nine tenths of what the GPU has free; half of the computer's memory)\n"                      \
    "  --threads N       CPU threads (one per core)\n"                                                                 \
    "  --json            result as JSON on stdout\n"                                                                   \
    "  --quiet           no progress bar, no notes\n"

#define FORMATS                                                                                                        \
    "  --quality N       of JPEG and WebP, 1 to 100 (95)\n"                                                            \
    "  --lossless        WebP without loss\n"

static const char general[] =
    "usage: davy COMMAND ...\n"
    "  devices                                         what davy can run on\n"
    "  inspect MODEL                                   what a weight file is\n"
    "  upscale IN -o OUT [--model M] [--scale S]       picture, video, folder\n"
    "  encode IN -o LATENT.safetensors --model VAE     picture or video to latents\n"
    "  decode LATENT.safetensors -o OUT --model VAE    latents to picture or video\n"
    "  caption IN... --model DIR                       pictures in words\n"
    "  bench [CASE...]                                 speed and memory\n"
    "davy COMMAND --help tells more; davy --version the version. What comes after -- is not an option,\n"
    "whatever it begins with. In the texts of help the default stands in parentheses.\n"
    "Exit status: 0 done, 1 failed, 2 wrong usage, 128 + signal when interrupted.\n";

static const char devices[] =
    "usage: davy devices [--json] [--quiet]\n"
    "Lists the processors and GPUs davy knows, unusable ones with the reason; without a GPU, why there is\n"
    "none. A GPU that can be used is opened to see its free memory.\n";

static const char inspect[] =
    "usage: davy inspect MODEL [--json] [--quiet] [--device D]\n"
    "Tells a weight file's architecture, hyper-parameters, parameter count, types and scale. For a file that\n"
    "is not recognised: why not and what it looks like; exit status 1. The device is the CPU if none is named.\n";

static const char upscale[] =
    "usage: davy upscale IN -o OUT [options]\n"
    "Enlarges a picture, all pictures of a folder into a folder of the same names, or a video. PNG, JPEG and\n"
    "WebP; the ending of OUT chooses the format. 16-bit PNG stays 16 bit, grey stays grey, alpha is enlarged\n"
    "too, ICC profiles are kept, EXIF orientation is applied. JPEG and WebP hold 8 bits: 16-bit pictures are\n"
    "rounded, with a note. JPEG holds no alpha: a picture with transparent parts is refused.\n"
    "Videos are read and written by FFmpeg's libraries, on the hardware where they can. Times of frames,\n"
    "colour matrix, primaries, transfer and range, pixel shape and orientation stay; sound, subtitles,\n"
    "chapters and covers are copied. 10 bits stay 10.\n"
    "OUT: a video file; a folder (or NAME/) gets numbered PNGs of the size the network gives; - or NAME.y4m is\n"
    "y4m. IN - is y4m, or another video, from a pipe. When a run into a file is interrupted, what is done stays\n"
    "in OUT.davy-parts, and the same command goes on from there; the file is the same as if nothing had\n"
    "happened.\n"
    "  -o, --output OUT  where the result goes\n"
    "  --model M         weight file, folder, or the name of a shipped model (davy-live-x4; davy-live-x2 when\n"
    "                    S <= 2); may be repeated for a model in several files\n"
    "  --scale S         final size, also fractions, up to 64 (the model's own). The network runs once; a\n"
    "                    different S is reached from its result with a Lanczos filter, upwards too\n"
    "  --raw FILE        also the network's unclamped output, float32 NCHW, tensor \"output\" (colour only; a\n"
    "                    second run; of one picture)\n"
    "  --split HxW       windows of a DAT or RGT network whose file does not tell them (8x32; DAT-S has 8x16)\n"
    "  --codec C         of a video: h264, hevc, av1, vp9, ffv1 (without loss), or the name of an encoder of\n"
    "                    FFmpeg (h264; hevc for 10 bits or over 4096 pixels; vp9 into .webm). Where a GPU\n"
    "                    computes, its encoder is tried first; --codec libx264 keeps the work off it\n"
    "  --crf N           its quality, less is better; 1 to 51, of vp9 and av1 to 63 (16)\n"
    "  --decoder D       of a video: hardware, software, or auto (auto: hardware where a GPU computes and takes\n"
    "                    the video)\n" FORMATS COMMON;

static const char encode[] =
    "usage: davy encode IN -o LATENT.safetensors --model VAE [options]\n"
    "Writes tensor \"latent\", float32 [1, z, h, w], the mean of the posterior, unscaled. Alpha is ignored.\n"
    "With a VAE of videos IN may be one, - (a pipe), or a folder of pictures, its frames in the order of their\n"
    "names: the latent is [1, z, t, h, w], of a picture with t = 1, and the file says how many frames there\n"
    "were and how fast. Frames are turned as they are to be shown. A run that was interrupted begins anew.\n"
    "  -o, --output FILE where the latent goes\n"
    "  --model VAE       may be repeated (encoder and decoder in files of their own)\n"
    "  --decoder D       of a video: hardware, software, or auto (auto: hardware that takes the video)\n"
    "  --sample          draw from the posterior instead, with --seed N (0)\n"
    "  --scaled          apply the family's scale and shift\n"
    "  --crop            cut the sides to multiples of the model's factor, evenly on both ends; without it\n"
    "                    other sizes are refused\n"
    "  --raw FILE        also \"mean\" and \"logvar\", unscaled, of a picture (TAESD family: \"mean\" only)\n" COMMON;

static const char decode[] =
    "usage: davy decode LATENT.safetensors -o OUT --model VAE [options]\n"
    "Reads tensor \"latent\", or the only tensor, [1, z, h, w] float32, float16 or bfloat16; writes PNG, JPEG or\n"
    "WebP. Of [1, z, t, h, w] it writes a video file, numbered PNGs into a folder (NAME/), or y4m (- or\n"
    "NAME.y4m).\n"
    "  -o, --output OUT  where the result goes\n"
    "  --model VAE       may be repeated (encoder and decoder in files of their own)\n"
    "  --scaled          the latent has the family's scale and shift applied\n"
    "  --fps R           frames a second of a video (as the file says, else 24)\n"
    "  --frames N        only the first N (as many as were encoded, where the file says so)\n"
    "  --audio CLIP      copies sound, subtitles, chapters and tags of this video\n"
    "  --codec C, --crf N\n"
    "                    of a video, as for upscale\n"
    "  --raw FILE        also the network's unclamped output of a picture, float32 NCHW, tensor \"output\"\n" FORMATS
        COMMON;

static const char caption[] =
    "usage: davy caption IN... --model DIR [options]\n"
    "Says what is on pictures, or on those of folders (PNG, JPEG, WebP), and what happens in videos, where the\n"
    "model takes them. On a terminal the answer appears as it is made.\n"
    "  --model DIR       a captioning model's folder as Hugging Face has it, or a GGUF text model; its mmproj\n"
    "                    lies beside it, or is a second --model\n"
    "  --prompt TEXT     the question (Describe the image.)\n"
    "  --ask TEXT        a further question about the same picture; may be repeated\n"
    "  --system TEXT     what the model is told before (as its chat template says)\n"
    "  --max-tokens N    length of an answer, thoughts included (256; of a model that thinks before it answers 4096)\n"
    "  --stop TEXT       an answer ends before this text; may be repeated\n"
    "  --context N       room for so many tokens, of the picture, questions and answers together (the model's,\n"
    "                    at most 8192)\n"
    "  --max-tiles N     of a picture that the model cuts up, the whole one included; 1: no cutting (the\n"
    "                    model's own)\n"
    "  --max-pixels N    of a picture as the model sees it (the model's own; Qwen models 1003520)\n"
    "  --temperature T   0: always the likeliest word (0)\n"
    "  --top-k N, --top-p P, --seed N\n"
    "                    among how many words, up to which probability, and with which numbers is drawn (all;\n"
    "                    1; 0)\n"
    "  --min-p P         words less than P times as likely as the likeliest are not drawn\n"
    "  --repeat-penalty X\n"
    "                    words that were said are X times less likely: 1 none, 1.1 a little (1)\n"
    "  --no-repeat N     N tokens in a row do not come twice\n"
    "  --published       where none of these is given, as the model's generation_config.json says\n"
    "  --thoughts        what a thinking model writes before its answer is shown too\n"
    "  --lookup, --no-lookup\n"
    "                    words that followed the last ones earlier are tried several at a time: always, never\n"
    "                    (where it is quicker and changes nothing)\n"
    "  --video           each folder holds the frames of a video, in the order of their names\n"
    "  --video-fps N     frames a second: of a folder's, and so many are taken of a video file (2)\n"
    "  --out FILE.jsonl  answers as JSON lines into a file, as with --json, each when it is there. Run again,\n"
    "                    pictures that the file has from the same model and questions are skipped; those that\n"
    "                    failed are missing\n"
    "  --sidecar         the answer as NAME.txt beside each picture NAME.png; without --out, pictures that have\n"
    "                    one are skipped\n"
    "  --again           every picture anew; FILE.jsonl is begun from the start\n"
    "  --device D        auto, cpu, cuda, cuda:N, or several, over which many pictures are spread:\n"
    "                    cuda:0,cuda:1\n"
    "  --precision P     auto, fp32, bf16, int8, int4, on a GPU fp16 (auto: on a GPU bf16, else weights as they\n"
    "                    are stored)\n"
    "  --memory BYTES    ceiling for weights and workspace, on a GPU in its memory; K, M, G are powers of 1024\n"
    "  --threads N       CPU threads (one per core)\n"
    "  --json            one line of JSON a picture on stdout\n"
    "  --quiet           no progress bar, no notes\n";

static const char bench[] =
    "usage: davy bench [CASE...] [options]\n"
    "Measures cases named task-arch-size-precision, each in a process of its own: a warm-up, then repeated\n"
    "runs. Without CASE a standard list. On a GPU pictures lie in its memory; the time with pictures in host\n"
    "memory is told too.\n"
    "  task              upscale, encode, decode\n"
    "  arch              live2, live4 (shipped weights); with random weights compact, compact16, rrdb, span,\n"
    "                    spanf3, realplksr, omnisr, swinir, drct, hat, dat, srformer, rgt, atd (upscale),\n"
    "                    vae_tae or taesd, vae_kl or sdxl (encode, decode)\n"
    "  size              the picture's side, WIDTHxHEIGHT, 720p and the like, or, to upscale,\n"
    "                    WIDTHxHEIGHTxPICTURES of one call\n"
    "  precision         fp32, tf32, bf16, fp16, fp8, int8\n"
    "Options:\n"
    "  --save FILE       results as JSON lines\n"
    "  --compare FILE    against saved results; exit status 1 when a case is over 10 % slower\n"
    "  --profile         time, work and rate of every kernel and step; on a GPU also the share of what it could\n"
    "                    do\n"
    "  --peak GFLOPS     a CPU's peak, for the profile's share of it\n"
    "  --device, --tile, --overlap, --memory, --threads, --json, --quiet\n"
    "                    as for upscale\n";

const char *cli_help(cli_command command) {
    switch (command) {
    case CLI_DEVICES:
        return devices;
    case CLI_INSPECT:
        return inspect;
    case CLI_UPSCALE:
        return upscale;
    case CLI_ENCODE:
        return encode;
    case CLI_DECODE:
        return decode;
    case CLI_CAPTION:
        return caption;
    case CLI_BENCH:
        return bench;
    default:
        return general;
    }
}
