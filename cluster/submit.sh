#!/usr/bin/env bash
# Runs a command on a Ray cluster as a job, for people who have a checkout and `ray`, but not distcondense's own
# dependencies. With those, use `distcondense submit`: it also looks into the files it sends.
#
#   cluster/submit.sh python -m distcondense demo --out /data/demo
#
#   RAY_API_SERVER_ADDRESS  the head node's dashboard; http://127.0.0.1:8265 if not said
#   RAY_AUTH_TOKEN_PATH     a file with the cluster's token; ~/.ray/auth_token if not said
#   RUNTIME_ENV             runtime environment; cluster/runtime_env.yaml if not said. Empty, where the nodes'
#                           image has the dependencies: RUNTIME_ENV= cluster/submit.sh …
#
# Sends the sources, schemas and studies below and nothing else: no file with another ending, so no table.
# Exits with 0 if the job succeeded, else with 1.
set -euo pipefail

send=(distcondense kernels constraints.txt pyproject.toml benchmarks/schemas benchmarks/studies)

[[ "${1-}" == -- ]] && shift
if [[ $# -eq 0 ]]; then
  echo "usage: cluster/submit.sh COMMAND…, e.g. cluster/submit.sh python -m distcondense demo --out /data/demo" >&2
  exit 2
fi
if ! command -v ray >/dev/null; then
  echo "error: ray: must be installed. Found no ray on the path. Fix: pip install 'ray[default]==2.60.0'." >&2
  exit 2
fi

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
runtime_env="${RUNTIME_ENV-$root/cluster/runtime_env.yaml}"
export RAY_AUTH_MODE=token
export RAY_API_SERVER_ADDRESS="${RAY_API_SERVER_ADDRESS:-http://127.0.0.1:8265}"

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
for name in "${send[@]}"; do
  if [[ -e "$root/$name" ]]; then
    tar -C "$root" --exclude=__pycache__ -cf - "$name" | tar -C "$folder" -xf -
  fi
done
find "$folder" ! -type d ! -name '*.py' ! -name '*.toml' ! -name '*.cpp' ! -name '*.h' ! -name '*.md' \
  ! -name '*.j2' ! -name py.typed ! -name build.json ! -name sizes.json ! -name constraints.txt -delete

ray job submit --working-dir "$folder" ${runtime_env:+--runtime-env "$runtime_env"} -- "$@"
