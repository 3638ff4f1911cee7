package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable/driver"
)

// Pages come to the end: one of which a part is lost is read again, and what was handed on is not.
func TestPages(t *testing.T) {
	t.Parallel()
	a, b, c := read("TW.x", 3, 0, "a"), read("TW.x", 5, 3, "b"), read("TW.x", 9, 5, "c")
	none := exactly(status("404", "Message Not Found"))
	for name, answers := range map[string][]answer{
		"one page":                     {exactly(a, b, c, end(9)), none},
		"three pages":                  {exactly(a, end(3)), exactly(read("TW.x", 5, 0, "b"), end(5)), exactly(read("TW.x", 9, 0, "c"), end(9)), none},
		"a message is missing":         {exactly(a, c, end(9)), exactly(a, b, c, end(9)), none},
		"the last message is missing":  {exactly(a, b, end(9)), exactly(a, b, c, end(9)), none},
		"the first message is missing": {exactly(b, c, end(9)), exactly(a, b, c, end(9)), none},
		"it ends as if there was none": {exactly(a, status("404", "Message Not Found")), exactly(a, b, c, end(9)), none},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := newStream(t, 1, nil)
			p.says(direct, answers...)
			var got []string
			for page, err := range s.Pages(t.Context(), "TW.x", 1, time.Time{}) {
				require.NoError(t, err)
				for _, m := range page {
					got = append(got, string(m.Data))
				}
			}
			require.Equal(t, []string{"a", "b", "c"}, got)
			questions := p.questions(direct)
			require.Len(t, questions, len(answers))
			require.Contains(t, string(questions[len(questions)-1].Data), `"seq":10`)
		})
	}
}

// A connection that is lost takes the rest of a page with it, which is read again.
func TestPageLostWithTheConnection(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	whole := exactly(read("TW.x", 3, 0, "a"), read("TW.y", 5, 3, "b"), end(5))
	p.says(direct, func(*nats.Msg) []*nats.Msg { p.cut(t); return nil }, whole)
	found, err := s.Lasts(t.Context(), []string{"TW.x", "TW.y"})
	require.NoError(t, err)
	require.EqualValues(t, 3, found["TW.x"].Seq)
	require.Equal(t, "b", string(found["TW.y"].Data))
}

// Each answer that is no message is an error, or says that there is none.
func TestAnswersToARead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer answer
		err    error // nil: none is there
	}{
		"none":           {exactly(status("404", "Message Not Found")), nil},
		"nobody answers": {exactly(status("503", "")), nats.ErrNoResponders},
		"another status": {exactly(status("408", "Bad Request")), errors.ErrUnsupported}, // any
		"no sequence":    {exactly(message("x", "Nats-Stream", "TW")), errors.ErrUnsupported},
		"no time":        {exactly(message("x", "Nats-Sequence", "7")), errors.ErrUnsupported},
		"too many":       {exactly(status("413", "Too Many Results")), ErrTooMany},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := newStream(t, 1, nil)
			p.says(direct+".TW.x", c.answer)
			p.says(direct, c.answer)
			m, err := s.Last(t.Context(), "TW.x")
			switch {
			case c.err == nil:
				require.NoError(t, err)
			case errors.Is(c.err, errors.ErrUnsupported):
				require.Error(t, err)
			default:
				require.ErrorIs(t, err, c.err)
			}
			require.Empty(t, m.Subject)
		})
	}
}

// An answer of the leader's without a message is an error: not that there is none.
func TestLeaderAnswersNothing(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 3, nil)
	for _, text := range []string{"{}", "null", `{"message":null}`, `{"message":{}}`} {
		p.says(leader, exactly(message(text)))
		_, err := s.Last(t.Context(), "TW.x")
		require.ErrorContains(t, err, "has no message", text)
	}
	p.says(leader, refusal(codeNotFound, "no message found"))
	m, err := s.Last(t.Context(), "TW.x")
	require.NoError(t, err)
	require.Zero(t, m.Seq)
}

// More subjects than one answer has are read in several questions.
func TestLastsOfMany(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	p.says(direct, func(m *nats.Msg) (all []*nats.Msg) {
		var question struct {
			Subjects []string `json:"multi_last"`
		}
		require.NoError(t, json.Unmarshal(m.Data, &question))
		require.LessOrEqual(t, len(question.Subjects), PageSize)
		last := 0
		for i, subject := range question.Subjects {
			all = append(all, read(subject, i+1, last, subject))
			last = i + 1
		}
		return append(all, end(last))
	})
	subjects := slices.Collect(func(yield func(string) bool) {
		for i := 0; i < 2*PageSize+1 && yield("TW."+strings.Repeat("x", i)); i++ {
		}
	})
	found, err := s.Lasts(t.Context(), subjects)
	require.NoError(t, err)
	require.Len(t, found, len(subjects))
	require.Greater(t, len(p.questions(direct)), 2)
}

