#!/usr/bin/env bash
# Redis or Valkey from the system's packages, as a server of its own. `setup` installs Valkey too where the system has it.
# REDIS_KIND=valkey starts Valkey. REDIS_TLS names a folder with ca.pem, server.pem and server.key: then the server has only a TLS port.
source "$(dirname "$0")/common.sh"
REDIS_KIND=${REDIS_KIND:-redis}
HINT="Install Redis 7.0, Valkey 7.2 or newer."

setup() {
  command -v redis-server >/dev/null || install_package redis-server "$HINT"
  command -v valkey-server >/dev/null || [ -z "$(apt-cache --names-only search '^valkey-server$' 2>/dev/null)" ] ||
    install_package valkey-server "$HINT"
}

start() {
  local folder port server=${REDIS_SERVER:-$REDIS_KIND-server} listen
  need_program "$server" "Run: $0 setup"
  folder=$(data_folder "$REDIS_KIND"); port=$(choose_port "$folder" "${1:-}")
  mkdir -p "$folder/db"
  listen=(--port "$port")
  if [ -n "${REDIS_TLS:-}" ]; then
    listen=(--port 0 --tls-port "$port" --tls-cert-file "$REDIS_TLS/server.pem" --tls-key-file "$REDIS_TLS/server.key"
      --tls-ca-cert-file "$REDIS_TLS/ca.pem" --tls-auth-clients no)
  fi
  # Each write is synced, so that a killed server forgets nothing that it has answered.
  start_process "$REDIS_KIND" "$server" --bind 127.0.0.1 "${listen[@]}" --dir "$folder/db" --daemonize no --save '' \
    --appendonly yes --appendfsync "${REDIS_FSYNC:-always}" --maxmemory 512mb --maxmemory-policy noeviction
  wait_for_port "$port" "$(process_id "$REDIS_KIND")" 20
  echo "127.0.0.1:$port"
}

run_command "$REDIS_KIND" "$@"
