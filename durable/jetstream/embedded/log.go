package embedded

import (
	"fmt"
	"log/slog"
	"strings"
)

// serverLog passes on what the server says at its levels warning and above. It warns of
// what it has lost; that is an error here.
type serverLog struct {
	log   *slog.Logger
	heard func(text string) // is told of each error
}

// losses are what the server's warnings have in them when messages, or all of a stream,
// cannot be read. All in small letters.
var losses = []string{
	"could not locate", "corrupt", "checksums do not match", "checksum did not match", "invalid checksum", "bad msg", "lost",
	"missing stream", "error recreating stream", "error reading metafile", "error unmarshalling stream", "error loading msg",
	"inconsisten", "could not read", "loadblock error", "sanity check failed", "disabling jetstream", "permission denied",
}

func (l serverLog) Warnf(format string, v ...any) {
	text := strings.TrimSpace(fmt.Sprintf(format, v...))
	small := strings.ToLower(text)
	for _, loss := range losses {
		if strings.Contains(small, loss) {
			l.error(text)
			return
		}
	}
	l.log.Warn("durable: warning of the embedded server", "text", text)
}

func (l serverLog) Errorf(format string, v ...any) { l.error(fmt.Sprintf(format, v...)) }
func (l serverLog) Fatalf(format string, v ...any) { l.error(fmt.Sprintf(format, v...)) }
func (l serverLog) Noticef(string, ...any)         {}
func (l serverLog) Debugf(string, ...any)          {}
func (l serverLog) Tracef(string, ...any)          {}

func (l serverLog) error(text string) {
	l.log.Error("durable: error of the embedded server", "text", strings.TrimSpace(text))
	l.heard(text)
}
