# tandem_library(NAME [LIBS ...] [PRIVATE_LIBS ...] [EXCLUDE FILE]): a static library of the folder's own .cpp files
# (subfolders too). Headers are included by their path from the project's root.
function(tandem_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror
                         -march=${TANDEM_ARCH} -fno-math-errno)
  # GCC 12 sees an overlap in "literal" + std::string where there is none (GCC bug 105651).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  if(TANDEM_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined -fno-omit-frame-pointer
                           -fno-sanitize-recover=undefined)
    target_link_options(${target} PRIVATE -fsanitize=address,undefined)
  endif()
endfunction()

function(tandem_library name)
  cmake_parse_arguments(ARG "" "EXCLUDE" "LIBS;PRIVATE_LIBS" ${ARGN})
  file(GLOB_RECURSE sources RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS *.cpp)
  if(ARG_EXCLUDE)
    list(REMOVE_ITEM sources ${ARG_EXCLUDE})
  endif()
  # Folders of that name hold what is built where there is a CUDA device, or an emulated one.
  list(FILTER sources EXCLUDE REGEX "^(.*/)?(cuda|nccl)/")
  add_library(${name} STATIC ${sources})
  target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_LIBS} PRIVATE ${ARG_PRIVATE_LIBS})
  tandem_compile_options(${name})
endfunction()
