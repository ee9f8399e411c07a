# Functions of scripts/setup and scripts/programs. The terminal gets one line per step; the output of apt-get and pip goes
# to a log file, whose last lines are shown if the step fails.
log=.cache/${0##*/}.log

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
fail() { say "$@"; exit 1; }

# Announce a step and begin its part of the log.
step() {
    if [ -z "${is_logging:-}" ]; then
        mkdir -p .cache
        : >"$log"
        is_logging=yes
        say "details are in $PWD/$log"
    fi
    say "$@"
    printf '\n== %s\n' "$*" >>"$log"
}

logged() {
    "$@" >>"$log" 2>&1 </dev/null && return
    say "this failed: $*"
    say "the last lines of $log:"
    tail -n 20 "$log" | sed 's/^/    /' >&2
    return 1
}

can_install() { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; }

update_package_lists() {
    step "updating the lists of Debian packages"
    logged apt-get update
}

# Install missing Debian packages, and nothing that they only recommend. Installed packages keep their versions, except
# where a missing package cannot be installed without a newer one; those are named first.
install_packages() {
    step "installing Debian packages: $*"
    set -- --no-upgrade --no-install-recommends "$@"
    upgrades=$(apt-get --simulate install "$@" 2>>"$log" | sed -n 's/^Inst \([^ ]*\) \[.*/\1/p')
    [ -z "$upgrades" ] || say "apt-get has to upgrade these as well:" $upgrades
    # At run level 1 Debian does not start the services that it installs; a broker would take the usual port.
    logged env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y "$@"
}
