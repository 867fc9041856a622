# The tests' needs beyond PyPI: packages of Debian, and a PostgreSQL and a Redis server on loopback
# for this run alone. `run` and `nightly` source this file, which stops the servers at their end.
cd "$(dirname "${BASH_SOURCE[0]}")/.."

as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }

install_packages() {
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
        python3-venv chromium postgresql redis-server nginx-light caddy prometheus gcc \
        libc6-dev >"$work/apt.log" 2>&1 ||
        { tail -n 30 "$work/apt.log"; return 1; }
}

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# PostgreSQL refuses to run as root.
as_postgres() { if [ "$(id -u)" -eq 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }

start_postgresql() {
    local bin port
    bin=$(find /usr/lib/postgresql -maxdepth 2 -name bin | sort -V | tail -n 1)
    port=$(free_port)
    mkdir "$work/postgresql"
    if [ "$(id -u)" -eq 0 ]; then chown postgres "$work/postgresql"; fi
    pg_ctl=("$bin/pg_ctl" --pgdata "$work/postgresql/data" --silent)
    # A temporary cluster on loopback: durable writes and passwords would only cost time.
    as_postgres "$bin/initdb" --pgdata "$work/postgresql/data" --auth trust --username vinery \
        --encoding UTF8 --no-sync >"$work/initdb.log"
    as_postgres "${pg_ctl[@]}" --wait --log "$work/postgresql/log" \
        --options "-p $port -c listen_addresses=127.0.0.1 -c fsync=off -k $work/postgresql" start
    export VINERY_TEST_POSTGRES_URL="postgres://vinery@127.0.0.1:$port/postgres"
}

start_redis() {
    local port
    port=$(free_port)
    redis-server --bind 127.0.0.1 --port "$port" --save '' --appendonly no \
        --databases 256 --dir "$work" >"$work/redis.log" &
    redis_pid=$!
    for _ in $(seq 100); do
        if redis-cli -p "$port" ping >/dev/null 2>&1; then
            export VINERY_TEST_REDIS_URL="redis://127.0.0.1:$port/0"
            return
        fi
        sleep 0.1
    done
    cat "$work/redis.log"
    return 1
}

stop_services() {
    if [ -n "${pg_ctl+set}" ]; then
        as_postgres "${pg_ctl[@]}" --mode immediate stop >/dev/null 2>&1 || true
    fi
    if [ -n "${redis_pid+set}" ]; then kill "$redis_pid" 2>/dev/null || true; fi
    rm -rf "$work"
}

# Runs a step, and shows how long it took.
step() {
    local begin=$SECONDS
    "$@" || return
    echo "$*: $((SECONDS - begin)) s"
}

# Runs tests, and up to three that failed once more by themselves. One that passes then depends on
# the speed of the machine: the output names it as a fault to mend. After a crash others did not run.
tests() {
    local failed=.pytest_cache/v/cache/lastfailed
    rm -f "$failed"
    if step "$@" 2>&1 | tee "$work/tests.log"; then return; fi
    if grep -q "crashed while running" "$work/tests.log"; then return 1; fi
    python3 -c 'import json, sys; sys.exit(len(json.load(open(sys.argv[1]))) > 3)' "$failed" || return
    echo "These tests failed once, and run again:"
    cat "$failed"
    step "$@" PYTEST_ARGS="--last-failed --last-failed-no-failures none"
}

work=$(mktemp -d)
chmod 755 "$work" # the postgres user must reach its folder
trap stop_services EXIT

step install_packages
start_postgresql
start_redis
export VINERY_TEST_REQUIRE_ALL=1 # nothing may be skipped here
