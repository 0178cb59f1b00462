#!/usr/bin/env bash
# build_profiler.sh [OUT] [--sdk SDK] [--abis "arm64-v8a ..."]: what `mtn-edge profile --adb` runs on a phone.
# OUT (../build/profiler.jar) is shaped like an APK: the library and its runner as classes.dex, ONNX Runtime under lib/.
# SDK (../build/sdk) is what fetch_sdk.sh made. Same sources, same bytes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
demo=$(dirname "$here")
fail() {
  echo "$*" >&2
  exit 1
}
out=$demo/build/profiler.jar
sdk=$demo/build/sdk
abis="arm64-v8a armeabi-v7a x86_64"
while [ $# -gt 0 ]; do
  case $1 in
    --sdk) sdk=$(realpath -m "$2"); shift 2 ;;
    --abis) abis=$2; shift 2 ;;
    --*) fail "\`$1\` is not an option of build_profiler.sh; it knows --sdk and --abis" ;;
    *) out=$(realpath -m "$1"); shift ;;
  esac
done
for tool in javac java jar; do
  command -v $tool >/dev/null || fail "\`$tool\` is missing, and the runner is built with a JDK (17 or newer); install it"
done
[ -f "$sdk/complete" ] || fail "\`$sdk\` is not a whole set of Android's tools; run fetch_sdk.sh $sdk"
for abi in $abis; do
  [ -d "$sdk/ort/jni/$abi" ] || fail "\`--abis\` names $abi, and ONNX Runtime comes for $(ls -m "$sdk/ort/jni"); name those"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/classes" "$work/add/lib"
find "$demo/suggester/src/main/java" "$demo/profiler/src/main/java" -name '*.java' | sort |
  xargs javac -nowarn -Xlint:-options,-classfile --release 8 -encoding UTF-8 \
    -classpath "$sdk/ort/classes.jar:$(echo "$sdk"/libs/*.jar | tr ' ' ':')" -d "$work/classes"
jar --create --no-manifest --date=1981-01-01T01:01:02Z --file "$work/runner.jar" -C "$work/classes" .
java -cp "$sdk/d8.jar" com.android.tools.r8.D8 --release --min-api 24 --output "$work/add" \
  --lib "$(dirname "$(dirname "$(realpath "$(command -v javac)")")")" --lib "$sdk/android.jar" \
  "$work/runner.jar" "$sdk/ort/classes.jar" "$sdk"/libs/*.jar
for abi in $abis; do
  mkdir "$work/add/lib/$abi"
  cp "$sdk/ort/jni/$abi/libonnxruntime.so" "$sdk/ort/jni/$abi/libonnxruntime4j_jni.so" "$work/add/lib/$abi"
done
mkdir -p "$(dirname "$out")"
(cd "$work/add" && find . -type f | sort | sed 's|^\./||' |
  xargs jar --create --no-manifest --date=1981-01-01T01:01:02Z --file "$work/profiler.jar")
mv "$work/profiler.jar" "$out"
ls -l "$out"
