package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

// access is how to get in to a NATS server. It is also what a context of the command nats has
// in its file, as far as that is of use here.
type access struct {
	URL      string `json:"url"`
	Token    string `json:"token"`
	User     string `json:"user"`
	Password string `json:"password"`
	Creds    string `json:"creds"`
	NKey     string `json:"nkey"`
	Cert     string `json:"cert"`
	Key      string `json:"key"`
	CA       string `json:"ca"`
	JWT      string `json:"user_jwt"`
	Seed     string `json:"user_seed"`
	Inbox    string `json:"inbox_prefix"`
	First    bool   `json:"tls_first"`
	Domain   string `json:"jetstream_domain"`
	Prefix   string `json:"jetstream_api_prefix"`
}

// flags adds those that the command nats has, too.
func (a *access) flags(f *flag.FlagSet) {
	f.StringVar(&a.Creds, "creds", "", "a file with credentials of NATS")
	f.StringVar(&a.NKey, "nkey", "", "a file with the seed of an nkey of NATS")
	f.StringVar(&a.User, "user", "", "the user's name, or a token, for NATS")
	f.StringVar(&a.Password, "password", "", "the user's password for NATS; better in the environment, as NATS_PASSWORD")
	f.StringVar(&a.Cert, "tlscert", "", "a file with the certificate to show to NATS")
	f.StringVar(&a.Key, "tlskey", "", "a file with the key of that")
	f.StringVar(&a.CA, "tlsca", "", "a file with the certificates to believe of NATS")
	f.StringVar(&a.Inbox, "inbox-prefix", "", "what the subjects of answers begin with, for a user of NATS who may not have _INBOX")
}

// contextFile is where the command nats keeps a context. A name with a slash is a file.
func contextFile(name string) (string, error) {
	if strings.ContainsRune(name, filepath.Separator) {
		return name, nil
	}
	dir := os.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "nats", "context", name+".json"), nil
}

// under returns a with what it does not say taken from a context.
func (a access) under(name string) (access, error) {
	file, err := contextFile(name)
	if err != nil {
		return a, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return a, fmt.Errorf("-context %q: %w", name, err)
	}
	var c access
	if err := json.Unmarshal(text, &c); err != nil {
		return a, fmt.Errorf("-context %q: %s cannot be read: %w", name, file, err)
	}
	if c.Domain != "" || c.Prefix != "" {
		return a, fmt.Errorf("-context %q: durable jobs support no JetStream domain or prefix", name)
	}
	for _, f := range []struct{ own, other *string }{
		{&a.URL, &c.URL}, {&a.Token, &c.Token}, {&a.User, &c.User}, {&a.Password, &c.Password}, {&a.Creds, &c.Creds}, {&a.NKey, &c.NKey},
		{&a.Cert, &c.Cert}, {&a.Key, &c.Key}, {&a.CA, &c.CA}, {&a.JWT, &c.JWT}, {&a.Seed, &c.Seed}, {&a.Inbox, &c.Inbox},
	} {
		if *f.own == "" {
			*f.own = *f.other
		}
	}
	a.First = c.First
	return a, nil
}

// options are those of the connection.
func (a *access) options() ([]nats.Option, error) {
	opts := []nats.Option{nats.MaxReconnects(-1), nats.Name("twjobs"),
		// A denial is the command's error. The default prints it, too, for each job.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})}
	if a.Cert != "" || a.Key != "" {
		opts = append(opts, nats.ClientCert(a.Cert, a.Key))
	}
	if a.CA != "" {
		opts = append(opts, nats.RootCAs(a.CA))
	}
	if a.Creds != "" {
		opts = append(opts, nats.UserCredentials(a.Creds))
	}
	if a.NKey != "" {
		opt, err := nats.NkeyOptionFromSeed(a.NKey)
		if err != nil {
			return nil, fmt.Errorf("-nkey: %w", err)
		}
		opts = append(opts, opt)
	}
	password := a.Password
	if password == "" {
		password = os.Getenv("NATS_PASSWORD")
	}
	switch {
	case a.User != "" && password != "":
		opts = append(opts, nats.UserInfo(a.User, password))
	case a.User != "":
		opts = append(opts, nats.Token(a.User)) // as nats has it
	case a.Token != "":
		opts = append(opts, nats.Token(a.Token))
	}
	if a.JWT != "" {
		opts = append(opts, nats.UserJWTAndSeed(a.JWT, a.Seed))
	}
	if a.Inbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(a.Inbox))
	}
	if a.First {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	return opts, nil
}

// connect shows nothing of a user and a password that are in the addresses.
func (a *access) connect(ctx context.Context, opts []jetstream.Option) (driver.Engine, func(), error) {
	for address := range strings.SplitSeq(a.URL, ",") {
		if _, _, ok := strings.Cut(address, "://"); !ok {
			address = "nats://" + address
		}
		if _, err := url.Parse(strings.TrimSpace(address)); err != nil {
			return nil, func() {}, errors.New("-nats: not a URL") // the error has parts of it
		}
	}
	how, err := a.options()
	if err != nil {
		return nil, func() {}, err
	}
	nc, err := nats.Connect(a.URL, how...)
	if err != nil {
		return nil, func() {}, errors.New(redact(fmt.Sprintf("%s: %v", a.URL, err), a.URL))
	}
	e, err := jetstream.Connect(ctx, nc, opts...)
	return e, nc.Close, err
}

// redact takes what is before the @ of each address out of a text.
func redact(text, urls string) string {
	for address := range strings.SplitSeq(urls, ",") {
		if _, rest, ok := strings.Cut(address, "://"); ok {
			address = rest
		}
		if i := strings.LastIndexByte(address, '@'); i > 0 {
			text = strings.ReplaceAll(text, address[:i+1], "xxxxx@")
		}
	}
	return text
}
