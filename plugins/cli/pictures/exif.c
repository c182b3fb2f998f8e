/* exif.c - reads the orientation (tag 0x0112) from an EXIF block. */
#include <string.h>

#include "plugins/cli/pictures/picture.h"

static uint32_t number(const uint8_t *b, int bytes, int big) {
    uint32_t v = 0;
    for (int i = 0; i < bytes; i++) {
        v |= (uint32_t)b[i] << (8 * (big ? bytes - 1 - i : i));
    }
    return v;
}

int cli_exif_orientation(const uint8_t *exif, size_t bytes) {
    if (bytes >= 6 && memcmp(exif, "Exif\0\0", 6) == 0) {
        exif += 6;
        bytes -= 6;
    }
    if (bytes < 10 || (memcmp(exif, "II*\0", 4) != 0 && memcmp(exif, "MM\0*", 4) != 0)) {
        return 1;
    }
    const int big = exif[0] == 'M';
    const uint64_t ifd = number(exif + 4, 4, big);
    if (ifd + 2 > bytes) {
        return 1;
    }
    const uint32_t n = number(exif + ifd, 2, big);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t at = ifd + 2 + 12 * (uint64_t)i;
        if (at + 12 > bytes) {
            return 1;
        }
        /* type 3: one 16-bit number, stored in the first bytes of the value field */
        if (number(exif + at, 2, big) == 0x0112 && number(exif + at + 2, 2, big) == 3) {
            const uint32_t v = number(exif + at + 8, 2, big);
            return v >= 1 && v <= 8 ? (int)v : 1;
        }
    }
    return 1;
}
