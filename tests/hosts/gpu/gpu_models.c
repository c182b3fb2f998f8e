/* gpu_models.c - see gpu_models.h. */
#include "tests/hosts/gpu/gpu_models.h"

davy_context *ctx;
davy_model *model, *vae;

davy_tensor host_picture(int64_t channels, int64_t side) {
    static float memory[4 * 4 * SIDE * SIDE * 4];
    return (davy_tensor){.struct_size = sizeof(davy_tensor),
                         .memory = DAVY_MEMORY_HOST,
                         .dtype = DAVY_DTYPE_F32,
                         .layout = DAVY_LAYOUT_HWC,
                         .ndim = 3,
                         .data = (uint64_t)(uintptr_t)memory,
                         .shape = {side, side, channels}};
}

davy_tensor device_picture(int64_t channels, int64_t side, davy_buffer **buffer) {
    davy_tensor t = host_picture(channels, side);
    const uint64_t bytes = (uint64_t)(side * side * channels) * sizeof(float);
    davy_tensor whole = {.struct_size = sizeof whole};
    IS(api->buffer_alloc(ctx, DAVY_MEMORY_CUDA, bytes, buffer), DAVY_OK);
    IS(api->buffer_tensor(*buffer, &whole), DAVY_OK);
    CHECK(whole.memory == DAVY_MEMORY_CUDA && whole.device == 0 && whole.data != 0 && whole.buffer == *buffer);
    t.memory = DAVY_MEMORY_CUDA;
    t.data = whole.data; /* as memory of the host's own */
    return t;
}

void models_begin(const char *device) {
    static synth_file half[2]; /* the models keep pointing into them */
    if (half[0].data == NULL) {
        half[0] = synth_taesd(0, 5);
        half[1] = synth_taesd(1, 6);
    }
    mock_again();
    IS(open_on(device, 0, &ctx), DAVY_OK);
    IS(host_open_small(api, ctx, &model), DAVY_OK);
    IS(host_open_files(api, ctx, half, 2, &vae), DAVY_OK);
}

void models_end(const char *after) {
    api->model_release(model);
    api->model_release(vae);
    api->context_release(ctx);
    model = vae = NULL;
    ctx = NULL;
    mock_is_empty(after);
}
