/* activation.cuh - the transcendental activations of op.h with two instructions of the special function unit each. The
 * relative error is about 1e-6; for GELU and the far tail of SIGMOID it is an absolute error. No overflow becomes NaN. */
#ifndef DVK_CUDA_ACTIVATION_CUH
#define DVK_CUDA_ACTIVATION_CUH

#define ACTIVATION_DEVICE static __device__ __forceinline__

ACTIVATION_DEVICE float act_exp(float x) { /* 0 below -87 */
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * 1.44269504f));
    return e;
}

ACTIVATION_DEVICE float act_reciprocal(float x) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

ACTIVATION_DEVICE float act_sigmoid(float x) {
    return act_reciprocal(1.0f + act_exp(-x));
}

/* Near 0 the Taylor series: there, the rounding of the sigmoid would be as large as the result. */
ACTIVATION_DEVICE float act_tanh(float x) {
    const float t = x * x;
    const float series = fmaf(t, fmaf(t, fmaf(t, -17.0f / 315.0f, 2.0f / 15.0f), -1.0f / 3.0f), 1.0f);
    return t < 0.0625f ? x * series : fmaf(2.0f, act_sigmoid(2.0f * x), -1.0f);
}

/* erfc(z) = (a1 t + .. + a5 t^5) e^(-z^2), t = 1 / (1 + p z), z >= 0, to 1.5e-7: 7.1.26 of Abramowitz and Stegun. */
ACTIVATION_DEVICE float act_gelu(float x) {
    const float z = fabsf(x) * 0.70710678f, t = act_reciprocal(fmaf(0.3275911f, z, 1.0f));
    const float sum = t * fmaf(t, fmaf(t, fmaf(t, fmaf(t, 1.061405429f, -1.453152027f), 1.421413741f), -0.284496736f),
                               0.254829592f);
    const float half = 0.5f * sum * act_exp(-z * z);
    return x * (x < 0.0f ? half : 1.0f - half);
}

/* tanh(ln(1 + e^x)) = n / (n + 2) with n = e^x (e^x + 2); from 20 on it is 1. */
ACTIVATION_DEVICE float act_mish(float x) {
    const float e = act_exp(fminf(x, 20.0f)), n = e * (e + 2.0f);
    return x * (n * act_reciprocal(n + 2.0f));
}

/* GELU as x times a sigmoid, to 2.5e-5: for results that are rounded to 16 bits. */
ACTIVATION_DEVICE float act_gelu_short(float x) {
    const float t = fminf(x * x, 36.0f);
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;"
        : "=f"(e)
        : "f"(-x * fmaf(t, fmaf(t, -1.01452281e-3f, 0.106776994f), 2.30112018f)));
    return x * act_reciprocal(1.0f + e);
}

#endif
