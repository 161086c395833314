#!/usr/bin/env bash
# ElasticMQ from Maven Central: queues with the protocol of Amazon SQS, stored on disk. It needs Java 17 or newer, and Maven for `setup`.
source "$(dirname "$0")/common.sh"
ELASTICMQ_VERSION=${ELASTICMQ_VERSION:-1.7.1}

setup() {
  local installed; installed=$(install_folder "elasticmq-$ELASTICMQ_VERSION")
  need_program java "Install Java 17 or newer."
  if [ ! -d "$installed/jars" ]; then
    need_program mvn "Install Maven."
    maven_jars "$installed" "org.elasticmq:elasticmq-server_3:$ELASTICMQ_VERSION"
  fi
  archive_classes elasticmq "$installed"
}

start() {
  local port folder installed
  installed=$(install_folder "elasticmq-$ELASTICMQ_VERSION")
  need_program "${JAVA:-java}" "Install Java 17 or newer."
  [ -d "$installed/jars" ] ||
    { echo "error: ElasticMQ $ELASTICMQ_VERSION is not installed. Run: $0 setup" >&2; exit 3; }
  folder=$(data_folder elasticmq); port=$(choose_port "$folder" "${1:-}")
  # Relaxed limits allow messages of 1 MiB, as Amazon SQS does. Without WRITE_DELAY=0, kill -9 loses what was stored in the last half second.
  cat >"$folder/elasticmq.conf" <<C
include classpath("application.conf")
node-address { protocol = http, host = "127.0.0.1", port = $port, context-path = "" }
rest-sqs { enabled = true, bind-port = $port, bind-hostname = "127.0.0.1", sqs-limits = relaxed }
rest-stats { enabled = false }
messages-storage { enabled = true, driver-class = "org.h2.Driver", uri = "jdbc:h2:$folder/messages;WRITE_DELAY=0", username = "sa", password = "" }
queues-storage { enabled = true, path = "$folder/queues.conf" }
C
  java_command "$installed"
  start_process elasticmq "${JAVA_COMMAND[@]}" -Dconfig.file="$folder/elasticmq.conf" -cp "$installed/jars/*" org.elasticmq.server.Main
  wait_for_port "$port" "$(process_id elasticmq)" 60
  echo "127.0.0.1:$port"
}

run_command elasticmq "$@"
