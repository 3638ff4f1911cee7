package jetstream_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/driver"
	"github.com/tickwheel/tickwheel/durable/enginetest"
	"github.com/tickwheel/tickwheel/durable/jetstream"
	"github.com/tickwheel/tickwheel/durable/testservers/ports"
)

// chapter returns the configuration of a name from NATS.md, with words in it replaced.
func chapter(t testing.TB, name string, words ...string) string {
	text, err := os.ReadFile("NATS.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```conf\n# " + regexp.QuoteMeta(name) + "\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, found, name)
	return strings.NewReplacer(append(words, "port: 4222", "port: -1")...).Replace(string(found[1]))
}

// serve starts a server with a configuration of NATS.md, in directories of its own.
func serve(t testing.TB, name string, words ...string) *server.Server {
	file := filepath.Join(t.TempDir(), name)
	conf := chapter(t, name, append(words, "/var/lib/nats", t.TempDir(), "/var/lib/leaf", t.TempDir(), "127.0.0.1:4222", "")...)
	require.NoError(t, os.WriteFile(file, []byte(conf), 0o600))
	opts, err := server.ProcessConfigFile(file)
	require.NoError(t, err, conf)
	opts.Host, opts.NoSigs, opts.NoLog = "127.0.0.1", true, true
	opts.Cluster.Host, opts.LeafNode.Host = "127.0.0.1", "127.0.0.1"
	opts.AuthTimeout, opts.LeafNode.AuthTimeout = 60, 60 // seconds; the default of 2 is too short for a busy machine
	srv, err := server.NewServer(opts)
	require.NoError(t, err, conf)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.True(t, srv.ReadyForConnections(patience))
	return srv
}

func dial(t testing.TB, srv natsServer, opts ...nats.Option) *nats.Conn {
	nc, err := nats.Connect(srv.ClientURL(), append(opts, nats.MaxReconnects(-1), nats.Timeout(time.Minute))...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// works has a queue on a connection run a job.
func works(t testing.TB, nc *nats.Conn, opts ...jetstream.Option) *durable.Queue {
	e, err := jetstream.Connect(within(t), nc, opts...)
	require.NoError(t, err)
	q, err := durable.Open(within(t), e)
	require.NoError(t, err)
	t.Cleanup(func() { q.Close() })
	ran := make(chan durable.Ref, 1)
	q.Handle("k", func(_ context.Context, a *durable.Attempt) error { ran <- a.Ref; return nil })
	ctx, stop := context.WithCancel(within(t))
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	refs, err := q.AddMany(ctx, durable.Job{Kind: "k", Key: "key"})
	require.NoError(t, err)
	select {
	case ref := <-ran:
		require.Equal(t, refs[0], ref)
	case err := <-done:
		t.Fatal(err)
	}
	stop()
	require.NoError(t, <-done)
	return q
}

// authority makes certificates, in a directory.
func authority(t testing.TB) string {
	dir := t.TempDir()
	write := func(name, kind string, der []byte) {
		block := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), block, 0o600))
	}
	var ca *x509.Certificate
	var caKey *ecdsa.PrivateKey
	for serial, name := range []string{"ca", "server", "client"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		c := &x509.Certificate{
			SerialNumber: big.NewInt(int64(serial + 1)), Subject: pkix.Name{CommonName: name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		if ca == nil {
			c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
			ca, caKey = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, ca, &key.PublicKey, caKey)
		require.NoError(t, err)
		private, err := x509.MarshalPKCS8PrivateKey(key)
		require.NoError(t, err)
		write(name+".pem", "CERTIFICATE", der)
		write(name+"-key.pem", "PRIVATE KEY", private)
	}
	return dir
}

func TestPlainConfig(t *testing.T) {
	t.Parallel()
	works(t, dial(t, serve(t, "plain.conf")))
}

func TestTLSConfig(t *testing.T) {
	t.Parallel()
	dir := authority(t)
	srv := serve(t, "tls.conf", "/etc/nats", dir)
	root, own := nats.RootCAs(dir+"/ca.pem"), nats.ClientCert(dir+"/client.pem", dir+"/client-key.pem")
	works(t, dial(t, srv, root, own))
	for _, few := range []nats.Option{root, own} {
		_, err := nats.Connect(srv.ClientURL(), few, nats.Timeout(time.Minute))
		require.Error(t, err)
	}
}

func TestClusterConfig(t *testing.T) {
	t.Parallel()
	dir := authority(t)
	reserved, err := ports.Reserve(3)
	require.NoError(t, err)
	t.Cleanup(reserved.Release)
	words := []string{"/etc/nats", dir}
	for i, port := range reserved.Ports {
		words = append(words, fmt.Sprintf("n%d.example.com:6222", i+1), "127.0.0.1:"+strconv.Itoa(port))
	}
	var srv *server.Server
	for i, port := range reserved.Ports {
		srv = serve(t, "cluster.conf", append(words, "server_name: n1", fmt.Sprintf("server_name: n%d", i+1), "port: 6222", fmt.Sprintf("port: %d", port))...)
	}
	works(t, dial(t, srv, nats.RootCAs(dir+"/ca.pem"), nats.ClientCert(dir+"/client.pem", dir+"/client-key.pem")), jetstream.WithReplicas(3))
}

// userStore is a server with the users of the chapter, whose engines are of one of them.
type userStore struct {
	*store
	user string
}

func newUserStore(t testing.TB) *userStore {
	s := &store{srv: serve(t, "users.conf", "$READER", "x", "$OPERATOR", "x", "$KEEPER", "x", "$SHOP", "x", "$WORKER", "x", "$DEPLOYER", "x"),
		opts: []jetstream.Option{jetstream.WithBuckets(jetstream.Buckets{Near: 250 * time.Millisecond, Far: 2 * time.Second, Lead: time.Second, Settle: time.Second})}}
	u := &userStore{s, "deployer"}
	require.NoError(t, u.as(t, "deployer").Close())
	return u
}

func (s *userStore) as(t testing.TB, user string) driver.Engine {
	nc := dial(t, s.srv, nats.UserInfo(user, "x"), nats.CustomInboxPrefix("_INBOX_"+user), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if t.Log(user, err); strings.Contains(t.Name(), "TestUsersConfig/") {
			t.Error("it needs more than it may do")
		}
	}))
	e, err := jetstream.Connect(within(t), nc, s.opts...)
	require.NoError(t, err, user)
	return e
}

