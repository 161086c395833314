#!/usr/bin/env bash
# PostgreSQL with logical decoding from the system's packages, as a server of its own: not the cluster that the package makes.
source "$(dirname "$0")/common.sh"
POSTGRES_USER=${POSTGRES_USER:-postgres} # the server refuses to run as root

programs() { ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1; }

setup() {
  [ -n "$(programs)" ] && return
  install_package postgresql "Install PostgreSQL 12 or newer."
}

as_user() {                                          # as_user COMMAND...: replaces this process
  if [ "$(id -u)" != 0 ]; then exec "$@"; fi
  exec setpriv --reuid "$POSTGRES_USER" --regid "$(id -g "$POSTGRES_USER")" --clear-groups "$@"
}

start() {
  local folder port bin
  bin=$(programs); [ -n "$bin" ] || { echo "error: PostgreSQL is not installed. Run: $0 setup" >&2; exit 3; }
  folder=$(data_folder postgresql); port=$(choose_port "$folder" "${1:-}")
  if [ ! -f "$folder/db/PG_VERSION" ]; then
    mkdir -p "$folder/db"
    if [ "$(id -u)" = 0 ]; then chown "$POSTGRES_USER" "$folder/db"; chmod a+rx "$HEADRACE_BROKER_DATA" "$folder"; fi
    (cd / && as_user "$bin/initdb" -D "$folder/db" -U postgres -A trust --no-sync -E UTF8 --locale=C.UTF-8) >"$folder/initdb.log" 2>&1 \
      || { cat "$folder/initdb.log" >&2; exit 1; }
    cat <<C | (cd / && as_user tee -a "$folder/db/postgresql.conf") >/dev/null
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
wal_level = logical
max_slot_wal_keep_size = 1GB
shared_buffers = 64MB
C
  fi
  export -f as_user
  export POSTGRES_USER
  start_process postgresql bash -c 'cd / && as_user "$@"' postgresql "$bin/postgres" -D "$folder/db" -p "$port"
  wait_for_port "$port" "$(process_id postgresql)" 60
  echo "127.0.0.1:$port"
}

run_command postgresql "$@"
