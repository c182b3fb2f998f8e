/* mock_stream.c - streams and graphs of the mock. The work of a stream is a list of steps. They are done at once, or, if `lazy` is set,
 * up to the place that the program waits for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/mock_priv.h"

struct CUgraph_st {
    steps steps;
};

struct CUgraphExec_st {
    steps steps;
    cu_graph_exec next;
};

static cu_graph_exec live_execs; /* those of a lost device are never destroyed, as on a real one */

static struct CUstream_st legacy; /* for NULL, 1 and 2 */
static cu_stream all_streams;     /* never freed: events may still refer to them */
static _Thread_local int thread_mode;

cu_stream mock_stream_of(cu_stream s) {
    return (uintptr_t)s <= 2 ? &legacy : s;
}

static void push(steps *list, const step *s) {
    if (list->n == list->room) {
        list->room = list->room * 2 + 8;
        list->at = realloc(list->at, (size_t)list->room * sizeof *list->at);
    }
    list->at[list->n++] = *s;
}

static void run(const step *s) {
    const cu_copy_2d *c = &s->copy;
    switch (s->kind) {
    case COPY:
        memmove((void *)(uintptr_t)s->dst, (const void *)(uintptr_t)s->src, s->bytes);
        break;
    case COPY_2D:
        for (size_t y = 0; y < c->height; y++) {
            memmove((char *)(uintptr_t)c->dst_device + y * c->dst_pitch,
                    (const char *)(uintptr_t)c->src_device + y * c->src_pitch, c->width_bytes);
        }
        break;
    case CLEAR:
        memset((void *)(uintptr_t)s->dst, s->value, s->bytes);
        break;
    case LAUNCH:
        mock_it.launch[mock_it.launches++ % MOCK_LAUNCHES] = s->launch;
        if (s->call != NULL) {
            s->call(s->argument);
        }
        if (mock_it.fail_launch_at > 0 && --mock_it.fail_launch_at == 0) {
            mock_it.sticky = mock_it.fail_launch_with;
        }
        break;
    case WAIT:
        mock_run_until(s->stream, s->until);
        break;
    }
}

void mock_run_until(cu_stream s, int64_t until) {
    while (s->done < until && s->done < s->pending.n) {
        const step one = s->pending.at[s->done++];
        run(&one);
    }
}

static cu_result add(cu_stream stream, const step *s) {
    cu_stream to = mock_stream_of(stream);
    to = to->capture != NULL ? to->capture : to;
    push(&to->pending, s);
    if (to->mode == 0 && !mock_it.lazy) {
        mock_run_until(to, to->pending.n);
    }
    const int64_t waiting = to->pending.n - to->done;
    mock_it.max_pending = waiting > mock_it.max_pending ? waiting : mock_it.max_pending;
    return mock_leave(mock_it.sticky);
}

/* ---- work ---- */

MOCK_EXPORT cu_result cuMemcpyAsync(cu_address dst, cu_address src, size_t bytes, cu_stream stream) {
    const cu_result r = mock_enter();
    const step s = {.kind = COPY, .dst = dst, .src = src, .bytes = bytes};
    if (r != CU_OK) {
        return r;
    }
    mock_it.copies++;
    return add(stream, &s);
}

MOCK_EXPORT cu_result cuMemcpyPeerAsync(cu_address dst, cu_context dst_context, cu_address src, cu_context src_context,
                                        size_t bytes, cu_stream stream) {
    return dst_context == NULL || src_context == NULL ? 201 : cuMemcpyAsync(dst, src, bytes, stream);
}

MOCK_EXPORT cu_result cuMemcpy2DAsync_v2(const cu_copy_2d *copy, cu_stream stream) {
    const cu_result r = mock_enter();
    const step s = {.kind = COPY_2D, .copy = *copy};
    if (r != CU_OK) {
        return r;
    }
    if (copy->src_type != 4 || copy->dst_type != 4 || copy->width_bytes > copy->src_pitch ||
        copy->width_bytes > copy->dst_pitch) {
        return mock_leave(CU_INVALID_VALUE);
    }
    mock_it.copies_2d++;
    return add(stream, &s);
}

MOCK_EXPORT cu_result cuMemsetD8Async(cu_address dst, unsigned char value, size_t bytes, cu_stream stream) {
    const cu_result r = mock_enter();
    const step s = {.kind = CLEAR, .dst = dst, .value = value, .bytes = bytes};
    if (r != CU_OK) {
        return r;
    }
    mock_it.clears++;
    return add(stream, &s);
}

