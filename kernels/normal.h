/* normal.h - normal numbers as a pure function of (seed, stream, index), and draws from an encoder's posterior. Host
 * and device code share one definition in double precision, so that both round to the same f32. Philox 4x32 with ten
 * rounds (Salmon et al., 2011), then the Box-Muller transform. */
#ifndef DVK_NORMAL_H
#define DVK_NORMAL_H

#include <math.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define DVK_ANYWHERE static __host__ __device__ inline
#else
#define DVK_ANYWHERE static inline
#endif

DVK_ANYWHERE void dvk_philox(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t out[4]) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    out[0] = (uint32_t)counter, out[1] = (uint32_t)(counter >> 32);
    out[2] = (uint32_t)stream, out[3] = (uint32_t)(stream >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * out[0], b = (uint64_t)0xcd9e8d57u * out[2];
        out[0] = (uint32_t)(b >> 32) ^ out[1] ^ k0;
        out[1] = (uint32_t)b;
        out[2] = (uint32_t)(a >> 32) ^ out[3] ^ k1;
        out[3] = (uint32_t)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
}

/* key = seed; counter = (pair low, pair high, stream low, stream high) with pair = index / 2. With u = (word + 0.5) /
 * 2^32 of the first two words: sqrt(-2 ln u0) * cos(2 pi u1) for an even index, sin for an odd one. */
DVK_ANYWHERE float dvk_normal(uint64_t seed, uint64_t stream, uint64_t index) {
    const double two_pi = 6.283185307179586476925;
    uint32_t word[4];
    dvk_philox(seed, stream, index / 2, word);
    const double u0 = ((double)word[0] + 0.5) / 4294967296.0;
    const double u1 = ((double)word[1] + 0.5) / 4294967296.0;
    const double radius = sqrt(-2.0 * log(u0));
    return (float)(radius * (index % 2 == 0 ? cos(two_pi * u1) : sin(two_pi * u1)));
}

/* mean + exp(logvar / 2) * normal */
DVK_ANYWHERE float dvk_draw(float mean, float logvar, float normal) {
    return (float)((double)mean + exp(0.5 * (double)logvar) * (double)normal);
}

#endif
