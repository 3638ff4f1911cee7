package cron_test

import (
	"archive/zip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/cron"
)

func parse(t testing.TB, text string) *cron.Spec {
	t.Helper()
	s, err := cron.Parse(text)
	require.NoError(t, err)
	return s
}

func TestNext(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339Nano, s)
		require.NoError(t, err)
		return v
	}
	for _, c := range []struct{ spec, prev, want string }{
		{"0 2 * * *", "2026-03-07T02:00:00Z", "2026-03-08T02:00:00Z"},
		{"CRON_TZ=America/Los_Angeles 0 2 * * *", "2026-03-07T10:00:00Z", "2026-03-08T10:00:00Z"}, // skipped: 03:00 PDT
		{"CRON_TZ=America/Los_Angeles 0 2 * * *", "2026-03-08T10:00:00Z", "2026-03-09T09:00:00Z"},
		{"CRON_TZ=America/Los_Angeles */20 * * * *", "2026-03-08T09:59:59.9Z", "2026-03-08T10:00:00Z"},
		{"CRON_TZ=America/Los_Angeles */20 * * * *", "2026-03-08T10:00:00Z", "2026-03-08T10:20:00Z"},
		{"TZ=Europe/Berlin 30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z"}, // repeated: CEST
		{"TZ=Europe/Berlin 30 2 * * *", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		{"TZ=Europe/Berlin */20 * * * *", "2026-10-25T00:40:00Z", "2026-10-25T02:00:00Z"}, // an hour is left out
		{"TZ=Europe/Berlin */20 * * * *", "2026-10-25T01:10:00Z", "2026-10-25T02:00:00Z"},
		{"TZ=Australia/Lord_Howe 15 2 * * *", "2026-10-03T12:00:00Z", "2026-10-03T15:30:00Z"}, // half an hour is skipped
		{"TZ=Africa/Cairo 0 0 * * *", "2026-04-23T12:00:00Z", "2026-04-23T22:00:00Z"},         // midnight is
		{"30 15 3 * * *", "2026-01-01T00:00:00Z", "2026-01-01T03:15:30Z"},
		{"0 0 * * FRI-SUN", "2026-01-04T00:00:00Z", "2026-01-09T00:00:00Z"}, {"0 0 * * 5-7", "2026-01-03T00:00:00Z", "2026-01-04T00:00:00Z"},
		{"1-1,3-5/2 * * * *", "2026-01-01T00:01:00Z", "2026-01-01T00:03:00Z"}, {"01 * * jan-mar sun-Sat", "2026-04-01T00:00:00Z", "2027-01-01T00:01:00Z"},
		{"0 0 13 * FRI", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"}, // either day
		{"@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"},
		{"TZ=Asia/Kolkata @daily", "2026-01-01T00:00:00Z", "2026-01-01T18:30:00Z"},
		{"@every 15s", "2026-01-01T00:00:07.5Z", "2026-01-01T00:00:15Z"},
		{"@every 15s", "2026-01-01T00:00:15Z", "2026-01-01T00:00:30Z"},
		{"@every 7h", "1970-01-01T00:00:00Z", "1970-01-01T07:00:00Z"},
		{"@every 1ms", "9998-12-31T00:00:00Z", "9998-12-31T00:00:00.001Z"},
		{"0 0 29 2 *", "2097-01-01T00:00:00Z", "2104-02-29T00:00:00Z"},
	} {
		s := parse(t, c.spec)
		require.Equal(t, c.spec, s.String())
		got := s.Next(at(c.prev))
		require.True(t, at(c.want).Equal(got), "%s after %s: %v", c.spec, c.prev, got)
	}
	require.True(t, parse(t, "0 0 30 2 *").Next(at("2026-01-01T00:00:00Z")).IsZero())

	start := at("2026-01-01T00:00:07Z")
	for prev, want := range map[string]string{"2025-01-01T00:00:00Z": "2026-01-01T00:00:07Z", "2026-01-01T00:00:07Z": "2026-01-01T00:00:22Z"} {
		require.True(t, at(want).Equal(parse(t, "@every 15s").NextFrom(start, at(prev))))
	}
	require.True(t, at("2026-01-01T00:01:00Z").Equal(parse(t, "* * * * *").NextFrom(start, at("2025-01-01T00:00:00Z"))))
	require.True(t, start.Equal(parse(t, "* * * * * *").NextFrom(start, at("2025-01-01T00:00:00Z"))))
}

func TestBadText(t *testing.T) {
	for text, want := range map[string]string{
		"": "it is empty", "CRON_TZ=UTC": "it is empty", "* * * *": "expected", "61 * * * *": "61", "x * * * *": "x",
		"@fortnightly": "@fortnightly", "@every": "one interval", "@every x": "invalid duration", "@every 0s": "the interval 0s",
		"@every -1s": "the interval -1s", "@every 1500us": "the interval 1.5ms", "TZ=UTC @every 1s x": "one interval",
		"TZ=Asia/Tokyo @every 1s": "no time zone", "TZ=Mars/Base 0 8 * * *": `time zone "Mars/Base"`, "TZ= 0 8 * * *": "the time zone",
		"CRON_TZ=Local 0 8 * * *": `"Local" differs`, "TZ=../../etc/passwd 0 8 * * *": "time zone",
		"5-1 * * * *": `"5-1" ends before`, "1,,2 * * * *": "empty", ",1 * * * *": "empty", "1, * * * *": "empty", "* 22-2/2 * * *": `"22-2/2" ends before`,
		"0 0 * * FRI-MON": `"FRI-MON" ends before`, "0 0 * nov-Feb *": "ends before", "0 0 31-1 * *": "ends before", "*/5,10-7/2 * * * *": "ends before",
		"0 0 * * 6-0": "ends before", "0 0 * * SAT-SUN,7-1": `"7-1" ends before`, "*-5 * * * *": `"*-5"`, "?-5 * * * *": `"?-5"`, "1-* * * * *": "*",
		"+1 * * * *": `"+1"`, "1-+5 * * * *": `"1-+5"`, "0 0 0 * * 1,,2": "empty", "TZ=UTC 5-1 * * * *": "ends before",
		"*/0 * * * *": "step", "0 0 * * 1-9": "9", "@reboot": "@reboot",
		"L 0 * * *": "L", "0 0 L-31 * *": "31", "0 0 32W * *": "32", "0 0 0W * *": "0", "0 0 W * *": "W", "0 0 * * FRI#6": "6", "0 0 * * FRI#0": "0",
		"0 0 * * 8L": "8", "0 0 * L *": "L", "0 0 * * L": "L", "0 0 L-1-3 * *": "L-1-3", "0 0 * * #2": "#2", "0 0 LL * *": "LL",
		"CRON_TZ=UTC TZ=Europe/Berlin 0 8 * * *": `"TZ=Europe/Berlin"`, "TZ=UTC CRON_TZ=UTC @daily": `"CRON_TZ=UTC"`,
		"0 0 * JAN-MARCH *": "a sign or a name", "0 0 W15 * *": "a sign or a name",
		"H 0 * * *": "not supported", "* option *": "fields", strings.Repeat("*", cron.MaxText+1): "bytes",
	} {
		_, err := cron.Parse(text)
		require.ErrorContains(t, err, want, "%q", text)
	}
}

// The signs of Quartz, beside a search through all days of ten years, in three zones.
func TestLastAndNearestDays(t *testing.T) {
	last := func(day time.Time) int { return time.Date(day.Year(), day.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day() }
	isWeekday := func(day time.Time) bool { return day.Weekday() != time.Saturday && day.Weekday() != time.Sunday }
	nearest := func(n int) func(time.Time) bool {
		return func(day time.Time) bool {
			if n > last(day) || !isWeekday(day) {
				return false
			}
			best := 0 // the nearest weekday of the month; of two there is never a choice
			for d := 1; d <= last(day); d++ {
				if at := day.AddDate(0, 0, d-day.Day()); isWeekday(at) && (best == 0 || max(d-n, n-d) < max(best-n, n-best)) {
					best = d
				}
			}
			return day.Day() == best
		}
	}
	nth := func(w time.Weekday, n int) func(time.Time) bool {
		return func(day time.Time) bool { return day.Weekday() == w && (day.Day()+6)/7 == n }
	}
	lastOf := func(w time.Weekday) func(time.Time) bool {
		return func(day time.Time) bool { return day.Weekday() == w && day.Day() > last(day)-7 }
	}
	either := func(a, b func(time.Time) bool) func(time.Time) bool {
		return func(day time.Time) bool { return a(day) || b(day) }
	}
	onDay := func(n int) func(time.Time) bool { return func(day time.Time) bool { return day.Day() == n } }
	fromLast := func(n int) func(time.Time) bool {
		return func(day time.Time) bool { return day.Day() == last(day)-n }
	}
	cases := map[string]func(time.Time) bool{
		"L * *": fromLast(0), "l * ?": fromLast(0), "L-3 * *": fromLast(3), "L-30 * *": fromLast(30),
		"LW * *": func(day time.Time) bool {
			return isWeekday(day) && (day.Day() == last(day) || day.Weekday() == time.Friday && day.Day() >= last(day)-2)
		},
		"1W * *": nearest(1), "15W * *": nearest(15), "31W * *": nearest(31), "15w * *": nearest(15),
		"? * FRI#3": nth(time.Friday, 3), "* * fri#5": nth(time.Friday, 5), "* * 0#1": nth(time.Sunday, 1), "* * 7#1": nth(time.Sunday, 1),
		"* * FRIL": lastOf(time.Friday), "* * friL": lastOf(time.Friday), "* * 5L": lastOf(time.Friday), "* * 5#L": lastOf(time.Friday), "* * 7L": lastOf(time.Sunday),
		"15,L * *": either(onDay(15), fromLast(0)), "1W,15W * *": either(nearest(1), nearest(15)),
		"* * MON#1,FRIL": either(nth(time.Monday, 1), lastOf(time.Friday)), "* * WED,FRI#2": either(func(day time.Time) bool { return day.Weekday() == time.Wednesday }, nth(time.Friday, 2)),
		"13 * FRI#2": either(onDay(13), nth(time.Friday, 2)), "L * MON": either(fromLast(0), func(day time.Time) bool { return day.Weekday() == time.Monday }),
	}
	for _, zone := range []string{"UTC", "Europe/Berlin", "Pacific/Apia"} {
		for text, matches := range cases {
			s := parse(t, "CRON_TZ="+zone+" 30 12 "+text)
			at := time.Date(2019, 12, 31, 23, 0, 0, 0, s.Zone())
			for day := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() < 2030; day = day.AddDate(0, 0, 1) {
				if matches(day) {
					at = s.Next(at)
					require.True(t, at.Equal(time.Date(day.Year(), day.Month(), day.Day(), 12, 30, 0, 0, s.Zone())), "%s %s: %v instead of %v", zone, text, at, day)
				}
			}
		}
	}
}

// zones returns the names of all zones that Go has.
func zones(t *testing.T) (names []string) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	z, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if os.IsNotExist(err) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer z.Close()
	for _, f := range z.File {
		if !strings.HasSuffix(f.Name, "/") {
			names = append(names, f.Name)
		}
	}
	require.Greater(t, len(names), 400)
	return names
}

// In every zone, around each change of its offset from 2020 to 2030: each time of the clock
// on the wall comes once, the first time that it is shown, or if it is skipped at the first
// moment after the gap. What is expected is found without any knowledge of zones: by
// looking at the clock on the wall each minute.
func TestEveryZone(t *testing.T) {
	changes, gaps, repeats := 0, 0, 0
	seen := map[string]bool{} // many zones change at one moment in one way
	for _, name := range zones(t) {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err, name)
		end := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
		for at := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC); ; {
			_, next := at.In(zone).ZoneBounds()
			if next.IsZero() || !next.Before(end) {
				break
			}
			at = next
			_, before := at.Add(-time.Second).Zone()
			_, after := at.Zone()
			switch {
			case after == before:
				continue
			case after > before:
				gaps++
			default:
				repeats++
			}
			changes++
			if same := fmt.Sprint(at.Unix(), before, after); !seen[same] {
				seen[same] = true
				aroundChange(t, name, at.In(zone))
			}
		}
	}
	t.Logf("%d changes: %d gaps, %d repeats; %d that differ", changes, gaps, repeats, len(seen))
	require.Greater(t, gaps, 300)
	require.Greater(t, repeats, 300)
}

