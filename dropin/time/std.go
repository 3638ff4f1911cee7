package time

import "time"

// The types of the standard library.
type (
	Duration   = time.Duration
	Location   = time.Location
	Month      = time.Month
	ParseError = time.ParseError
	Time       = time.Time
	Weekday    = time.Weekday
)

// Layouts for [Time.Format] and [Parse].
const (
	Layout      = time.Layout
	ANSIC       = time.ANSIC
	UnixDate    = time.UnixDate
	RubyDate    = time.RubyDate
	RFC822      = time.RFC822
	RFC822Z     = time.RFC822Z
	RFC850      = time.RFC850
	RFC1123     = time.RFC1123
	RFC1123Z    = time.RFC1123Z
	RFC3339     = time.RFC3339
	RFC3339Nano = time.RFC3339Nano
	Kitchen     = time.Kitchen
	Stamp       = time.Stamp
	StampMilli  = time.StampMilli
	StampMicro  = time.StampMicro
	StampNano   = time.StampNano
	DateTime    = time.DateTime
	DateOnly    = time.DateOnly
	TimeOnly    = time.TimeOnly
)

// Durations.
const (
	Nanosecond  = time.Nanosecond
	Microsecond = time.Microsecond
	Millisecond = time.Millisecond
	Second      = time.Second
	Minute      = time.Minute
	Hour        = time.Hour
)

// Months.
const (
	January   = time.January
	February  = time.February
	March     = time.March
	April     = time.April
	May       = time.May
	June      = time.June
	July      = time.July
	August    = time.August
	September = time.September
	October   = time.October
	November  = time.November
	December  = time.December
)

// Weekdays.
const (
	Sunday    = time.Sunday
	Monday    = time.Monday
	Tuesday   = time.Tuesday
	Wednesday = time.Wednesday
	Thursday  = time.Thursday
	Friday    = time.Friday
	Saturday  = time.Saturday
)

// Locations. They are variables here as they are there. An assignment to one of these
// changes this one alone: to change the local time of the process, assign to the standard
// library's Local.
var (
	Local = time.Local
	UTC   = time.UTC
)

// Now is that of the standard library.
func Now() Time { return time.Now() }

// Since is that of the standard library.
func Since(t Time) Duration { return time.Since(t) }

// Until is that of the standard library.
func Until(t Time) Duration { return time.Until(t) }

// Date is that of the standard library.
func Date(year int, month Month, day, hour, min, sec, nsec int, loc *Location) Time {
	return time.Date(year, month, day, hour, min, sec, nsec, loc)
}

// Parse is that of the standard library.
func Parse(layout, value string) (Time, error) { return time.Parse(layout, value) }

// ParseInLocation is that of the standard library.
func ParseInLocation(layout, value string, loc *Location) (Time, error) {
	return time.ParseInLocation(layout, value, loc)
}

// ParseDuration is that of the standard library.
func ParseDuration(s string) (Duration, error) { return time.ParseDuration(s) }

// Unix is that of the standard library.
func Unix(sec int64, nsec int64) Time { return time.Unix(sec, nsec) }

// UnixMilli is that of the standard library.
func UnixMilli(msec int64) Time { return time.UnixMilli(msec) }

// UnixMicro is that of the standard library.
func UnixMicro(usec int64) Time { return time.UnixMicro(usec) }

// FixedZone is that of the standard library.
func FixedZone(name string, offset int) *Location { return time.FixedZone(name, offset) }

// LoadLocation is that of the standard library.
func LoadLocation(name string) (*Location, error) { return time.LoadLocation(name) }

// LoadLocationFromTZData is that of the standard library.
func LoadLocationFromTZData(name string, data []byte) (*Location, error) {
	return time.LoadLocationFromTZData(name, data)
}
