/* sha256.c - see sha256.h. */
#include "core/file/sha256.h"

#include <string.h>

#include "core/base/mem.h"

enum { BLOCK = 64, READ_BYTES = 1 << 20 };

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turned(uint32_t v, int by) {
    return v >> by | v << (32 - by);
}

static void add_block(uint32_t h[8], const unsigned char *at) {
    uint32_t w[64];
    uint32_t s[8];
    memcpy(s, h, sizeof s);
    for (int i = 0; i < 16; i++, at += 4) {
        w[i] = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    }
    for (int i = 16; i < 64; i++) {
        const uint32_t a = w[i - 15];
        const uint32_t b = w[i - 2];
        w[i] =
            w[i - 16] + w[i - 7] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
    }
    for (int i = 0; i < 64; i++) {
        const uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        const uint32_t most = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        const uint32_t t1 =
            s[7] + (turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25)) + choice + constants[i] + w[i];
        const uint32_t t2 = (turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22)) + most;
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) {
        h[i] += s[i];
    }
}

/* Hashes the rest of the message, a one bit, zeros, and the message's length in bits. */
static void add_end(uint32_t h[8], const unsigned char *at, uint64_t left, uint64_t total) {
    unsigned char end[2 * BLOCK] = {0};
    const uint64_t bytes = left + 9 <= BLOCK ? BLOCK : 2 * BLOCK;
    memcpy(end, at, (size_t)left);
    end[left] = 0x80;
    for (int i = 0; i < 8; i++) {
        end[bytes - 1 - (uint64_t)i] = (unsigned char)(total * 8 >> (8 * i));
    }
    for (uint64_t i = 0; i < bytes; i += BLOCK) {
        add_block(h, end + i);
    }
}

davy_result dv_sha256_source(dv_source *s, char hex[65]) {
    uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const uint64_t total = dv_source_bytes(s);
    uint64_t at = 0;
    bool ended = false;
    while (!ended) {
        const uint64_t n = total - at < READ_BYTES ? total - at : READ_BYTES;
        const uint64_t whole = n / BLOCK * BLOCK;
        const void *view = NULL;
        void *owned = NULL;
        const davy_result r = n > 0 ? dv_source_view(s, at, n, &view, &owned) : DAVY_OK;
        if (r < 0) {
            return r;
        }
        for (uint64_t i = 0; i < whole; i += BLOCK) {
            add_block(h, (const unsigned char *)view + i);
        }
        at += n;
        ended = at == total;
        if (ended) {
            add_end(h, n > whole ? (const unsigned char *)view + whole : (const unsigned char *)"", n - whole, total);
        }
        dv_free(owned);
    }
    for (int i = 0; i < 64; i++) {
        hex[i] = "0123456789abcdef"[h[i / 8] >> (28 - i % 8 * 4) & 15];
    }
    hex[64] = '\0';
    return DAVY_OK;
}
