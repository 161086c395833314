#!/usr/bin/env bash
# RabbitMQ from the system's packages, as a node of its own with a port mapper of its own: not the node that the package makes.
# One more command: `sync` writes the definitions of queues to the disk, which the server does a few seconds after it has confirmed them.
source "$(dirname "$0")/common.sh"

programs() { ls -d /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin 2>/dev/null | sort -V | tail -1; }

setup() {
  local policy=/usr/sbin/policy-rc.d made=
  [ -n "$(programs)" ] && return
  # The package starts a node of its own, unless this file forbids it.
  if [ ! -e "$policy" ]; then printf '#!/bin/sh\nexit 101\n' >"$policy"; chmod +x "$policy"; made=1; fi
  install_package rabbitmq-server "Install RabbitMQ 3.10 or newer." ||
    { if [ -n "$made" ]; then rm -f "$policy"; fi; return 1; }
  if [ -n "$made" ]; then rm -f "$policy"; fi
}

start() {
  local folder port mapper distribution management bin
  bin=$(programs); [ -n "$bin" ] || { echo "error: RabbitMQ is not installed. Run: $0 setup" >&2; exit 3; }
  folder=$(data_folder rabbitmq); port=$(choose_port "$folder" "${1:-}")
  # The names of the node and its ports are part of its data.
  [ -f "$folder/ports" ] || echo "$(free_port) $(free_port) $(free_port)" >"$folder/ports"
  read -r mapper distribution management <"$folder/ports"
  echo "$management" >"$folder/management_port"
  echo "[rabbitmq_management]." >"$folder/enabled_plugins"
  cat >"$folder/rabbitmq.conf" <<C
listeners.tcp.1 = 127.0.0.1:$port
management.tcp.ip = 127.0.0.1
management.tcp.port = $management
consumer_timeout = ${RABBITMQ_CONSUMER_TIMEOUT_MS:-1800000}
max_message_size = 16777216
collect_statistics_interval = 500
log.console = true
log.console.level = warning
log.file = false
vm_memory_high_watermark.absolute = 1GB
disk_free_limit.absolute = 100MB
C
  if [ -n "${RABBITMQ_TLS_FOLDER:-}" ]; then
    cat >>"$folder/rabbitmq.conf" <<C
listeners.ssl.1 = 127.0.0.1:$RABBITMQ_TLS_PORT
ssl_options.cacertfile = $RABBITMQ_TLS_FOLDER/ca.pem
ssl_options.certfile = $RABBITMQ_TLS_FOLDER/server.pem
ssl_options.keyfile = $RABBITMQ_TLS_FOLDER/server.key
ssl_options.verify = verify_none
C
  fi
  mkdir -p "$folder/mapper"
  # By default, a scheduler thread is busy for a while before it sleeps, and consumer timeouts are checked once a minute.
  export HOME="$folder" LANG=C.UTF-8 ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT=$mapper RABBITMQ_NODENAME="headrace$port@localhost" \
    RABBITMQ_NODE_PORT=$port RABBITMQ_DIST_PORT=$distribution RABBITMQ_MNESIA_BASE="$folder/mnesia" RABBITMQ_LOG_BASE="$folder" \
    RABBITMQ_CONFIG_FILE="$folder/rabbitmq.conf" RABBITMQ_ENABLED_PLUGINS_FILE="$folder/enabled_plugins" RABBITMQ_PID_FILE="$folder/node.pid" \
    ERL_CRASH_DUMP="$folder/erl_crash.dump" \
    RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none -rabbit channel_tick_interval 1000 -kernel inet_dist_use_interface {127,0,0,1}"
  start_mapper "$folder" "$mapper"
  start_process rabbitmq "$bin/rabbitmq-server"
  wait_for_port "$port" "$(process_id rabbitmq)" 90
  echo "127.0.0.1:$port"
}

start_mapper() {                                     # start_mapper FOLDER PORT
  local file=$1/mapper/pid
  if [ -f "$file" ] && kill -0 "$(cat "$file")" 2>/dev/null; then return; fi
  setsid epmd -port "$2" -address 127.0.0.1 >/dev/null 2>&1 </dev/null &
  echo $! >"$file"
}

end_mapper() {
  local file; file=$(data_folder rabbitmq)/mapper/pid
  [ -f "$file" ] || return 0
  kill "$(cat "$file")" 2>/dev/null || true
  rm -f "$file"
}

sync_definitions() {
  local folder port mapper; folder=$(data_folder rabbitmq); port=$(cat "$folder/port"); read -r mapper _ <"$folder/ports"
  echo 'mnesia:sync_log(), [dets:sync(Table) || Table <- dets:all()].' |
    ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT=$mapper erl_call -c "$(cat "$folder/.erlang.cookie")" -n "headrace$port@localhost" -e >/dev/null
}

case ${1:-} in
  sync) sync_definitions; exit ;;
  stop | wipe) end_process rabbitmq; end_mapper ;;
  kill) if is_running rabbitmq; then kill -KILL -- "-$(process_id rabbitmq)"; fi ;; # the program of the package is a shell around the node
esac
run_command rabbitmq "$@"
