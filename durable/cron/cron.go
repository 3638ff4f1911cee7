// Package cron reads the text of a schedule: a cron expression, with a time zone, or an
// interval.
//
//	s, err := cron.Parse("CRON_TZ=Europe/Berlin 30 8 * * MON-FRI")
//	at := s.Next(time.Now())
//
// A [Spec] fits [timingwheel.TimingWheel.ScheduleFunc] as it is. Package durable stores
// its text, so that any process can compute the next time.
//
// # Text
//
//   - Five fields: minute, hour, day of the month, month, day of the week; or six, with
//     seconds in front. A field has numbers, names (JAN, MON), ranges, lists, steps and *.
//     Names may be in any case, and ? is *. If both the day of the month and that of the
//     week are given, either will do. A range that ends before it begins, such as 22-2, is
//     refused: write 22-23,0-2. As the end of a range SUN is 7.
//   - In the day of the month, L is the last day, L-3 the third before it, 15W the weekday
//     nearest to the 15th in the same month, and LW the last weekday. A month without a 31st
//     has no 31W. In the day of the week, FRI#3 is the third Friday, and FRIL the last one.
//     Days of the week have the numbers of cron, so 5L is FRIL. These are the signs of Quartz.
//     The sign H of Jenkins is not supported.
//   - @yearly, @monthly, @weekly, @daily, @hourly.
//   - CRON_TZ=Asia/Tokyo (or TZ=) before any of these. Without it the zone is UTC, on each
//     machine. Local is refused: it is another zone on another machine.
//   - @every 15s: the multiples of that since 1970, whatever clocks on walls show. Whole
//     milliseconds, at least one.
//
// # Daylight saving
//
// An expression says what the clock on the wall shows. Two rules hold when that clock is
// set, without exceptions:
//
//   - A skipped time comes at the first moment after the gap. Several times skipped by
//     one gap come once.
//   - A time that is repeated comes once, the first time. So in autumn an expression such as
//     */10 * * * * leaves out an hour. For intervals write @every 10m.
//
// These are changes of a zone's offset. A [Spec] reads no clock: Next depends on its
// argument alone. The documentation of [timingwheel.TimingWheel.ScheduleFunc], and that of
// SetSchedule in package durable, say what happens if the clock of the machine or the store is
// set.
//
// The same rules hold for a zone that changes its offset for good. The zones are those of
// the machine (see time.LoadLocation): import time/tzdata if the machine may have no
// zones.
//
// The fields are read by github.com/netresearch/go-cron, a kept fork of robfig/cron. This
// package calls it in UTC, which has no gap: its own rules are for changes of whole
// hours.
package cron

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	gocron "github.com/netresearch/go-cron"

	"github.com/tickwheel/tickwheel/timingwheel"
)

// MaxText is the largest length of the text of a schedule, in bytes.
const MaxText = 1024

// Spec is a schedule that was read from a text. It is never changed, and may be used by
// several goroutines at once.
type Spec struct {
	text   string
	every  time.Duration // 0: fields are set
	fields gocron.Schedule
	zone   *time.Location
}

var _ timingwheel.Scheduler = (*Spec)(nil)

var parser = gocron.MustNewParser(gocron.SecondOptional | gocron.Minute | gocron.Hour | gocron.Dom | gocron.Month | gocron.Dow |
	gocron.Descriptor | gocron.DowOrDom | gocron.Extended).WithMaxSearchYears(12)

// lastDay matches a last day of the week as Quartz writes it.
var lastDay = regexp.MustCompile(`(?i)\b([0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)L\b`)

// missingOption matches the parser's errors for signs that it reads only with an option.
var missingOption = regexp.MustCompile(` requires? .* option`)

// Parse reads a text. The error says what is wrong with it.
func Parse(text string) (*Spec, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("cron: the schedule has %d bytes, more than %d", len(text), MaxText)
	}
	s := &Spec{text: text, zone: time.UTC}
	words := strings.Fields(text)
	if len(words) > 0 && (strings.HasPrefix(words[0], "TZ=") || strings.HasPrefix(words[0], "CRON_TZ=")) {
		_, name, _ := strings.Cut(words[0], "=")
		if err := s.setZone(name); err != nil {
			return nil, fmt.Errorf("cron: schedule %q: %w", text, err)
		}
		words = words[1:]
	}
	if err := s.setFields(words); err != nil {
		return nil, fmt.Errorf("cron: schedule %q: %w", text, err)
	}
	return s, nil
}

func (s *Spec) setZone(name string) (err error) {
	if name == "" || name == "Local" {
		return fmt.Errorf("the time zone %q differs between machines: use a name such as Europe/Berlin", name)
	}
	if s.zone, err = time.LoadLocation(name); err != nil {
		return fmt.Errorf("time zone %q: %w", name, err)
	}
	return nil
}