func (s *userStore) Open(t testing.TB) driver.Engine {
	e := s.as(t, "worker")
	t.Cleanup(func() { e.Close() })
	return e
}

// With its rights alone a worker does all that an engine owes.
func TestUsersConfig(t *testing.T) {
	t.Parallel()
	enginetest.RunOnly(t, func(t testing.TB) enginetest.Store { return newUserStore(t) },
		"Keys", "Cancel", "Reschedule", "Retries", "Redrive", "Deaths", "LeaseLost", "Unhandled", "ScheduleShared", "ScheduleChanged", "Retention")
}

// Each user can do what he is for, and no more.
func TestUsersConfigNoMore(t *testing.T) {
	t.Parallel()
	s := newUserStore(t)
	open := func(user string) *durable.Queue {
		q, err := durable.Open(within(t), s.as(t, user))
		require.NoError(t, err)
		t.Cleanup(func() { q.Close() })
		return q
	}
	ctx := within(t)
	shop := open("shop")
	refs, err := shop.AddMany(ctx, durable.Job{Kind: "k", After: time.Hour, Key: "key"}, durable.Job{Kind: "k", After: time.Hour})
	require.NoError(t, err)
	require.NoError(t, shop.SetSchedule(ctx, "s", "@every 1h", durable.Job{Kind: "k"}))
	ok, err := shop.Reschedule(ctx, refs[0], time.Now().Add(2*time.Hour))
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = shop.Cancel(ctx, refs[0])
	require.NoError(t, err)
	require.True(t, ok)
	shop.Handle("k", func(context.Context, *durable.Attempt) error { return nil })
	requireDenied(t, "TW_default_0.w.", func() error { return shop.Run(ctx) })

	reader := open("reader")
	info, err := reader.Get(ctx, refs[1])
	require.NoError(t, err)
	require.Equal(t, durable.Waiting, info.State)
	n := 0
	for _, err := range reader.All(ctx, durable.Filter{}) {
		require.NoError(t, err)
		n++
	}
	require.Equal(t, 2, n)
	requireDenied(t, "TW_default_0.c.", func() error { _, err := reader.Cancel(ctx, refs[1]); return err })
	requireDenied(t, "TW_default_0.q.", func() error { _, err := reader.AddMany(ctx, durable.Job{Kind: "k"}); return err })
	keeper := dial(t, s.srv, nats.UserInfo("keeper", "x"), nats.CustomInboxPrefix("_INBOX_keeper"))
	dir := t.TempDir()
	require.NoError(t, jetstream.Backup(ctx, keeper, dir))
	requireDenied(t, "$JS.API.STREAM.RESTORE.TW_default_0", func() error { return jetstream.Restore(ctx, keeper, dir) })
	empty := serve(t, "users.conf", "$READER", "x", "$OPERATOR", "x", "$KEEPER", "x", "$SHOP", "x", "$WORKER", "x", "$DEPLOYER", "x")
	require.NoError(t, jetstream.Restore(ctx, dial(t, empty, nats.UserInfo("deployer", "x"), nats.CustomInboxPrefix("_INBOX_deployer")), dir))
	deployer := open("deployer")
	requireDenied(t, "TW_default_0.q.", func() error { _, err := deployer.AddMany(ctx, durable.Job{Kind: "k"}); return err })

	requireOperates(t, s, open("operator"), shop)

	nc := dial(t, s.srv, nats.UserInfo("worker", "x"), nats.CustomInboxPrefix("_INBOX_worker"))
	requireDenied(t, "$JS.API.STREAM.INFO.TW_other_0", func() error {
		_, err := jetstream.Connect(ctx, nc, jetstream.WithQueue("other"))
		return err
	})
	js, err := nc.JetStream()
	require.NoError(t, err)
	require.Error(t, js.DeleteStream("TW_default_0", nats.MaxWait(time.Second)))
	sub, err := nc.SubscribeSync("_INBOX_shop.>")
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	require.ErrorIs(t, nc.LastError(), nats.ErrPermissionViolation)
	require.NoError(t, sub.Unsubscribe())
}

