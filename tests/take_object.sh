#!/bin/sh
# Stands before the compiler (CMAKE_C_COMPILER_LAUNCHER) in a fresh build of the same sources with the same flags as PLAIN_BUILD:
# copies the object from there. What the build folder has a part in is compiled. usage: take_object.sh PLAIN_BUILD COMPILER ARGUMENTS...
plain=$1
shift
object= depfile= source= before=
for argument; do
    case $argument in *"$PWD"*) exec "$@" ;; esac
    case $before in
        -o) object=$argument ;;
        -MF) depfile=$argument ;;
        -c) source=$argument ;;
    esac
    before=$argument
done
if [ -n "$source" ] && [ -n "$depfile" ] && cp "$plain/$object" "$object" 2>/dev/null; then
    echo "$object: $source" >"$depfile"
else
    exec "$@"
fi
