/* environment.h - what variables of the environment say where the host leaves the choice to davy. They are for people, so
 * a mistake in one is reported (DAVY_E_OPTION) and not passed over. environment false: they are not looked at. */
#ifndef DV_ENVIRONMENT_H
#define DV_ENVIRONMENT_H

#include "core/base/common.h"

enum { DV_THREADS_MAX = 1024 };

/* given 0: DAVY_THREADS, else one per available core. */
davy_result dv_env_threads(bool environment, int32_t given, int32_t *out);
/* DVK_CPU_* bits this processor has, no more than DAVY_CPU allows. */
davy_result dv_env_cpu(bool environment, uint32_t *out);
/* given NULL or "auto": DAVY_DEVICE, else "auto". *out is one that dv_device_text accepts; dv_free. */
davy_result dv_env_device(bool environment, const char *given, char **out);
/* given (the option's value) NULL: DAVY_NVIDIA_LIBRARIES, else false. */
davy_result dv_env_nvidia(bool environment, const char *given, bool *out);

#endif
