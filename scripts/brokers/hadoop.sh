#!/usr/bin/env bash
# The mini cluster of Apache Hadoop from Maven Central: HDFS and YARN in one process, which tests start through Py4J. It needs Java 17 or newer,
# and Maven for `setup`. The version is that of the client in PySpark. The cluster needs the two other libraries, which its jar does not name.
source "$(dirname "$0")/common.sh"
HADOOP_VERSION=${HADOOP_VERSION:-3.5.0}

setup() {
  [ -d "$(install_folder "hadoop-$HADOOP_VERSION")/jars" ] && return
  need_program java "Install Java 17 or newer."
  need_program mvn "Install Maven."
  maven_jars "$(install_folder "hadoop-$HADOOP_VERSION")" "org.apache.hadoop:hadoop-client-minicluster:$HADOOP_VERSION" \
    org.junit.jupiter:junit-jupiter-api:5.13.4 org.bouncycastle:bcpkix-jdk18on:1.82
}

start() {
  echo "error: tests start the mini cluster themselves: see tests/support/processes/yarn_cluster.py." >&2
  exit 2
}

run_command hadoop "$@"