// requireOperates has the operator do what is his alone.
func requireOperates(t *testing.T, s *userStore, operator, shop *durable.Queue) {
	ctx := within(t)
	worker, err := durable.Open(ctx, s.as(t, "worker"))
	require.NoError(t, err)
	worker.Handle("dies", func(context.Context, *durable.Attempt) error { return errors.New("no") })
	running, stop := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- worker.Run(running) }()
	refs, err := shop.AddMany(ctx, durable.Job{Kind: "dies", MaxAttempts: 1, Key: "dies"}, durable.Job{Kind: "dies", MaxAttempts: 1})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		a, errA := operator.Get(ctx, refs[0])
		b, errB := operator.Get(ctx, refs[1])
		return errA == nil && errB == nil && a.State == durable.Dead && b.State == durable.Dead
	}, time.Minute, 10*time.Millisecond)
	stop()
	<-ended
	require.NoError(t, worker.Close())

	requireDenied(t, "TW_default_0.x.", func() error { return shop.Redrive(ctx, refs[0]) })
	require.NoError(t, operator.Redrive(ctx, refs[0]))
	require.NoError(t, operator.Delete(ctx, refs[1]))
	require.NoError(t, operator.Pause(ctx, durable.Pausable{Kind: "dies"}))
	require.NoError(t, operator.Resume(ctx, durable.Pausable{Kind: "dies"}))
	require.NoError(t, operator.SetLimit(ctx, "l", durable.Limit{Kind: "dies", Running: 1}))
	require.NoError(t, operator.DeleteLimit(ctx, "l"))
	require.NoError(t, operator.PauseSchedule(ctx, "s"))
	require.NoError(t, operator.DeleteSchedule(ctx, "s"))
	ok, err := operator.Cancel(ctx, refs[0])
	require.NoError(t, err)
	require.True(t, ok)
}

func TestNkeysConfig(t *testing.T) {
	t.Parallel()
	user, public := newKey(t, nkeys.CreateUser)
	srv := serve(t, "nkeys.conf", "UWORKER", public)
	seed, err := user.Seed()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "worker.nk")
	require.NoError(t, os.WriteFile(file, seed, 0o600))
	opt, err := nats.NkeyOptionFromSeed(file)
	require.NoError(t, err)
	works(t, dial(t, srv, opt))
	_, err = nats.Connect(srv.ClientURL(), nats.Timeout(time.Minute))
	require.ErrorIs(t, err, nats.ErrAuthorization)
}

func newKey(t testing.TB, create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
	k, err := create()
	require.NoError(t, err)
	public, err := k.PublicKey()
	require.NoError(t, err)
	return k, public
}

