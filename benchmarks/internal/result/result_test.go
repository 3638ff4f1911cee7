package result

import (
	"reflect"
	"strings"
	"testing"
)

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	want := &Set{
		About: []Setting{{"go", "go1.26"}, {"command", "go run . -run a:b"}},
		Lines: []Line{
			{
				Key: Key{"AddCancel", "pending=1000", "go-zero"}, Procs: 2, N: 12345, Round: 1,
				Values: []Value{{93.12, "ns/op"}, {0, "B/op"}, {0.0004, "allocs/op"}, {1234567, "timers"}},
			},
			{
				Key: Key{"Lateness", "rate=10/tick=1ms", "wheel.Schedule+Inline"}, Procs: 16, N: 1, Round: 2,
				Values: []Value{{-0.97, "min-ms"}, {12.5, "cpu-ns/op"}, {3, "early-%"}},
			},
		},
		Misses: []Miss{
			{Key: Key{"Fire", "due=tick/tasks=1ms", "gost"}, Reason: "it cannot: truly"},
			{Key: Key{"Fire", "due=spread", "heap"}, Failed: true, Reason: "it crashed: x/y: z"},
		},
	}
	var b strings.Builder
	for _, a := range want.About {
		b.WriteString(a.Key + ": " + a.Value + "\n")
	}
	b.WriteString("# round 1\n" + want.Lines[0].String() + "\n" + want.Misses[0].String() + "\n")
	b.WriteString("# round 2\n" + want.Lines[1].String() + "\n" + want.Misses[1].String() + "\n")
	got, err := Read(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read back\n%+v\nwant\n%+v\nfrom\n%s", got, want, b.String())
	}
	if goVersion := got.Setting("go"); goVersion != "go1.26" {
		t.Errorf("go is %q", goVersion)
	}
	if m, ok := got.Miss(want.Misses[1].Key); !ok || !m.Failed {
		t.Errorf("the failure is %+v, %v", m, ok)
	}
	if r := got.Rounds(want.Lines[1].Key, "min-ms"); !reflect.DeepEqual(r, map[int]float64{2: -0.97}) {
		t.Errorf("rounds %v", r)
	}
}

func sample(workload, date string, value float64) *Set {
	return &Set{
		About: []Setting{{"go", "go1.26"}, {"date", date}, {"command", "go run ."}},
		Lines: []Line{
			{Key: Key{workload, "a=1", "heap"}, Procs: 2, N: 1, Round: 1, Values: []Value{{value, "ns/op"}}},
			{Key: Key{workload, "a=1", "heap"}, Procs: 2, N: 1, Round: 2, Values: []Value{{value, "ns/op"}}},
		},
		Misses: []Miss{{Key: Key{workload, "a=1", "gost"}, Reason: "it cannot"}},
	}
}

func TestMerge(t *testing.T) {
	set := sample("Fire", "Monday", 1)
	for _, newer := range []*Set{sample("Mix", "Tuesday", 2), sample("Fire", "Wednesday", 3), sample("Mix", "Thursday", 4)} {
		if err := set.Merge(newer); err != nil {
			t.Fatal(err)
		}
	}
	want := &Set{
		About: []Setting{
			{"go", "go1.26"}, {"date", "Monday"}, {"command", "go run ."},
			{"Fire", "Wednesday, go run ."}, {"Mix", "Thursday, go run ."},
		},
		Lines:  append(sample("Fire", "", 3).Lines, sample("Mix", "", 4).Lines...),
		Misses: append(sample("Fire", "", 3).Misses, sample("Mix", "", 4).Misses...),
	}
	if !reflect.DeepEqual(set, want) {
		t.Errorf("merged\n%+v\nwant\n%+v", set, want)
	}
	var b strings.Builder
	if err := set.Write(&b); err != nil {
		t.Fatal(err)
	}
	got, err := Read(strings.NewReader(b.String()))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: read back\n%+v\nfrom\n%s", err, got, b.String())
	}
}

func TestNothingIsMergedFromAnotherMachine(t *testing.T) {
	set, newer := sample("Fire", "Monday", 1), sample("Mix", "Tuesday", 2)
	newer.About[0].Value = "go1.27"
	err := set.Merge(newer)
	if err == nil || !strings.Contains(err.Error(), `go was "go1.26" and is "go1.27"`) {
		t.Errorf("the error is %v", err)
	}
	if !reflect.DeepEqual(set, sample("Fire", "Monday", 1)) {
		t.Errorf("the set has become %+v", set)
	}
}

func TestBadLinesAreReported(t *testing.T) {
	for _, line := range []string{
		"BenchmarkAddCancel/pending=1-2\t1\t5 ns/op", // of no subject
		"BenchmarkAddCancel/subject=heap-2\tmany\t5 ns/op",
		"--- LOST: AddCancel/subject=heap: gone",
		"# round two",
	} {
		if _, err := Read(strings.NewReader(line + "\n")); err == nil {
			t.Errorf("no error for %q", line)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{4}, 4}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 100}, 3}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("the median of %v is %v, want %v", c.values, got, c.want)
		}
	}
}
