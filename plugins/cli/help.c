/* help.c - the texts of --help. */
#include "plugins/cli/args.h"

#define COMMON                                                                                                         \
    "  --device D        auto, cpu, cuda, cuda:N, cuda:uuid=U, cuda:pci=P, or several: cuda:0,cuda:1\n"                \
    "                    (auto: a usable GPU, else the CPU; the environment variable DAVY_DEVICE replaces\n"           \
    "                    auto)\n"                                                                                      \
    "  --precision P     auto, fp32, bf16, int8; on a GPU also tf32, fp16, fp8 (auto: fp32 on a CPU; on a\n"           \
    "                    GPU fp16 to upscale, bf16 for a VAE or a transformer). fp8: fp16 with E4M3\n"                 \
    "                    products, visibly less exact. int8: integer products in the layers that gain\n"               \
    "                    speed; the others compute in fp32 on a CPU, in fp16 on a GPU. PSNR of at least\n"             \
    "                    45 dB against fp32\n"                                                                         \
    "  --tile T          auto, none, or the side of a tile: pixels of a picture, latent pixels for decode\n"           \
    "                    (auto: as large as the memory allows)\n"                                                      \
    "  --overlap N       pixels that neighbouring tiles share (as many as the network needs)\n"                        \
    "  --memory BYTES    limit for weights and workspace, on a GPU in its memory; K, M, G are powers of\n"             \
    "                    1024 (90 % of the GPU's free memory; half of the computer's memory)\n"                        \
    "  --threads N       CPU threads (one per core)\n"                                                                 \
    "  --json            print the result as JSON on standard output\n"                                                \
    "  --quiet           print no progress bar and no notes\n"

#define FORMATS                                                                                                        \
    "  --quality N       quality of JPEG and WebP, 1 to 100 (95)\n"                                                    \
    "  --lossless        write lossless WebP\n"

static const char general[] =
    "usage: davy COMMAND ...\n"
    "  devices                                         list processors and GPUs\n"
    "  inspect MODEL                                   describe a weight file\n"
    "  upscale IN -o OUT [--model M] [--scale S]       enlarge a picture, a folder of pictures or a video\n"
    "  encode IN -o LATENT.safetensors --model VAE     turn a picture or a video into latents\n"
    "  decode LATENT.safetensors -o OUT --model VAE    turn latents into a picture or a video\n"
    "  caption IN... --model DIR                       describe pictures and videos\n"
    "  bench [CASE...]                                 measure speed and memory\n"
    "davy COMMAND --help lists the options of a command. davy --version prints the version. Arguments\n"
    "after -- are names, even if they begin with a dash. The help texts give defaults in parentheses.\n"
    "Exit status: 0 success, 1 failure, 2 wrong usage, 128 + signal after an interrupt.\n";

static const char devices[] =
    "usage: davy devices [--json] [--quiet]\n"
    "Lists the processors and GPUs that davy finds. For a GPU that cannot be used, and for a computer\n"
    "without a GPU, it prints the reason. It opens each usable GPU to read its free memory.\n";

static const char inspect[] =
    "usage: davy inspect MODEL [--json] [--quiet] [--device D]\n"
    "Prints a weight file's architecture, hyperparameters, parameter count, types and scale. For a file\n"
    "that davy does not recognise it prints the reason and a description; the exit status is 1. It uses\n"
    "the CPU unless --device names another device.\n";

