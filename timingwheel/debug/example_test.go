package debug_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/tickwheel/tickwheel/timingwheel"
	"github.com/tickwheel/tickwheel/timingwheel/debug"
)

// The handler is mounted beside net/http/pprof. A browser gets the page, and curl gets text.
func ExampleHandler() {
	w := timingwheel.New(timingwheel.WithShards(1))
	defer w.Stop()
	w.AfterFunc(time.Hour, func() {})

	pages := debug.NewHandler()
	pages.Add("requests", w)
	mux := http.NewServeMux()
	mux.Handle("/debug/timingwheel/", pages)
	server := httptest.NewServer(mux)
	defer server.Close()

	resp, err := http.Get(server.URL + "/debug/timingwheel/?format=text")
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(err)
	}
	before, _, _ := strings.Cut(string(text), ",")
	fmt.Println(before)
	// Output: "requests": 1 pending
}
