#!/usr/bin/env bash
# The first minutes on a GPU, in one go: nine minutes at most, no network, every result kept as soon as it is there.
#
#   tools/first_gpu.sh                       # writes first_gpu.json and the run's directory first_gpu_run/
#   tools/first_gpu.sh --rehearse            # the same steps, tiny, on the CPU
#   tools/first_gpu.sh --minutes 5 --out X   # less time, another place
#
# Afterwards: tools/first_gpu_report.py first_gpu.json (docs/gpu.md).
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
python="${PYTHON:-}"
if [ -z "$python" ]; then
  if [ -x "$here/../.venv/bin/python" ]; then python="$here/../.venv/bin/python"; else python=python3; fi
fi
export PYTHONPATH="$here/..${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" "$here/first_gpu.py" "$@"
