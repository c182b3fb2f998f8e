/* mock_use.c - see mock_use.h. */
#include "tests/cuda/mock_use.h"

mock_state *m;
static void *mock_library;

int32_t last_native(void) {
    davy_error_info e;
    dv_error_get(&e);
    return e.domain == DAVY_DOMAIN_CUDA ? e.native : -1;
}

void *mock_symbol(const char *name) {
    return dlsym(mock_library, name);
}

void mock_call(const char *name) {
    void (*fn)(void) = NULL;
    void *symbol = mock_symbol(name);
    memcpy(&fn, &symbol, sizeof fn);
    fn();
}

void mock_use(const char *path) {
    mock_fn fn = NULL;
    setenv("DAVY_CUDA_DRIVER", path, 1);
    mock_library = dlopen(path, RTLD_NOW);
    if (mock_library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    void *symbol = mock_symbol("mock");
    memcpy(&fn, &symbol, sizeof fn);
    m = fn();
}

/* The mock uses the first bytes of an image as its name. */
static const unsigned char image_a[] = "alpha";
static const unsigned char image_b[] = "beta";
const dvk_cuda_module mock_modules[] = {{"alpha", image_a, image_a + sizeof image_a},
                                        {"beta", image_b, image_b + sizeof image_b}};

void balanced(const char *where) {
    CHECKF(m->pushes == m->pops && m->bad_context == 0, "%s: %lld pushes, %lld pops, %lld without a context", where,
           (long long)m->pushes, (long long)m->pops, (long long)m->bad_context);
}

dv_heap *heap;

dv_gpu *open_gpu(uint64_t budget) {
    const dv_gpu_desc desc = {.index = 0, .budget_bytes = budget, .heap = heap};
    dv_gpu *g = NULL;
    OK(dv_gpu_open(&desc, &g));
    return g;
}

void close_gpu(dv_gpu *g, const char *where) {
    dv_gpu_release(g);
    balanced(where);
    CHECKF(m->live == 0 && m->streams == 0 && m->events == 0 && m->modules == 0 && m->graphs == 0 && m->pinned == 0 &&
               m->retained == 0 && m->used_bytes == 0,
           "%s leaves %lld blocks, %lld streams, %lld events, %lld modules, %lld graphs, %lld pinned, %lld contexts",
           where, (long long)m->live, (long long)m->streams, (long long)m->events, (long long)m->modules,
           (long long)m->graphs, (long long)m->pinned, (long long)m->retained);
    CHECK(dv_heap_used(heap, DV_MEM_WORKSPACE) == 0);
    mock_call("mock_reset");
}

dvk_launch launch_of(const char *module, const char *function) {
    return (dvk_launch){.module = module, .function = function, .grid = {3, 2, 1}, .block = {128, 1, 1}};
}
