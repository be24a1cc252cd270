#!/bin/sh
# Build the image, start it, and check that the page and one question answer on the published port.
#   deploy/check-image.sh [--skip-without-engine]
# CONTAINER_ENGINE: docker or podman, by default the first that works. PORT: default 7200.
# TRIES: how often to look for the page, once a second; default 120.
set -eu

cd "$(dirname "$0")/.."
port=${PORT:-7200}
name=dodona-check-$$
image=dodona-check
url=http://localhost:$port

find_engine() {
    for engine in ${CONTAINER_ENGINE:-docker podman}; do
        if command -v "$engine" >/dev/null 2>&1 && "$engine" info >/dev/null 2>&1; then
            echo "$engine"
            return
        fi
    done
}

clean_up() {
    status=$?
    trap - EXIT INT TERM
    if [ "$status" -ne 0 ]; then
        "$engine" logs "$name" 2>&1 | tail -n 50 >&2 || true
    fi
    "$engine" rm --force "$name" >/dev/null 2>&1 || true
    "$engine" volume rm --force "$name" >/dev/null 2>&1 || true
    exit "$status"
}

# Send a request as a browser on this machine does.
request() {
    curl --silent --show-error --fail \
        --header "Origin: $url" --header "Sec-Fetch-Site: same-origin" "$@"
}

wait_for_page() {
    tries=${TRIES:-120}
    until request --max-time 5 "$url/" 2>/dev/null | grep -q '<title>Dodona</title>'; do
        tries=$((tries - 1))
        if [ "$tries" -eq 0 ]; then
            echo "check-image: the page at $url/ does not answer." >&2
            return 1
        fi
        sleep 1
    done
}

engine=$(find_engine)
if [ -z "$engine" ]; then
    if [ "${1:-}" = --skip-without-engine ]; then
        echo "check-image: skipped, because no container engine (${CONTAINER_ENGINE:-docker or podman}) is running."
        exit 0
    fi
    echo "check-image: no container engine (${CONTAINER_ENGINE:-docker or podman}) is running." >&2
    echo "Start one, or use --skip-without-engine." >&2
    exit 1
fi

echo "check-image: building with $engine"
"$engine" build --file deploy/Containerfile --tag "$image" .
trap clean_up EXIT
trap 'exit 130' INT TERM
token=$("$engine" run --rm --volume "$name:/data" "$image" token create --user check --scope chat 2>/dev/null)
"$engine" run --detach --name "$name" --volume "$name:/data" --publish "127.0.0.1:$port:$port" \
    --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges \
    --env DODONA_AGENT__PROVIDER=extractive \
    "$image" up --host 0.0.0.0 --port "$port" >/dev/null
wait_for_page
echo "check-image: the page answers at $url/"
answer=$(request --max-time 60 --header "Authorization: Bearer $token" --header 'Content-Type: application/json' \
    --data '{"question": "What do the notes say?"}' "$url/api/oracle")
case $answer in
*'"answer":"'?*) echo "check-image: a question was answered" ;;
*)
    echo "check-image: the response to a question has no answer: $answer" >&2
    exit 1
    ;;
esac
"$engine" stop "$name" >/dev/null
echo "check-image: stopped"
