/* api_sequence.c - the table's entries for sequences; see api.c. */
#include "core/api/api_priv.h"
#include "core/host/context.h"
#include "core/base/error.h"
#include "core/calls/sequence.h"

static davy_result check_sequence(const davy_sequence *s) {
    return s == NULL ? dv_api_is_null("sequence") : dv_context_check(dv_sequence_context(s));
}

static davy_result done(const davy_sequence *s, const char *function, davy_result r) {
    return dv_api_done(s != NULL ? dv_sequence_context(s) : NULL, function, r);
}

davy_result DAVY_CALL dv_api_sequence_open(davy_model *model, const davy_sequence_desc *desc, davy_sequence **out) {
    davy_sequence_desc d;
    davy_tensor input;
    davy_tensor output;
    davy_run run;
    davy_result r = dv_api_check_model(model);
    r = r < 0 ? r : out == NULL ? dv_api_is_null("out") : TAKE(davy_sequence_desc, desc, &d);
    if (r == DAVY_OK && d.flags != 0) {
        r = dv_fail(DAVY_E_INVALID, "sequence_desc: flags is 0x%x, expected 0", (unsigned)d.flags);
    }
    r = r < 0 ? r : TAKE(davy_tensor, d.input, &input);
    r = r < 0 || d.output == NULL ? r : TAKE(davy_tensor, d.output, &output);
    r = r < 0 ? r : dv_api_take_run(d.run, &run);
    if (r == DAVY_OK) {
        const dv_sequence_desc full = {.op = d.op,
                                       .input = &input,
                                       .output = d.output != NULL ? &output : NULL,
                                       .run = &run,
                                       .max_in_flight = d.max_in_flight};
        r = dv_sequence_open(model, &full, out);
    }
    return dv_api_done(model != NULL ? dv_model_context(model) : NULL, "sequence_open", r);
}

davy_result DAVY_CALL dv_api_sequence_push(davy_sequence *sequence, const davy_tensor *in, uint64_t timeout_ns) {
    davy_tensor full;
    davy_result r = check_sequence(sequence);
    r = r < 0 ? r : TAKE(davy_tensor, in, &full);
    r = r < 0 ? r : dv_sequence_push(sequence, &full, timeout_ns);
    return done(sequence, "sequence_push", r);
}

davy_result DAVY_CALL dv_api_sequence_pull(davy_sequence *sequence, davy_tensor *out, uint64_t timeout_ns) {
    davy_tensor full;
    davy_result r = check_sequence(sequence);
    r = r < 0 ? r : TAKE(davy_tensor, out, &full);
    r = r < 0 ? r : dv_sequence_pull(sequence, &full, timeout_ns);
    if (r == DAVY_OK) {
        dv_sized_out(out, &full, sizeof full);
    }
    return done(sequence, "sequence_pull", r);
}

davy_result DAVY_CALL dv_api_sequence_finish(davy_sequence *sequence) {
    const davy_result r = check_sequence(sequence);
    return done(sequence, "sequence_finish", r < 0 ? r : dv_sequence_finish(sequence));
}

davy_result DAVY_CALL dv_api_sequence_reset(davy_sequence *sequence) {
    const davy_result r = check_sequence(sequence);
    return done(sequence, "sequence_reset", r < 0 ? r : dv_sequence_reset(sequence));
}

davy_result DAVY_CALL dv_api_sequence_info(davy_sequence *sequence, davy_sequence_info *out) {
    davy_sequence_info info;
    davy_result r = check_sequence(sequence);
    r = r < 0 ? r : CHECK_OUT(davy_sequence_info, out);
    if (r == DAVY_OK) {
        dv_sequence_info(sequence, &info);
        dv_sized_out(out, &info, sizeof info);
    }
    return done(sequence, "sequence_info", r);
}

void DAVY_CALL dv_api_sequence_release(davy_sequence *sequence) {
    dv_sequence_release(sequence);
}
