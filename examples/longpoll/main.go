// Longpoll is a message broker over HTTP whose readers wait for messages that are not there yet:
//
//	POST /topics/{topic}                     appends the body, answers with its offset
//	GET  /topics/{topic}?offset=0&wait=30s   answers with the messages from the offset on, as
//	                                         soon as there is one, or with 204 after the wait
//
// A poll that waits is parked in a purgatory, under its topic.
//
//	go run ./examples/longpoll                      # readers wait for a message, and get it
//	go run ./examples/longpoll -n 0 -addr :7000     # the broker alone, until Ctrl-C
//	curl -d hello localhost:7000/topics/news
//	curl 'localhost:7000/topics/news?offset=1&wait=10s'
//
// Each reader has a connection, which takes two descriptors: the limit on open files bounds
// -n. When the broker ends, polls that wait are answered with 503.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tickwheel/tickwheel/examples/internal/fetch"
	"github.com/tickwheel/tickwheel/examples/internal/program"
	"github.com/tickwheel/tickwheel/examples/internal/table"
	"github.com/tickwheel/tickwheel/timingwheel"
)

var (
	addr = flag.String("addr", "127.0.0.1:0", "`address` to serve on")
	n    = flag.Int("n", 500, "`readers`; 0: the broker alone")
)

func main() { program.Main(run) }

func run(ctx context.Context, out io.Writer) error {
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	url := fmt.Sprintf("http://%v/topics/", listener.Addr())
	fmt.Fprintln(out, "serving on", url)
	wheel := timingwheel.New()
	defer wheel.Stop()
	b := newBroker(wheel)
	server := &http.Server{Handler: b.handler(), ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(listener) // until Shutdown
	if *n > 0 {
		err = b.show(ctx, url+"news", out)
	} else {
		<-ctx.Done()
	}
	b.parked.Close() // answers polls that wait, for which Shutdown would wait
	return errors.Join(err, server.Shutdown(context.Background()))
}

// show posts a message when readers wait for it, and prints how late each got it.
func (b *broker) show(ctx context.Context, url string, out io.Writer) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: *n}}
	defer client.CloseIdleConnections()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var posted atomic.Value // the time.Time before any has read it
	late := make([]time.Duration, *n)
	var readers sync.WaitGroup
	for i := range *n {
		readers.Go(func() {
			if err := fetch.Get(ctx, client, url+"?wait=1m"); err != nil {
				fail(err)
				return
			}
			late[i] = time.Since(posted.Load().(time.Time))
		})
	}
	for b.parked.Stats().Pending < int64(*n) && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	fmt.Fprintln(out, b.parked.Stats().Pending, "readers wait")
	posted.Store(time.Now())
	response, err := client.Post(url, "text/plain", strings.NewReader("hello"))
	if err == nil {
		response.Body.Close()
	}
	readers.Wait()
	if err := errors.Join(err, context.Cause(ctx)); err != nil {
		return err
	}
	table.Heading(out)
	table.Row(out, "delivered late", late)
	fmt.Fprintln(out, b.parked.Stats().Pending, "are left parked")
	return nil
}
