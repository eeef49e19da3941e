#!/usr/bin/env bash
# apart.sh COMMAND...: runs a command in namespaces of its own. Envoy Gateway listens on fixed ports of all addresses, and reads its
# certificate from /certs. Here it has a network with nothing but a loopback device, with addresses that are not those of loopback, for an
# EndpointSlice takes none of these; a root directory with a /certs that can be written; and processes that end with it. Needs root, or a
# kernel that lets users have namespaces.
set -euo pipefail
own=(--net --mount --pid --fork --kill-child --mount-proc)
[ "$(id -u)" = 0 ] || own+=(--map-root-user)
if [ -z "${APART:-}" ]; then
  if ! unshare "${own[@]}" true 2>/dev/null; then
    echo '*** NO NAMESPACES: the tests of Envoy Gateway are left out. They need root, or `unshare --map-root-user`. ***'
    exit ${CI:+1} # under CI that is a failure
  fi
  APART=1 exec unshare "${own[@]}" "$0" "$@"
fi
ip link set lo up
for host in 10 11 12; do ip address add "10.7.0.$host/32" dev lo; done
mount --make-rprivate /
root=/mnt
mount -t tmpfs apart "$root"
for entry in /*; do
  if [ -L "$entry" ]; then
    cp -P "$entry" "$root"
  elif [ -d "$entry" ] && [ "$entry" != /certs ] && [ "$entry" != "$root" ]; then
    mkdir "$root$entry"
    mount --rbind "$entry" "$root$entry"
  fi
done
mkdir -p "$root/certs"
exec chroot "$root" /bin/sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
