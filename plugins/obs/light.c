/* light.c - conversion between OBS's pixel values and a network's.
 *
 * OBS blends in linear light and stores sRGB values (IEC 61966-2-1) of light times alpha. Networks take sRGB values of the light
 * alone. HDR is linear Rec.709 light. It is converted to Rec.2020 primaries (ITU-R BT.2087), where no visible colour is below zero.
 * The result is converted to PQ (SMPTE ST 2084), which lies between 0 and 1 like any picture. */
#include <math.h>
#include <string.h>

#include "engine_work.h"

static float decode_srgb(float v) {
    return v <= 0.04045f ? v / 12.92f : powf((v + 0.055f) / 1.055f, 2.4f);
}

static float encode_srgb(float v) {
    return v <= 0.0031308f ? v * 12.92f : 1.055f * powf(v, 1.0f / 2.4f) - 0.055f;
}

static uint8_t to_byte(float v) {
    return (uint8_t)(fminf(fmaxf(v, 0.0f), 1.0f) * 255.0f + 0.5f);
}

static void scale_pixel(uint8_t *pixel, float by) {
    for (int c = 0; c < 3; c++) {
        pixel[c] = to_byte(encode_srgb(fminf(decode_srgb((float)pixel[c] / 255.0f) * by, 1.0f)));
    }
}

void light_to_straight8(const uint8_t *from, uint8_t *to, uint32_t pixels) {
    memcpy(to, from, (size_t)pixels * 4);
    for (uint32_t i = 0; i < pixels; i++) {
        const uint8_t a = to[4 * i + 3];
        if (a > 0 && a < 255) {
            scale_pixel(to + 4 * i, 255.0f / (float)a);
        }
    }
}

void light_from_straight8(const uint8_t *from, uint8_t *to, uint32_t pixels) {
    for (uint32_t i = 0; i < pixels; i++) {
        uint8_t pixel[4];
        memcpy(pixel, from + 4 * i, 4);
        if (pixel[3] < 255) {
            scale_pixel(pixel, (float)pixel[3] / 255.0f);
        }
        memcpy(to + 4 * i, pixel, 4);
    }
}

/* ---- HDR ---- */

static float half_to_float(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 31u;
    uint32_t fraction = h & 1023u;
    float value = 0.0f;
    if (exponent == 0) {
        value = ldexpf((float)fraction, -24);
        return sign != 0 ? -value : value;
    }
    const uint32_t bits = sign | (exponent == 31 ? 255u << 23 : (exponent + 112u) << 23) | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t float_to_half(float v) {
    const uint16_t sign = signbit(v) ? 0x8000u : 0;
    const float a = fminf(fabsf(v), 65504.0f);
    int exponent = 0;
    if (!(a > 0.0f)) { /* zero and NaN */
        return sign;
    }
    frexpf(a, &exponent);
    const int power = exponent < -13 ? -24 : exponent - 11; /* exponent of the last bit */
    const uint32_t units = (uint32_t)lrintf(ldexpf(a, -power));
    const uint32_t bits = exponent < -13 ? units : ((uint32_t)(exponent + 13) << 10) + units;
    return (uint16_t)(sign | (bits > 0x7bffu ? 0x7bffu : bits));
}

#define PQ_M1 (2610.0f / 16384.0f)
#define PQ_M2 (2523.0f / 32.0f)
#define PQ_C1 (3424.0f / 4096.0f)
#define PQ_C2 (2413.0f / 128.0f)
#define PQ_C3 (2392.0f / 128.0f)

static float encode_pq(float nits) {
    const float y = powf(fminf(fmaxf(nits, 0.0f) / 10000.0f, 1.0f), PQ_M1);
    return powf((PQ_C1 + PQ_C2 * y) / (1.0f + PQ_C3 * y), PQ_M2);
}

static float decode_pq(float v) {
    const float e = powf(fminf(fmaxf(v, 0.0f), 1.0f), 1.0f / PQ_M2);
    return 10000.0f * powf(fmaxf(e - PQ_C1, 0.0f) / (PQ_C2 - PQ_C3 * e), 1.0f / PQ_M1);
}

static const float to_2020[3][3] = {
    {0.6274039f, 0.3292830f, 0.0433131f}, {0.0690973f, 0.9195404f, 0.0113623f}, {0.0163914f, 0.0880133f, 0.8955953f}};
static const float to_709[3][3] = {{1.6604910f, -0.5876411f, -0.0728499f},
                                   {-0.1245505f, 1.1328999f, -0.0083494f},
                                   {-0.0181508f, -0.1005789f, 1.1187297f}};

static void turn(const float m[3][3], const float v[3], float out[3]) {
    for (int i = 0; i < 3; i++) {
        out[i] = m[i][0] * v[0] + m[i][1] * v[1] + m[i][2] * v[2];
    }
}

void light_to_signal(const uint16_t *from, float *to, uint32_t pixels, float sdr_white) {
    for (uint32_t i = 0; i < pixels; i++, from += 4, to += 4) {
        const float alpha = fminf(fmaxf(half_to_float(from[3]), 0.0f), 1.0f);
        float light[3];
        float wide[3];
        for (int c = 0; c < 3; c++) {
            light[c] = alpha > 0.0f ? half_to_float(from[c]) / alpha : 0.0f;
        }
        turn(to_2020, light, wide);
        for (int c = 0; c < 3; c++) {
            to[c] = sdr_white > 0.0f ? encode_pq(wide[c] * sdr_white) : encode_srgb(fminf(fmaxf(light[c], 0.0f), 1.0f));
        }
        to[3] = alpha;
    }
}

void light_from_signal(const float *from, uint16_t *to, uint32_t pixels, float sdr_white) {
    for (uint32_t i = 0; i < pixels; i++, from += 4, to += 4) {
        float wide[3];
        float light[3];
        for (int c = 0; c < 3; c++) {
            wide[c] =
                sdr_white > 0.0f ? decode_pq(from[c]) / sdr_white : decode_srgb(fminf(fmaxf(from[c], 0.0f), 1.0f));
        }
        turn(to_709, wide, light);
        for (int c = 0; c < 3; c++) {
            to[c] = float_to_half((sdr_white > 0.0f ? light[c] : wide[c]) * from[3]);
        }
        to[3] = float_to_half(from[3]);
    }
}
