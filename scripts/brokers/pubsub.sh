#!/usr/bin/env bash
# A fake of Google Cloud Pub/Sub in one small process: `pstest`, with which Google's Go client tests itself. It needs Go for `setup`.
# It keeps all topics, subscriptions and messages in memory: they are lost when it ends.
source "$(dirname "$0")/common.sh"

setup() {
  local folder; folder=$(install_folder pstest)
  [ -x "$folder/pstest" ] && [ ! "$HERE/pstest/main.go" -nt "$folder/pstest" ] && return
  need_program go "Install Go 1.26 or newer."
  mkdir -p "$folder"
  (cd "$HERE/pstest" && GOFLAGS=-mod=readonly nice go build -p 2 -o "$folder/pstest.part" .)
  mv "$folder/pstest.part" "$folder/pstest"
}

start() {
  local folder port
  [ -x "$(install_folder pstest)/pstest" ] || { echo "error: pstest is not installed. Run: $0 setup" >&2; exit 3; }
  folder=$(data_folder pubsub); port=$(choose_port "$folder" "${1:-}")
  start_process pubsub "$(install_folder pstest)/pstest" "$port"
  wait_for_port "$port" "$(process_id pubsub)" 10
  echo "127.0.0.1:$port"
}

run_command pubsub "$@"
