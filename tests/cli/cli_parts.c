/* cli_parts.c - tests of the command line's code that needs no model and no picture file: arguments, help texts, UTF-8, EXIF,
 * resampling, the safetensors reader with hostile files. */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugins/cli/args.h"
#include "plugins/cli/pictures/picture.h"
#include "plugins/cli/pictures/resample.h"
#include "plugins/cli/latents/safetensors_io.h"
#include "plugins/cli/say.h"
#include "tests/lib/check.h"

static int parse(const char *line, cli_args *a) {
    static char words[24][64];
    static char *argv[25];
    char copy[512];
    int argc = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok(copy, " "); w != NULL && argc < 24; w = strtok(NULL, " ")) {
        snprintf(words[argc], sizeof words[argc], "%s", w);
        argv[argc] = words[argc];
        argc++;
    }
    argv[argc] = NULL;
    return cli_args_parse(argc, argv, a);
}

/* Bytes that are not valid UTF-8 are read as Latin-1. */
static void test_utf8(void) {
    static const char *const texts[][2] = {
        {"", ""},
        {"a\xc3\xbc\xe2\x82\xac\xf0\x9f\x90\x88", "a\xc3\xbc\xe2\x82\xac\xf0\x9f\x90\x88"},
        {"caf\xe9.png", "caf\xc3\xa9.png"},
        {"\xc3", "\xc3\x83"},
        {"\xe2\x82", "\xc3\xa2\xc2\x82"},
        {"\xc0\xaf", "\xc3\x80\xc2\xaf"},
        {"\xed\xa0\x80", "\xc3\xad\xc2\xa0\xc2\x80"},
        {"\xf4\x90\x80\x80", "\xc3\xb4\xc2\x90\xc2\x80\xc2\x80"},
        {"\xff", "\xc3\xbf"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char *got = cli_utf8(texts[i][0]);
        CHECKF(got != NULL && strcmp(got, texts[i][1]) == 0, "text %zu", i);
        free(got);
    }
}

static void test_args(void) {
    cli_args a;
    CHECK(parse("davy upscale in.png -o out.png --scale 1.5 --memory 2G --tile none --precision bf16", &a) == 0);
    CHECK(strcmp(a.inputs[0], "in.png") == 0 && a.n_inputs == 1 && strcmp(a.output, "out.png") == 0);
    CHECK(a.scale == 1.5 && a.memory == (uint64_t)2 << 30 && a.tile == -1 && a.precision == DAVY_DTYPE_BF16);
    CHECK(parse("davy encode a -o b --model m --sample --seed=7", &a) == 0 && a.seed == 7);
    CHECK(parse("davy upscale --model a --model=b -o o.png -- -x.png", &a) == 0);
    CHECK(a.n_models == 2 && strcmp(a.models[1], "b") == 0 && strcmp(a.inputs[0], "-x.png") == 0);
    CHECK(parse("davy encode a.png -o b --model m --memory 100k --tile 64 --overlap 8 --threads 2", &a) == 0);
    CHECK(a.memory == 102400 && a.tile == 64 && a.overlap == 8 && a.threads == 2);
    CHECK(parse("davy bench", &a) == 0 && a.n_inputs == 0);
    static const char *const literal[] = {"inspect",
                                          "upscale -o o.png",
                                          "encode --model m -o o.safetensors",
                                          "decode --model m -o o.png",
                                          "caption --model m",
                                          "bench"};
    for (size_t i = 0; i < sizeof literal / sizeof literal[0]; i++) {
        char line[96];
        snprintf(line, sizeof line, "davy %s -- --help", literal[i]);
        CHECKF(parse(line, &a) == 0 && a.n_inputs == 1 && strcmp(a.inputs[0], "--help") == 0 && !a.help, "%s", line);
    }
    CHECK(parse("davy devices --json --", &a) == 0 && a.n_inputs == 0 && a.json);
    static const char *const wrong[] = {
        "davy frobnicate",
        "davy upscale",
        "davy upscale a",
        "davy upscale a b -o c",
        "davy upscale a -o b --scale 0",
        "davy upscale a -o b --scale nan",
        "davy upscale a -o b --scale 65",
        "davy upscale a -o b --scale -2",
        "davy upscale a -o b --memory 2T",
        "davy upscale a -o b --memory 99999999999G",
        "davy upscale a -o b --memory 0",
        "davy upscale a -o b --tile 0",
        "davy upscale a -o b --tile -5",
        "davy upscale a -o b --threads 0",
        "davy upscale a -o b --precision fp64",
        "davy upscale a -o b --quiet=1",
        "davy encode a -o b --model m --sample --seed -1",
        "davy encode a -o b --model m --seed 7",
        "davy upscale a -o b --seed 7",
        "davy upscale a -o b --sample",
        "davy upscale a -o",
        "davy upscale a -o b --quality 101",
        "davy inspect",
        "davy inspect a --scale 2",
        "davy encode a -o b",
        "davy decode a --model m",
        "davy devices x",
        "davy bench --nope",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECKF(parse(wrong[i], &a) == CLI_USAGE, "accepted: %s", wrong[i]);
    }
}

static const struct {
    cli_command command;
    const char *line; /* a valid command line, to which an option is added */
} helped[] = {
    {CLI_DEVICES, "davy devices"},
    {CLI_INSPECT, "davy inspect a"},
    {CLI_UPSCALE, "davy upscale a -o b"},
    {CLI_ENCODE, "davy encode a -o b --model m --sample"},
    {CLI_DECODE, "davy decode a -o b --model m"},
    {CLI_CAPTION, "davy caption a --model m"},
    {CLI_BENCH, "davy bench"},
};

/* Whether the parser accepts an option without a value, or with one of two values that together fit every kind. */
static int is_taken(const char *line, const char *option) {
    static const char *const values[] = {"", " 1", " auto"};
    cli_args a;
    int taken = 0;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char all[256];
        snprintf(all, sizeof all, "%s %s%s", line, option, values[i]);
        taken = taken || parse(all, &a) == 0;
    }
    return taken;
}

