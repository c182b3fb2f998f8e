/* plan_dump.c - plan_dump WEIGHTS [WEIGHTS] [CONFIG]: prints davy's plans for a model, for processors and GPUs that the
 * machine need not have. tests/identity.py compares the text of two builds.
 *
 * Nothing is computed. Each section begins with a line "== TITLE". First come the graphs of every stage and their plans in
 * each precision. Then come the engine's choices under memory budgets: tiles of pictures, slices of clips. The GPUs are the
 * mock driver's, with the capabilities of real cards. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/host/context.h"
#include "core/cuda/gpu_priv.h"
#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/clip/tiles.h"
#include "core/host/sources.h"
#include "core/clip/stream.h"
#include "tests/cuda/mock_driver.h"
#include "tests/golden/plan_dump.h"
#include "tests/lib/hooks.h"

static int failures;

const char *dump_stage_name(dv_stage stage) {
    return stage == DV_STAGE_ENCODE ? "encode" : stage == DV_STAGE_DECODE ? "decode" : "upscale";
}

void dump_result(davy_result r) {
    printf("%s\n", dv_result_name(r));
}

/* ---- choices of the engine ---- */

static void print_picture(dv_engine *e, dv_stage stage, int64_t n, int64_t h, int64_t w) {
    davy_plan_info info = {.struct_size = sizeof info};
    printf("%s of %lld pictures of %lldx%lld: ", dump_stage_name(stage), (long long)n, (long long)w, (long long)h);
    const davy_result r = dv_engine_plan(e, &(dv_batch_desc){.stage = stage, .n = n, .h = h, .w = w}, &info);
    if (r != DAVY_OK) {
        dump_result(r);
        return;
    }
    printf("workspace %llu, %llu flops, %dx%d tiles of %dx%d\n", (unsigned long long)info.workspace_bytes,
           (unsigned long long)info.flops, (int)info.tiles_x, (int)info.tiles_y, (int)info.tile_width,
           (int)info.tile_height);
}

static void print_stream(dv_engine *e, const dv_clip_tiles_desc *desc) {
    dv_clip_stream *s = NULL;
    dv_clip_stream_info info;
    printf("  whole frames: ");
    const davy_result r = dv_clip_stream_open(
        e, &(dv_clip_stream_desc){.stage = desc->stage, .h = desc->h, .w = desc->w, .frames = desc->frames}, &s);
    if (r != DAVY_OK) {
        dump_result(r);
        return;
    }
    dv_clip_stream_info_get(s, &info);
    printf("slices of %lld%s, arena %llu, state %llu, offloaded %llu, %llu and %llu flops\n", (long long)info.slice,
           info.frame_by_frame ? " by frame" : "", (unsigned long long)info.arena_bytes,
           (unsigned long long)info.state_bytes, (unsigned long long)info.offloaded_bytes,
           (unsigned long long)info.flops_first, (unsigned long long)info.flops_step);
    dv_clip_stream_release(s);
}

static void print_clip(dv_engine *e, const dv_clip_tiles_desc *desc) {
    dv_clip_tiles *tiles = NULL;
    dv_clip_tiles_info info;
    printf("%s of a clip of %lld frames of %lldx%lld: ", dump_stage_name(desc->stage), (long long)desc->frames,
           (long long)desc->w, (long long)desc->h);
    const davy_result r = dv_clip_tiles_open(e, desc, &tiles);
    if (r == DAVY_OK) {
        dv_clip_tiles_info_get(tiles, &info);
        printf("%lldx%lld tiles of %lldx%lld, slices of %lld, memory %llu, %llu and %llu flops\n",
               (long long)info.tiles_x, (long long)info.tiles_y, (long long)info.tile_w, (long long)info.tile_h,
               (long long)info.slice, (unsigned long long)info.memory_bytes, (unsigned long long)info.flops_first,
               (unsigned long long)info.flops_step);
        dv_clip_tiles_release(tiles);
    } else {
        dump_result(r);
    }
    print_stream(e, desc);
}

static void print_choices(dv_engine *e, dv_stage stage) {
    const int64_t side = stage == DV_STAGE_DECODE ? 8 : 1;
    dv_clip_rule rule = {0};
    if (!dv_engine_clip(e, stage, &rule)) {
        print_picture(e, stage, 1, 1088 / side, 1920 / side);
        print_picture(e, stage, 1, 512 / side, 768 / side);
        print_picture(e, stage, 16, 128 / side, 128 / side);
        return;
    }
    const dv_clip_tiles_desc known = {
        .stage = stage, .h = 480 / side, .w = 832 / side, .frames = rule.first + 8 * rule.step};
    const dv_clip_tiles_desc unknown = {.stage = stage, .h = 480 / side, .w = 832 / side};
    print_clip(e, &known);
    print_clip(e, &unknown);
}

typedef struct machine {
    const char *name;
    const dvk_cuda_caps *caps; /* NULL: a processor */
    uint32_t cpu;
    davy_dtype precision;
} machine;

static bool open_engine(davy_context *ctx, const davy_model_desc *desc, const dv_services *services, dv_engine **out) {
    dv_opened opened = {0};
    if (dv_sources_open(ctx, desc, &opened) != DAVY_OK) {
        return false;
    }
    const dv_engine_desc engine = {.services = services,
                                   .tensors = opened.tensors,
                                   .config = opened.config,
                                   .file_name = opened.file_name,
                                   .compute = desc->compute};
    const davy_result r = dv_engine_create(&engine, out);
    if (r != DAVY_OK) {
        dump_result(r);
    } else {
        opened.tensors = NULL; /* the engine's */
        opened.config = NULL;
    }
    dv_opened_clear(&opened);
    return r == DAVY_OK;
}

