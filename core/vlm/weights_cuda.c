/* weights_cuda.c - weights on a GPU: matrices go there as they are packed (weights_pack.c); norms, biases and tables are read
 * into host memory first, as some are worked on, and all go together in the end. */
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/vlm/weights.h"

enum { ALIGN = 256 };

davy_result dv_loader_cuda_begin(dv_loader *l) {
    void *stage = NULL;
    davy_result r =
        dv_heap_alloc(l->w->heap, DV_MEM_WORKSPACE, DV_STAGE_BYTES, "weights on their way to a GPU", &stage);
    l->stage = stage;
    return r < 0 ? r : dv_gpu_queue_take(l->source->gpu, NULL, &l->queue);
}

void *dv_loader_device(dv_loader *l, uint64_t bytes) {
    dv_vlm_weights *w = l->w;
    dv_owned *owned = l->r == DAVY_OK ? dv_grow(w->owned, w->n_owned + 1, &w->owned_room, sizeof *owned) : NULL;
    void *p = NULL;
    if (owned == NULL) {
        l->r = l->r < 0 ? l->r : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory for the weights");
        return NULL;
    }
    w->owned = owned;
    l->r = dv_gpu_alloc(w->gpu, DV_MEM_WEIGHTS, bytes, "weights of a captioning model", &p);
    if (l->r == DAVY_OK) {
        owned[w->n_owned++] = (dv_owned){.data = p, .bytes = bytes, .on_gpu = true};
    }
    return p;
}

void dv_loader_upload(dv_loader *l, void *to, const void *from, uint64_t bytes) {
    l->r = l->r < 0 ? l->r : dv_gpu_upload(l->queue, to, from, bytes);
}

/* ---- numbers ---- */

typedef struct moving {
    dv_vlm_weights *w;
    unsigned char *to; /* NULL: what goes is only counted */
    uint64_t bytes;
} moving;

static dv_owned *owner_of(const dv_vlm_weights *w, const unsigned char *p) {
    for (int64_t i = 0; i < w->n_owned; i++) {
        dv_owned *o = &w->owned[i];
        const unsigned char *begin = o->data;
        if (!o->on_gpu && p >= begin && p < begin + o->bytes) {
            return o;
        }
    }
    return NULL;
}

/* pointer: the address of one into a block of the host's. */
static void move(moving *m, void *pointer) {
    unsigned char *p = NULL;
    memcpy(&p, pointer, sizeof p);
    dv_owned *o = p != NULL ? owner_of(m->w, p) : NULL;
    if (o == NULL) {
        return;
    }
    if (m->to != NULL) {
        p = m->to + o->at + (p - (unsigned char *)o->data);
        memcpy(pointer, &p, sizeof p);
    } else if (!o->goes) {
        o->goes = true;
        o->at = m->bytes;
        m->bytes += dv_align_up(o->bytes, ALIGN);
    }
}

static void move_affine(moving *m, dv_vlm_affine *a) {
    move(m, &a->w);
    move(m, &a->b);
}

static void move_blocks(moving *m, dv_vlm_block *blocks, int64_t n) {
    for (int64_t i = 0; blocks != NULL && i < n; i++) {
        dv_vlm_block *b = &blocks[i];
        move_affine(m, &b->norm1);
        move_affine(m, &b->norm2);
        for (int32_t k = 0; k < b->n_qkv; k++) {
            move(m, &b->qkv[k].bias);
        }
        move(m, &b->out.bias);
        move(m, &b->up.bias);
        move(m, &b->down.bias);
        move(m, &b->q_norm);
        move(m, &b->k_norm);
    }
}

static void move_merger(moving *m, dv_vlm_merger *merger) {
    move_affine(m, &merger->norm);
    move(m, &merger->first.bias);
    move(m, &merger->second.bias);
}

static void move_resampler(moving *m, dv_vlm_resampler *r, int64_t layers) {
    move(m, &r->queries);
    for (int64_t i = 0; r->layers != NULL && i < layers; i++) {
        dv_vlm_attender *a = &r->layers[i];
        dv_vlm_matrix *const matrices[] = {&a->q, &a->kv, &a->out, &a->up, &a->down};
        move_affine(m, &a->norm1);
        move_affine(m, &a->norm2);
        for (size_t k = 0; k < DV_ARRAY_LEN(matrices); k++) {
            move(m, &matrices[k]->bias);
        }
    }
    move(m, &r->first.bias);
    move(m, &r->second.bias);
    move_affine(m, &r->norm);
}

/* Every pointer to numbers there is. The arrays of blocks themselves stay. */
static void move_all(moving *m, const dv_vlm_config *c) {
    dv_vlm_weights *w = m->w;
    move_affine(m, &w->norm);
    move(m, &w->frequencies);
    move(m, &w->axes);
    move_blocks(m, w->layers, c->text.layers);
    move(m, &w->patch.bias);
    move(m, &w->positions);
    move(m, &w->class_row);
    move_affine(m, &w->pre_norm);
    move_affine(m, &w->post_norm);
    move_blocks(m, w->blocks, c->vision.run_layers);
    move_merger(m, &w->merger);
    for (int32_t i = 0; w->deepstack != NULL && i < c->vision.n_deepstack; i++) {
        move_merger(m, &w->deepstack[i]);
    }
    move_resampler(m, &w->resampler, c->vision.resampler_layers);
}

static void upload_numbers(dv_loader *l) {
    dv_vlm_weights *w = l->w;
    moving m = {.w = w};
    move_all(&m, l->config);
    m.to = dv_loader_device(l, m.bytes);
    for (int64_t i = 0; i < w->n_owned; i++) {
        if (w->owned[i].goes) {
            dv_loader_upload(l, m.to + w->owned[i].at, w->owned[i].data, w->owned[i].bytes);
        }
    }
    if (l->r < 0) {
        return;
    }
    move_all(&m, l->config);
    int64_t kept = 0;
    for (int64_t i = 0; i < w->n_owned; i++) {
        const dv_owned o = w->owned[i];
        const bool list =
            o.data == w->layers || o.data == w->blocks || o.data == w->deepstack || o.data == w->resampler.layers;
        if (o.on_gpu || list) {
            w->owned[kept++] = o;
        } else { /* gone, or only read to make a matrix of it */
            dv_heap_free(w->heap, DV_MEM_WEIGHTS, o.data, o.bytes);
        }
    }
    w->n_owned = kept;
}

void dv_loader_cuda_end(dv_loader *l) {
    if (l->r == DAVY_OK) {
        upload_numbers(l);
    }
    if (l->queue != NULL) {
        davy_error_info saved;
        dv_error_get(&saved);
        const davy_result r = dv_gpu_queue_wait(l->queue, NULL, NULL);
        if (l->r < 0) {
            dv_error_set(&saved);
        } else {
            l->r = r;
        }
        dv_gpu_queue_give(l->queue);
    }
    if (l->stage != NULL) {
        dv_heap_free(l->w->heap, DV_MEM_WORKSPACE, l->stage, DV_STAGE_BYTES);
    }
}
