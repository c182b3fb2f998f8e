/* extension.h - the tables of get_extension: functions that only tools need. */
#ifndef DV_EXTENSION_H
#define DV_EXTENSION_H

#include "core/base/common.h"

extern const davy_inspect_1 dv_ext_inspect; /* "davy.inspect/1" */
extern const davy_profile_1 dv_ext_profile; /* "davy.profile/1" */

#endif