MOCK_EXPORT cu_result cuFuncGetAttribute(int *value, int attribute, cu_function f) {
    *value = strcmp(f->name, "big") == 0
                 ? 1024
                 : 0; /* davy's kernels that use all dynamic shared memory have no static part */
    return attribute == CU_FUNCTION_SHARED_BYTES ? CU_OK : CU_INVALID_VALUE;
}

MOCK_EXPORT cu_result cuFuncSetAttribute(cu_function f, int attribute, int value) {
    if (attribute == CU_FUNCTION_MAX_DYNAMIC_SHARED) {
        f->dynamic_shared = value;
    }
    return CU_OK;
}

MOCK_EXPORT cu_result cuLaunchKernelEx(const cu_launch_config *config, cu_function f, void **params, void **extra) {
    const cu_result r = mock_enter();
    step s = {.kind = LAUNCH};
    (void)extra;
    if (r != CU_OK) {
        return r;
    }
    const unsigned most = f->dynamic_shared > 0 ? (unsigned)f->dynamic_shared : 48u << 10;
    if (config->grid[0] == 0 || config->block[0] == 0 || config->shared_bytes > most) {
        return mock_leave(CU_INVALID_VALUE);
    }
    memcpy(s.launch.grid, config->grid, sizeof config->grid);
    memcpy(s.launch.block, config->block, sizeof config->block);
    memcpy(s.launch.module, f->module->name, sizeof s.launch.module);
    memcpy(s.launch.function, f->name, sizeof s.launch.function);
    s.launch.shared_bytes = config->shared_bytes;
    if (strcmp(f->name, "host_call") == 0) {
        memcpy(&s.call, params[0], sizeof s.call);
        memcpy(&s.argument, params[1], sizeof s.argument);
    }
    for (unsigned i = 0; i < config->n_attributes; i++) {
        const cu_launch_attribute *a = &config->attributes[i];
        s.launch.cluster = a->id == CU_LAUNCH_CLUSTER ? a->value.cluster[0] : s.launch.cluster;
        s.launch.overlap = a->id == CU_LAUNCH_SERIALIZATION ? (unsigned)a->value.serialization : s.launch.overlap;
    }
    return add(config->stream, &s);
}

MOCK_EXPORT cu_result cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *size,
                                             const uint64_t *stride, const uint32_t *box, const uint32_t *steps_of,
                                             int interleave, int swizzle, int promotion, int outside) {
    const int numbers[] = {type,        (int)rank,        (int)size[0], rank > 1 ? (int)stride[0] : 0,
                           (int)box[0], (int)steps_of[0], interleave,   swizzle,
                           promotion,   outside};
    memset(map, 0, 128);
    memcpy(map, &address, sizeof address);
    memcpy((char *)map + 16, numbers, sizeof numbers);
    return (uintptr_t)map % 64 == 0 && (uintptr_t)address % 16 == 0 ? CU_OK : CU_INVALID_VALUE;
}

/* ---- streams ---- */

MOCK_EXPORT cu_result cuStreamCreate(cu_stream *stream, unsigned flags) {
    const cu_result r = mock_enter();
    if (r != CU_OK) {
        return r;
    }
    *stream = calloc(1, sizeof **stream);
    (*stream)->next = all_streams;
    all_streams = *stream;
    mock_it.streams++;
    return mock_leave(flags == CU_STREAM_NON_BLOCKING ? CU_OK : CU_INVALID_VALUE);
}

MOCK_EXPORT cu_result cuStreamDestroy_v2(cu_stream stream) {
    const cu_result r = mock_enter();
    if (r == CU_OK) {
        mock_run_until(stream, stream->mode == 0 ? stream->pending.n : 0);
        free(stream->pending.at);
        *stream = (struct CUstream_st){.next = stream->next};
        mock_it.streams--;
        mock_unlock();
    }
    return r;
}

MOCK_EXPORT cu_result cuStreamSynchronize(cu_stream stream) {
    cu_result r = mock_enter();
    if (r != CU_OK) {
        return r;
    }
    mock_it.syncs++;
    if (mock_stream_of(stream)->mode != 0) {
        mock_stream_of(stream)->broken = true;
        return mock_leave(900);
    }
    mock_run_until(mock_stream_of(stream), mock_stream_of(stream)->pending.n);
    return mock_leave(mock_it.sticky);
}

