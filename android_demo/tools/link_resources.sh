#!/usr/bin/env bash
# link_resources.sh SDK OUT [BUNDLE]: OUT/base.apk (manifest, resources, and BUNDLE in the assets), OUT/gen with R.java, and
# in OUT/config what Robolectric wants to know of them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
sdk=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
source=$(dirname "$here")/keyboard/src/main
package=dev.mtnedge.keyboard

rm -rf "$out/assets" "$out/gen"
mkdir "$out/assets"
if [ -n "${3:-}" ]; then cp -r "$3" "$out/assets/bundle"; fi
# Android's Gradle plugin forbids `package` in the source manifest, and aapt2 demands it. No other manifest is merged in:
# check_apk.py sees to it that ONNX Runtime's has nothing to add.
sed "0,/<manifest/s//<manifest package=\"$package\"/" "$source/AndroidManifest.xml" >"$out/AndroidManifest.xml"
"$sdk/aapt2" compile --dir "$source/res" -o "$out/res.zip"
# Assets are stored, so that the bundle can be mapped out of the APK.
"$sdk/aapt2" link -I "$sdk/android.jar" --manifest "$out/AndroidManifest.xml" --java "$out/gen" -A "$out/assets" \
  --no-compress-regex '^assets/' --min-sdk-version 24 --target-sdk-version 35 --version-code 1 --version-name 0.1.0 \
  -o "$out/base.apk" "$out/res.zip"
mkdir -p "$out/config/com/android/tools"
cat >"$out/config/com/android/tools/test_config.properties" <<P
android_merged_manifest=$out/AndroidManifest.xml
android_resource_apk=$out/base.apk
android_custom_package=$package
P
