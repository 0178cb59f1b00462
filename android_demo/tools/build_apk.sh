#!/usr/bin/env bash
# build_apk.sh BUNDLE OUT [--sdk SDK] [--abis "arm64-v8a ..."] [--split]: OUT/mtn-edge-keyboard.apk, signed and checked.
# --split adds OUT/mtn-edge-keyboard-ABI.apk for each ABI. BUNDLE is verified before it goes in.
# KEYSTORE (PKCS12) and KEYSTORE_PASSWORD sign for a release; without them a debug key is made and kept.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
demo=$(dirname "$here")
root=$(dirname "$demo")
fail() {
  echo "$*" >&2
  exit 1
}
[ $# -ge 2 ] || fail "usage: build_apk.sh BUNDLE OUT [--sdk SDK] [--abis \"arm64-v8a armeabi-v7a x86_64\"] [--split]"
bundle=$(realpath -m "$1")
out=$(realpath -m "$2")
shift 2
sdk=$demo/build/sdk
abis="arm64-v8a armeabi-v7a x86_64"
split=no
while [ $# -gt 0 ]; do
  case $1 in
    --sdk) sdk=$(realpath -m "$2"); shift 2 ;;
    --abis) abis=$2; shift 2 ;;
    --split) split=yes; shift ;;
    *) fail "\`$1\` is not an option of build_apk.sh; it knows --sdk, --abis and --split" ;;
  esac
done
python=${PYTHON:-$root/.venv/bin/python}
name=mtn-edge-keyboard
java=(java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC) # each runs for seconds: thorough compiling does not pay
work=$out/work
for tool in javac java keytool "$python"; do
  command -v "$tool" >/dev/null || fail "\`$tool\` is missing, and the Android app is built with a JDK (17 or newer) and" \
    "the Python environment of this repository; install it and run this again"
done
[ -f "$sdk/complete" ] || fail "\`$sdk\` is not a whole set of Android's tools; run fetch_sdk.sh $sdk"
for abi in $abis; do
  [ -d "$sdk/ort/jni/$abi" ] || fail "\`--abis\` names $abi, and ONNX Runtime comes for $(ls -m "$sdk/ort/jni"); name those"
done

# The bundle, proved on this machine; one that the app would refuse for want of a signature is refused here.
key=$(sed -n 's/.*name="bundle_key"[^>]*>\([^<]*\)<.*/\1/p' "$demo/keyboard/src/main/res/values/bundle_key.xml")
rm -rf "$work"
mkdir -p "$work/classes"
verify=("$python" -m mtn_edge verify "$bundle")
if [ -n "$key" ]; then
  "$python" "$here/public_key.py" "$key" >"$work/key.pem"
  verify+=(--key "$work/key.pem")
fi
PYTHONPATH=$root "${verify[@]}" >"$work/verify.txt" || {
  cat "$work/verify.txt"
  fail "\`$bundle\` does not verify, so it does not go into the app; make it again"
}

"$here/link_resources.sh" "$sdk" "$work" "$bundle"
# --release 8: what of java.* a phone has, nearly; the Maven builds of both parts compare it with API level 24 exactly.
find "$demo/suggester/src/main/java" "$demo/keyboard/src/main/java" "$work/gen" -name '*.java' | sort |
  xargs javac -J-XX:TieredStopAtLevel=1 -J-XX:+UseSerialGC -nowarn -Xlint:-options,-classfile --release 8 -encoding UTF-8 \
    -classpath "$sdk/android.jar:$sdk/ort/classes.jar:$(echo "$sdk"/libs/*.jar | tr ' ' ':')" -d "$work/classes"
jar --create --file "$work/app.jar" -C "$work/classes" .
mkdir "$work/dex"
"${java[@]}" -cp "$sdk/d8.jar" com.android.tools.r8.D8 --release --min-api 24 --output "$work/dex" \
  --lib "$(dirname "$(dirname "$(realpath "$(command -v javac)")")")" --lib "$sdk/android.jar" \
  "$work/app.jar" "$sdk/ort/classes.jar" "$sdk"/libs/*.jar

keystore=${KEYSTORE:-$demo/build/debug.p12}
export KEYSTORE_PASSWORD=${KEYSTORE_PASSWORD:-android}
[ -f "$keystore" ] || {
  [ -z "${KEYSTORE:-}" ] || fail "\`KEYSTORE\` is $keystore, and there is no such file; name a PKCS12 key store"
  mkdir -p "$(dirname "$keystore")"
  keytool -genkeypair -keystore "$keystore" -storetype PKCS12 -storepass:env KEYSTORE_PASSWORD -alias debug -keyalg RSA \
    -keysize 2048 -validity 10000 -dname "CN=Android Debug" >/dev/null 2>&1
}
assemble() { # APK ABI...: packs, signs and checks one APK
  local apk=$1 add=$work/add
  shift
  rm -rf "$add"
  mkdir -p "$add/lib"
  cp "$work"/dex/*.dex "$add"
  for abi in "$@"; do cp -r "$sdk/ort/jni/$abi" "$add/lib"; done
  "$python" "$here/pack_apk.py" "$work/base.apk" "$add" "$work/unsigned.apk"
  "${java[@]}" -jar "$sdk/apksigner.jar" sign --ks "$keystore" --ks-pass env:KEYSTORE_PASSWORD --min-sdk-version 24 \
    --v4-signing-enabled false --out "$apk" "$work/unsigned.apk"
  echo "$apk"
  "$python" "$here/check_apk.py" "$apk" "$sdk" --bundle "$bundle"
}
# shellcheck disable=SC2086
assemble "$out/$name.apk" $abis
if [ $split = yes ]; then
  for abi in $abis; do assemble "$out/$name-$abi.apk" "$abi"; done
fi
rm -r "$work"
