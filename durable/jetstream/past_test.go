package jetstream

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An answer to what was asked before the stream went back says nothing of the stream as it is now.
func TestAnswerOfBefore(t *testing.T) {
	t.Parallel()
	p := newPart(t)
	was := p.history.now()
	p.wentBack(was.backs, 5, "a test")
	p.learnSequence(was, 1000, 1000)
	p.wrote(was, []group{{{subject: "s", data: []byte("d")}}}, 2000)
	require.EqualValues(t, 5, p.history.now().high)
	require.Zero(t, p.history.last)
	p.wentBack(was.backs, 3, "a test")
	require.EqualValues(t, 1, p.backs())
}