func (s *Spec) setFields(words []string) (err error) {
	switch {
	case len(words) == 0:
		return errors.New("it is empty")
	case words[0] == "@every":
		return s.setEvery(words)
	}
	for _, word := range words {
		if err := checkField(word); err != nil {
			return err
		}
	}
	if n := len(words) - 1; n >= 4 {
		words[n] = lastDay.ReplaceAllString(words[n], "$1#L")
	}
	fields, err := parser.Parse(strings.Join(words, " "))
	switch {
	case err != nil && missingOption.MatchString(err.Error()): // which only this package could set
		return errors.New("it has a sign or a name that is not supported")
	case err != nil:
		return err
	}
	spec, ok := fields.(*gocron.SpecSchedule)
	if !ok {
		return fmt.Errorf("%q has no times", words[0])
	}
	spec.Location = time.UTC
	s.fields = spec
	return nil
}

// names are those that fields may have, with their numbers.
var names = map[string]int{
	"JAN": 1, "FEB": 2, "MAR": 3, "APR": 4, "MAY": 5, "JUN": 6, "JUL": 7, "AUG": 8, "SEP": 9, "OCT": 10, "NOV": 11, "DEC": 12,
	"SUN": 0, "MON": 1, "TUE": 2, "WED": 3, "THU": 4, "FRI": 5, "SAT": 6,
}

// checkField refuses what the parser reads in a way that the author may not have meant: it goes
// around the end of a range, and leaves out empty elements. The parser reports all other faults.
func checkField(field string) error {
	for _, element := range strings.Split(field, ",") {
		span, _, _ := strings.Cut(element, "/")
		first, last, isRange := strings.Cut(strings.ToUpper(span), "-")
		from, known := valueOf(first)
		to, knownTo := valueOf(last)
		if last == "SUN" {
			to = 7
		}
		switch {
		case element == "":
			return fmt.Errorf("the list %q has an empty element", field)
		case strings.ContainsAny(span, "+="), isRange && (first == "*" || first == "?"):
			return fmt.Errorf("%q is neither a number nor a range", element)
		case isRange && known && knownTo && from > to:
			return fmt.Errorf("the range %q ends before it begins", element)
		}
	}
	return nil
}

func valueOf(text string) (n int, known bool) {
	if n, known = names[text]; known {
		return n, true
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}

func (s *Spec) setEvery(words []string) (err error) {
	if len(words) != 2 {
		return errors.New("@every takes one interval")
	}
	if s.zone != time.UTC {
		return errors.New("@every has no time zone")
	}
	if s.every, err = time.ParseDuration(words[1]); err != nil {
		return err
	}
	if s.every < time.Millisecond || s.every%time.Millisecond != 0 {
		return fmt.Errorf("the interval %v is not a positive number of whole milliseconds", s.every)
	}
	return nil
}

// String returns the text.
func (s *Spec) String() string { return s.text }

// Zone returns the time zone; UTC for an interval.
func (s *Spec) Zone() *time.Location { return s.zone }

// Interval returns the interval of @every, or 0.
func (s *Spec) Interval() time.Duration { return s.every }

// Next returns the first time after prev, or the zero time if no time comes within twelve
// years. It takes a microsecond for most schedules, and longer for rare times.
func (s *Spec) Next(prev time.Time) time.Time {
	if s.every > 0 {
		return s.NextFrom(time.UnixMilli(0), prev)
	}
	wall := prev.In(s.zone)
	wall = time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), wall.Nanosecond(), time.UTC)
	for wall = s.fields.Next(wall); !wall.IsZero(); wall = s.fields.Next(wall) {
		if at := s.moment(wall); at.After(prev) {
			return at
		}
		// It is one that prev is past of: it was repeated, or skipped with others.
	}
	return time.Time{}
}

// NextFrom returns Next for an interval whose multiples count from start, which is the
// first. For an expression it returns Next, but no time before start.
func (s *Spec) NextFrom(start, prev time.Time) time.Time {
	if prev.Before(start) {
		prev = start.Add(-1)
	}
	if s.every == 0 {
		return s.Next(prev)
	}
	if prev.Before(start) {
		return start
	}
	// Microseconds, since nanoseconds end in the year 2262.
	every, since := s.every.Microseconds(), prev.UnixMicro()-start.UnixMicro()
	return time.UnixMicro(start.UnixMicro() + (since/every+1)*every).In(s.zone)
}

// moment returns when the clock of the zone shows what wall does in UTC: the first time
// if it does so twice, and if it never does the first moment after the gap.
func (s *Spec) moment(wall time.Time) time.Time {
	guess := time.Date(wall.Year(), wall.Month(), wall.Day(), wall.Hour(), wall.Minute(), wall.Second(), 0, s.zone)
	// The guess is in the right period of the zone or in one beside it.
	start, end := guess.ZoneBounds()
	periods := []time.Time{guess}
	if !start.IsZero() {
		periods = []time.Time{start.Add(-time.Second), guess}
	}
	if !end.IsZero() {
		periods = append(periods, end)
	}
	for i, p := range periods {
		_, offset := p.Zone()
		at := wall.Add(-time.Duration(offset) * time.Second).In(s.zone)
		from, to := p.ZoneBounds()
		if i > 0 && at.Before(from) && !from.IsZero() {
			return from // wall is after the period before and before this one
		}
		if to.IsZero() || at.Before(to) {
			return at
		}
	}
	return guess // not reached: the last of the periods has wall, or the gap before it
}
