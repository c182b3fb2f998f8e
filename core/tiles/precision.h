/* precision.h - the numeric type in which an engine computes. */
#ifndef DV_ENGINE_PRECISION_H
#define DV_ENGINE_PRECISION_H

#include "core/tiles/engine_plan.h"

/* Sets e->compute from the requested type and the capabilities of the devices. The engine's architecture must be set. */
davy_result dv_engine_set_compute(dv_engine *e, davy_dtype compute, bool tf32);

/* For an INT8 engine that no other thread uses yet: chooses the convolutions that use eight bits. If none does, e->compute becomes
 * the storage type. */
davy_result dv_engine_calibrate(dv_engine *e);

#endif
