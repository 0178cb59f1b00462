#!/usr/bin/env bash
# Serving on a GPU: TensorRT engines in float32, float16 and int8 against ONNX Runtime on the same ONNX, batches of 1 to
# 256 key presses: do they find what PyTorch finds, and how many key presses a second do they answer?
#
#     benchmarks/gpu_serve.sh [--device cuda|cpu] [--quick] [--checkpoint CHECKPOINT] [--data DATASET] [-o FILE.json]
#
# Needs the extra [tensorrt] and, for the peer, onnxruntime-gpu below 1.29 in place of onnxruntime. Without --checkpoint
# a network of the preset `small` is trained for an epoch on a simulated log. --device cpu --quick tries the script out
# where there is no GPU: engines are built by TensorRT for RTX and not run, and ONNX Runtime runs on the CPU. PYTHON
# names the interpreter (.venv/bin/python). The figures go to benchmarks/results/gpu_serve.json.
set -euo pipefail
cd "$(dirname "$0")/.."

device=cuda
quick=
checkpoint=
data=
output=benchmarks/results/gpu_serve.json
while (($#)); do
  case $1 in
    --device) device=$2; shift 2 ;;
    --quick) quick=1; shift ;;
    --checkpoint) checkpoint=$2; shift 2 ;;
    --data) data=$2; shift 2 ;;
    -o) output=$2; shift 2 ;;
    *) echo "usage: $0 [--device cuda|cpu] [--quick] [--checkpoint CHECKPOINT] [--data DATASET] [-o FILE.json]" >&2; exit 2 ;;
  esac
done
python=${PYTHON:-.venv/bin/python}
work=benchmarks/work/gpu_serve
mkdir -p "$work"

if [[ $quick ]]; then
  preset=tiny sessions=300 precisions=(fp32 int8) largest=4 steps=3 seconds=0.5
else
  preset=small sessions=20000 precisions=(fp32 fp16 int8) largest=256 steps=12 seconds=3
fi
if [[ ! $data ]]; then
  data=$work/dataset-$preset
  if [[ ! -e $data ]]; then
    "$python" -m mtn_edge data synth -o "$work/log.tsv" --sessions "$sessions"
    "$python" -m mtn_edge data prepare "$work/log.tsv" -o "$data" --min-users 2 --vocab-size 4096
  fi
fi
if [[ ! $checkpoint ]]; then
  checkpoint=$work/checkpoint-$preset
  if [[ ! -e $checkpoint ]]; then
    "$python" -m mtn_edge train "$data" -o "$checkpoint" --preset "$preset" --set train.epochs=1
  fi
fi
builder=()
[[ $device == cpu ]] && builder=(--builder tensorrt-rtx)

rm -f "$output"
for precision in "${precisions[@]}"; do
  # A precision that cannot be built does not take the others with it.
  engines=$work/engines-$precision
  "$python" -m mtn_edge export tensorrt "$checkpoint" -o "$engines" --precision "$precision" --data "$data" \
    --max-batch "$largest" --steps "$steps" --force "${builder[@]}" &&
    "$python" benchmarks/measuring/serve_rate.py "$engines" --checkpoint "$checkpoint" --data "$data" \
      --device "$device" --seconds "$seconds" -o "$output" ||
    echo "$precision: failed" >&2
done
echo "written: $output"
