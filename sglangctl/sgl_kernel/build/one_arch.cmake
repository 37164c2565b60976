# Builds one GPU architecture of a project that hard-codes several.
#
# Injected with -DCMAKE_PROJECT_TOP_LEVEL_INCLUDES=<this file> (CMake >= 3.24): no file of the
# project is edited. At the end of the top-level CMakeLists.txt, when all targets have their
# options, every -gencode for another architecture is taken out of them; a library that has none
# left, and the variant that this GPU's loader never takes (sm90/ or sm100/), is neither built nor
# installed. Where no target has the wanted architecture nothing is changed at all, and that is
# said. The report is SGLANGCTL_REPORT (JSON).
#
#   SGLANGCTL_ARCH      120a
#   SGLANGCTL_UNUSED    sm90: the install folder that this GPU does not load from
#   SGLANGCTL_REPORT    file for the report

include_guard(GLOBAL)
if(POLICY CMP0177)
  # What the functions below were defined under is what their install() goes by.
  cmake_policy(SET CMP0177 NEW)
endif()
set_property(GLOBAL PROPERTY SGLANGCTL_INSTALLS 0)

# install(TARGETS) of the top level waits until it is known which targets stay: a target that is
# not built must not be installed either. `_install` is the command that this one hides.
function(install)
  if(NOT "${ARGV0}" STREQUAL "TARGETS" OR NOT CMAKE_CURRENT_SOURCE_DIR STREQUAL CMAKE_SOURCE_DIR)
    _install(${ARGV})
    return()
  endif()
  get_property(count GLOBAL PROPERTY SGLANGCTL_INSTALLS)
  set_property(GLOBAL PROPERTY SGLANGCTL_INSTALL_${count} "${ARGV}")
  math(EXPR count "${count} + 1")
  set_property(GLOBAL PROPERTY SGLANGCTL_INSTALLS ${count})
endfunction()

# All targets of a folder and of those below it.
function(sglangctl_targets folder result)
  get_property(found DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
  get_property(below DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(child IN LISTS below)
    sglangctl_targets("${child}" more)
    list(APPEND found ${more})
  endforeach()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# Takes the -gencode of other architectures out of `text` (one option a line); `had` counts what
# was there, `kept` what fits.
function(sglangctl_filter text result had kept)
  string(REGEX MATCHALL
    "(-gencode|--generate-code)=arch=compute_[0-9]+[af]?,code=[^; >\n]+" codes "${text}")
  list(REMOVE_DUPLICATES codes)
  set(before 0)
  set(after 0)
  foreach(code IN LISTS codes)
    math(EXPR before "${before} + 1")
    if(code MATCHES "=arch=compute_${SGLANGCTL_ARCH},")
      math(EXPR after "${after} + 1")
    else()
      string(REPLACE "${code}" "" text "${text}")
    endif()
  endforeach()
  set(${result} "${text}" PARENT_SCOPE)
  set(${had} ${before} PARENT_SCOPE)
  set(${kept} ${after} PARENT_SCOPE)
endfunction()

function(sglangctl_report limited reason kept dropped)
  list(JOIN kept "\", \"" kept)
  list(JOIN dropped "\", \"" dropped)
  foreach(name kept dropped)
    if(NOT "${${name}}" STREQUAL "")
      set(${name} "\"${${name}}\"")
    endif()
  endforeach()
  file(WRITE "${SGLANGCTL_REPORT}"
    "{\"v\": 1, \"limited\": ${limited}, \"arch\": \"${SGLANGCTL_ARCH}\", "
    "\"reason\": \"${reason}\", \"kept\": [${kept}], \"dropped\": [${dropped}]}\n")
endfunction()

function(sglangctl_limit)
  sglangctl_targets("${CMAKE_SOURCE_DIR}" targets)
  set(fitting)
  set(unfit)
  foreach(target IN LISTS targets)
    # Lists are taken as text with another separator, so that a ";" inside a generator expression
    # and one between two options are treated alike.
    get_property(options TARGET ${target} PROPERTY COMPILE_OPTIONS)
    string(REPLACE ";" "\n" text "${options}")
    string(REGEX REPLACE "(-gencode|--generate-code)\n" "\\1=" text "${text}")
    string(REGEX REPLACE "(-gencode|--generate-code) +arch" "\\1=arch" text "${text}")
    sglangctl_filter("${text}" text had kept)
    string(REGEX REPLACE "\n\n+" "\n" text "${text}")
    string(REPLACE "\n" ";" text "${text}")
    if(had GREATER 0)
      if(kept GREATER 0)
        list(APPEND fitting ${target})
        set_property(GLOBAL PROPERTY SGLANGCTL_OPTIONS_${target} "${text}")
      else()
        list(APPEND unfit ${target})
      endif()
    endif()
  endforeach()

  get_property(count GLOBAL PROPERTY SGLANGCTL_INSTALLS)
  if(NOT fitting)
    set(reason "no target has a -gencode for ${SGLANGCTL_ARCH}: all architectures are built")
    message(WARNING "sglangctl: ${reason}")
    sglangctl_report(false "${reason}" "" "")
    set(dropped)
  else()
    set(dropped ${unfit})
    # The variant for the other loader folder: found by where it is installed.
    math(EXPR last "${count} - 1")
    if(count GREATER 0)
      foreach(index RANGE ${last})
        get_property(arguments GLOBAL PROPERTY SGLANGCTL_INSTALL_${index})
        if("${arguments}" MATCHES ";DESTINATION;[^;]*/${SGLANGCTL_UNUSED}/?(;|$)")
          list(GET arguments 1 target)
          list(APPEND dropped ${target})
        endif()
      endforeach()
    endif()
    list(REMOVE_DUPLICATES dropped)
    list(REMOVE_ITEM fitting ${dropped})
    foreach(target IN LISTS fitting)
      get_property(options GLOBAL PROPERTY SGLANGCTL_OPTIONS_${target})
      set_target_properties(${target} PROPERTIES COMPILE_OPTIONS "${options}" CUDA_ARCHITECTURES OFF)
    endforeach()
    foreach(target IN LISTS dropped)
      set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL TRUE)
    endforeach()
    message(STATUS "sglangctl: only sm_${SGLANGCTL_ARCH}: ${fitting}; left out: ${dropped}")
    sglangctl_report(true "" "${fitting}" "${dropped}")
  endif()

  if(count GREATER 0)
    math(EXPR last "${count} - 1")
    foreach(index RANGE ${last})
      get_property(arguments GLOBAL PROPERTY SGLANGCTL_INSTALL_${index})
      list(REMOVE_ITEM arguments ${dropped} "")
      list(GET arguments 1 first)
      if(TARGET ${first})
        _install(${arguments})
      endif()
    endforeach()
  endif()
endfunction()

cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL sglangctl_limit)
