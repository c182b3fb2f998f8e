/* bleed.c - colours grow a few pixels into the transparent parts of a picture; what is visible does not change. */
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/picture.h"

/* How far networks look in practice: beyond that the weight of a pixel is invisible. */
enum { REACH = 8 };

static uint32_t get(const cli_picture *p, size_t i) {
    return p->bits == 16 ? ((const uint16_t *)p->pixels)[i] : ((const uint8_t *)p->pixels)[i];
}

static void set(cli_picture *p, size_t i, uint32_t v) {
    if (p->bits == 16) {
        ((uint16_t *)p->pixels)[i] = (uint16_t)v;
    } else {
        ((uint8_t *)p->pixels)[i] = (uint8_t)v;
    }
}

/* The mean of the neighbours that had a colour before this pass; returns whether there were any. */
static int grow(cli_picture *p, const uint8_t *age, uint8_t pass, uint32_t x, uint32_t y) {
    const uint32_t colours = p->channels - 1;
    uint32_t sum[3] = {0};
    uint32_t n = 0;
    for (uint32_t j = y > 0 ? y - 1 : 0; j <= y + 1 && j < p->height; j++) {
        for (uint32_t i = x > 0 ? x - 1 : 0; i <= x + 1 && i < p->width; i++) {
            const size_t at = (size_t)j * p->width + i;
            if (age[at] < pass) {
                n++;
                for (uint32_t c = 0; c < colours; c++) {
                    sum[c] += get(p, at * p->channels + c);
                }
            }
        }
    }
    for (uint32_t c = 0; n > 0 && c < colours; c++) {
        set(p, ((size_t)y * p->width + x) * p->channels + c, (sum[c] + n / 2) / n);
    }
    return n > 0;
}

int cli_picture_bleed(cli_picture *p) {
    const size_t n = (size_t)p->width * p->height;
    if (p->channels % 2 != 0 || cli_picture_opaque(p)) {
        return 0;
    }
    /* the pass in which a pixel got its colour; 0: it had one */
    uint8_t *age = malloc(n);
    if (age == NULL) {
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        age[i] = get(p, (i + 1) * p->channels - 1) == 0 ? UINT8_MAX : 0;
    }
    for (uint8_t pass = 1; pass <= REACH; pass++) {
        for (uint32_t y = 0; y < p->height; y++) {
            for (uint32_t x = 0; x < p->width; x++) {
                const size_t at = (size_t)y * p->width + x;
                if (age[at] > pass && grow(p, age, pass, x, y)) {
                    age[at] = pass;
                }
            }
        }
    }
    free(age);
    return 0;
}
