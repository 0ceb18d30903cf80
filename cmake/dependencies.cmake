# Everything comes from the system; nothing is downloaded. What is missing is collected and told in one run.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12)
  tandem_missing(compiler "GCC ${CMAKE_CXX_COMPILER_VERSION}")
endif()

# tandem_find(NAME PACKAGE ARGUMENTS...): find_package; a package that is missing, or too old, is noted under NAME.
macro(tandem_find name package)
  find_package(${package} QUIET ${ARGN})
  if(NOT ${package}_FOUND)
    tandem_missing(${name} ${${package}_VERSION})
  endif()
endmacro()

find_package(Threads REQUIRED)
tandem_find(openmp OpenMP COMPONENTS CXX)
tandem_find(mpi MPI COMPONENTS C)
tandem_find(hdf5 HDF5 COMPONENTS C)
# Boost.Context: tests of the CUDA kernels alone.
tandem_find(boost Boost 1.74 COMPONENTS program_options OPTIONAL_COMPONENTS context)
tandem_find(json nlohmann_json)
tandem_find(openssl OpenSSL COMPONENTS Crypto)
tandem_find(eigen Eigen3 3.4 NO_MODULE)
if(TANDEM_TESTS)
  tandem_find(gtest GTest)
endif()

find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(PCRE2 QUIET IMPORTED_TARGET libpcre2-8)
  pkg_check_modules(UTF8PROC QUIET IMPORTED_TARGET libutf8proc)
else()
  tandem_missing(pkg-config)
endif()
foreach(name pcre2 utf8proc)
  string(TOUPPER ${name} prefix)
  if(NOT ${prefix}_FOUND)
    tandem_missing(${name})
  endif()
endforeach()

# oneDNN's own CMake package asks for OpenCL, which CPU products do not need.
find_path(ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl.h)
find_library(ONEDNN_LIBRARY dnnl)
if(NOT ONEDNN_INCLUDE_DIR OR NOT ONEDNN_LIBRARY)
  tandem_missing(onednn)
endif()

tandem_stop_if_missing()

# Without the C++ bindings that MPI itself has dropped.
target_compile_definitions(MPI::MPI_C INTERFACE OMPI_SKIP_MPICXX=1 MPICH_SKIP_MPICXX=1)
include(CheckSymbolExists)
set(CMAKE_REQUIRED_LIBRARIES MPI::MPI_C)
check_symbol_exists(OPEN_MPI mpi.h TANDEM_MPI_IS_OPEN_MPI)
unset(CMAKE_REQUIRED_LIBRARIES)
if(NOT TANDEM_MPI_IS_OPEN_MPI)
  message(STATUS "MPI is not Open MPI: MPICH 4.0 has been tried and works, others have not. Ranks start with its own "
                 "mpiexec -n RANKS, or srun --mpi=pmi2; launch/tandem-mpirun is for Open MPI")
endif()

# HDF5's own module sets variables only.
add_library(tandem_hdf5 INTERFACE)
target_include_directories(tandem_hdf5 SYSTEM INTERFACE ${HDF5_C_INCLUDE_DIRS})
target_link_libraries(tandem_hdf5 INTERFACE ${HDF5_C_LIBRARIES})

add_library(tandem_onednn INTERFACE)
target_include_directories(tandem_onednn SYSTEM INTERFACE ${ONEDNN_INCLUDE_DIR})
target_link_libraries(tandem_onednn INTERFACE ${ONEDNN_LIBRARY})