/* Finds the next option in a text from *at on. Returns 0 if there is none. */
static int next_option(const char **at, char out[32]) {
    while ((*at = strstr(*at, "--")) != NULL) {
        const size_t n = 2 + strspn(*at + 2, "abcdefghijklmnopqrstuvwxyz-");
        snprintf(out, 32, "%.*s", (int)n, *at);
        *at += n;
        if (n > 2) {
            return 1;
        }
    }
    return 0;
}

static int is_told(cli_command command, const char *option) {
    char other[32];
    const char *at = cli_help(command);
    while (next_option(&at, other)) {
        if (strcmp(option, other) == 0) {
            return 1;
        }
    }
    return 0;
}

/* Each command accepts the options in its help text, and no other option of any help text. */
static void test_help(void) {
    const size_t n = sizeof helped / sizeof helped[0];
    const int told = dup(2); /* hides some hundred error messages */
    const int nowhere = open("/dev/null", O_WRONLY);
    for (size_t i = 0; i < n; i++) {
        char option[32];
        const char *at = cli_help(helped[i].command);
        while (next_option(&at, option)) {
            for (size_t k = 0; k < n; k++) {
                dup2(nowhere, 2);
                const int taken = is_taken(helped[k].line, option);
                dup2(told, 2);
                CHECKF(taken == is_told(helped[k].command, option), "%s %s: %s", cli_command_name(helped[k].command),
                       option, taken ? "accepted, but not in the help" : "in the help, but refused");
            }
        }
    }
    close(nowhere);
    close(told);
}

