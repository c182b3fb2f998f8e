# The architectures: every up_*.c (upscalers) and vae_*.c of this folder. Gives DV_ARCH_SOURCES, with a generated file that holds dv_archs[].
file(GLOB DV_ARCH_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/up_*.c ${CMAKE_CURRENT_LIST_DIR}/vae_*.c)

set(dv_arch_externs "")
set(dv_arch_entries "")
foreach(source ${DV_ARCH_SOURCES})
    get_filename_component(name ${source} NAME_WE)
    string(APPEND dv_arch_externs "extern const dv_arch dv_arch_${name};\n")
    string(APPEND dv_arch_entries "    &dv_arch_${name},\n")
endforeach()

set(dv_arch_list ${CMAKE_BINARY_DIR}/generated/archs.c)
file(CONFIGURE OUTPUT ${dv_arch_list} @ONLY CONTENT "/* Generated from the files of core/arch; do not edit. */
#include \"core/arch/arch.h\"

@dv_arch_externs@
const dv_arch *const dv_archs[] = {
@dv_arch_entries@    0,
};
")
list(APPEND DV_ARCH_SOURCES ${dv_arch_list})
