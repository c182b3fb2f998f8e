/* batch_bench.c - see batch_bench.h. */
#include "tests/cuda/batch_bench.h"

bool bench_open(bench *b, dv_tensors *t, int32_t n_gpus) {
    *b = (bench){0};
    for (int32_t i = 0; i < n_gpus; i++) {
        const dv_gpu_desc desc = {.index = i, .heap = heap, .log = &b->log};
        if (!CHECKF(dv_gpu_open(&desc, &b->gpus[i]) == DAVY_OK, "%s", last_error())) {
            return false;
        }
    }
    b->services = (dv_services){.heap = heap, .log = &b->log, .gpus = b->gpus, .n_gpus = n_gpus};
    const dv_engine_desc desc = {
        .services = &b->services, .tensors = t, .file_name = "mock", .compute = DAVY_DTYPE_F32};
    return CHECK(fake_fill(t, &b->data)) && CHECK(dv_pool_create(2, &b->services.pool) == DAVY_OK) &&
           CHECKF(dv_engine_create(&desc, &b->engine) == DAVY_OK, "%s", last_error());
}

void bench_close(bench *b, const char *where) {
    dv_engine_release(b->engine);
    dv_pool_release(b->services.pool);
    dv_gpu_release(b->gpus[1]);
    close_gpu(b->gpus[0], where);
    free(b->data);
}

/* n pictures with a few bytes between them. */
static dvk_image images(void *data, const ask_for *q, int64_t c, int64_t h, int64_t w) {
    dvk_image i = planes(data, c, h, w);
    if (q->pixels) {
        i.sw = 16;
        i.sh = w * 16;
        i.sc = 4;
    }
    i.n = q->n;
    i.sn = (q->pixels ? 16 * h * w : 4 * c * h * w) + 32;
    return i;
}

char *run(bench *b, const ask_for *q, uint64_t *bytes) {
    davy_plan_info info = {.struct_size = sizeof info};
    OK(dv_engine_plan(
        b->engine, &(dv_batch_desc){.stage = q->stage, .n = q->n, .h = q->h, .w = q->w, .tiling = &q->tiling}, &info));
    dvk_image in = images(NULL, q, q->c, q->h, q->w);
    dvk_image out = images(NULL, q, info.shape[2], info.shape[0], info.shape[1]);
    const uint64_t sizes[2] = {(uint64_t)(q->n * in.sn), (uint64_t)(q->n * out.sn)};
    char *memory[2] = {malloc(sizes[0]), malloc(sizes[1])};
    void *device[2] = {NULL, NULL};
    float *values = made_up(1, (int64_t)sizes[0] / 4, 1);
    memcpy(memory[0], values, sizes[0]);
    memset(memory[1], 0x5a, sizes[1]);
    free(values);
    davy_result r = DAVY_OK;
    for (int i = 0; i < 2; i++) {
        if (r == DAVY_OK && (i == 0 ? q->in_device : q->out_device)) {
            r = dv_gpu_alloc(b->gpus[0], DV_MEM_WORKSPACE, sizes[i], "picture", &device[i]);
            memcpy(device[i], memory[i], sizes[i]); /* the mock's device memory is host memory */
        }
    }
    in.data = q->in_device ? device[0] : memory[0];
    out.data = q->out_device ? device[1] : memory[1];
    dv_gpu_queue *queue = NULL;
    r = r == DAVY_OK ? dv_gpu_queue_take(b->gpus[0], NULL, &queue) : r;
    const dv_work w = {.stage = q->stage,
                       .in = in,
                       .out = out,
                       .in_mul = 1.0f,
                       .out_mul = 1.0f,
                       .in_device = q->in_device,
                       .out_device = q->out_device,
                       .stream = q->ordered ? queue->stream : NULL,
                       .stream_ordered = q->ordered,
                       .tiling = q->tiling};
    r = r == DAVY_OK ? dv_engine_run(b->engine, &w) : r;
    if (!CHECKF(r == DAVY_OK, "%s", last_error())) {
        free(memory[1]);
        memory[1] = NULL;
    }
    dv_gpu_queue_wait(queue, NULL, NULL);
    dv_gpu_queue_give(queue);
    if (q->out_device && memory[1] != NULL) {
        memcpy(memory[1], device[1], sizes[1]);
    }
    for (int i = 0; i < 2; i++) {
        dv_gpu_free(b->gpus[0], DV_MEM_WORKSPACE, device[i], sizes[i]);
    }
    free(memory[0]);
    *bytes = sizes[1];
    return memory[1];
}

dv_tile_schedule schedule_of(bench *b, const ask_for *q) {
    const dv_request request = {.stage = q->stage, .batch = q->n, .h = q->h, .w = q->w, .tiling = q->tiling};
    dv_cached_tile_plan *tile_plan = NULL;
    dv_tile_schedule l = {0};
    if (CHECKF(dv_tile_plan_get(b->engine, &request, &tile_plan) == DAVY_OK, "%s", last_error())) {
        l = tile_plan->schedule;
        dv_tile_plan_release(tile_plan);
    }
    return l;
}

dv_tensors *cugan(void) {
    return fake_cugan_narrow((fake_cugan_spec){.in = 3, .bottom = 3, .k = 4, .out = 3}, 32);
}

dv_tensors *plksr(void) {
    return fake_plksr(
        (fake_plksr_spec){.real = 1, .nf = 16, .blocks = 2, .scale = 2, .k = 3, .gates = 1, .mixer = {3, 1}});
}