// aroundChange checks expressions around one change: some that name a minute of the day,
// and some that name many.
func aroundChange(t *testing.T, name string, change time.Time) {
	t.Helper()
	from, to := change.Add(-4*time.Hour).Truncate(time.Minute), change.Add(4*time.Hour)
	shown := map[int]bool{} // minutes of days, as the clock on the wall has shown them
	type moment struct {
		at     time.Time
		minute []int // of the days: those that come here
	}
	var moments []moment
	last := minuteOf(from) - 1
	for at := from; at.Before(to); at = at.Add(time.Minute) {
		m := moment{at: at}
		now := minuteOf(at)
		for k := last + 1; k <= now; k++ { // more than one after a gap
			if !shown[k] {
				shown[k] = true
				m.minute = append(m.minute, k)
			}
		}
		last = now
		moments = append(moments, m)
	}
	wall := change.Hour()*60 + change.Minute()
	texts := map[string]func(minute int) bool{
		"*/15 * * * *": func(m int) bool { return m%15 == 0 },
		"0 * * * *":    func(m int) bool { return m%60 == 0 },
	}
	for _, off := range []int{-60, -45, -30, -20, -1, 0, 1, 30} {
		day := ((wall+off)%1440 + 1440) % 1440
		texts[fmt.Sprintf("%d %d * * *", day%60, day/60)] = func(m int) bool { return m%1440 == day }
	}
	for text, matches := range texts {
		s := parse(t, "CRON_TZ="+name+" "+text)
		next := s.Next(from.Add(-time.Second))
		for _, m := range moments {
			due := false
			for _, k := range m.minute {
				due = due || matches(k)
			}
			if due != next.Equal(m.at) {
				require.Fail(t, "wrong", "%s %s: at %v, due %v, next is %v", name, text, m.at, due, next)
			}
			if due {
				next = s.Next(next)
			}
			// From a moment that is none of its own it gives the same.
			if m.at.Minute()%7 == 0 {
				require.True(t, s.Next(m.at.Add(time.Second)).Equal(next), "%s %s: from %v", name, text, m.at)
			}
		}
	}
}

// minuteOf returns what the clock on the wall shows, in minutes since 1970.
func minuteOf(at time.Time) int {
	return int(time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), 0, 0, time.UTC).Unix() / 60)
}
