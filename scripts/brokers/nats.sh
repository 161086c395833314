#!/usr/bin/env bash
# NATS with JetStream in two versions: a current one built with Go, and the one of Debian's packages (2.9, in Debian 12).
# NATS_FROM=go (default) or NATS_FROM=package chooses which one starts. `setup` installs both, the second one where apt-get exists.
# NATS_EXTRA has further lines of the configuration.
source "$(dirname "$0")/common.sh"
NATS_VERSION=${NATS_VERSION:-2.15.2}
NATS_FROM=${NATS_FROM:-go}

setup() {
  local folder; folder=$(install_folder "nats-$NATS_VERSION")
  if [ ! -x "$folder/nats-server" ]; then
    need_program go "Install Go 1.26 or newer."
    GOBIN="$folder" nice go install -p 2 "github.com/nats-io/nats-server/v2@v$NATS_VERSION"
  fi
  if ! command -v nats-server >/dev/null && command -v apt-get >/dev/null; then
    install_package nats-server "Install NATS 2.9 or newer."
  fi
}

program() {
  if [ "$NATS_FROM" = package ]; then command -v nats-server || true; else echo "$(install_folder "nats-$NATS_VERSION")/nats-server"; fi
}

start() {
  local folder port server
  server=$(program)
  [ -x "$server" ] || { echo "error: NATS ($NATS_FROM) is not installed. Run: $0 setup" >&2; exit 3; }
  folder=$(data_folder nats); port=$(choose_port "$folder" "${1:-}")
  cat >"$folder/nats.conf" <<C
listen: 127.0.0.1:$port
jetstream { store_dir: "$folder/js" }
${NATS_EXTRA:-}
C
  start_process nats "$server" -c "$folder/nats.conf"
  wait_for_port "$port" "$(process_id nats)" 20
  echo "127.0.0.1:$port"
}

run_command nats "$@"
