/* liveness.c - offline packing of intervals: largest block first, each into the tightest gap that the blocks already
 * placed leave open during its life. Largest first because a late large block would have to go on top of everything;
 * the tightest gap because it keeps the wide ones for the blocks that need them. */
#include "core/liveness.h"

#include "core/error.h"
#include "core/mem.h"

typedef struct packer {
    dv_block *blocks;
    int64_t *order;  /* by size, largest first */
    int64_t *placed; /* by offset */
    int64_t n_placed;
} packer;

static bool alive_together(const dv_block *a, const dv_block *b) {
    return a->first <= b->last && b->first <= a->last;
}

static bool comes_before(const dv_block *blocks, int64_t a, int64_t b) {
    if (blocks[a].bytes != blocks[b].bytes) {
        return blocks[a].bytes > blocks[b].bytes;
    }
    return a < b;
}

/* Insertion sort: a plan has hundreds of blocks. */
static void sort_by_size(packer *p, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        int64_t at = i;
        while (at > 0 && comes_before(p->blocks, i, p->order[at - 1])) {
            p->order[at] = p->order[at - 1];
            at--;
        }
        p->order[at] = i;
    }
}

static uint64_t room_of(const dv_block *b) {
    return dv_align_up(b->bytes, DV_ARENA_ALIGN);
}

/* Walks the neighbours of b in time, upwards, and keeps the smallest gap that is large enough. */
static uint64_t best_offset(const packer *p, const dv_block *b) {
    uint64_t end = 0;
    uint64_t best = UINT64_MAX;
    uint64_t best_gap = UINT64_MAX;
    for (int64_t i = 0; i < p->n_placed; i++) {
        const dv_block *other = &p->blocks[p->placed[i]];
        if (!alive_together(b, other)) {
            continue;
        }
        if (other->offset > end && other->offset - end >= room_of(b) && other->offset - end < best_gap) {
            best_gap = other->offset - end;
            best = end;
        }
        end = other->offset + room_of(other) > end ? other->offset + room_of(other) : end;
    }
    return best != UINT64_MAX ? best : end;
}

static void insert_placed(packer *p, int64_t index) {
    int64_t at = p->n_placed++;
    while (at > 0 && p->blocks[p->placed[at - 1]].offset > p->blocks[index].offset) {
        p->placed[at] = p->placed[at - 1];
        at--;
    }
    p->placed[at] = index;
}

static bool sizes_fit(const dv_block *blocks, int64_t count) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        if (blocks[i].bytes > INT64_MAX / 2 || !dv_add_u64(sum, room_of(&blocks[i]), &sum) || sum > INT64_MAX / 2) {
            return false;
        }
    }
    return true;
}

davy_result dv_arena_pack(dv_block *blocks, int64_t count, uint64_t *total) {
    if (!sizes_fit(blocks, count)) {
        return dv_fail(DAVY_E_SHAPE, "the picture is too large: its intermediate results exceed the address space");
    }
    packer p = {.blocks = blocks};
    p.order = dv_calloc((uint64_t)count + 1, sizeof *p.order);
    p.placed = dv_calloc((uint64_t)count + 1, sizeof *p.placed);
    if (p.order == NULL || p.placed == NULL) {
        dv_free(p.order);
        dv_free(p.placed);
        return dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
    }
    sort_by_size(&p, count);
    uint64_t top = 0;
    for (int64_t i = 0; i < count; i++) {
        dv_block *b = &blocks[p.order[i]];
        if (b->first > b->last || b->bytes == 0) {
            b->offset = 0;
            continue;
        }
        b->offset = best_offset(&p, b);
        insert_placed(&p, p.order[i]);
        top = b->offset + room_of(b) > top ? b->offset + room_of(b) : top;
    }
    *total = top;
    dv_free(p.order);
    dv_free(p.placed);
    return DAVY_OK;
}
