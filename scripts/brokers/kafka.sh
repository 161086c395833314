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
  [ -d "$(install_folder "kafka-$KAFKA_VERSION")/jars" ] && return
  need_program java "Install Java 17 or newer."
  need_program mvn "Install Maven."
  maven_jars "$(install_folder "kafka-$KAFKA_VERSION")" "org.apache.kafka:kafka_2.13:$KAFKA_VERSION" "org.slf4j:slf4j-simple:$SLF4J_VERSION"
}

java_kafka() {                                       # java_kafka CLASS ARGUMENT...: replaces this process
  exec "${JAVA:-java}" -Xms128m -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto \
    -Dorg.slf4j.simpleLogger.defaultLogLevel="${KAFKA_LOG:-warn}" -Dorg.slf4j.simpleLogger.showDateTime=true ${KAFKA_JAVA_OPTIONS:-} \
    -cp "$(install_folder "kafka-$KAFKA_VERSION")/jars/*" "$@"
}

start() {
  local port controller folder
  need_program "${JAVA:-java}" "Install Java 17 or newer."
  [ -d "$(install_folder "kafka-$KAFKA_VERSION")/jars" ] || { echo "error: Kafka $KAFKA_VERSION is not installed. Run: $0 setup" >&2; exit 3; }
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
group.min.session.timeout.ms=1000
group.consumer.min.session.timeout.ms=1000
group.consumer.session.timeout.ms=6000
group.consumer.min.heartbeat.interval.ms=100
group.consumer.heartbeat.interval.ms=500
log.retention.check.interval.ms=500
log.initial.task.delay.ms=100
P
  if [ -n "${KAFKA_PROPERTIES:-}" ]; then cat "$KAFKA_PROPERTIES" >>"$folder/server.properties"; fi
  if [ ! -f "$folder/logs/meta.properties" ]; then
    (java_kafka kafka.tools.StorageTool format -t "${KAFKA_CLUSTER_ID:-headraceTestCluster0AA}" -c "$folder/server.properties") \
      >"$folder/format.log" 2>&1 || { cat "$folder/format.log" >&2; exit 1; }
  fi
  export -f java_kafka install_folder
  export HEADRACE_BROKERS KAFKA_VERSION
  start_process kafka bash -c 'java_kafka kafka.Kafka "$1"' kafka "$folder/server.properties"
  wait_for_port "$port" "$(process_id kafka)" 90
  echo "127.0.0.1:$port"
}

run_command kafka "$@"
