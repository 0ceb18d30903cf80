# Writes OUTPUT, a header with the revision of the working tree, whenever it changed. Run at every build.
cmake_minimum_required(VERSION 3.25)
set(revision "")
find_program(git git)
if(git)
  execute_process(COMMAND ${git} -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#pragma once

// \"\" where the sources are no git working tree.
#define TANDEM_GIT_REVISION \"@revision@\"
" @ONLY)
