#!/usr/bin/env bash
# Apache Kafka from Maven Central: broker and controller in one process (KRaft). It needs Java 17 or newer, and Maven for `setup`.
#
# Environment:
#   KAFKA_LISTENERS          further listeners, as ,NAME://HOST:PORT; the properties below map each name to a protocol
#   KAFKA_ADVERTISED         what clients are told of these listeners, in the same form; by default the same
#   KAFKA_PROPERTIES         a file with further properties of the server
#   KAFKA_JAVA_OPTIONS       further options of Java, separated by spaces
source "$(dirname "$0")/common.sh"
KAFKA_VERSION=${KAFKA_VERSION:-4.3.1}
SLF4J_VERSION=1.7.36 # without a backend for its log, Kafka does not report why it failed to start

setup() {
  local installed; installed=$(install_folder "kafka-$KAFKA_VERSION")
  need_program java "Install Java 17 or newer."
  if [ ! -d "$installed/jars" ]; then
    need_program mvn "Install Maven."
    maven_jars "$installed" "org.apache.kafka:kafka_2.13:$KAFKA_VERSION" "org.slf4j:slf4j-simple:$SLF4J_VERSION"
  fi
  archive_classes kafka "$installed"
}

format_storage() {                                   # format_storage COMMAND...: keep an empty log, because the tool computes for seconds
  local installed data; installed=$(install_folder "kafka-$KAFKA_VERSION"); data=$(data_folder kafka)
  [ -d "$installed/empty" ] && return
  sed "s|^log.dirs=.*|log.dirs=$data/empty|" "$data/server.properties" >"$data/format.properties"
  "$@" kafka.tools.StorageTool format -t headraceTestCluster0AA -c "$data/format.properties" >"$data/format.log" 2>&1 ||
    { cat "$data/format.log" >&2; exit 1; }
  mv -T "$data/empty" "$installed/empty" 2>/dev/null || true # another start may have been earlier
}

start() {
  local port controller folder installed options
  installed=$(install_folder "kafka-$KAFKA_VERSION")
  need_program "${JAVA:-java}" "Install Java 17 or newer."
  [ -d "$installed/jars" ] || { echo "error: Kafka $KAFKA_VERSION is not installed. Run: $0 setup" >&2; exit 3; }
  folder=$(data_folder kafka); port=$(choose_port "$folder" "${1:-}"); controller=$port
  while [ "$controller" = "$port" ]; do controller=$(free_port); done
  cat >"$folder/server.properties" <<P
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller${KAFKA_LISTENERS:-}
advertised.listeners=PLAINTEXT://127.0.0.1:$port${KAFKA_ADVERTISED:-${KAFKA_LISTENERS:-}}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=$folder/logs
num.partitions=4
auto.create.topics.enable=false
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=4000
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=1000
group.consumer.session.timeout.ms=6000
group.consumer.min.heartbeat.interval.ms=100
group.consumer.heartbeat.interval.ms=500
log.retention.check.interval.ms=500
log.initial.task.delay.ms=100
P
  if [ -n "${KAFKA_PROPERTIES:-}" ]; then cat "$KAFKA_PROPERTIES" >>"$folder/server.properties"; fi
  options=(-Dorg.slf4j.simpleLogger.defaultLogLevel="${KAFKA_LOG:-warn}" -Dorg.slf4j.simpleLogger.showDateTime=true)
  options+=(${KAFKA_JAVA_OPTIONS:-} -cp "$installed/jars/*")
  if [ ! -f "$folder/logs/meta.properties" ]; then
    format_storage "${JAVA:-java}" "${options[@]}"
    cp -r "$installed/empty" "$folder/logs"
  fi
  java_command "$installed"
  start_process kafka "${JAVA_COMMAND[@]}" "${options[@]}" kafka.Kafka "$folder/server.properties"
  wait_for_port "$port" "$(process_id kafka)" 90
  echo "127.0.0.1:$port"
}

run_command kafka "$@"
