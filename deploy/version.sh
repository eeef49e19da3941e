#!/usr/bin/env bash
# Prints the flags for Go's linker that set the version of signalbox, its commit and the date of the commit. Equal commits give
# equal flags. $VERSION, if set, replaces the version from git's tags. Outside a git repository the script prints nothing, and
# signalbox then reports the version that the go command records in the binary.
set -euo pipefail
cd "$(dirname "$0")/.."

# Ignore the repository of a parent folder: an unpacked source archive may lie inside another repository.
commit=$(git rev-parse --verify --quiet 'HEAD^{commit}' 2>/dev/null) && [ -z "$(git rev-parse --show-prefix)" ] || exit 0

date=$(TZ=UTC git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)
version=${VERSION:-}
if [ -z "$version" ]; then
  # Without a tag, use a pseudo-version in the go command's format.
  version=$(git describe --tags --match 'v[0-9]*' --abbrev=12 2>/dev/null) || version=v0.0.0-${date//[-:TZ]/}-${commit:0:12}
  [ -z "$(git status --porcelain --untracked-files=no)" ] || version+=+dirty
fi
app=github.com/signalbox-epp/signalbox/cmd/signalbox/app # the package with these variables
echo "-X $app.linkedVersion=$version -X $app.linkedCommit=$commit -X $app.linkedDate=$date"
