#!/usr/bin/env bash
# A fake of Azure Service Bus from this folder, on Proton of PyPI, in an environment of its own with the versions of requirements/service-bus.lock.
# All data is in memory. The control API, see service_bus/control.py, has SERVICE_BUS_CONTROL_PORT, or a free port that is in the file control-port.
source "$(dirname "$0")/common.sh"
ROOT=$(cd "$HERE/../.." && pwd)
LOCK=$ROOT/requirements/service-bus.lock
PROTON_VERSION=$(sed -n 's/^python-qpid-proton==\([0-9.]*\).*/\1/p' "$LOCK")

setup() {
  local folder; folder=$(install_folder "service-bus-$PROTON_VERSION")
  [ -f "$folder/ready" ] && return
  need_program gcc "Install a compiler of C: Proton has no wheel."
  rm -rf "$folder"
  if ! { python3 -m venv "$folder" &&
    nice "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$LOCK"; }; then
    rm -rf "$folder"
    return 1
  fi
  touch "$folder/ready" # the programs of the environment exist before Proton is built
}

start() {
  local folder port control program; program=$(install_folder "service-bus-$PROTON_VERSION")/bin/python
  [ -f "$(install_folder "service-bus-$PROTON_VERSION")/ready" ] ||
    { echo "error: Proton $PROTON_VERSION is not installed. Run: $0 setup" >&2; exit 3; }
  folder=$(data_folder service-bus); port=$(choose_port "$folder" "${1:-}"); control=${SERVICE_BUS_CONTROL_PORT:-$port}
  if [ ! -f "$folder/control-port" ]; then
    while [ "$control" = "$port" ]; do control=$(free_port); done
    echo "$control" >"$folder/control-port"
  fi
  control=$(cat "$folder/control-port")
  start_process service-bus env PYTHONPATH="$ROOT" "$program" -m scripts.brokers.service_bus.server "$port" "$control"
  wait_for_port "$control" "$(process_id service-bus)" 60
  wait_for_port "$port" "$(process_id service-bus)" 60
  echo "127.0.0.1:$port"
}

run_command service-bus "$@"
