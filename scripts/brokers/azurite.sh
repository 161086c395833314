#!/usr/bin/env bash
# Azurite, Microsoft's emulator of Azure Storage, from npm: blobs and queues. `setup` needs Node.js and npm, and warns without them.
# HEADRACE_AZURITE_STORAGE is `memory` (default: nothing survives the end) or `files`. Files are complete after `stop`, but not after `kill`:
# Azurite writes its index every few seconds. With HEADRACE_AZURITE_CERTIFICATE and HEADRACE_AZURITE_KEY (PEM), it has TLS and accepts tokens.
source "$(dirname "$0")/common.sh"
AZURITE_VERSION=${AZURITE_VERSION:-3.37.0}

setup() {
  local folder; folder=$(install_folder "azurite-$AZURITE_VERSION")
  [ -d "$folder/node_modules" ] && return
  for program in node npm; do
    command -v "$program" >/dev/null || { echo "azurite is not installed: $program is missing. Its tests are skipped." >&2; return; }
  done
  mkdir -p "$folder/part"
  if ! (cd "$folder/part" && nice npm install --silent --no-fund --no-audit --ignore-scripts "azurite@$AZURITE_VERSION"); then
    echo "azurite is not installed: npm failed. Its tests are skipped." >&2
    rm -r "$folder/part"
    return
  fi
  mv "$folder/part/node_modules" "$folder/node_modules"
  rm -r "$folder/part"
}

start() {
  local folder port queue_port options=()
  [ -d "$(install_folder "azurite-$AZURITE_VERSION")/node_modules" ] || { echo "error: azurite is not installed. Run: $0 setup" >&2; exit 3; }
  need_program node "Install Node.js 20 or newer."
  folder=$(data_folder azurite); port=$(choose_port "$folder" "${1:-}"); queue_port=$(choose_port "$folder/queue")
  if [ "${HEADRACE_AZURITE_STORAGE:-memory}" = memory ]; then options+=(--inMemoryPersistence); else options+=(--location "$folder/files"); fi
  if [ -n "${HEADRACE_AZURITE_CERTIFICATE:-}" ]; then
    options+=(--cert "$HEADRACE_AZURITE_CERTIFICATE" --key "$HEADRACE_AZURITE_KEY" --oauth basic)
  fi
  start_process azurite node "$(install_folder "azurite-$AZURITE_VERSION")/node_modules/azurite/dist/src/azurite.js" --silent --disableTelemetry \
    --blobHost 127.0.0.1 --blobPort "$port" --queueHost 127.0.0.1 --queuePort "$queue_port" --tableHost 127.0.0.1 --tablePort 0 "${options[@]}"
  wait_for_port "$port" "$(process_id azurite)" 30
  wait_for_port "$queue_port" "$(process_id azurite)" 30
  echo "127.0.0.1:$port"
}

run_command azurite "$@"
