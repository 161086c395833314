#!/usr/bin/env bash
# A fake of Google Cloud Storage from Go's module proxy: the JSON API with generations and conditional writes. It needs Go 1.26 or newer for
# `setup`. HEADRACE_FAKE_GCS_BACKEND is `memory` (default: all keys, nothing survives `kill`) or `filesystem` (plain keys only).
source "$(dirname "$0")/common.sh"
FAKE_GCS_VERSION=${FAKE_GCS_VERSION:-v1.56.1}

setup() {
  local folder; folder=$(install_folder fake-gcs)
  [ -x "$folder/fake-gcs-server" ] && return
  need_program go "Install Go 1.26 or newer."
  mkdir -p "$folder/part"
  GOBIN="$folder/part" nice go install -p 2 "github.com/fsouza/fake-gcs-server@$FAKE_GCS_VERSION"
  mv "$folder/part/fake-gcs-server" "$folder/fake-gcs-server"
  rmdir "$folder/part"
}

start() {
  local folder port
  [ -x "$(install_folder fake-gcs)/fake-gcs-server" ] || { echo "error: fake-gcs-server is not installed. Run: $0 setup" >&2; exit 3; }
  folder=$(data_folder fake-gcs); port=$(choose_port "$folder" "${1:-}")
  start_process fake-gcs "$(install_folder fake-gcs)/fake-gcs-server" -scheme http -host 127.0.0.1 -port "$port" -log-level warn \
    -backend "${HEADRACE_FAKE_GCS_BACKEND:-memory}" -filesystem-root "$folder/buckets"
  wait_for_port "$port" "$(process_id fake-gcs)" 20
  echo "127.0.0.1:$port"
}

run_command fake-gcs "$@"
