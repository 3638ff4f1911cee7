package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/tickwheel/tickwheel/durable/admin"
)

// client asks a handler of package admin: one behind an address, or one of its own on a queue
// that it has opened. So there is one way to each command.
type client struct {
	base string            // ends with a slash
	http http.RoundTripper // of its own, calls the handler
	head http.Header

	target *target // the queue that it asks
}

// newClient returns a client of an address. A user and a password in it are sent as such.
func newClient(t *target) (*client, error) {
	u, err := url.Parse(t.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("-url: not an address of http or https") // the error has parts of it
	}
	c := &client{http: http.DefaultTransport, head: http.Header{}, target: t}
	for _, h := range t.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return nil, errors.New("-header: not name: value")
		}
		c.head.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if u.User != nil && c.head.Get("Authorization") == "" {
		password, _ := u.User.Password()
		r := http.Request{Header: c.head}
		r.SetBasicAuth(u.User.Username(), password)
	}
	u.User = nil
	c.base = strings.TrimSuffix(u.String(), "/") + "/"
	return c, nil
}

// local has a handler called in this process.
type local struct{ handler http.Handler }

// answer is what a handler writes.
type answer struct {
	bytes.Buffer
	head   http.Header
	status int
}

func (a *answer) Header() http.Header    { return a.head }
func (a *answer) WriteHeader(status int) { a.status = status }

func (l local) RoundTrip(r *http.Request) (*http.Response, error) {
	a := &answer{head: http.Header{}, status: http.StatusOK}
	l.handler.ServeHTTP(a, r)
	return &http.Response{StatusCode: a.status, Header: a.head, Body: io.NopCloser(&a.Buffer), Request: r}, nil
}

// get reads the answer to a question into v, and returns it as it was.
func (c *client) get(ctx context.Context, what string, query url.Values, v any) (json.RawMessage, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+what+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	return c.do(r, v)
}

// post has a command done.
func (c *client) post(ctx context.Context, what string, command admin.Command, v any) (json.RawMessage, error) {
	body, err := json.Marshal(command)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+what, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set(admin.Header, "twjobs")
	r.Header.Set("Content-Type", "application/json")
	return c.do(r, v)
}

func (c *client) do(r *http.Request, v any) (json.RawMessage, error) {
	ctx, cancel := c.target.bound(r.Context())
	defer cancel()
	body, err := c.ask(r.WithContext(ctx), v)
	return body, late(ctx, err)
}

func (c *client) ask(r *http.Request, v any) (json.RawMessage, error) {
	for name, values := range c.head {
		r.Header[name] = values
	}
	r.Host = c.head.Get("Host") // which is sent from here only; "" is that of the address
	res, err := c.http.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		var wrong struct{ Error string }
		if json.Unmarshal(body, &wrong) != nil || wrong.Error == "" {
			wrong.Error = "-url: the answer is " + res.Status + ": is it that of an admin handler?"
		}
		return nil, errors.New(wrong.Error)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return nil, fmt.Errorf("-url: the answer is not from an admin handler: %w", err)
	}
	return body, nil
}
