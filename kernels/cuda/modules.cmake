# Device code: every NAME.cu becomes a fatbin that is embedded in the library and loaded through the driver when the first
# kernel of it is launched. NAME_sm90.cu holds instructions that only sm_90a has. Without nvcc the table is empty and the
# device list reports that. packaging/cuda.sh chooses the targets.

set(DAVY_CUDA_TARGETS auto CACHE STRING "device code: auto (by what this machine has), native (its cards), all (every released target, and PTX for later devices), off, or targets such as 90a,120")
set(DAVY_CUDA_FATBINS "" CACHE PATH "folder with NAME.fatbin of an earlier build of the same sources, instead of compiling them")
set(dv_cuda_targets "")
if(NOT DAVY_CUDA_FATBINS)
    string(REPLACE ";" "," dv_cuda_choice "${DAVY_CUDA_TARGETS}")
    execute_process(COMMAND sh ${PROJECT_SOURCE_DIR}/packaging/cuda.sh choose ${PROJECT_BINARY_DIR} "${dv_cuda_choice}"
        OUTPUT_VARIABLE dv_cuda_chosen ERROR_VARIABLE dv_cuda_error RESULT_VARIABLE dv_cuda_result OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT dv_cuda_result EQUAL 0)
        message(FATAL_ERROR "${dv_cuda_error}")
    endif()
    string(REGEX MATCH "^([^\n]*)\n([^\n]*)\n(.*)$" dv_cuda_chosen "${dv_cuda_chosen}")
    set(dv_cuda_targets ${CMAKE_MATCH_1})
    set(DAVY_NVCC ${CMAKE_MATCH_2})
    message(STATUS "${CMAKE_MATCH_3}")
endif()
set(dv_cuda_ptx "")
if(dv_cuda_targets STREQUAL "all")
    set(dv_cuda_targets 75 80 86 89 90a 100 120)
    set(dv_cuda_ptx -gencode=arch=compute_100,code=compute_100)
endif()

set(dv_cuda_sources "")
if(DAVY_CUDA_FATBINS OR dv_cuda_targets)
    file(GLOB dv_cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/*/*.cu)
    list(SORT dv_cuda_sources)
endif()

set(dv_cuda_dir ${CMAKE_CURRENT_BINARY_DIR}/cuda)
file(MAKE_DIRECTORY ${dv_cuda_dir})
set(dv_cuda_declare "")
set(dv_cuda_table "")
set(dv_cuda_incbin "")
set(dv_cuda_fatbins "")
set(dv_cuda_count 0)
foreach(source ${dv_cuda_sources})
    get_filename_component(name ${source} NAME_WE)
    set(gencode "")
    foreach(target ${dv_cuda_targets})
        if(NOT name MATCHES "_sm90$" OR target STREQUAL "90a")
            list(APPEND gencode -gencode=arch=compute_${target},code=sm_${target})
        endif()
    endforeach()
    if(NOT name MATCHES "_sm90$")
        list(APPEND gencode ${dv_cuda_ptx})
    endif()
    set(fatbin ${dv_cuda_dir}/${name}.fatbin)
    if(DAVY_CUDA_FATBINS)
        set(fatbin ${DAVY_CUDA_FATBINS}/${name}.fatbin)
        if(NOT EXISTS ${fatbin})
            continue()
        endif()
    elseif(NOT gencode)
        continue()
    else()
        add_custom_command(OUTPUT ${fatbin}
            COMMAND ${DAVY_NVCC} -fatbin ${gencode} -O3 -std=c++17 --compress-mode=size -I${PROJECT_SOURCE_DIR} -MD -MF ${fatbin}.d
                -o ${fatbin} ${source}
            DEPENDS ${source} DEPFILE ${fatbin}.d
            COMMENT "CUDA ${name}" VERBATIM)
    endif()
    list(APPEND dv_cuda_fatbins ${fatbin})
    string(APPEND dv_cuda_declare "extern const unsigned char dvk_fatbin_${name}[], dvk_fatbin_${name}_end[];\n")
    string(APPEND dv_cuda_table "    {\"${name}\", dvk_fatbin_${name}, dvk_fatbin_${name}_end},\n")
    string(APPEND dv_cuda_incbin "    .balign 64\n    .globl dvk_fatbin_${name}\ndvk_fatbin_${name}:\n    .incbin \"${fatbin}\"\n"
        "    .globl dvk_fatbin_${name}_end\ndvk_fatbin_${name}_end:\n    .byte 0\n")
    math(EXPR dv_cuda_count "${dv_cuda_count} + 1")
endforeach()
set(DAVY_DEVICE_CODE ${dv_cuda_count} CACHE INTERNAL "files of device code in the library; the tests skip what needs some")
if(DAVY_CUDA_FATBINS)
    message(STATUS "device code: ${dv_cuda_count} files from ${DAVY_CUDA_FATBINS}")
endif()
if(dv_cuda_count EQUAL 0)
    set(dv_cuda_table "    {0, 0, 0}\n")
endif()

# The symbols are hidden: nothing outside the library sees them.
if(WIN32)
    set(dv_cuda_section ".section .rdata,\"dr\"\n")
    set(dv_cuda_note "")
else()
    set(dv_cuda_section ".section .rodata,\"a\"\n")
    set(dv_cuda_note ".section .note.GNU-stack,\"\",%progbits\n")
    string(REGEX REPLACE "\\.globl ([A-Za-z0-9_]+)" ".globl \\1\n    .hidden \\1" dv_cuda_incbin "${dv_cuda_incbin}")
endif()
file(CONFIGURE OUTPUT ${dv_cuda_dir}/fatbins.S CONTENT "${dv_cuda_section}${dv_cuda_incbin}${dv_cuda_note}" @ONLY)
file(CONFIGURE OUTPUT ${dv_cuda_dir}/modules.c CONTENT "/* made by modules.cmake */
#include \"kernels/cuda/cuda.h\"
${dv_cuda_declare}
static const dvk_cuda_module modules[] = {
${dv_cuda_table}};

const dvk_cuda_module *dvk_cuda_modules(int32_t *count) {
    *count = ${dv_cuda_count};
    return modules;
}
" @ONLY)
set(dv_cuda_embedded ${dv_cuda_dir}/modules.c)
if(dv_cuda_count GREATER 0)
    enable_language(ASM)
    list(APPEND dv_cuda_embedded ${dv_cuda_dir}/fatbins.S)
    set_source_files_properties(${dv_cuda_dir}/fatbins.S PROPERTIES OBJECT_DEPENDS "${dv_cuda_fatbins}")
endif()
