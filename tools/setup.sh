# shellcheck shell=bash
# Sets up .venv for ./run and ./test, which source this file and call `set_up run` or `set_up test`.
# Standard output belongs to the command that is started afterwards: everything here prints to standard
# error. Works with the bash 3.2 of macOS too.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
venv=$root/.venv
python=$venv/bin/python
stamp=$venv/.set-up            # what .venv was set up from; only a finished set-up leaves it
unfinished=$venv/.unfinished   # there while .venv is being changed: an interrupted one is made anew
unmet=$venv/.missing-libraries # there while system libraries are missing: each start names them

system_libraries=(
  libvulkan1 libegl1 libgl1 libglib2.0-0 libdbus-1-3 libfontconfig1 fonts-dejavu-core
  libxkbcommon0 libxkbcommon-x11-0 libwayland-cursor0 libwayland-egl1 libxcb-xkb1
  libxcb-cursor0 libxcb-icccm4 libxcb-keysyms1 libxcb-image0 libxcb-render-util0 libxcb-xinerama0
  libxcb-shape0
)
software_vulkan=mesa-vulkan-drivers

say() { printf '%s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# --- what is there already ----------------------------------------------------------------------------

inputs() { # what .venv depends on, in one line
  printf '%s %s %s\n' "$root" "$("$python" -ISc 'import sys; print(sys.version_info[:3])' 2>/dev/null)" \
    "$(cat "$root"/{pyproject.toml,requirements.lock,requirements-dev.lock,tools/setup.sh} | cksum)"
}

is_set_up() { # run|test; the test tools are more, so they will do for run
  local line kind=
  [ -e "$stamp" ] && { read -r line && read -r kind; } <"$stamp" || return 1
  [ "$kind" = test ] || [ "$kind" = "$1" ] || return 1
  [ "$line" = "$(inputs)" ]
}

is_usable() { # whether .venv can be brought up to date, rather than made anew
  local line was=
  [ ! -e "$unfinished" ] && "$python" -m pip --version >/dev/null 2>&1 || return 1
  [ -e "$stamp" ] || return 0
  read -r line <"$stamp"
  was=$(inputs)
  # All but the check sum and length at the end: the place and the Python.
  [ "${line% * *}" = "${was% * *}" ]
}

# --- system packages (Debian and Ubuntu) --------------------------------------------------------------

has_apt() { command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; }

apt_install() { # PACKAGE ...: installs them if this user may, quietly; fails otherwise
  local as_root=(env) output
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || return 1
    as_root=(sudo -n env)
  fi
  local get=("${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
  say "Installing system packages: $*"
  "${get[@]}" install --no-install-recommends "$@" >/dev/null 2>&1 && return
  # Package lists that are missing or old are the usual reason.
  output=$("${get[@]}" update 2>&1 && "${get[@]}" install --no-install-recommends "$@" 2>&1) && return
  printf '%s\n' "$output" | tail -n 5 >&2
  return 1
}

missing_libraries() { # run|test: prints the packages that are not installed
  local package wanted=("${system_libraries[@]}") installed
  if [ "$1" = test ] || ! has_gpu_driver; then wanted+=("$software_vulkan"); fi
  # Newer releases have some of them under the same name with t64 at the end.
  installed=$(dpkg-query -W -f=' ${db:Status-Status}:${Package} ' "${wanted[@]}" "${wanted[@]/%/t64}" 2>/dev/null)
  for package in "${wanted[@]}"; do
    case $installed in
      *" installed:$package "* | *" installed:${package}t64 "*) ;;
      *) printf '%s ' "$package" ;;
    esac
  done
}

has_gpu_driver() { # whether a Vulkan driver other than Mesa's software one is installed
  local file
  [ -z "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ] || return 0
  for file in /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json; do
    case $file in *'*.json' | */lvp_icd*) ;; *) return 0 ;; esac
  done
  return 1
}

