// Package pprof writes profiles in the format of the tool pprof: profile.proto of
// github.com/google/pprof, compressed with gzip. Package runtime/pprof cannot write them: a
// custom profile of its counts samples, and has no second value.
package pprof

import (
	"compress/gzip"
	"encoding/binary"
	"io"
	"runtime"
	"strings"
	"time"
)

// Profile is a profile to write.
type Profile struct {
	Types   []ValueType // of the values of each sample; the first is the default of the tool
	Period  int64       // one event of the first type in so many was sampled
	Time    time.Time
	Samples []Sample
}

// ValueType names a value and its unit. The tool knows count and the units of time.
type ValueType struct{ Type, Unit string }

// Sample is a stack, as runtime.Callers writes it, and a value for each type.
type Sample struct {
	Stack  []uintptr
	Values []int64
}

// Write writes the profile. Each stack begins with the caller of this library, and ends above
// runtime.goexit.
func (p *Profile) Write(out io.Writer) error {
	e := encoder{strings: map[string]uint64{}, functions: map[function]uint64{}, locations: map[location]uint64{}}
	e.string("") // has to be number 0
	for _, t := range p.Types {
		e.profile.message(1, e.valueType(t))
	}
	for _, s := range p.Samples {
		e.sample(s)
	}
	e.mapping()
	e.profile.uint(9, uint64(p.Time.UnixNano()))
	e.profile.message(11, e.valueType(p.Types[0]))
	e.profile.uint(12, uint64(p.Period))
	e.profile.uint(14, e.string(p.Types[0].Type))
	z := gzip.NewWriter(out)
	if _, err := z.Write(e.profile); err != nil {
		return err
	}
	return z.Close()
}

// encoder numbers strings, functions and locations, and writes each when it is first used.
type encoder struct {
	profile   message
	strings   map[string]uint64
	functions map[function]uint64
	locations map[location]uint64
}

type function struct{ name, file string }

type location struct {
	function
	line int
}

func (e *encoder) string(s string) uint64 {
	n, ok := e.strings[s]
	if !ok {
		n = uint64(len(e.strings))
		e.strings[s] = n
		e.profile.bytes(6, []byte(s))
	}
	return n
}

func (e *encoder) valueType(t ValueType) (m message) {
	m.uint(1, e.string(t.Type))
	m.uint(2, e.string(t.Unit))
	return m
}

func (e *encoder) sample(s Sample) {
	var locations, values, m message
	for _, f := range frames(s.Stack) {
		locations.varint(e.location(location{function{f.Function, f.File}, f.Line}))
	}
	for _, v := range s.Values {
		values.varint(uint64(v))
	}
	m.message(1, locations)
	m.message(2, values)
	e.profile.message(2, m)
}

// location writes an inlined frame as a location of its own, and no address: the tool has
// nothing to look up.
func (e *encoder) location(l location) uint64 {
	if n, ok := e.locations[l]; ok {
		return n
	}
	n := uint64(len(e.locations) + 1)
	e.locations[l] = n
	var line, m message
	line.uint(1, e.function(l.function))
	line.uint(2, uint64(l.line))
	m.uint(1, n)
	m.uint(2, mapping)
	m.message(4, line)
	e.profile.message(4, m)
	return n
}

func (e *encoder) function(f function) uint64 {
	if n, ok := e.functions[f]; ok {
		return n
	}
	n := uint64(len(e.functions) + 1)
	e.functions[f] = n
	var m message
	m.uint(1, n)
	m.uint(2, e.string(f.name))
	m.uint(3, e.string(f.name))
	m.uint(4, e.string(f.file))
	e.profile.message(5, m)
	return n
}

// mapping is the number of the only mapping. It says that all frames have names, files and lines,
// or the tool would look for the program to find them.
const mapping = 1

func (e *encoder) mapping() {
	var m message
	m.uint(1, mapping)
	for hasFunctions := 7; hasFunctions <= 10; hasFunctions++ { // and has_filenames, has_line_numbers, has_inline_frames
		m.uint(hasFunctions, 1)
	}
	e.profile.message(3, m)
}

// frames returns the frames of a stack. If nothing but this library is on it, it has all.
func frames(pcs []uintptr) (all []runtime.Frame) {
	next := runtime.CallersFrames(pcs)
	callers := -1 // where they begin
	for more := len(pcs) > 0; more; {
		var f runtime.Frame
		f, more = next.Next()
		if f.Function == "runtime.goexit" {
			break
		}
		if callers < 0 && !isOurs(f.Function) {
			callers = len(all)
		}
		all = append(all, f)
	}
	return all[max(0, callers):]
}

const module = "github.com/tickwheel/tickwheel/"

// ours has what the name of a function of this library begins with, after the module. The module's
// examples and tests are users.
var ours = []string{"timingwheel.", "timingwheel/internal/", "timingwheel/park.", "timingwheel/pool.", "purgatory.", "dropin/"}

// isOurs reports whether a function is this library's, by its full name.
func isOurs(function string) bool {
	rest, ok := strings.CutPrefix(function, module)
	if !ok {
		return false
	}
	for _, prefix := range ours {
		if strings.HasPrefix(rest, prefix) {
			return true
		}
	}
	return false
}

// message is a message of Protocol Buffers. The numbers of fields are those in
// profile.proto.
type message []byte

func (m *message) varint(v uint64) { *m = binary.AppendUvarint(*m, v) }

func (m *message) uint(field int, v uint64) {
	m.varint(uint64(field) << 3)
	m.varint(v)
}

func (m *message) bytes(field int, b []byte) {
	m.varint(uint64(field)<<3 | 2)
	m.varint(uint64(len(b)))
	*m = append(*m, b...)
}

func (m *message) message(field int, inner message) { m.bytes(field, inner) }
