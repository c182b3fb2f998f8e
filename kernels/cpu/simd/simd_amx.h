/* simd_amx.h - AMX tiles (eight of 16 rows of 64 bytes), with loads and stores that the compiler keeps in order. The
 * intrinsics of gcc do not declare their memory accesses. Those of 64-bit mingw pass the stride in 32 bits. */
#ifndef DVK_SIMD_AMX_H
#define DVK_SIMD_AMX_H

#include <immintrin.h>
#include <stdint.h>

#if defined(__GNUC__) && !defined(__clang__)
#define tile_load(t, p, pitch)                                                                                         \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(p), "r"((int64_t)(pitch)) : "memory")
#define tile_store(t, p, pitch)                                                                                        \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(p), "r"((int64_t)(pitch)) : "memory")
#else
#define tile_load(t, p, pitch)  _tile_loadd(t, p, pitch)
#define tile_store(t, p, pitch) _tile_stored(t, p, pitch)
#endif

/* The configuration belongs to the thread: call tile_begin before the first tile instruction of a run, tile_end after
 * the last. */
static inline void tile_begin(void) {
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&config);
}

static inline void tile_end(void) {
    _tile_release();
}

/* Transposes 16 x 16 numbers of 32 bits in place. */
static inline void transpose16(__m512i r[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

#endif
