# Installs the build tree BUILD into a folder of its own, then builds the project beside this file against what was
# installed, as C++17 and as C++20, and runs it.
#   cmake -DBUILD=build -DCOMPILER=g++ -DFLAGS= -DSCRATCH=build/install-test -P run.cmake
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    string(REPLACE ";" " " command "${ARGN}")
    message(FATAL_ERROR "${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
# The program of the README is one of the programs.
file(READ ${CMAKE_CURRENT_LIST_DIR}/../../README.md readme)
string(REGEX MATCH "```cpp\n([^`]*)```" readme "${readme}")
file(WRITE ${SCRATCH}/readme.cc "${CMAKE_MATCH_1}")
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/prefix)
foreach(standard 17 20)
  set(dir ${SCRATCH}/cxx${standard})
  run(${CMAKE_COMMAND} -G Ninja -S ${CMAKE_CURRENT_LIST_DIR} -B ${dir} -DCMAKE_PREFIX_PATH=${SCRATCH}/prefix
      -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_FLAGS=${FLAGS} -DCMAKE_CXX_STANDARD=${standard}
      -DCMAKE_CXX_STANDARD_REQUIRED=ON -DREADME_PROGRAM=${SCRATCH}/readme.cc)
  run(${CMAKE_COMMAND} --build ${dir})
  foreach(program plain field readme)
    run(${dir}/${program})
    message("C++${standard} ${output}")
  endforeach()
endforeach()
if(EXISTS ${SCRATCH}/prefix/bin/tilewright)
  run(${SCRATCH}/prefix/bin/tilewright doctor)
endif()
file(REMOVE_RECURSE ${SCRATCH})
