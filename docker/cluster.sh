#!/bin/bash
# Three hosts on this machine, to try several hosts: homes of their own on 127.0.0.1 to 127.0.0.3,
# one PostgreSQL, one Redis and, if it is installed, Ray. All of it is new at each start, and is
# deleted at the end. The argument is the Python that has Vinery.
set -euo pipefail

python=$(readlink --canonicalize-missing "$(dirname "$1")")/$(basename "$1")
port=${VINERY_CLUSTER_PORT:-8100} # and the four ports after it
names=(moon mars venus)
work=$(mktemp -d "${TMPDIR:-/tmp}/vinery-cluster.XXXXXX")
chmod 755 "$work" # PostgreSQL has a user of its own if root starts it
export RAY_TMPDIR=$work # else the logs of Ray stay
pids=()

end() {
    trap '' INT TERM
    echo "cluster: stopping"
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" || true; done
    as_postgres "$programs/pg_ctl" --pgdata "$work/postgresql/data" --mode fast stop >/dev/null || true
    redis-cli -p $((port + 3)) shutdown nosave 2>/dev/null || true
    rm -rf "$work"
}

as_postgres() { if [ "$(id -u)" -eq 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }

vinery() { VINERY_HOME="$work/$1" "$python" -m vinery_platform.cli "${@:2}"; }

# In a session of its own, so that Ctrl-C reaches this script alone.
start() {
    VINERY_HOME="$work/$1" setsid "$python" -m vinery_platform.cli "${@:2}" >>"$work/$1.log" 2>&1 &
    pids+=($!)
}

programs=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)
programs=${programs:-$(dirname "$(command -v initdb)")}
[ -x "$programs/initdb" ] && command -v redis-server >/dev/null || {
    echo "cluster: PostgreSQL and Redis are needed. On Debian: apt-get install postgresql redis-server" >&2
    exit 2
}
trap end EXIT
trap 'exit 0' INT TERM
mkdir "$work/postgresql"
if [ "$(id -u)" -eq 0 ]; then chown postgres "$work/postgresql"; fi
as_postgres "$programs/initdb" --pgdata "$work/postgresql/data" --auth trust --username vinery \
    --encoding UTF8 >"$work/initdb.log"
as_postgres "$programs/pg_ctl" --pgdata "$work/postgresql/data" --silent --wait \
    --log "$work/postgresql/log" --options \
    "-p $((port + 2)) -c listen_addresses=127.0.0.1 -k $work/postgresql" start
(cd "$work" && setsid redis-server --port $((port + 3)) --bind 127.0.0.1 --save '' >redis.log &)

placement=local
"$python" -c 'import ray' 2>/dev/null && placement=ray
for number in 0 1 2; do
    name=${names[number]} address=127.0.0.$((number + 1))
    mkdir -m 700 "$work/$name"
    cat >"$work/$name/vinery.toml" <<TOML
host = "$address"
port = $port
host_name = "$name"
host_address = "$address:$((port + 1))"
database_url = "postgres://vinery@127.0.0.1:$((port + 2))/postgres"
redis_url = "redis://127.0.0.1:$((port + 3))/0"
placement = "$placement"
ray_address = "127.0.0.1:$((port + 4))"
TOML
    chmod 600 "$work/$name/vinery.toml"
    # The others get the secrets of the first, as by `vinery host join`.
    if [ "$number" -eq 0 ]; then vinery moon prepare; else
        mkdir -m 700 "$work/$name/secrets"
        cp -p "$work/moon/secrets/"{django_secret_key,key_pepper_*} "$work/$name/secrets"
    fi
done
if [ "$placement" = ray ]; then start moon ray-node --head; fi
for number in 0 1 2; do
    start "${names[number]}" up
    echo "cluster: ${names[number]} starts at http://127.0.0.$((number + 1)):$port, log $work/${names[number]}.log"
done
echo "cluster: user, password and key are in $work/moon/bootstrap.json; placement: $placement"
echo "cluster: VINERY_HOME=$work/moon $python -m vinery_platform.cli host list"
echo "cluster: Ctrl-C stops and deletes all of it"
wait
