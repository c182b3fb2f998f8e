/* random.c - see random.h. */
#include "core/random.h"

#include <math.h>

enum { ROUNDS = 10 };

static void philox(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4]) {
    uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)};
    uint32_t k0 = (uint32_t)seed;
    uint32_t k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * c[0];
        const uint64_t b = (uint64_t)0xcd9e8d57u * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k1,
                                  (uint32_t)a};
        for (int i = 0; i < 4; i++) {
            c[i] = next[i];
        }
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    for (int i = 0; i < 4; i++) {
        out[i] = c[i];
    }
}

float dv_random_normal(uint64_t seed, uint64_t stream, uint64_t index) {
    const double two_pi = 6.283185307179586476925;
    uint32_t word[4];
    philox(seed, stream, index / 2, word);
    const double u0 = ((double)word[0] + 0.5) / 4294967296.0;
    const double u1 = ((double)word[1] + 0.5) / 4294967296.0;
    const double radius = sqrt(-2.0 * log(u0));
    return (float)(radius * (index % 2 == 0 ? cos(two_pi * u1) : sin(two_pi * u1)));
}
