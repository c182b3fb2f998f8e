/* unicode_data.h - the tables of unicode_data.c, for unicode.h and unicode.c. */
#ifndef DV_TEXT_UNICODE_DATA_H
#define DV_TEXT_UNICODE_DATA_H

#include <stdint.h>

extern const uint8_t dv_uc_class_index[8704];
extern const uint8_t dv_uc_class_blocks[];
extern const uint32_t dv_uc_mark_ranges;
extern const uint32_t dv_uc_marks[];
extern const uint32_t dv_uc_decompositions;
extern const uint32_t dv_uc_decomposed[];
extern const uint16_t dv_uc_part_start[];
extern const uint32_t dv_uc_parts[];
extern const uint32_t dv_uc_compositions;
extern const uint32_t dv_uc_composed[];

#endif
