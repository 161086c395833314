#!/usr/bin/env bash
# The Versity S3 gateway from Go's module proxy: buckets in a folder, with ETags and conditional writes. It needs Go 1.26 or newer for `setup`.
# It has no notifications: tests send them to elasticmq.sh themselves. HEADRACE_VERSITYGW_METADATA is `folder` (default: ETags are in files of a
# folder of their own), `attributes` (ETags are extended attributes of the objects, which not all file systems have), or `none`: there are then no
# ETags, and conditions are ignored.
# `account ACCESS SECRET` creates an account that may use all buckets, or sets its secret, on the running server.
source "$(dirname "$0")/common.sh"
VERSITYGW_VERSION=${VERSITYGW_VERSION:-v1.8.0}

setup() {
  local folder; folder=$(install_folder versitygw)
  [ -x "$folder/versitygw" ] && return
  need_program go "Install Go 1.26 or newer."
  mkdir -p "$folder/part"
  GOBIN="$folder/part" nice go install -p 2 "github.com/versity/versitygw/cmd/versitygw@$VERSITYGW_VERSION"
  mv "$folder/part/versitygw" "$folder/versitygw"
  rmdir "$folder/part"
}

start() {
  local folder port options=()
  [ -x "$(install_folder versitygw)/versitygw" ] || { echo "error: versitygw is not installed. Run: $0 setup" >&2; exit 3; }
  folder=$(data_folder versitygw); port=$(choose_port "$folder" "${1:-}")
  mkdir -p "$folder/buckets" "$folder/metadata" "$folder/accounts"
  case "${HEADRACE_VERSITYGW_METADATA:-folder}" in
    folder) options+=(--sidecar "$folder/metadata") ;;
    none) options+=(--nometa) ;;
  esac
  start_process versitygw "$(install_folder versitygw)/versitygw" --access test --secret testtest --port "127.0.0.1:$port" \
    --region us-east-1 --quiet --iam-dir "$folder/accounts" --iam-cache-disable posix "${options[@]}" "$folder/buckets"
  wait_for_port "$port" "$(process_id versitygw)" 20
  echo "127.0.0.1:$port"
}

account() {                                          # account ACCESS SECRET
  local folder command=create-user role=(--role admin); folder=$(data_folder versitygw)
  administrate() { "$(install_folder versitygw)/versitygw" admin --access test --secret testtest --endpoint-url "http://127.0.0.1:$(cat "$folder/port")" "$@"; }
  if administrate list-users | awk '{ print $1 }' | grep -qxF "$1"; then command=update-user role=(); fi
  administrate "$command" --access "$1" --secret "$2" "${role[@]}"
}

if [ "${1:-}" = account ]; then account "$2" "$3"; else run_command versitygw "$@"; fi
