/* precision.h - what an engine computes in. */
#ifndef DV_ENGINE_PRECISION_H
#define DV_ENGINE_PRECISION_H

#include "core/tiles/engine_plan.h"

/* Sets `compute` of an engine with an architecture, by what was asked for and what its devices have. */
davy_result dv_engine_set_compute(dv_engine *e, davy_dtype compute, bool tf32);

/* Of an engine in INT8 that nobody else has yet: which convolutions have eight bits. What is stored where none has. */
davy_result dv_engine_calibrate(dv_engine *e);

#endif