MOCK_EXPORT cu_result cuStreamQuery(cu_stream stream) {
    const cu_result r = mock_enter();
    if (r != CU_OK) {
        return r;
    }
    if (mock_it.not_ready > 0) {
        mock_it.not_ready--;
        return mock_leave(CU_NOT_READY);
    }
    mock_run_until(mock_stream_of(stream), mock_stream_of(stream)->pending.n);
    return mock_leave(mock_it.sticky);
}

MOCK_EXPORT cu_result cuStreamWaitEvent(cu_stream stream, cu_event event, unsigned flags) {
    const cu_result r = mock_enter();
    const step s = {.kind = WAIT, .stream = event->stream, .until = event->until};
    (void)flags;
    cu_stream waits = mock_stream_of(stream);
    if (r != CU_OK || event->stream == NULL) {
        return r != CU_OK ? r : mock_leave(CU_OK);
    }
    if (event->stream->mode != 0) { /* captured steps keep their order */
        waits->capture = waits != event->stream ? event->stream : NULL;
        return mock_leave(CU_OK);
    }
    return add(stream, &s);
}

MOCK_EXPORT cu_result cuThreadExchangeStreamCaptureMode(int *mode) {
    const int old = thread_mode;
    thread_mode = *mode;
    *mode = old;
    return CU_OK;
}

/* ---- capture ---- */

MOCK_EXPORT cu_result cuStreamBeginCapture_v2(cu_stream stream, int mode) {
    const cu_result r = mock_enter();
    if (r != CU_OK) {
        return r;
    }
    if ((uintptr_t)stream <= 2 || stream->mode != 0) {
        return mock_leave(900);
    }
    mock_run_until(stream, stream->pending.n);
    stream->pending.n = 0;
    stream->done = 0;
    stream->mode = mode + 1;
    return mock_leave(CU_OK);
}

MOCK_EXPORT cu_result cuStreamIsCapturing(cu_stream stream, int *status) {
    *status = stream->mode == 0 ? 0 : stream->broken ? 2 : 1;
    return CU_OK;
}

MOCK_EXPORT cu_result cuStreamEndCapture(cu_stream stream, cu_graph *graph) {
    cu_result r = mock_enter();
    if (r != CU_OK) {
        return r;
    }
    *graph = NULL;
    r = mock_it.fail_capture != 0 ? mock_it.fail_capture : stream->broken ? 901 : CU_OK;
    mock_it.fail_capture = 0;
    if (r == 908) { /* as if another thread had ended the capture: the stream stays as it is */
        return mock_leave(r);
    }
    stream->mode = 0;
    stream->broken = false;
    for (cu_stream s = all_streams; s != NULL; s = s->next) {
        s->capture = s->capture == stream ? NULL : s->capture;
    }
    if (r == CU_OK) {
        *graph = calloc(1, sizeof **graph);
        (*graph)->steps = stream->pending;
        stream->pending = (steps){0};
        mock_it.graphs++;
    }
    stream->pending.n = 0;
    return mock_leave(r);
}

MOCK_EXPORT cu_result cuGraphInstantiateWithFlags(cu_graph_exec *exec, cu_graph graph, unsigned long long flags) {
    const cu_result r = mock_enter();
    if (r != CU_OK) {
        return r;
    }
    (void)flags;
    *exec = calloc(1, sizeof **exec);
    (*exec)->next = live_execs;
    live_execs = *exec;
    for (int64_t i = 0; i < graph->steps.n; i++) {
        push(&(*exec)->steps, &graph->steps.at[i]);
    }
    mock_it.graphs++;
    return mock_leave(CU_OK);
}

MOCK_EXPORT cu_result cuGraphLaunch(cu_graph_exec exec, cu_stream stream) {
    cu_result r = mock_enter();
    for (int64_t i = 0; i < exec->steps.n && r == CU_OK; i++) {
        mock_lock();
        r = add(stream, &exec->steps.at[i]);
    }
    return mock_leave(r); /* `add` has released only its own lock */
}

MOCK_EXPORT cu_result cuGraphDestroy(cu_graph graph) {
    free(graph->steps.at);
    free(graph);
    mock_it.graphs--;
    return CU_OK;
}

MOCK_EXPORT cu_result cuGraphExecDestroy(cu_graph_exec exec) {
    mock_lock();
    cu_graph_exec *at = &live_execs;
    while (*at != exec) {
        at = &(*at)->next;
    }
    *at = exec->next;
    mock_leave(CU_OK);
    free(exec->steps.at);
    free(exec);
    mock_it.graphs--;
    return CU_OK;
}