// Messages that are too large for one answer are read in several questions.
func TestLastsOfLargeMessages(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	p.says(direct, func(m *nats.Msg) (all []*nats.Msg) {
		var question struct {
			Subjects []string `json:"multi_last"`
			MaxBytes int      `json:"max_bytes"`
		}
		require.NoError(t, json.Unmarshal(m.Data, &question))
		require.Equal(t, pageBytes, question.MaxBytes)
		for i, subject := range question.Subjects[:min(2, len(question.Subjects))] {
			all = append(all, read(subject, i+1, i, subject))
			all[i].Header.Set("Nats-Num-Pending", strconv.Itoa(len(question.Subjects)-i-1))
		}
		return append(all, end(len(all)))
	})
	subjects := []string{"TW.1", "TW.2", "TW.3", "TW.4", "TW.5"}
	found, err := s.Lasts(t.Context(), subjects)
	require.NoError(t, err)
	require.Len(t, found, len(subjects))

	cut := read("TW.1", 1, 0, "")
	cut.Header.Set("Nats-Num-Pending", "1")
	p.says(direct, exactly(cut, end(1)))
	_, err = s.Lasts(t.Context(), []string{"TW.*"})
	require.ErrorIs(t, err, ErrTooMany)
}

// A read after a write goes on until a server answers that has the write. What never changes may come from any server.
func TestReadSinceAWitness(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 3, nil)
	old := exactly(read("TW.w", 4, 0, "w"), read("TW.x", 6, 4, "old"), end(6))
	young := exactly(read("TW.x", 8, 0, "young"), read("TW.w", 9, 8, "w"), end(9))
	p.says(direct, old, old, young)
	m, err := s.LastSince(t.Context(), Witness{"TW.w", 9}, "TW.x", false)
	require.NoError(t, err)
	require.Equal(t, "young", string(m.Data))
	p.says(direct, old)
	m, err = s.LastSince(t.Context(), Witness{"TW.w", 9}, "TW.x", true)
	require.NoError(t, err)
	require.Equal(t, "old", string(m.Data))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = s.LastSince(ctx, Witness{"TW.w", 9}, "TW.x", false)
	require.Error(t, err)
	p.says(leader, exactly(message(`{"message":{"subject":"TW.w","seq":4}}`)))
	require.ErrorIs(t, s.Knows(t.Context(), Witness{"TW.w", 9}), ErrBehind)
	require.NoError(t, s.Knows(t.Context(), Witness{"TW.w", 4}))
}

// A question is repeated while the stream has no leader, by a caller that has a deadline. One whose leader does not answer
// ends when it is deposed.
func TestLeaderWithoutAnswer(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 3, nil)
	noLeader, found := refusal(10008, "no leader"), exactly(message(`{"message":{"subject":"TW.x","seq":4}}`))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p.says(leader, noLeader, noLeader, found)
	m, err := s.Last(ctx, "TW.x")
	require.NoError(t, err)
	require.EqualValues(t, 4, m.Seq)
	p.says(leader, noLeader)
	_, err = s.Last(t.Context(), "TW.x")
	require.ErrorIs(t, err, nats.ErrNoResponders)
}

// The server's account tells of a newer version, and of settings that lose jobs.
func TestInfo(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	p.says(info, described(1, 9, nil))
	_, err := s.Info(t.Context(), "")
	require.NoError(t, err)
	require.EqualValues(t, 4096, s.Bytes.Load())

	require.NoError(t, s.WrongSettings())
	for name, value := range map[string]any{
		"retention": "interest", "storage": "memory", "discard": "old", "max_age": 1, "max_msgs": 5, "max_msgs_per_subject": 1, "max_msg_size": 10,
		"max_consumers": 3, "no_ack": true, "sealed": true, "deny_delete": true, "deny_purge": true, "allow_direct": false, "allow_msg_ttl": false,
		"allow_atomic": false, "allow_rollup_hdrs": false, "subjects": []string{"TW.a"},
	} {
		p.says(info, described(1, 9, map[string]any{name: value}))
		_, err := s.Info(t.Context(), "")
		require.NoError(t, err)
		require.ErrorContains(t, s.WrongSettings(), name+" is ")
		require.ErrorIs(t, s.Troubled(), errSettings)
	}
	p.says(info, described(1, 9, nil))
	_, err = s.Info(t.Context(), "")
	require.NoError(t, err)
	require.NoError(t, s.Troubled())
	s.RefusedConsumer(&apiError{ErrCode: 10026, Description: "maximum consumers limit reached"})
	require.ErrorContains(t, s.Troubled(), "maximum consumers limit reached")
	p.says(info, described(2, 9, nil))
	_, err = s.Info(t.Context(), "")
	require.ErrorIs(t, err, driver.ErrVersion)
}

