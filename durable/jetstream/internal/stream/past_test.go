package stream

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An answer to what was asked before the stream went back says nothing of the stream as it is now.
func TestAnswerOfBefore(t *testing.T) {
	t.Parallel()
	p, _ := newStream(t, 3, nil)
	was := p.history.now()
	p.WentBack(was.backs, 5, "a test")
	p.learnSequence(was, 1000, 1000)
	p.wrote(was, []Group{{{Subject: "s", Data: []byte("d")}}}, 2000)
	require.EqualValues(t, 5, p.history.now().high)
	require.Zero(t, p.history.last)
	p.WentBack(was.backs, 3, "a test")
	require.EqualValues(t, 1, p.Backs())
}