// One account's queue is none of another's.
func TestAccountsConfig(t *testing.T) {
	t.Parallel()
	srv := serve(t, "accounts.conf", "$SHOP", "x", "$MAILS", "x")
	shop := works(t, dial(t, srv, nats.UserInfo("shop", "x")))
	refs, err := shop.AddMany(within(t), durable.Job{Kind: "k", After: time.Hour, Key: "far"})
	require.NoError(t, err)
	mails := works(t, dial(t, srv, nats.UserInfo("mails", "x")))
	_, err = mails.Get(within(t), refs[0])
	require.ErrorIs(t, err, durable.ErrNotFound)
	_, err = mails.AddMany(within(t), durable.Job{Kind: "k", After: time.Hour, Key: "far"})
	require.NoError(t, err)
}

// A user with credentials that an operator's account has signed.
func TestOperatorConfig(t *testing.T) {
	t.Parallel()
	operator, operatorKey := newKey(t, nkeys.CreateOperator)
	account, accountKey := newKey(t, nkeys.CreateAccount)
	user, userKey := newKey(t, nkeys.CreateUser)
	operatorJWT, err := jwt.NewOperatorClaims(operatorKey).Encode(operator)
	require.NoError(t, err)
	ac := jwt.NewAccountClaims(accountKey)
	ac.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: -1, MemoryStorage: -1, Streams: -1, Consumer: -1}
	accountJWT, err := ac.Encode(operator)
	require.NoError(t, err)
	uc := jwt.NewUserClaims(userKey)
	allowed := regexp.MustCompile(`(?s)publish: \[(.*?)\], subscribe`).FindStringSubmatch(chapter(t, "nkeys.conf"))[1]
	for _, m := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(allowed, -1) {
		uc.Permissions.Pub.Allow.Add(m[1])
	}
	uc.Permissions.Sub.Allow.Add("_INBOX.>")
	userJWT, err := uc.Encode(account)
	require.NoError(t, err)
	seed, err := user.Seed()
	require.NoError(t, err)
	_, systemKey := newKey(t, nkeys.CreateAccount)
	systemJWT, err := jwt.NewAccountClaims(systemKey).Encode(operator)
	require.NoError(t, err)
	creds, err := jwt.FormatUserConfig(userJWT, seed)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/worker.creds", creds, 0o600))
	require.NoError(t, os.WriteFile(dir+"/operator.jwt", []byte(operatorJWT), 0o600))
	srv := serve(t, "operator.conf", "/etc/nats", dir, "SIGNED_SYSTEM", systemJWT, "SIGNED_ACCOUNT", accountJWT, "SYSTEM", systemKey, "ACCOUNT", accountKey)
	works(t, dial(t, srv, nats.UserCredentials(dir+"/worker.creds")))
	_, err = nats.Connect(srv.ClientURL(), nats.Timeout(time.Minute))
	require.ErrorIs(t, err, nats.ErrAuthorization)
}

// A queue in the hub is used through leaf nodes, with a JetStream of their own and without.
func TestLeafConfig(t *testing.T) {
	t.Parallel()
	reserved, err := ports.Reserve(1)
	require.NoError(t, err)
	t.Cleanup(reserved.Release)
	leafPort := strconv.Itoa(reserved.Ports[0])
	hub := serve(t, "hub.conf", "port: 7422", "port: "+leafPort)
	direct := works(t, dial(t, hub))
	refs, err := direct.AddMany(within(t), durable.Job{Kind: "k", After: time.Hour})
	require.NoError(t, err)
	for _, name := range []string{"leaf.conf", "leaf-jetstream.conf"} {
		leaf := serve(t, name, "hub.example.com:7422", "127.0.0.1:"+leafPort)
		require.Eventually(t, func() bool { return leaf.NumLeafNodes() == 1 }, patience, time.Millisecond)
		q := works(t, dial(t, leaf), jetstream.WithExistingOnly(), jetstream.WithDomain("hub"))
		info, err := q.Get(within(t), refs[0])
		require.NoError(t, err)
		require.Equal(t, "k", info.Job.Kind)
	}
	require.PanicsWithValue(t, `jetstream: WithDomain("a.b"): use letters, digits, - and _`, func() {
		jetstream.Connect(t.Context(), dial(t, hub), jetstream.WithDomain("a.b"))
	})
}