static const char upscale[] =
    "usage: davy upscale IN -o OUT [options]\n"
    "Enlarges a picture, a video, or all pictures of a folder. The results of a folder go into a folder,\n"
    "under the same names.\n"
    "Pictures: PNG, JPEG and WebP; the ending of OUT chooses the format. PNG keeps 16 bits. JPEG and WebP\n"
    "hold 8 bits: 16-bit pictures are rounded, with a note. Grey stays grey, alpha is enlarged too, ICC\n"
    "profiles are kept, EXIF orientation is applied. JPEG holds no alpha: a picture with transparent\n"
    "parts is refused.\n"
    "Videos: FFmpeg's libraries decode and encode, on hardware if it supports the video. davy keeps the\n"
    "times of frames, colour matrix, primaries, transfer and range, 10 bits, pixel shape and orientation.\n"
    "It copies sound, subtitles, chapters and covers.\n"
    "OUT of a video is a video file, or a folder (also NAME/) for numbered PNGs of the network's size, or\n"
    "y4m (- or NAME.y4m). IN - reads y4m or another video from a pipe.\n"
    "An interrupted run into a video file keeps its finished parts in OUT.davy-parts. The same command\n"
    "continues after them, and the file is the same as that of an uninterrupted run.\n"
    "  -o, --output OUT  output file or folder\n"
    "  --model M         weight file, folder, or the name of a shipped model (davy-live-x2 if S <= 2,\n"
    "                    else davy-live-x4); may be repeated for a model in several files\n"
    "  --scale S         final size as a factor, also a fraction, up to 64 (the model's own). The network\n"
    "                    runs once; a Lanczos filter brings its result to the final size\n"
    "  --raw FILE        also write the network's unclamped colours: float32 NCHW, tensor \"output\"; takes\n"
    "                    a second run, for one picture only\n"
    "  --split HxW       windows of a DAT or RGT network, if its file does not contain them (8x32; DAT-S\n"
    "                    has 8x16)\n"
    "  --codec C         codec of a video: h264, hevc, av1, vp9, ffv1 (lossless), or the name of an\n"
    "                    FFmpeg encoder (h264; hevc for 10 bits or over 4096 pixels; vp9 for .webm). If a\n"
    "                    GPU computes, its encoder is tried first; --codec libx264 keeps encoding off the\n"
    "                    GPU\n"
    "  --crf N           quality of a video, lower is better; 1 to 51, for vp9 and av1 up to 63 (16)\n"
    "  --decoder D       decoder of a video: hardware, software, or auto (auto: hardware, if a GPU\n"
    "                    computes and supports the video)\n" FORMATS COMMON;

static const char encode[] =
    "usage: davy encode IN -o LATENT.safetensors --model VAE [options]\n"
    "Writes tensor \"latent\", float32 [1, z, h, w]: the mean of the posterior, unscaled. Alpha is ignored.\n"
    "A video VAE also takes a video, - (a pipe), or a folder of pictures, which are the frames in the\n"
    "order of their names. It writes [1, z, t, h, w], for one picture with t = 1, and stores the number\n"
    "of frames and the frame rate in the file. Frames are rotated as the video says. An interrupted run\n"
    "starts from the beginning.\n"
    "  -o, --output FILE output file\n"
    "  --model VAE       weight file of the VAE; may be repeated (encoder and decoder in two files)\n"
    "  --decoder D       decoder of a video: hardware, software, or auto (auto: hardware that supports\n"
    "                    the video)\n"
    "  --sample          draw from the posterior instead of taking its mean, with --seed N (0)\n"
    "  --scaled          apply the family's scale and shift\n"
    "  --crop            cut the sides to multiples of the model's factor, evenly on both ends; without\n"
    "                    it other sizes are refused\n"
    "  --raw FILE        also write \"mean\" and \"logvar\" of a picture, unscaled (TAESD family: \"mean\"\n"
    "                    only)\n" COMMON;

static const char decode[] =
    "usage: davy decode LATENT.safetensors -o OUT --model VAE [options]\n"
    "Reads tensor \"latent\", or the only tensor, in float32, float16 or bfloat16. From [1, z, h, w] it\n"
    "writes a PNG, JPEG or WebP. From [1, z, t, h, w] it writes a video file, numbered PNGs into a folder\n"
    "(NAME/), or y4m (- or NAME.y4m).\n"
    "  -o, --output OUT  output file or folder\n"
    "  --model VAE       weight file of the VAE; may be repeated (encoder and decoder in two files)\n"
    "  --scaled          the latent has the family's scale and shift applied\n"
    "  --fps R           frames per second of a video (the latent file's, else 24)\n"
    "  --frames N        write only the first N frames (the number that was encoded, if the file contains\n"
    "                    it)\n"
    "  --audio CLIP      copy sound, subtitles, chapters and tags of this video\n"
    "  --codec C, --crf N\n"
    "                    codec and quality of a video, as for upscale\n"
    "  --raw FILE        also write the network's unclamped output of a picture: float32 NCHW, tensor\n"
    "                    \"output\"\n" FORMATS COMMON;