// Subjects come in pages of a sorted list, which changes between two pages. A subject that has been there all the time is
// listed, whatever comes and goes before it.
func TestInfoPages(t *testing.T) {
	t.Parallel()
	name := func(i int) string { return fmt.Sprintf("TW.%02d", i) }
	for title, change := range map[string]func(there map[string]uint64, offset int){
		"nothing changes": func(map[string]uint64, int) {},
		"one goes":        func(there map[string]uint64, offset int) { delete(there, name(offset-1)) },
		"all before the page go": func(there map[string]uint64, offset int) {
			maps.DeleteFunc(there, func(s string, _ uint64) bool { return s < name(offset) })
		},
		"most go": func(there map[string]uint64, _ int) {
			maps.DeleteFunc(there, func(s string, _ uint64) bool { return s < name(90) && !strings.HasSuffix(s, "5") })
		},
		"all go":    func(there map[string]uint64, _ int) { clear(there) },
		"some come": func(there map[string]uint64, offset int) { there[name(offset/2)+".new"] = 1 },
		"one by one": func(there map[string]uint64, _ int) {
			delete(there, slices.Min(slices.Collect(maps.Keys(there))))
		},
	} {
		for _, size := range []int{2, 10} {
			t.Run(fmt.Sprint(title, ", pages of ", size), func(t *testing.T) {
				t.Parallel()
				s, p := newStream(t, 1, nil)
				there := map[string]uint64{}
				for i := range 99 {
					there[name(i)] = uint64(i + 1)
				}
				stay, asked := maps.Clone(there), 0
				p.says(info, func(m *nats.Msg) []*nats.Msg {
					var question struct{ Offset int }
					if err := json.Unmarshal(m.Data, &question); err != nil {
						return nil
					}
					if asked++; 1 < asked && asked < 20 {
						change(there, question.Offset)
						maps.DeleteFunc(stay, func(s string, _ uint64) bool { return there[s] == 0 })
					}
					return pageOf(there, question.Offset, size)
				})
				got, err := s.Info(t.Context(), "TW.>")
				require.NoError(t, err)
				for subject, n := range stay {
					require.Equal(t, n, got.Subjects[subject], subject)
				}
				if title == "nothing changes" && size == 10 {
					require.LessOrEqual(t, asked, 99/8+1)
				}
			})
		}
	}
}

// pageOf is the server's account, with a page of the subjects that are there.
func pageOf(there map[string]uint64, offset, size int) []*nats.Msg {
	sorted, page := slices.Sorted(maps.Keys(there)), map[string]uint64{}
	for _, subject := range sorted[min(offset, len(sorted)):min(offset+size, len(sorted))] {
		page[subject] = there[subject]
	}
	subjects, err := json.Marshal(page)
	if err != nil {
		panic(err)
	}
	with := fmt.Sprintf(`"total":%d,"state":{"subjects":%s,`, len(sorted), subjects)
	return []*nats.Msg{message(strings.Replace(string(described(1, 9, nil)(nil)[0].Data), `"state":{`, with, 1))}
}

// What is asked when the engine has ended has its error, and asks nobody.
func TestEnded(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	p.end(driver.ErrVersion)
	_, err := s.Last(t.Context(), "TW.x")
	require.ErrorIs(t, err, driver.ErrVersion)
	_, err = s.Lasts(t.Context(), []string{"TW.x"})
	require.ErrorIs(t, err, driver.ErrVersion)
	_, err = s.Info(t.Context(), "")
	require.ErrorIs(t, err, driver.ErrVersion)
	require.ErrorIs(t, s.write(t.Context(), "TW.x"), driver.ErrVersion)
	require.Empty(t, p.asked)
}

// A batch that waits for a place among the others ends with the engine.
func TestEndedWhileABatchWaits(t *testing.T) {
	t.Parallel()
	s, p := newStream(t, 1, nil)
	for range maxBatches {
		s.batches <- struct{}{}
	}
	time.AfterFunc(100*time.Millisecond, func() { p.end(driver.ErrClosed) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.ErrorIs(t, s.Write(ctx, Write{Subject: "TW.a"}, Write{Subject: "TW.b"}), driver.ErrClosed)
}
