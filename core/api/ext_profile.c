/* ext_profile.c - "davy.profile/1": times of the steps of all runs of a context between start and stop. */
#include "core/host/context.h"
#include "core/base/error.h"
#include "core/api/extension.h"
#include "core/base/profile.h"
#include "core/base/text.h"

static davy_result DAVY_CALL start(davy_context *ctx) {
    const davy_result r = dv_context_check(ctx);
    if (r == DAVY_OK) {
        dv_profile_start(dv_context_services(ctx)->profile);
    }
    return r;
}

static davy_result DAVY_CALL stop(davy_context *ctx, davy_text **json) {
    const davy_result r = dv_context_check(ctx);
    if (r < 0) {
        return r;
    }
    if (json == NULL) {
        return dv_fail(DAVY_E_INVALID, "json is NULL");
    }
    dv_profile *profile = dv_context_services(ctx)->profile;
    if (!dv_profile_on(profile)) {
        return dv_fail(DAVY_E_STATE, "profile: stop was called without start");
    }
    dv_profile_stop(profile);
    return dv_text_create(dv_profile_json(profile), json);
}

const davy_profile_1 dv_ext_profile = {.struct_size = sizeof(davy_profile_1), .start = start, .stop = stop};
