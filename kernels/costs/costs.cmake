# Tables of costs for CUDA kernels, one for each smNN.def and smNN_NAME.def of this folder (cuda_costs.h). A new file adds a
# table. NAME is a part of the device's name, with _ for blanks.

file(GLOB dv_cost_files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/costs/sm*.def)
list(SORT dv_cost_files COMPARE NATURAL)
set(dv_cost_tables "")
set(dv_cost_list "")
set(dv_cost_first "static const dvk_cost_table sm90;\n")
foreach(file ${dv_cost_files})
    get_filename_component(name ${file} NAME_WE)
    string(REGEX REPLACE "^sm([0-9]+).*" "\\1" sm ${name})
    set(device NULL)
    set(base "&sm90")
    if(name STREQUAL "sm90")
        set(base NULL)
    endif()
    if(name MATCHES "^sm[0-9]+_(.+)$")
        string(REPLACE "_" " " device "\"${CMAKE_MATCH_1}\"")
        if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/costs/sm${sm}.def)
            set(base "&sm${sm}")
        endif()
    endif()
    string(APPEND dv_cost_tables "static const dvk_cost_table ${name} = {\"${name}\", ${sm}, ${device}, ${base}, {\n"
        "#include \"kernels/costs/${name}.def\"\n}};\n")
    string(APPEND dv_cost_list "&${name}, ")
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/cost_tables.c CONTENT "/* made by costs.cmake */
#include \"kernels/costs/cuda_costs.h\"
#define COST(kernel, term, kind, value) [DVK_COST(kernel, term)] = (value),
${dv_cost_first}${dv_cost_tables}
const dvk_cost_table *const dvk_cost_tables[] = {${dv_cost_list}NULL};
" @ONLY)
list(APPEND dv_kernel_sources ${CMAKE_CURRENT_BINARY_DIR}/cost_tables.c)
