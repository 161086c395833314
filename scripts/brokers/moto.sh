#!/usr/bin/env bash
# moto's server from PyPI, in an environment of its own with the versions of requirements/moto.lock: Kinesis and DynamoDB with the protocols of AWS. All data is in memory.
# moto/server.py changes its shards where they do not behave as those of Kinesis.
source "$(dirname "$0")/common.sh"
LOCK=$HERE/../../requirements/moto.lock
MOTO_VERSION=$(sed -n 's/^moto==\([0-9.]*\).*/\1/p' "$LOCK")

setup() {
  local folder; folder=$(install_folder "moto-$MOTO_VERSION")
  [ -x "$folder/bin/moto_server" ] && return
  rm -rf "$folder"
  if ! { python3 -m venv "$folder" &&
    nice "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$LOCK"; }; then
    rm -rf "$folder"
    return 1
  fi
}

start() {
  local folder port program; program=$(install_folder "moto-$MOTO_VERSION")/bin/python
  [ -x "$program" ] || { echo "error: moto $MOTO_VERSION is not installed. Run: $0 setup" >&2; exit 3; }
  folder=$(data_folder moto); port=$(choose_port "$folder" "${1:-}")
  start_process moto "$program" "$HERE/moto/server.py" "$port"
  wait_for_port "$port" "$(process_id moto)" 60
  echo "127.0.0.1:$port"
}

run_command moto "$@"
