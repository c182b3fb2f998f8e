/* gpu_graph.c - recording what is enqueued on a queue, to launch it again as a whole. */
#include "core/cuda/gpu_priv.h"
#include "core/base/error.h"

struct dv_gpu_graph {
    dv_gpu *gpu;
    cu_graph_exec exec;
};

davy_result dv_gpu_capture_begin(dv_gpu_queue *pub) {
    gpu_queue *q = pub->priv;
    dv_gpu *g = pub->gpu;
    if (pub->foreign || q->capturing) {
        return dv_fail(DAVY_E_STATE, "recording a graph: the stream is %s",
                       pub->foreign ? "the host's" : "being recorded already");
    }
    davy_result r = gpu_enter(g, "recording a graph");
    if (r == DAVY_OK) {
        const cu_result c = g->cu->capture_begin(q->own, CU_CAPTURE_THREAD_LOCAL);
        gpu_leave(g);
        r = dv_gpu_check(g, c, "recording a graph");
    }
    q->capturing = r == DAVY_OK;
    return r;
}

/* A stream that is still recording would refuse everything: another takes its place. */
static cu_result renew_stream(dv_gpu *g, gpu_queue *q) {
    int status = 0;
    cu_stream fresh = NULL;
    if (g->cu->capture_status(q->own, &status) == CU_OK && status == 0) {
        return CU_OK;
    }
    const cu_result c = g->cu->stream_create(&fresh, CU_STREAM_NON_BLOCKING);
    if (c == CU_OK) {
        g->cu->stream_destroy(q->own);
        q->own = fresh;
        q->pub.stream = fresh;
    }
    return c;
}

davy_result dv_gpu_capture_end(dv_gpu_queue *pub, dv_gpu_graph **out) {
    gpu_queue *q = pub->priv;
    dv_gpu *g = pub->gpu;
    *out = NULL;
    if (!q->capturing) {
        return dv_fail(DAVY_E_STATE, "recording a graph: the stream is not being recorded");
    }
    q->capturing = false;
    dv_gpu_graph *graph = dv_calloc(1, sizeof *graph);
    davy_result r = gpu_enter(g, "recording a graph");
    if (r < 0) {
        dv_free(graph);
        return r;
    }
    cu_graph recorded = NULL;
    cu_result c = g->cu->capture_end(q->own, &recorded);
    if (c != CU_OK) {
        const cu_result renewed = renew_stream(g, q);
        gpu_note(g, renewed);
    } else if (graph != NULL) {
        c = g->cu->graph_instantiate(&graph->exec, recorded, 0);
    }
    if (recorded != NULL) {
        g->cu->graph_destroy(recorded);
    }
    gpu_leave(g);
    r = dv_gpu_check(g, c, "recording a graph");
    if (r == DAVY_OK && graph == NULL) {
        r = dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a CUDA graph");
    }
    if (r < 0) {
        dv_free(graph);
        return r;
    }
    graph->gpu = g;
    *out = graph;
    return DAVY_OK;
}

davy_result dv_gpu_graph_launch(dv_gpu_graph *graph, dv_gpu_queue *q) {
    dv_gpu *g = q->gpu;
    davy_result r = gpu_enter(g, "launching a graph");
    if (r == DAVY_OK) {
        const cu_result c = g->cu->graph_launch(graph->exec, q->stream);
        gpu_leave(g);
        r = dv_gpu_check(g, c, "launching a graph");
    }
    return r;
}

void dv_gpu_graph_release(dv_gpu_graph *graph) {
    if (graph == NULL) {
        return;
    }
    dv_gpu *g = graph->gpu;
    if (g->process == dv_process_id() && gpu_enter_cu(g) == CU_OK) {
        g->cu->graph_exec_destroy(graph->exec);
        gpu_leave(g);
    }
    dv_free(graph);
}
