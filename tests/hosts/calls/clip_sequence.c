/* clip_sequence.c - sequences of a video VAE: the results have the bits of the one-shot call for any timing of the pushes. */
#include <pthread.h>

#include "tests/hosts/calls/clip_host.h"

static void same_as_one_shot(int frames, int32_t most, int hand_over, const davy_run *run) {
    const int latents = latents_of(frames), out = 4 * latents - 3;
    uint8_t *pixels = frames_of(1, frames), *once = malloc((size_t)out * PIXELS), *back = calloc((size_t)out, PIXELS);
    float *want = malloc(latent_bytes(latents)), *got = calloc(1, latent_bytes(latents));
    davy_tensor none = {.struct_size = sizeof none};
    flow f = {DAVY_OP_VAE_ENCODE, (char *)pixels, (char *)got, frames, latents, hand_over};
    IS(encode(pixels, 1, frames, want, run), DAVY_OK);
    davy_sequence *s = open_sequence(DAVY_OP_VAE_ENCODE, most, run);
    CHECK(info_of(s).latency_frames == 3 && info_of(s).memory_bytes == 0);
    CHECK(flow_through(s, &f) == latents);
    CHECKF(memcmp(got, want, latent_bytes(latents)) == 0, "%d frames, %d in flight: other latents than at once", frames,
           (int)most);
    IS(api->sequence_pull(s, &none, FOREVER), DAVY_END);
    CHECK(info_of(s).in_flight == 0 && info_of(s).frames_in == (uint64_t)frames);
    IS(api->sequence_reset(s), DAVY_OK);
    memset(got, 0, latent_bytes(latents));
    CHECK(flow_through(s, &f) == latents && memcmp(got, want, latent_bytes(latents)) == 0);
    api->sequence_release(s);
    f = (flow){DAVY_OP_VAE_DECODE, (char *)want, (char *)back, latents, out, hand_over};
    davy_run plain = {.struct_size = sizeof plain};
    IS(decode(want, latents, once, &plain), DAVY_OK);
    s = open_sequence(DAVY_OP_VAE_DECODE, most, NULL);
    CHECK(info_of(s).latency_frames == 0);
    CHECK(flow_through(s, &f) == out);
    CHECKF(memcmp(back, once, (size_t)out * PIXELS) == 0, "%d latents: other frames than at once", latents);
    api->sequence_release(s);
    free(pixels), free(once), free(back), free(want), free(got);
}

typedef struct pusher {
    davy_sequence *s;
    const flow *f;
} pusher;

static void *push_all(void *arg) {
    const pusher *p = arg;
    for (int i = 0; i < p->f->n_in; i++) {
        const davy_tensor in = item_in(p->f, i);
        IS(api->sequence_push(p->s, &in, FOREVER), DAVY_OK);
    }
    IS(api->sequence_finish(p->s), DAVY_OK);
    return NULL;
}

static void two_threads(void) {
    const int latents = latents_of(LONGEST);
    uint8_t *pixels = frames_of(1, LONGEST);
    float *want = malloc(latent_bytes(latents)), *got = calloc(1, latent_bytes(latents));
    const flow f = {DAVY_OP_VAE_ENCODE, (char *)pixels, (char *)got, LONGEST, latents, 0};
    pthread_t thread;
    IS(encode(pixels, 1, LONGEST, want, NULL), DAVY_OK);
    pusher p = {open_sequence(DAVY_OP_VAE_ENCODE, 5, NULL), &f};
    pthread_create(&thread, NULL, push_all, &p);
    for (int i = 0; i < latents;) {
        const davy_result r = pull_one(p.s, &f, i, FOREVER);
        if (r == DAVY_NEED_INPUT) {
            host_sleep_ms(1);
        } else if (CHECKF(r == DAVY_OK, "pull %d: %s %s", i, api->result_name(r), host_error(api))) {
            i++;
        } else {
            break;
        }
    }
    pthread_join(thread, NULL);
    CHECK(memcmp(got, want, latent_bytes(latents)) == 0);
    api->sequence_release(p.s);
    free(pixels), free(want), free(got);
}

/* Too few frames for a latent: no result is in flight. When the clip ends, they become a latent. */
static void waits(void) {
    uint8_t *pixels = frames_of(1, 8);
    float got[2 * 64 * Z], want[2 * 64 * Z];
    const flow f = {DAVY_OP_VAE_ENCODE, (char *)pixels, (char *)got, first + 1, 2, 0};
    davy_sequence *s = open_sequence(DAVY_OP_VAE_ENCODE, 0, NULL);
    for (int i = 0; i < first + 1; i++) {
        const davy_tensor in = item_in(&f, i);
        if (i < first) {
            IS(pull_one(s, &f, 0, FOREVER), DAVY_NEED_INPUT);
        }
        IS(api->sequence_push(s, &in, FOREVER), DAVY_OK);
    }
    IS(pull_one(s, &f, 0, FOREVER), DAVY_OK);
    IS(pull_one(s, &f, 1, FOREVER), DAVY_NEED_INPUT);
    CHECK(info_of(s).in_flight == 1 && info_of(s).ready == 0 && info_of(s).frames_out == 1);
    IS(api->sequence_finish(s), DAVY_OK);
    IS(pull_one(s, &f, 1, FOREVER), DAVY_OK);
    IS(pull_one(s, &f, 1, FOREVER), DAVY_END);
    const davy_tensor in = item_in(&f, 0);
    IS(api->sequence_push(s, &in, FOREVER), DAVY_E_STATE);
    IS(encode(pixels, 1, first + 1, want, NULL), DAVY_OK);
    CHECK(memcmp(got, want, latent_bytes(2)) == 0);
    IS(api->sequence_reset(s), DAVY_OK);
    IS(api->sequence_finish(s), DAVY_OK);
    IS(pull_one(s, &f, 0, FOREVER), DAVY_END);
    IS(api->sequence_reset(s), DAVY_OK);
    IS(api->sequence_push(s, &in, FOREVER), DAVY_OK); /* released with a frame in flight */
    api->sequence_release(s);
    free(pixels);
}

static void all_of(synth_file file) {
    (void)file;
    const davy_run drawn = {.struct_size = sizeof drawn, .flags = DAVY_RUN_SAMPLE, .seed = 3};
    same_as_one_shot(2, 0, 0, NULL);
    same_as_one_shot(9, 1, 0, NULL);
    same_as_one_shot(14, 0, 1, (facts.features & DAVY_MODEL_MOMENTS) != 0 ? &drawn : NULL);
    same_as_one_shot(LONGEST, 7, 0, NULL);
    two_threads();
    waits();
}

int main(void) {
    return clip_host_run(all_of);
}
