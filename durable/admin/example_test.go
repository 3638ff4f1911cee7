package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/admin"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// The page of a queue shows its jobs, and changes nothing without the option WithWrites. Below the page are
// forms for programs. Put it behind what authenticates the operators.
func ExampleNewHandler() {
	ctx := context.Background()
	engine := memory.New(memory.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))).Open()
	q, err := durable.Open(ctx, engine)
	if err != nil {
		panic(err)
	}
	defer q.Close()
	if _, err := q.Add(ctx, durable.Job{Kind: "remind", After: time.Hour}); err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/jobs/", admin.NewHandler(q))
	server := httptest.NewServer(mux)
	defer server.Close()

	resp, err := http.Get(server.URL + "/jobs/list")
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	var list admin.Listing
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		panic(err)
	}
	for _, j := range list.Jobs {
		fmt.Println(j.Kind, j.State, "until", j.Due.Format(time.TimeOnly))
	}
	// Output: remind waiting until 10:00:00
}
