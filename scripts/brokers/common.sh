# Functions of all scripts in this folder. Source it.
#
#   NAME.sh setup            install the server, pinned, through Maven or Go
#   NAME.sh start [PORT]     start it on loopback and print its address; without PORT, or with 0, on a free port
#   NAME.sh stop             end the process that `start` began, and keep its data
#   NAME.sh kill             end that process with SIGKILL, and keep its data
#   NAME.sh wipe             stop it and delete its data
#
# A server keeps its port until `wipe`, because clients learn its address.
#
# Environment:
#   HEADRACE_BROKERS         the folder of the installed servers (default: .brokers in the project)
#   HEADRACE_BROKER_DATA     the folder of the data (default: data in the folder above)
#   HEADRACE_BROKER_INSTANCE the name of one of several servers of a kind (default: 0)
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
HEADRACE_BROKERS=${HEADRACE_BROKERS:-$(cd "$HERE/../.." && pwd)/.brokers}
HEADRACE_BROKER_DATA=${HEADRACE_BROKER_DATA:-$HEADRACE_BROKERS/data}
HEADRACE_BROKER_INSTANCE=${HEADRACE_BROKER_INSTANCE:-0}

install_folder() { echo "$HEADRACE_BROKERS/$1"; }
data_folder() { echo "$HEADRACE_BROKER_DATA/$1-$HEADRACE_BROKER_INSTANCE"; }

need_program() {                                     # need_program PROGRAM HINT
  command -v "$1" >/dev/null && return
  echo "error: $1 is not installed. $2" >&2
  exit 3
}

install_package() {                                  # install_package PACKAGE HINT: one of the system's packages
  local attempt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$1")
  need_program apt-get "$2"
  # A new machine may have no lists of packages, or old ones.
  "${attempt[@]}" >&2 || { apt-get -q update >&2 && "${attempt[@]}" >&2; }
}

free_port() {                                        # one below those that the kernel gives to whoever connects: it could take them first
  python3 - <<'P'
import random, socket
while True:
    try:
        with socket.socket() as one:
            one.bind(("127.0.0.1", random.SystemRandom().randrange(20_000, 32_000)))
            print(one.getsockname()[1])
            break
    except OSError:
        pass
P
}

choose_port() {                                      # choose_port FOLDER [PORT]: the port of the last start, else PORT, else a free one
  if [ ! -f "$1/port" ]; then
    mkdir -p "$1"
    if [ "${2:-0}" = 0 ]; then free_port >"$1/port"; else echo "$2" >"$1/port"; fi
  fi
  cat "$1/port"
}

wait_for_port() {                                    # wait_for_port PORT PID SECONDS
  python3 - "$@" <<'P'
import os, socket, sys, time
port, pid, limit = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
end = time.monotonic() + limit
while time.monotonic() < end:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        sys.exit("error: the server ended during its start. Read its log.")
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        sys.exit(0)
    except OSError:
        time.sleep(0.05)
sys.exit(f"error: the server does not listen on port {port} after {limit:g} s. Read its log.")
P
}

start_process() {                                    # start_process NAME COMMAND...: in a process group of its own
  local folder; folder=$(data_folder "$1"); shift
  mkdir -p "$folder"
  setsid "$@" >>"$folder/log" 2>&1 </dev/null &
  echo $! >"$folder/pid"
}

has_ended() {                                        # has_ended PID: also if its parent has not read its status, which can take seconds
  ! kill -0 "$1" 2>/dev/null || grep -qs '^State:.Z' "/proc/$1/status"
}

is_running() {                                       # is_running NAME: whether the process of `start_process` runs
  local file; file="$(data_folder "$1")/pid"
  [ -f "$file" ] && ! has_ended "$(cat "$file")"
}

process_id() { cat "$(data_folder "$1")/pid"; }

end_process() {                                      # end_process NAME [SIGNAL]: only the process of `start_process`
  local file pid; file="$(data_folder "$1")/pid"
  [ -f "$file" ] || return 0
  pid=$(cat "$file")
  if kill "-${2:-TERM}" "$pid" 2>/dev/null; then
    for _ in $(seq 200); do has_ended "$pid" && break; sleep 0.05; done
    kill -KILL "$pid" 2>/dev/null || true
  fi
  rm -f "$file"
}

maven_jars() {                                       # maven_jars FOLDER [bom=]GROUP:ARTIFACT:VERSION[:CLASSIFIER]...: with what they need, in FOLDER/jars
  local folder=$1 dependencies= managed= coordinate group artifact version classifier; shift
  mkdir -p "$folder"
  for coordinate in "$@"; do
    IFS=: read -r group artifact version classifier <<<"${coordinate#bom=}"
    artifact="<groupId>$group</groupId><artifactId>$artifact</artifactId><version>$version</version>"
    if [ "$coordinate" != "${coordinate#bom=}" ]; then # it has only the versions of others
      managed+="<dependency>$artifact<type>pom</type><scope>import</scope></dependency>"
    else
      dependencies+="<dependency>$artifact${classifier:+<classifier>$classifier</classifier>}</dependency>"
    fi
  done
  cat >"$folder/pom.xml" <<X
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>headrace</groupId><artifactId>broker</artifactId><version>1</version><packaging>pom</packaging>
<dependencyManagement><dependencies>$managed</dependencies></dependencyManagement>
<dependencies>$dependencies</dependencies></project>
X
  # Under another name until it is complete, so that a broken download is not mistaken for an installed server.
  (cd "$folder" && mvn -q -B -ntp dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=jars.part)
  mv "$folder/jars.part" "$folder/jars"
}

java_command() {                                     # java_command INSTALLED: set JAVA_COMMAND to the start of a command for a small server
  local archive=$1/classes.jsa
  JAVA_COMMAND=("${JAVA:-java}" -Xms64m -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Xlog:disable -Xlog:all=error)
  if [ -n "${ARCHIVES_CLASSES:-}" ]; then
    JAVA_COMMAND+=("-XX:ArchiveClassesAtExit=$archive.part")
  elif [ -f "$archive" ]; then # another build of Java ignores it
    JAVA_COMMAND+=("-XX:SharedArchiveFile=$archive")
  fi
}

archive_classes() {                                  # archive_classes NAME INSTALLED: run a server once, so that it starts in half the time later
  local archive=$2/classes.jsa
  [ -f "$archive" ] && return
  (
    HEADRACE_BROKER_DATA=$(mktemp -d)
    ARCHIVES_CLASSES=1
    trap 'end_process "$1" KILL; rm -rf "$HEADRACE_BROKER_DATA"' EXIT
    start >/dev/null
    kill "$(process_id "$1")"
    for _ in $(seq 600); do is_running "$1" || break; sleep 0.1; done
    mv "$archive.part" "$archive" || echo "warning: Java wrote no archive of the classes of $1: it starts slowly." >&2
  )
}

run_command() {                                      # run_command NAME COMMAND [ARGUMENT]
  local name=$1 command=${2:-}; shift; shift || true
  case $command in
    setup) setup "$@" ;;
    start) if is_running "$name"; then echo "127.0.0.1:$(cat "$(data_folder "$name")/port")"; else start "$@"; fi ;;
    stop) end_process "$name" ;;
    kill) end_process "$name" KILL ;;
    wipe) end_process "$name"; rm -rf "$(data_folder "$name")" ;;
    *) echo "usage: $0 setup | start [PORT] | stop | kill | wipe" >&2; exit 2 ;;
  esac
}
