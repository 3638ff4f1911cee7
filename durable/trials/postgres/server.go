package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tickwheel/tickwheel/durable/internal/pgserver"
)

// server is the PostgreSQL server that all systems share, with a database for each.
type server struct {
	pg    *pgserver.Server
	admin *pgxpool.Pool
	last  atomic.Int64 // number of databases
}

func newServer(ctx context.Context, pg *pgserver.Server) (*server, error) {
	admin, err := pgxpool.New(ctx, pg.DSN())
	return &server{pg: pg, admin: admin}, err
}

// database makes a new one, and returns its address and what drops it.
func (s *server) database(ctx context.Context) (dsn string, drop func(), err error) {
	name := fmt.Sprintf("bench%d", s.last.Add(1))
	if _, err := s.admin.Exec(ctx, "create database "+name); err != nil {
		return "", nil, err
	}
	dsn = strings.Replace(s.pg.DSN(), "/postgres?", "/"+name+"?", 1)
	return dsn, func() {
		if _, err := s.admin.Exec(ctx, "drop database "+name+" with (force)"); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}, nil
}

// used is the processor time that the server and this process have taken.
type used struct{ server, client time.Duration }

func (s *server) used() used {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // the kernel knows RUSAGE_SELF
	}
	return used{server: s.pg.CPU(), client: time.Duration(u.Utime.Nano() + u.Stime.Nano())}
}

func (u used) since(before used) used {
	return used{server: u.server - before.server, client: u.client - before.client}
}

// per divides by the number of jobs, and formats.
func (u used) per(jobs int) string {
	n := time.Duration(max(jobs, 1))
	return fmt.Sprintf("%d + %d us", (u.server / n).Microseconds(), (u.client / n).Microseconds())
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
