/* arena.c - offline packing of intervals. The largest block comes first, because a late large block would have to go
 * on top of all others. Each block goes into the smallest gap that fits among the blocks alive at the same time; wide
 * gaps stay free for larger blocks. If the result exceeds `enough`, other orders of the largest blocks are tried. */
#include "core/plan/arena.h"

#include "core/base/error.h"
#include "core/base/mem.h"

enum { TRIES = 400 };

typedef struct packer {
    dv_block *blocks;
    int64_t count;
    int64_t *order;  /* indices of blocks, largest first */
    int64_t *placed; /* indices of placed blocks by offset */
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
static void sort_by_size(packer *p) {
    for (int64_t i = 0; i < p->count; i++) {
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

/* Walks upwards through the placed blocks that are alive together with b. Returns the start of the smallest gap that
 * fits. */
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

/* Packs the first `count` blocks of the order; returns the bytes they take. */
static uint64_t pack(packer *p, int64_t count) {
    uint64_t top = 0;
    p->n_placed = 0;
    for (int64_t i = 0; i < count; i++) {
        dv_block *b = &p->blocks[p->order[i]];
        if (b->first > b->last || b->bytes == 0) {
            b->offset = 0;
            continue;
        }
        b->offset = best_offset(p, b);
        insert_placed(p, p->order[i]);
        top = b->offset + room_of(b) > top ? b->offset + room_of(b) : top;
    }
    return top;
}

static void move_to(packer *p, int64_t from, int64_t to) {
    const int64_t block = p->order[from];
    const int64_t way = to > from ? 1 : -1;
    for (; from != to; from += way) {
        p->order[from] = p->order[from + way];
    }
    p->order[to] = block;
}

/* Moves one large block at a time to another place in the order. A move that makes the arena larger is undone. */
static void improve(packer *p, uint64_t enough, uint64_t *total) {
    int64_t large = 0;
    uint32_t random = 1;
    while (large < p->count && p->blocks[p->order[large]].bytes > *total / 64) {
        large++;
    }
    uint64_t best = pack(p, large);
    for (int i = 0; i < TRIES && large > 1 && best > enough; i++) {
        random = random * 1664525u + 1013904223u;
        const int64_t from = (int64_t)(random >> 16) % large;
        random = random * 1664525u + 1013904223u;
        const int64_t to = (int64_t)(random >> 16) % large;
        move_to(p, from, to);
        const uint64_t top = pack(p, large);
        if (top > best) {
            move_to(p, to, from);
        }
        best = top < best ? top : best;
    }
    *total = pack(p, p->count);
}

davy_result dv_arena_pack(dv_block *blocks, int64_t count, uint64_t enough, uint64_t *total) {
    if (!sizes_fit(blocks, count)) {
        return dv_fail(
            DAVY_E_SHAPE,
            "the picture is too large: its intermediate results exceed the address space; use a smaller tile");
    }
    packer p = {.blocks = blocks, .count = count};
    p.order = dv_calloc((uint64_t)count + 1, sizeof *p.order);
    p.placed = dv_calloc((uint64_t)count + 1, sizeof *p.placed);
    if (p.order == NULL || p.placed == NULL) {
        dv_free(p.order);
        dv_free(p.placed);
        return dv_fail(DAVY_E_NOMEM_HOST, "plan: out of memory");
    }
    sort_by_size(&p);
    *total = pack(&p, count);
    const uint64_t plain = *total;
    if (plain > enough) {
        improve(&p, enough, total);
    }
    if (*total > plain) {
        sort_by_size(&p);
        *total = pack(&p, count);
    }
    dv_free(p.order);
    dv_free(p.placed);
    return DAVY_OK;
}
