#!/bin/sh
# debian.sh PACKAGE...: installs those of the named Debian packages that are missing; at once if none is.
# A name written COMMAND=PACKAGE counts as there when the command is, wherever it came from.
# With --optional first, what cannot be installed is done without.
set -eu

optional=
if [ "${1:-}" = --optional ]; then
    optional=yes
    shift
fi

missing=
for wanted in "$@"; do
    command=${wanted%%=*} package=${wanted#*=}
    [ "$command" != "$wanted" ] && command -v "$command" >/dev/null 2>&1 && continue
    [ "$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null)" = "install ok installed" ] && continue
    missing="$missing $package"
done
[ -n "$missing" ] || exit 0

fail() {
    if [ -n "$optional" ]; then
        echo "setup: $1; going on without:$missing" >&2
        exit 0
    fi
    echo "setup: $1; install by hand, then run make again:$missing" >&2
    exit 1
}
command -v apt-get >/dev/null 2>&1 || fail "this machine has no apt-get"
if [ "$(id -u)" = 0 ]; then
    sudo=
elif command -v sudo >/dev/null 2>&1; then
    sudo=sudo
else
    fail "installing packages needs root or sudo"
fi

echo "setup: installing$missing"
# $missing and $sudo are split into words on purpose.
$sudo apt-get update -q || fail "apt-get update failed"
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing ||
    fail "apt-get could not install"
