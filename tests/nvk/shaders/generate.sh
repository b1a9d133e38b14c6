#!/bin/sh
# Makes the SPIR-V of every shader anew, by glslang (Debian's package glslang-tools), and notes the checksums by which
# a test tells that source and SPIR-V belong together. GLSLANG names another glslangValidator.
set -eu
cd "$(dirname "$0")"
glslang=${GLSLANG:-glslangValidator}
compile() { # SOURCE RESULT [OPTION...]
    source=$1 result=$2
    shift 2
    $glslang -V --quiet --target-env vulkan1.1 "$@" -o "$result" "$source"
}
for source in constant vector_add saxpy matrix_product reduction stream integers floats subgroups control atomics; do
    compile "$source.comp" "$source.spv"
done
compile peak.comp peak_fp32.spv -DSCALAR=float
compile peak.comp peak_fp64.spv -DSCALAR=double
compile peak.comp peak_int32.spv -DSCALAR=uint -DWHOLE
sha256sum -- *.comp *.spv >SHA256SUMS
