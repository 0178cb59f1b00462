#!/usr/bin/env bash
# Training on a GPU: target tokens a second and MFU with float32 and bfloat16, without and with torch.compile.
#
#     benchmarks/gpu_train.sh [--device cuda|cpu] [--quick] [-o FILE.json]
#
# Needs no dataset. --quick takes the tiny preset and few steps; `--device cpu --quick` tries the script out where there
# is no GPU. PYTHON names the interpreter (.venv/bin/python). The figures go to benchmarks/results/gpu_train.json.
set -euo pipefail
cd "$(dirname "$0")/.."

device=cuda
quick=
output=benchmarks/results/gpu_train.json
while (($#)); do
  case $1 in
    --device) device=$2; shift 2 ;;
    --quick) quick=1; shift ;;
    -o) output=$2; shift 2 ;;
    *) echo "usage: $0 [--device cuda|cpu] [--quick] [-o FILE.json]" >&2; exit 2 ;;
  esac
done

if [[ $quick ]]; then
  presets=(tiny) steps=8 warmup=3 tokens=4000
else
  presets=(tiny small base) steps=120 warmup=40 tokens=100000
fi
# torch.compile needs a C++ compiler on a CPU; it is a GPU's matter here.
compiling=("")
[[ $device == cuda ]] && compiling=("" --compile)

rm -f "$output"
for preset in "${presets[@]}"; do
  for precision in fp32 bf16; do
    for compile in "${compiling[@]}"; do
      # One that fails (a compiler that is missing, too little memory) does not take the others with it.
      "${PYTHON:-.venv/bin/python}" benchmarks/measuring/train_rate.py --preset "$preset" --device "$device" \
        --precision "$precision" $compile --batch-tokens "$tokens" --steps "$steps" --warmup "$warmup" -o "$output" ||
        echo "$preset, $precision $compile: failed" >&2
    done
  done
done
echo "written: $output"
