#!/usr/bin/env bash
# Builds kubelab, a kube-apiserver for tests, into the folder that is given, and prints its path. It is built again only if its source
# or a version changes: the first time takes 4 to 10 minutes of a core and 3 GB of Go's cache.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")"
sum=$(cat main.go go.mod go.sum | sha256sum | cut -c 1-16)
binary=$folder/kubelab-$sum
if [ ! -x "$binary" ]; then
  version=$(sed -n 's/^\tk8s.io\/kubernetes \(v[0-9.]*\)$/\1/p' go.mod)
  IFS=. read -r major minor _ <<<"${version#v}"
  of=k8s.io/component-base/version
  echo "building kubelab, a kube-apiserver $version, for 4 to 10 minutes" >&2
  CGO_ENABLED=0 GOFLAGS= "${GO:-go}" build -trimpath -o "$binary.new" \
    -ldflags "-s -w -X $of.gitVersion=$version -X $of.gitMajor=$major -X $of.gitMinor=$minor" . >&2
  mv "$binary.new" "$binary"
fi
echo "$binary"
