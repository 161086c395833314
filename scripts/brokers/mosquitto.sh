#!/usr/bin/env bash
# Mosquitto from the system's packages, with MQTT 5 and sessions on disk.
# MOSQUITTO_TLS names a folder with ca.pem, server.pem and server.key: then the server has only a TLS port.
# MOSQUITTO_EXTRA has further lines of the configuration.
# It writes its state when it is stopped, every half an hour, and on SIGUSR1: a kill loses what has changed since.
source "$(dirname "$0")/common.sh"
HINT="Install Mosquitto 2.0 or newer."

program() { command -v mosquitto || { [ -x /usr/sbin/mosquitto ] && echo /usr/sbin/mosquitto; } || true; }

setup() { [ -n "$(program)" ] || install_package mosquitto "$HINT"; }

start() {
  local folder port server tls=
  server=$(program)
  [ -n "$server" ] || need_program mosquitto "Run: $0 setup"
  folder=$(data_folder mosquitto); port=$(choose_port "$folder" "${1:-}")
  mkdir -p "$folder/db"
  if [ -n "${MOSQUITTO_TLS:-}" ]; then
    tls=$(printf '%s\n' "cafile $MOSQUITTO_TLS/ca.pem" "certfile $MOSQUITTO_TLS/server.pem" "keyfile $MOSQUITTO_TLS/server.key")
  fi
  # It runs as the present user, who can write to the folder. By default, it would drop messages of a session beyond 1,000.
  cat >"$folder/mosquitto.conf" <<C
listener $port 127.0.0.1
$tls
allow_anonymous true
user $(id -un)
persistence true
persistence_location $folder/db/
max_queued_messages 0
max_inflight_messages 0
${MOSQUITTO_EXTRA:-}
C
  start_process mosquitto "$server" -c "$folder/mosquitto.conf"
  wait_for_port "$port" "$(process_id mosquitto)" 20
  echo "127.0.0.1:$port"
}

run_command mosquitto "$@"