set_up_libraries() { # run|test [INSTALL]: installs what is missing with INSTALL, and names what then is
  local missing
  has_apt || return 0
  missing=$(missing_libraries "$1")
  # shellcheck disable=SC2086 # a list of package names
  if [ -z "$missing" ] || ${2:-false} $missing; then
    rm -f "$unmet"
    return
  fi
  say "Some system libraries are missing, so the window or the GPU may not work. Install them with:"
  say "  sudo apt-get install --no-install-recommends ${missing% }"
  printf '%s\n' "$1" >"$unmet"
}

# --- Python -------------------------------------------------------------------------------------------

find_python() { # sets `base` to a Python of a version that the locked wheels exist for
  for base in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
    "$base" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null && return
  done
  base=
  return 1
}

can_make_venv() { find_python && "$base" -c 'import ensurepip, venv' 2>/dev/null; }

find_python_with_venv() { # sets `base`, installing what is missing where that is possible
  local packages='python3 python3-venv'
  can_make_venv && return
  if [ -n "$base" ]; then
    packages=$("$base" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
  elif command -v python3 >/dev/null; then
    packages='python3.11 python3.11-venv'
  fi
  if has_apt; then
    # shellcheck disable=SC2086 # a list of package names
    apt_install $packages && can_make_venv && return
    die "Python 3.11 to 3.14 with its venv module is needed: install it with 'sudo apt-get install $packages' and start again."
  fi
  die "Python 3.11 to 3.14 with its venv and ensurepip modules is needed: install it and start again."
}

pip_install() { "$python" -m pip install --quiet --disable-pip-version-check --no-input "$@" >&2; }

set_up_python() { # run|test
  local lock=requirements.lock
  [ "$1" = run ] || lock=requirements-dev.lock
  if is_usable; then
    say "Updating $venv from $lock"
  else
    find_python_with_venv
    say "Making $venv from $lock, once; this takes a minute or two"
    rm -rf "$venv"
    mkdir "$venv"
  fi
  touch "$unfinished"
  rm -f "$stamp"
  [ -x "$python" ] || "$base" -m venv "$venv" >&2 || die "Could not make $venv with $base."
  pip_install --require-hashes -r "$root/$lock" ||
    die "Could not install the locked packages into $venv: see pip's message above, then start again."
  pip_install --no-deps --no-build-isolation -e "$root" ||
    die "Could not install the project itself into $venv: see pip's message above."
}

# --- all of it ----------------------------------------------------------------------------------------

lock() { # on descriptor 9, until it is closed; children that outlive a killed set-up hold it too
  local wait='import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'
  if ! command -v flock >/dev/null; then
    python3 -c "$wait" || true
  elif ! flock -n 9; then
    say "Waiting for another set-up of $venv to end"
    flock 9
  fi
}

set_up() { # run|test
  if ! is_set_up "$1"; then
    {
      lock
      is_set_up "$1" || set_up_changed "$1"
    } 9>"$venv.lock"
  elif [ -e "$unmet" ]; then
    set_up_libraries "$(<"$unmet")"
  fi
  if [ -z "${XDG_RUNTIME_DIR:-}" ] && [ "$(uname)" = Linux ]; then set_private_runtime_dir; fi
}

set_up_changed() { # run|test
  set_up_python "$1"
  set_up_libraries "$1" apt_install
  { inputs && printf '%s\n' "$1"; } >"$stamp.new"
  mv "$stamp.new" "$stamp"
  rm -f "$unfinished"
}

set_private_runtime_dir() { # Qt and Mesa want one that nobody else can read
  local dir
  dir=${TMPDIR:-/tmp}/inspector-runtime-$(id -u)
  mkdir -m 700 "$dir" 2>/dev/null || true
  if [ -L "$dir" ] || [ ! -d "$dir" ] || [ ! -O "$dir" ]; then dir=$(mktemp -d); fi
  chmod 700 "$dir"
  export XDG_RUNTIME_DIR=$dir
}
