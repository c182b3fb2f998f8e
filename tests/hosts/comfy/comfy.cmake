# The node pack: without ComfyUI in NumPy, with torch in a stand-in for it, and as `make install-comfy` leaves it. With a real
# ComfyUI: stock.py and server.py, by hand.
if(NOT WIN32 AND NOT DAVY_SANITIZE)
    set(comfy_work ${PROJECT_BINARY_DIR}/tests/comfy-work)
    file(MAKE_DIRECTORY ${comfy_work})
    add_test(NAME hosts.comfy COMMAND ${DAVY_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/comfy/nodes.py ${comfy_work}/nodes)
    add_test(NAME hosts.comfy_light COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/comfy/light.sh ${comfy_work})
    add_test(NAME hosts.comfy_install COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/comfy/install.sh ${PROJECT_BINARY_DIR} ${comfy_work})
    set_tests_properties(hosts.comfy hosts.comfy_light hosts.comfy_install PROPERTIES
        LABELS hosts ENVIRONMENT "${host_env}" TIMEOUT 900)
endif()
