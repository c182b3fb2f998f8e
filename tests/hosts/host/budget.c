/* budget.c - a context stays within its memory budget. With less memory tiles become smaller and the picture stays the same. With
 * too little the call returns E_BUDGET, and the context continues to work. */
#include <stdlib.h>
#include <string.h>

#include "tests/hosts/host.h"

enum { WIDTH = 400, HEIGHT = 300 };

static const davy_api *api;
static host_state state;
static davy_context *ctx;
static davy_model *model;
static picture in, want;

static davy_plan_info plan_of(const davy_run *run) {
    const davy_tensor src = host_tensor(&in);
    const davy_query q = {.struct_size = sizeof q, .op = DAVY_OP_UPSCALE, .input = &src, .run = run};
    davy_plan_info plan = {.struct_size = sizeof plan};
    IS(api->plan_query(model, &q, &plan), DAVY_OK);
    return plan;
}

/* For one budget: the right picture or E_BUDGET, and never more memory than the budget. */
static int under(uint64_t budget, davy_plan_info *plan) {
    IS(api->context_trim(ctx, 0, 0), DAVY_OK);
    IS(api->model_unload(model, 0), DAVY_OK);
    IS(api->context_budget(ctx, 0, budget), DAVY_OK);
    atomic_store(&state.peak_bytes, atomic_load(&state.bytes));
    picture out = {0};
    const davy_tensor src = host_tensor(&in);
    const davy_query q = {.struct_size = sizeof q, .op = DAVY_OP_UPSCALE, .input = &src};
    const davy_result planned = api->plan_query(model, &q, plan);
    const davy_result r = host_upscale(api, model, &in, NULL, &out);
    const long long peak = atomic_load(&state.peak_bytes);
    CHECKF(r == DAVY_OK || r == DAVY_E_BUDGET, "budget %llu: %s (%s)", (unsigned long long)budget, api->result_name(r),
           host_error(api));
    CHECKF(planned == DAVY_OK || planned == DAVY_E_BUDGET, "budget %llu, plan: %s", (unsigned long long)budget,
           api->result_name(planned));
    CHECKF(peak <= (long long)budget, "budget %llu, but %lld bytes were lent", (unsigned long long)budget, peak);
    if (r == DAVY_OK) {
        CHECKF(picture_max_error(&out, &want) < 1e-5, "budget %llu (tiles of %d x %d) changes the picture by %g",
               (unsigned long long)budget, (int)plan->tile_width, (int)plan->tile_height,
               picture_max_error(&out, &want));
    }
    picture_free(&out);
    return r == DAVY_OK;
}

static void thresholds(void) {
    const davy_run whole = {.struct_size = sizeof whole, .tile_width = -1};
    const davy_plan_info full = plan_of(&whole);
    CHECK(full.tiles_x == 1 && full.tiles_y == 1 && full.workspace_bytes > 0 && full.flops > 0);
    davy_plan_info plan = {.struct_size = sizeof plan};
    const uint64_t plenty = 2 * full.workspace_bytes + (8u << 20);
    CHECK(under(plenty, &plan));
    int last_tiles = 0, worked = 1, gave_up = 0, more_tiles = 0, steps = 0;
    for (uint64_t budget = plenty; budget > 2048; budget = budget * 3 / 4, steps++) {
        const int ok = under(budget, &plan);
        CHECKF(ok <= worked, "budget %llu is enough, a larger one was not", (unsigned long long)budget);
        if (ok) {
            const int tiles = plan.tiles_x * plan.tiles_y;
            CHECKF(tiles >= last_tiles, "less memory, fewer tiles: %d after %d", tiles, last_tiles);
            more_tiles += tiles > last_tiles && last_tiles > 0;
            last_tiles = tiles;
        }
        gave_up += worked && !ok;
        worked = ok;
    }
    printf("  whole picture: %llu bytes of workspace; %d budgets, tile counts rose %d times, up to %d tiles\n",
           (unsigned long long)full.workspace_bytes, steps, more_tiles, last_tiles);
    CHECKF(more_tiles >= 1, "no budget made the tiles smaller");
    CHECKF(gave_up == 1, "E_BUDGET should come once and stay, it came %d times", gave_up);
    CHECK(under(plenty, &plan));
}

/* With tiles disabled, too little memory is an error; the call must not use tiles. */
static void never_tile(void) {
    const davy_run whole = {.struct_size = sizeof whole, .tile_width = -1};
    const davy_plan_info full = plan_of(&whole);
    IS(api->context_trim(ctx, 0, 0), DAVY_OK);
    IS(api->context_budget(ctx, 0, full.workspace_bytes / 2), DAVY_OK);
    picture out = {0};
    IS(host_upscale(api, model, &in, &whole, &out), DAVY_E_BUDGET);
    CHECK(out.v == NULL);
    IS(api->context_budget(ctx, 0, 1u << 30), DAVY_OK);
    IS(host_upscale(api, model, &in, &whole, &out), DAVY_OK);
    CHECK(out.v != NULL && picture_max_error(&out, &want) < 1e-5);
    picture_free(&out);
}

