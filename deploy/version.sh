#!/usr/bin/env bash
# Prints the flags of Go's linker that tell signalbox its version, its commit and the date of that. Equal commits give equal
# flags. $VERSION wins over git's tags; without a repository nothing is printed, and the binary says what the go command stamps.
set -euo pipefail
cd "$(dirname "$0")/.."

# Not the repository of a folder above, that an unpacked archive of the source may lie in.
commit=$(git rev-parse --verify --quiet 'HEAD^{commit}' 2>/dev/null) && [ -z "$(git rev-parse --show-prefix)" ] || exit 0

date=$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)
version=${VERSION:-}
if [ -z "$version" ]; then
  # Without a tag, as the go command calls it.
  version=$(git describe --tags --match 'v[0-9]*' --abbrev=12 2>/dev/null) || version=v0.0.0-${date//[-:TZ]/}-${commit:0:12}
  [ -z "$(git status --porcelain --untracked-files=no)" ] || version+=+dirty
fi
app=github.com/signalbox-epp/signalbox/cmd/signalbox/app # the package that keeps them
echo "-X $app.linkedVersion=$version -X $app.linkedCommit=$commit -X $app.linkedDate=$date"