static void test_exif(void) {
    static const uint8_t little[] = {'E', 'x', 'i',  'f', 0, 0, 'I', 'I', 42, 0, 8, 0, 0, 0,
                                     1,   0,   0x12, 1,   3, 0, 1,   0,   0,  0, 6, 0, 0, 0};
    static const uint8_t big[] = {'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, 8, 0, 0};
    CHECK(cli_exif_orientation(little, sizeof little) == 6);
    CHECK(cli_exif_orientation(big, sizeof big) == 8);
    for (size_t n = 0; n < sizeof little - 2; n++) {
        uint8_t *cut = malloc(n + 1);
        if (cut != NULL) {
            memcpy(cut, little, n);
            CHECKF(cli_exif_orientation(cut, n) == 1, "cut after %zu bytes", n);
        }
        free(cut);
    }
    uint8_t far[sizeof big];
    memcpy(far, big, sizeof big);
    memset(far + 4, 0xff, 4);
    CHECK(cli_exif_orientation(far, sizeof far) == 1);
    memcpy(far, big, sizeof big);
    far[19] = 9;
    CHECK(cli_exif_orientation(far, sizeof far) == 1);
}

static cli_picture make(uint32_t w, uint32_t h, uint32_t channels, uint32_t bits) {
    cli_picture p = {.width = w, .height = h, .channels = channels, .bits = bits};
    if (cli_picture_alloc(&p) != 0) {
        exit(1);
    }
    uint32_t state = 7;
    for (size_t i = 0; i < (size_t)w * h * channels; i++) {
        state = state * 1664525u + 1013904223u;
        if (bits == 16) {
            ((uint16_t *)p.pixels)[i] = (uint16_t)(state >> 16);
        } else {
            ((uint8_t *)p.pixels)[i] = (uint8_t)(state >> 24);
        }
    }
    return p;
}

static double kernel(double x) {
    const double pi = acos(-1.0);
    return fabs(x) >= 3.0 ? 0.0 : x == 0.0 ? 1.0 : sin(pi * x) / (pi * x) * sin(pi * x / 3.0) / (pi * x / 3.0);
}

/* Computes an output sample from the definition of Lanczos-3: both axes at once, in double, over the whole picture. */
static double direct(const cli_picture *p, uint32_t w, uint32_t h, uint32_t x, uint32_t y, uint32_t c) {
    const double sx = (double)p->width / w;
    const double sy = (double)p->height / h;
    const double fx = sx > 1.0 ? sx : 1.0;
    const double fy = sy > 1.0 ? sy : 1.0;
    double sum = 0.0;
    double weights = 0.0;
    for (uint32_t j = 0; j < p->height; j++) {
        for (uint32_t i = 0; i < p->width; i++) {
            const double k = kernel((i - ((x + 0.5) * sx - 0.5)) / fx) * kernel((j - ((y + 0.5) * sy - 0.5)) / fy);
            sum += k * ((const uint8_t *)p->pixels)[((size_t)j * p->width + i) * p->channels + c];
            weights += k;
        }
    }
    const double v = floor(sum / weights + 0.5);
    return v < 0.0 ? 0.0 : v > 255.0 ? 255.0 : v;
}

static void test_resample_against_definition(uint32_t w, uint32_t h) {
    cli_picture in = make(23, 17, 3, 8);
    cli_picture out = {0};
    CHECK(cli_resample(&in, w, h, &out) == 0);
    double worst = 0.0;
    for (uint32_t y = 0; y < h; y++) {
        for (uint32_t x = 0; x < w; x++) {
            const uint8_t *got = (const uint8_t *)out.pixels + ((size_t)y * w + x) * 3;
            for (uint32_t c = 0; c < 3; c++) {
                worst = fmax(worst, fabs(got[c] - direct(&in, w, h, x, y, c)));
            }
        }
    }
    CHECKF(worst <= 1.0, "%ux%u differs by %g from the definition", w, h, worst);
    cli_picture_free(&in);
    cli_picture_free(&out);
}

static void test_resample(void) {
    test_resample_against_definition(46, 34);
    test_resample_against_definition(31, 9);
    test_resample_against_definition(7, 5);
    test_resample_against_definition(1, 1);
    cli_picture in = make(19, 11, 1, 16);
    cli_picture out = {0};
    CHECK(cli_resample(&in, 19, 11, &out) == 0);
    CHECK(memcmp(in.pixels, out.pixels, 19 * 11 * 2) == 0);
    cli_picture_free(&out);
    for (size_t i = 0; i < 19 * 11; i++) {
        ((uint16_t *)in.pixels)[i] = 40000;
    }
    CHECK(cli_resample(&in, 50, 3, &out) == 0);
    int flat = 1;
    for (size_t i = 0; i < 50 * 3; i++) {
        flat = flat && ((const uint16_t *)out.pixels)[i] == 40000;
    }
    CHECK(flat);
    cli_picture_free(&in);
    cli_picture_free(&out);
}

/* An opaque red half beside a transparent green half: no visible pixel may become green. */
static void test_resample_alpha(void) {
    cli_picture in = make(16, 4, 4, 8);
    cli_picture out = {0};
    for (size_t i = 0; i < 64; i++) {
        uint8_t *p = (uint8_t *)in.pixels + 4 * i;
        const int left = i % 16 < 8;
        p[0] = left ? 200 : 0;
        p[1] = left ? 0 : 255;
        p[2] = 0;
        p[3] = left ? 255 : 0;
    }
    CHECK(cli_resample(&in, 40, 10, &out) == 0);
    int worst_green = 0;
    int red_off = 0;
    for (size_t i = 0; i < 400; i++) {
        const uint8_t *p = (const uint8_t *)out.pixels + 4 * i;
        if (p[3] > 8) {
            worst_green = p[1] > worst_green ? p[1] : worst_green;
            red_off = abs(p[0] - 200) > red_off ? abs(p[0] - 200) : red_off;
        }
    }
    CHECKF(worst_green <= 1, "green %d bled in", worst_green);
    CHECKF(red_off <= 3, "red is off by %d", red_off);
    cli_picture_free(&in);
    cli_picture_free(&out);
}

static void write_file(const char *path, const char *header, uint64_t length, size_t data_bytes) {
    FILE *f = fopen(path, "wb");
    if (f == NULL) {
        exit(1);
    }
    for (int i = 0; i < 8; i++) {
        fputc((int)(length >> (8 * i) & 255), f);
    }
    fputs(header, f);
    for (size_t i = 0; i < data_bytes; i++) {
        fputc(0, f);
    }
    fclose(f);
}

static void test_safetensors(void) {
    const char *path = "cli_parts.safetensors";
    cli_array a = {.name = "x", .ndim = 2, .shape = {2, 3}};
    CHECK(cli_array_alloc_f32(&a) == 0);
    for (int i = 0; i < 6; i++) {
        ((float *)a.data)[i] = (float)i;
    }
    CHECK(cli_safetensors_write(path, &a, 1) == 0);
    cli_array b;
    CHECK(cli_safetensors_read(path, "latent", &b) == 0 && b.ndim == 2 && b.shape[0] == 2 && b.shape[1] == 3);
    CHECK(b.bytes == a.bytes && memcmp(a.data, b.data, a.bytes) == 0);
    cli_array_free(&a);
    cli_array_free(&b);
    static const char *const bad[] = {
        "{}",
        "[]",
        "{\"a\":",
        "{\"latent\":3}",
        "{\"latent\":{\"dtype\":\"I8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
        "{\"latent\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
        "{\"latent\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}",
        "{\"latent\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}",
        "{\"latent\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",
        "{\"latent\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
        "{\"latent\":{\"dtype\":\"F32\",\"shape\":[9007199254740992,9007199254740992],\"data_offsets\":[0,4]}}",
        "{\"latent\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_file(path, bad[i], strlen(bad[i]), 8);
        CHECKF(cli_safetensors_read(path, "latent", &b) == CLI_FAILED, "accepted: %s", bad[i]);
    }
    static const uint64_t lengths[] = {0, 1, 1u << 30, UINT64_MAX, (uint64_t)1 << 63};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        write_file(path, bad[5], lengths[i], 8);
        CHECKF(cli_safetensors_read(path, "latent", &b) == CLI_FAILED, "accepted a header of %llu bytes",
               (unsigned long long)lengths[i]);
    }
    remove(path);
}

int main(void) {
    test_args();
    test_help();
    test_utf8();
    test_exif();
    test_resample();
    test_resample_alpha();
    test_safetensors();
    return check_done();
}
