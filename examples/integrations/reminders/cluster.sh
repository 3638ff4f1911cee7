#!/usr/bin/env bash
# Starts three NATS servers on loopback, adds reminders to them, kills one while they wait,
# and shows that all come: about a minute.
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
runner=
end() { # what runs reminders first: it says good-bye to the servers
	if [ -n "$runner" ]; then kill "$runner" 2>/dev/null && wait "$runner" || true; fi
	kill $(jobs -p) 2>/dev/null || true
	wait 2>/dev/null || true
	rm -rf "$work"
}
trap end EXIT
go build -o "$work/reminders" .
go build -o "$work/nats-server" github.com/nats-io/nats-server/v2

base=${PORT:-14222}
routes="nats://127.0.0.1:$((base + 10)),nats://127.0.0.1:$((base + 11)),nats://127.0.0.1:$((base + 12))"
url="nats://127.0.0.1:$base,nats://127.0.0.1:$((base + 1)),nats://127.0.0.1:$((base + 2))"
for i in 0 1 2; do
	printf 'jetstream { store_dir: "%s", sync_interval: always }\n' "$work/node$i" > "$work/node$i.conf"
	"$work/nats-server" -c "$work/node$i.conf" -n "node$i" -a 127.0.0.1 -p $((base + i)) \
		-cluster_name reminders -cluster "nats://127.0.0.1:$((base + 10 + i))" -routes "$routes" \
		> "$work/node$i.log" 2>&1 &
	pids[i]=$!
done
reminders() { "$work/reminders" -nats "$url" -replicas 3 "$@"; }

echo "three nodes; adding reminders"
for _ in $(seq 60); do reminders add 1s "the cluster is up" > /dev/null 2>&1 && break || sleep 1; done
for n in 1 2 3 4 5; do reminders add $((n * 8))s "reminder $n" > /dev/null; done
reminders list
"$work/reminders" -nats "$url" -replicas 3 run > "$work/out" & # not by the function, which would be a shell between
runner=$!
sleep 10
echo "killing node 0"
kill -9 "${pids[0]}"
wait "${pids[0]}" 2>/dev/null || true # or the shell says that it was killed
for _ in $(seq 90); do grep -q 'reminder 5' "$work/out" && break; sleep 1; done
cat "$work/out"
for n in 1 2 3 4 5; do grep -q "reminder $n" "$work/out" || { echo "reminder $n is lost"; exit 1; }; done
echo "all five came"
