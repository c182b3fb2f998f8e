/* clip_memory.c - clips through video VAEs with little memory: budgets that are too small, and failing allocations. */
#include "tests/hosts/calls/clip_host.h"

/* If nothing fits, the error has the numbers, and the context works afterwards. */
static void budgets(void) {
    uint8_t *pixels = frames_of(1, 9);
    float *latent = malloc(latent_bytes(3));
    const flow f = {DAVY_OP_VAE_ENCODE, (char *)pixels, (char *)latent, 9, latents_of(9), 0};
    const davy_tensor in = item_in(&f, 0);
    IS(api->context_budget(ctx, 0, 1 << 12), DAVY_OK);
    IS(encode(pixels, 1, 9, latent, NULL), DAVY_E_BUDGET);
    CHECKF(strpbrk(host_error(api), "0123456789") != NULL, "no numbers: %s", host_error(api));
    davy_sequence *s = open_sequence(DAVY_OP_VAE_ENCODE, 0, NULL);
    davy_result r = DAVY_OK;
    for (int i = 0; r == DAVY_OK && i < 4; i++) {
        r = api->sequence_push(s, &in, 0);
    }
    CHECKF(r == DAVY_E_BUDGET ||
               api->sequence_pull(s, &(davy_tensor){.struct_size = sizeof in}, FOREVER) == DAVY_E_BUDGET,
           "no memory: %s", host_error(api));
    IS(api->context_budget(ctx, 0, 0), DAVY_OK);
    IS(api->sequence_reset(s), DAVY_OK);
    CHECK(flow_through(s, &f) == latents_of(9));
    api->sequence_release(s);
    IS(encode(pixels, 1, 9, latent, NULL), DAVY_OK);
    free(pixels), free(latent);
}

/* Each host allocation fails once: the call returns an error without leaks, and the next call works. */
static void runs_out(synth_file file) {
    host_state state;
    host_state_init(&state);
    const davy_host host = host_callbacks(&state);
    const davy_context_desc desc = {
        .struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .host = &host, .n_threads = 2};
    davy_context *kept_ctx = ctx;
    davy_model *kept = model;
    uint8_t *pixels = frames_of(1, 6);
    float *latent = malloc(latent_bytes(3)), *want = malloc(latent_bytes(3));
    const flow f = {DAVY_OP_VAE_ENCODE, (char *)pixels, (char *)latent, 6, latents_of(6), 0};
    IS(encode(pixels, 1, 6, want, NULL), DAVY_OK);
    IS(api->context_create(&desc, &ctx), DAVY_OK);
    IS(host_open_files(api, ctx, &file, 1, &model), DAVY_OK);
    int failures = 0;
    for (davy_result r = DAVY_PENDING; r != DAVY_OK && failures < 1000; failures++) {
        api->context_trim(ctx, 0, 0);
        atomic_store(&state.fail_from, atomic_load(&state.allocations) + failures);
        r = encode(pixels, 1, 6, latent, NULL);
        CHECKF(r == DAVY_OK || r == DAVY_E_NOMEM_HOST, "allocation %d: %s", failures, host_error(api));
        atomic_store(&state.fail_from, -1);
        api->context_trim(ctx, 0, 0);
        CHECKF(atomic_load(&state.bytes) == 0, "allocation %d: %lld bytes are kept", failures,
               (long long)atomic_load(&state.bytes));
    }
    CHECKF(failures > 3 && memcmp(latent, want, latent_bytes(latents_of(6))) == 0, "%d failures", failures);
    for (int n = 0; n < failures; n++) {
        davy_sequence *s = open_sequence(DAVY_OP_VAE_ENCODE, 0, NULL);
        davy_tensor none = {.struct_size = sizeof none};
        davy_result r = DAVY_OK;
        atomic_store(&state.fail_from, atomic_load(&state.allocations) + n);
        for (int i = 0; r == DAVY_OK && i < 5; i++) {
            const davy_tensor in = item_in(&f, i);
            r = api->sequence_push(s, &in, FOREVER);
        }
        r = r == DAVY_OK ? api->sequence_pull(s, &none, FOREVER) : r;
        CHECKF(r == DAVY_OK || r == DAVY_E_NOMEM_HOST, "sequence, allocation %d: %s", n, host_error(api));
        atomic_store(&state.fail_from, -1);
        api->buffer_release(none.buffer);
        IS(api->sequence_reset(s), DAVY_OK);
        CHECK(flow_through(s, &f) == latents_of(6) && memcmp(latent, want, latent_bytes(latents_of(6))) == 0);
        api->sequence_release(s);
        api->context_trim(ctx, 0, 0);
        CHECKF(atomic_load(&state.bytes) == 0, "sequence, allocation %d: bytes are kept", n);
    }
    api->model_release(model);
    api->context_release(ctx);
    CHECK(atomic_load(&state.blocks) == 0 && atomic_load(&state.wrong_frees) == 0);
    model = kept;
    ctx = kept_ctx;
    free(pixels), free(latent), free(want);
}

static void all_of(synth_file file) {
    budgets();
    runs_out(file);
}

int main(void) {
    return clip_host_run(all_of);
}
