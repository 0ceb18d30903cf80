# cmake --install BUILD --prefix FOLDER: the program and its launcher in bin/; configurations, job scripts and pages in
# share/tandem, laid out as in the sources, so that scripts and links find one another. All of it is relative: the folder
# can be moved, and deleting it takes everything away.
set(tandem_share share/tandem)

install(TARGETS tandem RUNTIME DESTINATION bin)
install(PROGRAMS launch/tandem-mpirun DESTINATION bin)

install(FILES README.md SPEC.md CHANGELOG.md CONTRIBUTING.md LICENSE DESTINATION ${tandem_share})
install(DIRECTORY configs slurm DESTINATION ${tandem_share} PATTERN __pycache__ EXCLUDE PATTERN site.env EXCLUDE)
# A site's own values outlive the next installation.
install(CODE "set(source \"${CMAKE_SOURCE_DIR}/slurm/site.env\")
set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${tandem_share}/slurm\")")
install(CODE [[
  set(name site.env)
  if(EXISTS "${folder}/site.env")
    file(SHA256 "${folder}/site.env" there)
    file(SHA256 "${source}" ours)
    if(NOT there STREQUAL ours)
      message(STATUS "Kept: ${folder}/site.env has been edited; today's is site.env.new beside it")
      set(name site.env.new)
    endif()
  endif()
  configure_file("${source}" "${folder}/${name}" COPYONLY)
]])
install(FILES launch/packages.txt launch/hosts.example DESTINATION ${tandem_share}/launch)
install(DIRECTORY src/peers DESTINATION ${tandem_share}/src PATTERN __pycache__ EXCLUDE)
file(GLOB_RECURSE pages CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}
     ${CMAKE_SOURCE_DIR}/src/*.md ${CMAKE_SOURCE_DIR}/kernels/*.md ${CMAKE_SOURCE_DIR}/io/*.md ${CMAKE_SOURCE_DIR}/tests/*.md)
list(FILTER pages EXCLUDE REGEX "^src/peers/")
foreach(page ${pages})
  get_filename_component(folder ${page} DIRECTORY)
  install(FILES ${page} DESTINATION ${tandem_share}/${folder})
endforeach()

# The module of a site's compiler or MPI is loaded with Tandem's.
set(TANDEM_MODULES "$ENV{LOADEDMODULES}" CACHE STRING "Modules that the module file loads first, with : between")
# Not an older Tandem's, which may be loaded now.
string(REGEX REPLACE "(^|[: ])tandem(/[^: ]*)?" "" tandem_needed_modules "${TANDEM_MODULES}")
string(REPLACE ":" " " tandem_needed_modules "${tandem_needed_modules}")
configure_file(launch/modulefile.in ${CMAKE_BINARY_DIR}/generated/modulefile @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/generated/modulefile DESTINATION ${tandem_share}/modulefiles/tandem
        RENAME ${PROJECT_VERSION})
