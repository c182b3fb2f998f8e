/* all_modules.h - every device code module of the build, by name. The mock finds any function in any module. */
#ifndef DV_TESTS_ALL_MODULES_H
#define DV_TESTS_ALL_MODULES_H

/* From here on davy finds these modules; DV_MODULES has their names, with commas. */
void use_all_modules(void);

#endif
