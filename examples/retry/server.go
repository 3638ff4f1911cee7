package main

import (
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
)

// server fails at first.
type server struct {
	url  string
	http http.Server

	mu   sync.Mutex
	seen map[int]int // attempts of each call
}

// failures returns how many attempts of a call fail: none to three, and for one call in a
// hundred all.
func failures(id int) int {
	if id%100 == 99 {
		return math.MaxInt
	}
	return id % 4
}

// hangs reports whether an attempt gets no answer instead of a bad one. This is the first
// attempt of one call in a hundred.
func hangs(id, attempt int) bool { return id%100 == 50 && attempt == 1 }

func startServer() (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{url: "http://" + listener.Addr().String(), seen: map[int]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /calls/{id}", s.answer)
	s.http.Handler = mux
	go s.http.Serve(listener) // until close
	return s, nil
}

func (s *server) close() { s.http.Close() }

func (s *server) callURL(id int) string { return fmt.Sprintf("%s/calls/%d", s.url, id) }

func (s *server) answer(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch attempt := s.count(id); {
	case hangs(id, attempt):
		<-r.Context().Done() // until the client gives up
	case attempt <= failures(id):
		http.Error(w, "not yet", http.StatusServiceUnavailable)
	default:
		fmt.Fprintln(w, "done")
	}
}

func (s *server) count(id int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[id]++
	return s.seen[id]
}