/* A size that was computed before is tiled for the current budget. With more memory than then, it is whole again. */
static void change_of_budget(void) {
    const davy_run whole = {.struct_size = sizeof whole, .tile_width = -1};
    IS(api->context_budget(ctx, 0, 1u << 30), DAVY_OK);
    picture out = {0};
    davy_memory_info used = {.struct_size = sizeof used};
    IS(host_upscale(api, model, &in, NULL, &out), DAVY_OK);
    IS(api->context_memory(ctx, &used), DAVY_OK);
    const uint64_t full = plan_of(&whole).workspace_bytes;
    picture_free(&out);
    for (int i = 0; i < 2; i++) {
        const uint64_t budget = used.host_weights_bytes + full / 2;
        IS(api->context_budget(ctx, 0, budget), DAVY_OK);
        const davy_plan_info small = plan_of(NULL);
        CHECKF(small.tiles_x * small.tiles_y > 1 && small.workspace_bytes <= budget,
               "a budget of %llu: %d x %d tiles, %llu bytes of workspace", (unsigned long long)budget,
               (int)small.tiles_x, (int)small.tiles_y, (unsigned long long)small.workspace_bytes);
        IS(host_upscale(api, model, &in, NULL, &out), DAVY_OK);
        CHECK(out.v != NULL && picture_max_error(&out, &want) < 1e-5);
        picture_free(&out);
        IS(api->context_budget(ctx, 0, 1u << 30), DAVY_OK);
        const davy_plan_info large = plan_of(NULL);
        CHECKF(large.tiles_x * large.tiles_y == 1, "with a larger budget it is still cut into %d x %d tiles",
               (int)large.tiles_x, (int)large.tiles_y);
    }
}

/* A budget below the memory in use refuses only new work. */
static void shrink_below_use(void) {
    IS(api->context_budget(ctx, 0, 1u << 30), DAVY_OK);
    IS(api->model_load(model, NULL, NULL), DAVY_OK);
    davy_memory_info before = {.struct_size = sizeof before}, after = {.struct_size = sizeof after};
    IS(api->context_memory(ctx, &before), DAVY_OK);
    CHECK(before.host_weights_bytes > 0 && before.host_budget_bytes == 1u << 30);
    const davy_result r = api->context_budget(ctx, 0, 1);
    CHECK(r == DAVY_OK || r == DAVY_E_BUDGET);
    picture out = {0};
    IS(host_upscale(api, model, &in, NULL, &out), DAVY_E_BUDGET);
    davy_buffer *buffer = NULL;
    IS(api->buffer_alloc(ctx, DAVY_MEMORY_HOST, 4096, &buffer), DAVY_E_BUDGET);
    IS(api->context_memory(ctx, &after), DAVY_OK);
    CHECK(after.host_peak_bytes >= before.host_peak_bytes);
    IS(api->context_budget(ctx, 0, 1u << 30), DAVY_OK);
    IS(host_upscale(api, model, &in, NULL, &out), DAVY_OK);
    CHECK(out.v != NULL && picture_max_error(&out, &want) < 1e-5);
    picture_free(&out);
}

int main(void) {
    api = host_load();
    host_state_init(&state);
    state.level = DAVY_LOG_WARN;
    const davy_host host = host_callbacks(&state);
    const davy_context_desc desc = {.struct_size = sizeof desc,
                                    .abi_version = DAVY_ABI_VERSION,
                                    .device = "cpu",
                                    .host = &host,
                                    .n_threads = 2,
                                    .host_budget_bytes = 1u << 30};
    IS(api->context_create(&desc, &ctx), DAVY_OK);
    IS(host_open_small(api, ctx, &model), DAVY_OK);
    in = picture_new(1, HEIGHT, WIDTH, 3);
    picture_fill(&in, 9);
    const davy_run whole = {.struct_size = sizeof whole, .tile_width = -1};
    if (model == NULL || host_upscale(api, model, &in, &whole, &want) != DAVY_OK) {
        CHECKF(0, "no reference: %s", host_error(api));
        return check_done();
    }
    thresholds();
    never_tile();
    change_of_budget();
    shrink_below_use();
    api->model_release(model);
    api->context_release(ctx);
    CHECK(atomic_load(&state.blocks) == 0 && atomic_load(&state.wrong_frees) == 0);
    picture_free(&in);
    picture_free(&want);
    return check_done();
}
