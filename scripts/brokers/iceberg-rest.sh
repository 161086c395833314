#!/usr/bin/env bash
# The REST catalog of Apache Iceberg's own tests from Maven Central, over a SQLite database, with the files of its tables on the disk.
# ICEBERG_WAREHOUSE=s3://BUCKET/FOLDER has them in a bucket; ICEBERG_PROPERTIES are NAME=VALUE properties of the catalog, such as s3.endpoint.
# Apache's server of it listens on all addresses, so iceberg-rest/ has one that listens on loopback. It needs Java 17 or newer, and for `setup`
# a JDK and Maven.
source "$(dirname "$0")/common.sh"
ICEBERG_VERSION=${ICEBERG_VERSION:-1.10.1}

setup() {
  local folder; folder=$(install_folder "iceberg-rest-$ICEBERG_VERSION")
  [ "$folder/classes/IcebergRest.class" -nt "$HERE/iceberg-rest/IcebergRest.java" ] && [ -d "$folder/s3/jars" ] && return
  need_program javac "Install a JDK of Java 17 or newer."
  need_program mvn "Install Maven."
  [ -d "$folder/jars" ] || maven_jars "$folder" "org.apache.iceberg:iceberg-core:$ICEBERG_VERSION" \
    "org.apache.iceberg:iceberg-core:$ICEBERG_VERSION:tests" org.eclipse.jetty:jetty-servlet:11.0.26 org.xerial:sqlite-jdbc:3.50.3.0 \
    org.slf4j:slf4j-simple:2.0.17 org.apache.hadoop:hadoop-client-runtime:3.4.1
  [ -d "$folder/s3/jars" ] || maven_jars "$folder/s3" "org.apache.iceberg:iceberg-aws:$ICEBERG_VERSION" \
    "org.apache.iceberg:iceberg-aws-bundle:$ICEBERG_VERSION"
  javac -d "$folder/classes" -cp "$folder/jars/*" "$HERE/iceberg-rest/IcebergRest.java"
}

start() {
  local folder port installed properties
  installed=$(install_folder "iceberg-rest-$ICEBERG_VERSION")
  need_program "${JAVA:-java}" "Install Java 17 or newer."
  [ -d "$installed/classes" ] || { echo "error: the REST catalog of Iceberg $ICEBERG_VERSION is not installed. Run: $0 setup" >&2; exit 3; }
  folder=$(data_folder iceberg-rest); port=$(choose_port "$folder" "${1:-}")
  mkdir -p "$folder/warehouse"
  read -ra properties <<<"${ICEBERG_PROPERTIES:-}"
  # The servlet logs each table that does not exist as an error.
  start_process iceberg-rest "${JAVA:-java}" -Xms64m -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto \
    -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.log.org.apache.iceberg.rest=off \
    -cp "$installed/classes:$installed/jars/*:$installed/s3/jars/*" IcebergRest "$port" \
    "jdbc:sqlite:$folder/catalog.db?busy_timeout=30000" "${ICEBERG_WAREHOUSE:-file://$folder/warehouse}" "${properties[@]}"
  wait_for_port "$port" "$(process_id iceberg-rest)" 60
  echo "127.0.0.1:$port"
}

run_command iceberg-rest "$@"
