package postgres

import (
	"embed"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// The statements are files, written for the schema "tickwheel".
//
//go:embed sql/*.sql
var files embed.FS

// statements are those of one schema.
type statements struct {
	insert, insertNew, insertOnKey, begins, signal, aside, freeExpired, lockKeys, tryKeys, open, known, fetch, claim, finish, release, cancel, move, redrive, delete, lookup, get, progress, scan, search,
	schedule, schedules, setSchedule, lockKeyed,
	claimLimited, claimPassing, finishWhole, makeCounters, freeDead, flowControl, setFlowControl, claims, usage, cancelRunning, canceled,
	ownClaims, forget, logPosition,
	version, work, heartbeat, leave, sweep, expire, hung, unhandled, echo, news,
	page, pageByMeta, backlog, pending, workers, notify, notifyTx string

	claimSettings string // of the transaction of a claim
	tag           string // the first line of each statement that locks rows
}

func newStatements(schema string) statements {
	s := func(name string) string { return statement(name, schema) }
	// By the tag hung.sql finds the connections that run a statement of this schema.
	tag := "-- durable jobs of " + pgx.Identifier{schema}.Sanitize() + "\n"
	locks := func(name string) string { return tag + withoutLimits(s(name)) }
	whole := func(name string) string { return tag + s(name) }
	return statements{
		insert: locks("insert"), insertNew: locks("insert_new"), insertOnKey: locks("insert_on_key"), begins: s("begins"), signal: locks("signal"), aside: locks("aside"), freeExpired: locks("free_expired"), lockKeys: s("lock_keys"), tryKeys: s("try_keys"), open: s("open"), fetch: locks("fetch"), claim: locks("claim"), finish: locks("finish"),
		release: locks("release"), cancel: locks("cancel"), move: locks("move"), redrive: locks("redrive"), delete: locks("delete"),
		work: locks("work"), heartbeat: locks("heartbeat"), leave: locks("leave"), sweep: locks("sweep"), expire: locks("expire"),
		schedule: s("schedule"), schedules: s("schedules"), setSchedule: locks("set_schedule"), lockKeyed: locks("lock_keyed"),
		version: s("version"), known: s("known"), lookup: s("lookup"), get: s("get"), progress: s("progress"), scan: s("scan"), search: s("search"),
		page: s("page"), pageByMeta: s("page_by_meta"), backlog: s("backlog"), pending: s("pending"), workers: s("workers"),
		claimLimited: whole("claim"), claimPassing: passing(whole("claim")), finishWhole: whole("finish"), makeCounters: locks("make_counters"), freeDead: locks("free_dead"),
		flowControl: s("flow_control"), setFlowControl: locks("set_flow_control"), claims: s("claims"), usage: s("usage"),
		cancelRunning: locks("cancel_running"), canceled: s("canceled"),
		ownClaims: s("own_claims"), forget: locks("forget"), logPosition: s("log_position"),
		hung: s("hung"), unhandled: s("unhandled"), echo: s("echo"), news: s("news"), notify: s("notify"), notifyTx: s("notify_tx"), claimSettings: claimSettings(schema), tag: tag,
	}
}

var ofLimits = regexp.MustCompile(`(?m)^-- with limits(?: and schedules)?\n(?s:.*?)^-- end\n`)

// withoutLimits returns a statement for jobs that no limit covers, and that no schedule has made: see claim.sql
// and finish.sql.
func withoutLimits(text string) string { return ofLimits.ReplaceAllString(text, "") }

// passing returns claim.sql with the counters passed over that another transaction has locked: it grants no permit of these.
func passing(claim string) string {
	return strings.Replace(claim, "for update of c\n", "for update of c skip locked\n", 1)
}

// statement returns the statement of a file, for a schema.
func statement(name, schema string) string {
	return inSchema(strings.Replace(read(name), "-- permits_back.sql\n", read("permits_back"), 1), schema)
}

func read(name string) string {
	text, err := files.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // it is in the program
	}
	return string(text)
}

// inSchema returns a text that was written for the schema "tickwheel" for another one. A schema's name
// is the same quoted, since it is of small letters, digits and _.
func inSchema(text, schema string) string {
	return strings.NewReplacer("tickwheel.", pgx.Identifier{schema}.Sanitize()+".", "'tickwheel'", "'"+schema+"'").Replace(text)
}
