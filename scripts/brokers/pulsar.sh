#!/usr/bin/env bash
# Apache Pulsar from Maven Central: broker, bookie and metadata in one process. It needs Java 17 or newer, and Maven for `setup`.
# The file web-port in the folder of the data has the port of its admin API, on the same host.
#
# Environment:
#   PULSAR_ADVERTISED        the address that clients of the listener `proxied` are told, as HOST:PORT
#   PULSAR_PROPERTIES        a file with further properties of the server
#   PULSAR_WEB_PORT          the port of the admin API; by default a free one
source "$(dirname "$0")/common.sh"
PULSAR_VERSION=${PULSAR_VERSION:-4.2.4}
OPENTELEMETRY_VERSION=1.62.0 # without it, Maven mixes two versions of OpenTelemetry, and the broker ends with a NoSuchMethodError
LOG4J_VERSION=2.25.4

setup() {
  local installed; installed=$(install_folder "pulsar-$PULSAR_VERSION")
  need_program java "Install Java 17 or newer."
  if [ ! -d "$installed/jars" ]; then
    need_program mvn "Install Maven."
    maven_jars "$installed" "bom=io.opentelemetry:opentelemetry-bom:$OPENTELEMETRY_VERSION" "org.apache.pulsar:pulsar-broker:$PULSAR_VERSION" \
      "org.apache.logging.log4j:log4j-slf4j2-impl:$LOG4J_VERSION"
  fi
  archive_classes pulsar "$installed"
}

wait_for_namespace() {                               # wait_for_namespace PORT: the server listens before it has created public/default
  python3 - "$1" <<'P'
import sys, time, urllib.error, urllib.request
end = time.monotonic() + 60
while time.monotonic() < end:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/admin/v2/persistent/public/default", timeout=10).close()
        sys.exit(0)
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):  # only a client with credentials can wait for it
            sys.exit(0)
    except OSError:
        pass
    time.sleep(0.05)
sys.exit("error: the server has not created its namespace after 60 s. Read its log.")
P
}

start() {
  local port web bookie folder installed options package
  installed=$(install_folder "pulsar-$PULSAR_VERSION")
  need_program "${JAVA:-java}" "Install Java 17 or newer."
  [ -d "$installed/jars" ] || { echo "error: Pulsar $PULSAR_VERSION is not installed. Run: $0 setup" >&2; exit 3; }
  folder=$(data_folder pulsar); port=$(choose_port "$folder" "${1:-}")
  # The address of the bookie is its name in the metadata, so it keeps its port too.
  [ -f "$folder/bookie-port" ] || { echo "${PULSAR_WEB_PORT:-$(free_port)}" >"$folder/web-port"; free_port >"$folder/bookie-port"; }
  web=$(cat "$folder/web-port"); bookie=$(cat "$folder/bookie-port")
  cat >"$folder/standalone.conf" <<P
brokerServicePort=$port
webServicePort=$web
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
clusterName=standalone
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
managedLedgerCacheSizeMB=32
allowLoopback=true
journalSyncData=true
maxMessageSize=1048576
numIOThreads=2
numHttpServerThreads=8
loadManagerClassName=org.apache.pulsar.broker.loadbalance.NoopLoadManager
allowAutoTopicCreation=false
acknowledgmentAtBatchIndexLevelEnabled=true
systemTopicEnabled=true
topicLevelPoliciesEnabled=true
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
P
  if [ -n "${PULSAR_ADVERTISED:-}" ]; then
    echo "advertisedListeners=direct:pulsar://127.0.0.1:$port,proxied:pulsar://$PULSAR_ADVERTISED" >>"$folder/standalone.conf"
    echo "internalListenerName=direct" >>"$folder/standalone.conf"
  fi
  if [ -n "${PULSAR_PROPERTIES:-}" ]; then cat "$PULSAR_PROPERTIES" >>"$folder/standalone.conf"; fi
  mkdir -p "$folder/tmp" # a killed server leaves the libraries that it has unpacked
  options=(-Djava.io.tmpdir="$folder/tmp" -XX:MaxDirectMemorySize=256m -Dio.netty.tryReflectionSetAccessible=true -Dlog4j2.level="${PULSAR_LOG:-warn}" -Dlog4j2.disable.jmx=true)
  for package in java.base/java.nio java.base/jdk.internal.misc java.base/java.lang java.base/sun.net java.management/sun.management \
    jdk.management/com.sun.management.internal; do options+=(--add-opens "$package=ALL-UNNAMED"); done
  java_command "$installed"
  start_process pulsar "${JAVA_COMMAND[@]}" "${options[@]}" -cp "$installed/jars/*" org.apache.pulsar.PulsarStandaloneStarter \
    --config "$folder/standalone.conf" --metadata-dir "$folder/metadata" --bookkeeper-dir "$folder/bookkeeper" --bookkeeper-port "$bookie" \
    --num-bookies 1 --no-functions-worker --no-stream-storage --advertised-address 127.0.0.1
  wait_for_port "$web" "$(process_id pulsar)" 120
  wait_for_namespace "$web"
  echo "127.0.0.1:$port"
}

run_command pulsar "$@"
