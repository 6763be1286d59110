#!/bin/sh
# make test-newer: run make's targets in a chroot of a newer Debian, with newer Pythons and servers than this machine's.
#
# Without TARGETS: both forms on each of PYTHONS, with Redis 8 and PostgreSQL 18; buses and event logs once more with
# Valkey 9, and chaos with either; the core on BETA. With FIRST=/opt/valkey, TARGETS run with Valkey, too.
# It takes Debian, root, and 4 GB in the folder ROOT, which stays for the next run.
set -eu
cd "$(dirname "$0")/.."
ROOT=${ROOT:-/tmp/aiopurgatory-newer}
RELEASE=${RELEASE:-forky}
MIRROR=${MIRROR:-http://deb.debian.org/debian}
PYTHONS=${PYTHONS:-3.13 3.14}
BETA=${BETA:-3.15}
TARGETS=${TARGETS:-}

if [ "$(id -u)" != 0 ] || [ ! -e /etc/debian_version ]; then
  echo "Not tested on newer Pythons and servers: making a chroot of a newer Debian takes root and Debian."; exit
fi
# Mounts are made for this script alone, and end with it: removing ROOT can never reach through one.
[ "${1:-}" = mounted ] || exec unshare --mount --propagation private "$0" mounted

run() { chroot "$ROOT" /usr/bin/env -i HOME=/root LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
  PATH="${FIRST:+$FIRST:}/usr/sbin:/usr/bin:/sbin:/bin" "$@"; }

in_checkout() { python=$1; shift; run make --no-print-directory -C "$PWD" PYTHON="python$python" \
  VENV=".venv-newer-$python" BUILD="build/newer-$python" "$@"; }

make_root() {
  echo "Making $ROOT, with Debian $RELEASE ..."
  if ! command -v debootstrap >/dev/null; then
    apt-get update -q && apt-get install -y -q --no-install-recommends debootstrap
  fi
  # Any release from sid's script: an older Debian has none of that name.
  debootstrap --variant=minbase "$RELEASE" "$ROOT" "$MIRROR" /usr/share/debootstrap/scripts/sid
  printf '#!/bin/sh\nexit 101\n' >"$ROOT/usr/sbin/policy-rc.d"  # no server is started as a service
  chmod +x "$ROOT/usr/sbin/policy-rc.d"
  for file in /etc/pip.conf /root/.config/pip/pip.conf; do  # of a mirror
    [ ! -e "$file" ] || { mkdir -p "$ROOT${file%/*}" && cp -L "$file" "$ROOT$file"; }
  done
}

mount_all() {
  mkdir -p "$ROOT$PWD"
  mount --bind /proc "$ROOT/proc"
  mount --rbind /dev "$ROOT/dev"
  mount --bind "$PWD" "$ROOT$PWD"
  cp -L /etc/resolv.conf /etc/hosts "$ROOT/etc/"
}

install_packages() {
  packages=""
  for python in $PYTHONS $BETA; do
    packages="$packages python$python python$python-dev python$python-venv libpython$python-testsuite"
  done
  run apt-get update -q
  # shellcheck disable=SC2086
  run apt-get install -y -q --no-install-recommends ca-certificates gcc g++ libc6-dev make git procps \
    valkey-server redis-server postgresql-18 $packages
  cp -L /etc/ssl/certs/ca-certificates.crt "$ROOT/etc/ssl/certs/"  # with those of this machine's proxy
  mkdir -p "$ROOT/opt/valkey"
  ln -sf /usr/bin/valkey-server "$ROOT/opt/valkey/redis-server"
  run git config --global --replace-all safe.directory "$PWD"
}

test_all() {
  for python in $PYTHONS; do in_checkout "$python" test-interpreted test-compiled; done
  in_checkout "$python" test-chaos
  (FIRST=/opt/valkey in_checkout "$python" test-interpreted test-chaos ARGS="tests/bus tests/streams")
  in_checkout "$BETA" test-core || echo "WARNING: the core does not work on Python $BETA."
}

[ -e "$ROOT/etc/debian_version" ] || make_root
mount_all
install_packages >"$ROOT/packages.log" 2>&1 || { tail "$ROOT/packages.log"; exit 1; }
if [ -n "$TARGETS" ]; then
  # shellcheck disable=SC2086
  for python in $PYTHONS; do in_checkout "$python" $TARGETS ARGS="${ARGS:-}"; done
else
  test_all
fi
