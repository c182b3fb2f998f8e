/* sequence.h - davy_sequence: frames go in and results come out one by one, with several frames in flight. */
#ifndef DV_SEQUENCE_H
#define DV_SEQUENCE_H

#include "core/host/model.h"

/* desc and run are full-size (sized.h), input and output too; output may be NULL. */
typedef struct dv_sequence_desc {
    davy_op op;
    const davy_tensor *input, *output;
    const davy_run *run;
    int32_t max_in_flight;
} dv_sequence_desc;

davy_result dv_sequence_open(davy_model *model, const dv_sequence_desc *desc, davy_sequence **out);
davy_result dv_sequence_push(davy_sequence *s, const davy_tensor *in, uint64_t timeout_ns);
/* *out is written to on success only. */
davy_result dv_sequence_pull(davy_sequence *s, davy_tensor *out, uint64_t timeout_ns);
davy_result dv_sequence_finish(davy_sequence *s);
davy_result dv_sequence_reset(davy_sequence *s);
void dv_sequence_info(davy_sequence *s, davy_sequence_info *out);
void dv_sequence_release(davy_sequence *s);
davy_context *dv_sequence_context(const davy_sequence *s);

#endif
