#!/usr/bin/env bash
# Apicurio Registry from Maven Central: a schema registry with Confluent's API at /apis/ccompat/v7, in memory. It needs Java 17 or newer, and
# Maven for `setup`.
source "$(dirname "$0")/common.sh"
APICURIO_VERSION=${APICURIO_VERSION:-2.6.13.Final}

setup() {
  local folder; folder=$(install_folder "apicurio-$APICURIO_VERSION")
  need_program java "Install Java 17 or newer."
  if [ ! -d "$folder" ]; then
    need_program mvn "Install Maven."
    rm -rf "$folder.part"; mkdir -p "$folder.part"
    (cd "$folder.part" && mvn -q -B -ntp dependency:copy -DoutputDirectory=. \
      -Dartifact="io.apicurio:apicurio-registry-app:$APICURIO_VERSION:tar.gz:all")
    tar -xzf "$folder.part"/*.tar.gz -C "$folder.part"
    rm "$folder.part"/*.tar.gz
    mv "$folder.part" "$folder"
  fi
  archive_classes apicurio "$folder"
}

start() {
  local port folder installed
  installed=$(install_folder "apicurio-$APICURIO_VERSION")
  need_program "${JAVA:-java}" "Install Java 17 or newer."
  [ -d "$installed" ] || { echo "error: Apicurio $APICURIO_VERSION is not installed. Run: $0 setup" >&2; exit 3; }
  folder=$(data_folder apicurio); port=$(choose_port "$folder" "${1:-}")
  java_command "$installed"
  start_process apicurio "${JAVA_COMMAND[@]}" \
    -Dquarkus.http.host=127.0.0.1 -Dquarkus.http.port="$port" -jar "$installed/apicurio-registry-app-$APICURIO_VERSION-runner.jar"
  wait_for_port "$port" "$(process_id apicurio)" 60
  echo "127.0.0.1:$port"
}

run_command apicurio "$@"
