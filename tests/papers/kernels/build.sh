#!/bin/sh
# build.sh NVCC PTXAS: makes papers.cubin of papers.cu, with nvcc 13.5 and ptxas of CUDA 12.8.
set -e
cd "$(dirname "$0")"
ptx=$(mktemp)
"$1" -arch=compute_90 -fmad=false -ptx papers.cu -o "$ptx"
sed -i 's/^\.version .*/.version 8.7/' "$ptx"
"$2" -arch=sm_90 --fmad=false "$ptx" -o papers.cubin
rm "$ptx"
cksum papers.cu papers.cubin > papers.cksum
