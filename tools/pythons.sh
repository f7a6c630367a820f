#!/usr/bin/env bash
# Run the quick half of the suite on every Python that this project supports and this machine has; say which were not there.
#
#   tools/pythons.sh                 every one of VERSIONS
#   tools/pythons.sh 3.13            one of them
#   tools/pythons.sh 3.11-oldest     the oldest Python with the oldest JAX and other packages that pyproject.toml allows
#   tools/pythons.sh 3.13 -- -k runs what follows -- goes to pytest, in place of the quick half's folders
#
# Each Python gets an environment of its own under .cache/pythons, kept for the next time. Exit status 1 if a test failed.
set -uo pipefail
cd "$(dirname "$0")/.."

VERSIONS=(3.11 3.12 3.13 3.14 3.11-oldest)
# What compiles little: configuration, commands, the host's side of runs, worlds, the reference.
QUICK=(tests/test_fields.py tests/cli tests/runs tests/rules tests/house tests/docs tests/worldgen tests/reference)

asked=()
while (($#)) && [[ "$1" != -- ]]; do
  asked+=("$1")
  shift
done
if (($#)); then
  shift
  QUICK=("$@")
fi
((${#asked[@]})) && VERSIONS=("${asked[@]}")

# The interpreter of a version: on the path, or one of pyenv's.
find_python() {
  local candidate
  for candidate in "$(command -v "python$1")" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1"*/bin/python; do
    if [[ -x "$candidate" && "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" == "$1" ]]; then
      echo "$candidate"
      return
    fi
  done
}

# The package with its floors (of an oldest set) or with the newest of everything, and what the tests need. The tests' own packages
# may not lift a floor: they are chosen to fit it.
install() {
  if [[ "$1" != *-oldest ]]; then
    "$2" -m pip install -q -e '.[dev]'
    return
  fi
  local floors="$(dirname "$2")/../floors.txt"
  "$2" -m pip install -q uv &&
    "$2" -m uv pip install -q --python "$2" --resolution lowest-direct -e . &&
    "$2" -m uv pip freeze -q --python "$2" --exclude-editable | grep -vE '^(pip|setuptools|uv)==' >"$floors" &&
    "$2" -m uv pip install -q --python "$2" --constraint "$floors" -e '.[dev]'
}

failed=0
report=()
for version in "${VERSIONS[@]}"; do
  python="$(find_python "${version%-oldest}")"
  if [[ -z "$python" ]]; then
    report+=("$version  not run: there is no python${version%-oldest} here")
    continue
  fi
  place=".cache/pythons/$version"
  if ! { [[ -x "$place/bin/python" ]] || "$python" -m venv "$place"; } || ! install "$version" "$place/bin/python"; then
    report+=("$version  not run: its environment could not be made")
    failed=1
    continue
  fi
  # Without docstrings too: nothing may read them.
  if "$place/bin/python" -m pytest "${QUICK[@]}" && "$place/bin/python" -OO -m echelon_jax.cli.main train --help >/dev/null; then
    report+=("$version  passed, $("$place/bin/python" -c 'import jax, flax; print("jax", jax.__version__, "flax", flax.__version__)')")
  else
    report+=("$version  FAILED")
    failed=1
  fi
done

printf '\n%s\n' "Python   quick half of the suite"
printf '%s\n' "${report[@]}"
exit "$failed"
