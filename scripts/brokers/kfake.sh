#!/usr/bin/env bash
# A fake Kafka cluster in one small process, from franz-go's package kfake. It starts in milliseconds and needs no Java, but Go for `setup`.
# Tests of the contract run on kafka.sh; this one is for the quick suite.
source "$(dirname "$0")/common.sh"

setup() {
  local folder; folder=$(install_folder kfake)
  [ -x "$folder/kfake" ] && return
  need_program go "Install Go 1.26 or newer."
  mkdir -p "$folder"
  (cd "$HERE/kfake" && GOFLAGS=-mod=readonly nice go build -p 2 -o "$folder/kfake.part" .)
  mv "$folder/kfake.part" "$folder/kfake"
}

start() {
  local folder port
  [ -x "$(install_folder kfake)/kfake" ] || { echo "error: kfake is not installed. Run: $0 setup" >&2; exit 3; }
  folder=$(data_folder kfake); port=$(choose_port "$folder" "${1:-}")
  start_process kfake "$(install_folder kfake)/kfake" "$port"
  wait_for_port "$port" "$(process_id kfake)" 10
  echo "127.0.0.1:$port"
}

run_command kfake "$@"
