#!/usr/bin/env bash
# link_resources.sh SDK OUT [ASSETS]: OUT/base.apk (manifest, resources, assets), OUT/gen/.../R.java, and in OUT/config what
# Robolectric wants to know of them. Assets are stored uncompressed, so that a bundle can be mapped.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
sdk=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
assets=()
if [ $# -gt 2 ]; then assets=(-A "$(realpath "$3")"); fi
source=$here/../keyboard/src/main
package=dev.mtnedge.keyboard

# Android's Gradle plugin forbids `package` in the source manifest, and aapt2 demands it.
sed "0,/<manifest/s//<manifest package=\"$package\"/" "$source/AndroidManifest.xml" >"$out/AndroidManifest.xml"
rm -rf "$out/gen"
"$sdk/aapt2" compile --dir "$source/res" -o "$out/res.zip"
"$sdk/aapt2" link -I "$sdk/android.jar" --manifest "$out/AndroidManifest.xml" --java "$out/gen" "${assets[@]}" \
  --no-compress-regex '^assets/' --min-sdk-version 24 --target-sdk-version 35 --version-code 1 --version-name 0.1.0 \
  -o "$out/base.apk" "$out/res.zip"
mkdir -p "$out/config/com/android/tools"
cat >"$out/config/com/android/tools/test_config.properties" <<P
android_merged_manifest=$out/AndroidManifest.xml
android_resource_apk=$out/base.apk
android_custom_package=$package
P
