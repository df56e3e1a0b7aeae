# Links every file and folder of the package in the tree into the build folder's package, beside the compiled module.
file(GLOB entries RELATIVE ${FROM} ${FROM}/*)
foreach(entry ${entries})
  if(NOT entry STREQUAL "__pycache__")
    file(CREATE_LINK ${FROM}/${entry} ${TO}/${entry} SYMBOLIC)
  endif()
endforeach()