static void print_machine(davy_context *ctx, const davy_model_desc *desc, const machine *at) {
    static const uint64_t budgets[] = {64ull << 30, 12ull << 30, 4ull << 30, 1ull << 30, 256ull << 20, 64ull << 20};
    const dv_services *of_context = dv_context_services(ctx);
    dv_services services = {.heap = dv_heap_create(NULL, 0), .pool = of_context->pool, .log = of_context->log};
    dv_gpu *gpu = NULL;
    dv_engine *e = NULL;
    davy_model_desc model_desc = *desc;
    const dv_gpu_desc gpu_desc = {.heap = services.heap, .log = services.log};
    davy_result r = at->caps != NULL ? dv_gpu_open(&gpu_desc, &gpu) : DAVY_OK;
    printf("== choices of %s\n", at->name);
    if (r != DAVY_OK) {
        dump_result(r);
        failures++;
    } else if (gpu != NULL) {
        gpu->caps = *at->caps;
        services.gpus = &gpu;
        services.n_gpus = 1;
    }
    services.cpu = at->cpu;
    model_desc.compute = at->precision;
    if (r == DAVY_OK && open_engine(ctx, &model_desc, &services, &e)) {
        for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
            printf("within %llu MiB\n", (unsigned long long)budgets[i] >> 20);
            if (gpu != NULL) {
                dv_gpu_set_budget(gpu, budgets[i]);
            } else {
                dv_heap_set_budget(services.heap, budgets[i]);
            }
            dv_engine_review(e);
            if (dv_engine_arch(e)->task == DAVY_TASK_UPSCALE) {
                print_choices(e, DV_STAGE_UPSCALE);
            } else {
                print_choices(e, DV_STAGE_ENCODE);
                print_choices(e, DV_STAGE_DECODE);
            }
        }
        dv_engine_release(e);
    }
    dv_gpu_release(gpu);
    dv_heap_release(services.heap);
}

/* ---- main ---- */

/* Lets a build without device code open the mock driver's devices. */
static void use_mock_driver(void) {
    static const unsigned char image[] = "none";
    static const dvk_cuda_module module = {"none", image, image + sizeof image};
    const char *path = MOCK_FOLDER "/libmock_cuda.so";
    mock_fn state = NULL;
    setenv("DAVY_CUDA_DRIVER", path, 1);
    dv_gpu_use_modules(&module, 1);
    void *library = dlopen(path, RTLD_NOW);
    void *symbol = library != NULL ? dlsym(library, "mock") : NULL;
    if (symbol == NULL) {
        fprintf(stderr, "%s: no mock driver\n", path);
        exit(1);
    }
    memcpy(&state, &symbol, sizeof state);
    state()->device_bytes = 1ull << 40;
}

static void print_model(davy_context *ctx, const davy_model_desc *desc, const dump_model *m) {
    static const machine machines[] = {{"a processor, fp32", NULL, AVX512, DAVY_DTYPE_F32},
                                       {"sm_75, fp16", &turing, 0, DAVY_DTYPE_F16},
                                       {"sm_89, bf16", &ada, 0, DAVY_DTYPE_BF16},
                                       {"sm_90, fp32", &hopper, 0, DAVY_DTYPE_F32},
                                       {"sm_90, bf16", &hopper, 0, DAVY_DTYPE_BF16}};
    printf("== architecture\n%s\n", m->arch->name);
    if (m->arch->task == DAVY_TASK_UPSCALE) {
        dump_plans(m, DV_STAGE_UPSCALE);
    } else {
        dump_plans(m, DV_STAGE_ENCODE);
        dump_plans(m, DV_STAGE_DECODE);
    }
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        print_machine(ctx, desc, &machines[i]);
    }
}

int main(int argc, char **argv) {
    davy_source sources[4] = {{0}};
    if (argc < 2 || argc > 5) {
        fprintf(stderr, "usage: plan_dump WEIGHTS [WEIGHTS] [CONFIG]\n");
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        sources[i - 1].struct_size = sizeof sources[0];
        sources[i - 1].path = argv[i];
    }
    const davy_model_desc desc = {.struct_size = sizeof desc,
                                  .sources = sources,
                                  .n_sources = (uint32_t)argc - 1,
                                  .source_stride = sizeof sources[0]};
    const davy_context_desc context = {
        .struct_size = sizeof context, .abi_version = DAVY_ABI_VERSION, .device = "cpu", .n_threads = 1};
    davy_context *ctx = NULL;
    dv_opened opened = {0};
    dump_model m = {.arch = NULL};
    use_mock_driver();
    davy_result r = dv_context_create(&context, &ctx);
    r = r == DAVY_OK ? dv_sources_open(ctx, &desc, &opened) : r;
    const dv_probe probe = {.tensors = opened.tensors, .config = opened.config, .file_name = opened.file_name};
    m.tensors = opened.tensors;
    r = r == DAVY_OK ? dv_arch_detect(&probe, NULL, &m.arch) : r;
    r = r == DAVY_OK ? m.arch->config(&probe, m.cfg) : r;
    if (r == DAVY_OK) {
        print_model(ctx, &desc, &m);
    } else {
        davy_error_info info = {.struct_size = sizeof info};
        dv_error_get(&info);
        fprintf(stderr, "%s: %s\n", argv[1], info.message);
        failures++;
    }
    dv_opened_clear(&opened);
    dv_context_release(ctx);
    return failures != 0;
}