static const char caption[] =
    "usage: davy caption IN... --model DIR [options]\n"
    "Describes pictures, folders of pictures (PNG, JPEG, WebP) and, with a model that supports them,\n"
    "videos. On a terminal the answer appears word by word.\n"
    "  --model DIR       folder of a captioning model from Hugging Face, or a GGUF text model; its mmproj\n"
    "                    is in the same folder, or a second --model names it\n"
    "  --prompt TEXT     question (Describe the image.)\n"
    "  --ask TEXT        further question about the same picture; may be repeated\n"
    "  --system TEXT     system prompt (the chat template's)\n"
    "  --max-tokens N    length of an answer, thoughts included (256; 4096 for a reasoning model)\n"
    "  --stop TEXT       end the answer before this text; may be repeated\n"
    "  --context N       tokens of the context: picture, questions and answers together (the model's, at\n"
    "                    most 8192)\n"
    "  --max-tiles N     tiles into which the model cuts a picture, the whole picture included; 1: no\n"
    "                    cutting (the model's own)\n"
    "  --max-pixels N    pixels of a picture as the model sees it (the model's own; Qwen models 1003520)\n"
    "  --temperature T   randomness of the answer; 0: always the likeliest word (0)\n"
    "  --top-k N         with a temperature: choose among the N likeliest words (all)\n"
    "  --top-p P         with a temperature: choose among the likeliest words with a total probability of\n"
    "                    P (1)\n"
    "  --min-p P         with a temperature: drop words less than P times as likely as the likeliest\n"
    "                    (none)\n"
    "  --seed N          random seed (0)\n"
    "  --repeat-penalty X\n"
    "                    make words already used X times less likely; 1: off, 1.1: a little (1)\n"
    "  --no-repeat N     allow no sequence of N tokens twice (off)\n"
    "  --published       take the sampling options that are not given from the model's\n"
    "                    generation_config.json\n"
    "  --thoughts        also print the thoughts that a reasoning model writes before its answer\n"
    "  --lookup, --no-lookup\n"
    "                    try several words at once that followed the same words earlier: always, never\n"
    "                    (if it is faster and changes no answer)\n"
    "  --video           each folder holds the frames of one video, in the order of their names\n"
    "  --video-fps N     frames per second: the rate of a folder's frames, or the number taken from a\n"
    "                    video file (2)\n"
    "  --out FILE.jsonl  write the answers to this file as JSON lines, as --json prints them. If the same\n"
    "                    command runs again, pictures that the file has from the same model and questions\n"
    "                    are skipped; failed pictures are not written and are retried next time\n"
    "  --sidecar         write the answer to NAME.txt beside each picture NAME.png; without --out,\n"
    "                    pictures that have such a file are skipped\n"
    "  --again           skip no picture, and begin FILE.jsonl from the start\n"
    "  --device D        auto, cpu, cuda, cuda:N, or several that share many pictures: cuda:0,cuda:1\n"
    "  --precision P     auto, fp32, bf16, int8, int4, on a GPU also fp16 (auto: bf16 on a GPU, the\n"
    "                    weights' own on a CPU)\n"
    "  --memory BYTES    limit for weights and workspace, on a GPU in its memory; K, M, G are powers of\n"
    "                    1024 (90 % of the GPU's free memory; half of the computer's memory)\n"
    "  --threads N       CPU threads (one per core)\n"
    "  --json            print one line of JSON per picture on standard output\n"
    "  --quiet           print no progress bar and no notes\n";

static const char bench[] =
    "usage: davy bench [CASE...] [options]\n"
    "Measures cases named task-arch-size-precision, each in its own process: a warm-up, then repeated\n"
    "runs. Without CASE it measures a standard list. On a GPU it measures pictures in GPU memory, and\n"
    "then pictures in host memory.\n"
    "  task              upscale, encode, decode\n"
    "  arch              live2, live4 (shipped weights); with random weights compact, compact16, rrdb,\n"
    "                    span, spanf3, realplksr, omnisr, swinir, drct, hat, dat, srformer, rgt, atd\n"
    "                    (upscale), vae_tae or taesd, vae_kl or sdxl (encode, decode)\n"
    "  size              the picture's side, WIDTHxHEIGHT, or a name such as 720p; for upscale also\n"
    "                    WIDTHxHEIGHTxPICTURES for several pictures in one call\n"
    "  precision         fp32, tf32, bf16, fp16, fp8, int8\n"
    "Options:\n"
    "  --save FILE       write the results as JSON lines\n"
    "  --compare FILE    compare with saved results; exit status 1 if a case is over 10 % slower\n"
    "  --profile         print time, work and rate of each kernel and step; on a GPU also the share of\n"
    "                    its peak\n"
    "  --peak GFLOPS     peak of the CPU; the profile then also prints the share of it\n"
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
