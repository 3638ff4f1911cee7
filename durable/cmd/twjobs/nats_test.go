package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/jetstream"
)

// secured starts a server, and leaves a job in a queue there. It returns the server's address
// and the job's Ref.
func secured(t *testing.T, opts *server.Options, as ...nats.Option) (address, ref string) {
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog, opts.JetStream, opts.StoreDir = "127.0.0.1", -1, true, true, true, t.TempDir()
	opts.AuthTimeout = 60 // seconds; the default of 2 is too short for a busy machine
	srv, err := server.NewServer(opts)
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.True(t, srv.ReadyForConnections(patience))
	nc, err := nats.Connect(srv.ClientURL(), append(as, nats.MaxReconnects(-1), nats.Timeout(time.Minute))...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	e, err := jetstream.Connect(within(t), nc)
	require.NoError(t, err)
	q, err := durable.Open(within(t), e)
	require.NoError(t, err)
	defer q.Close()
	added, err := q.Add(within(t), durable.Job{Kind: "k", After: time.Hour})
	require.NoError(t, err)
	return srv.ClientURL(), string(added)
}

// opens has the program list the queue by flags, and by a context with the same, which it is
// denied without.
func opens(t *testing.T, address, ref string, flags []string, context map[string]any) {
	t.Helper()
	out, status := command(t, "-nats", address, "list")
	require.Equal(t, 1, status, out)
	require.NotContains(t, out, ref)
	out, status = command(t, append([]string{"-nats", address}, append(flags, "list")...)...)
	require.Zero(t, status, out)
	require.Contains(t, out, ref)
	context["url"] = address
	text, err := json.Marshal(context)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "c.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	out, status = command(t, "-context", file, "cancel", ref)
	require.Zero(t, status, out)
	require.Equal(t, ref+": canceled\n", out)
}

func keys(t *testing.T, create func() (nkeys.KeyPair, error)) (pair nkeys.KeyPair, public, seed string) {
	pair, err := create()
	require.NoError(t, err)
	public, err = pair.PublicKey()
	require.NoError(t, err)
	text, err := pair.Seed()
	require.NoError(t, err)
	return pair, public, string(text)
}

func write(t *testing.T, name, text string) string {
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestUserAndToken(t *testing.T) {
	address, ref := secured(t, &server.Options{Username: "u", Password: "p4ss"}, nats.UserInfo("u", "p4ss"))
	opens(t, address, ref, []string{"-user", "u", "-password", "p4ss"}, map[string]any{"user": "u", "password": "p4ss"})
	t.Setenv("NATS_PASSWORD", "p4ss")
	out, status := command(t, "-nats", address, "-user", "u", "list")
	require.Zero(t, status, out)
	address, ref = secured(t, &server.Options{Authorization: "t0ken"}, nats.Token("t0ken"))
	t.Setenv("NATS_PASSWORD", "")
	opens(t, address, ref, []string{"-user", "t0ken"}, map[string]any{"token": "t0ken"})
}

func TestNkey(t *testing.T) {
	pair, public, seed := keys(t, nkeys.CreateUser)
	sign := func(nonce []byte) ([]byte, error) { return pair.Sign(nonce) }
	address, ref := secured(t, &server.Options{Nkeys: []*server.NkeyUser{{Nkey: public}}}, nats.Nkey(public, sign))
	file := write(t, "u.nk", seed)
	opens(t, address, ref, []string{"-nkey", file}, map[string]any{"nkey": file})
	_, _, other := keys(t, nkeys.CreateUser)
	out, status := command(t, "-nats", address, "-nkey", write(t, "o.nk", other), "list")
	require.Equal(t, 1, status, out)
	require.NotContains(t, out, other)
}

// Of an operator's account: credentials in a file, or in the context itself.
func TestCreds(t *testing.T) {
	operator, operatorKey, _ := keys(t, nkeys.CreateOperator)
	account, accountKey, _ := keys(t, nkeys.CreateAccount)
	_, systemKey, _ := keys(t, nkeys.CreateAccount)
	_, userKey, seed := keys(t, nkeys.CreateUser)
	claims := jwt.NewOperatorClaims(operatorKey)
	accountClaims := jwt.NewAccountClaims(accountKey)
	accountClaims.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: -1, MemoryStorage: -1, Streams: -1, Consumer: -1}
	accountJWT, err := accountClaims.Encode(operator)
	require.NoError(t, err)
	systemJWT, err := jwt.NewAccountClaims(systemKey).Encode(operator)
	require.NoError(t, err)
	userJWT, err := jwt.NewUserClaims(userKey).Encode(account)
	require.NoError(t, err)
	resolver := &server.MemAccResolver{}
	require.NoError(t, resolver.Store(accountKey, accountJWT))
	require.NoError(t, resolver.Store(systemKey, systemJWT))
	opts := &server.Options{TrustedOperators: []*jwt.OperatorClaims{claims}, SystemAccount: systemKey, AccountResolver: resolver}
	address, ref := secured(t, opts, nats.UserJWTAndSeed(userJWT, seed))
	creds, err := jwt.FormatUserConfig(userJWT, []byte(seed))
	require.NoError(t, err)
	file := write(t, "u.creds", string(creds))
	opens(t, address, ref, []string{"-creds", file}, map[string]any{"creds": file})
	text, err := json.Marshal(map[string]string{"url": address, "user_jwt": userJWT, "user_seed": seed})
	require.NoError(t, err)
	out, status := command(t, "-context", write(t, "c.json", string(text)), "list")
	require.Zero(t, status, out)
}

// issue makes a certificate and its key, signed by a parent or by itself, in files.
func issue(t *testing.T, name string, parent *tls.Certificate) (made tls.Certificate, cert, key string) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	by, signer := c, any(private)
	if parent == nil {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	} else {
		by, signer = parent.Leaf, parent.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by, &private.PublicKey, signer)
	require.NoError(t, err)
	text, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
	made, err = tls.X509KeyPair(certPEM, keyPEM)
	require.NoError(t, err)
	return made, write(t, name+".pem", string(certPEM)), write(t, name+"-key.pem", string(keyPEM))
}

// A server that shows a certificate of its own authority, and asks for one.
func TestTLS(t *testing.T) {
	ca, caFile, _ := issue(t, "ca", nil)
	own, _, _ := issue(t, "server", &ca)
	_, cert, key := issue(t, "client", &ca)
	pool := x509.NewCertPool()
	pool.AddCert(ca.Leaf)
	for _, first := range []bool{false, true} {
		config := &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
		as := []nats.Option{nats.RootCAs(caFile), nats.ClientCert(cert, key)}
		if first {
			as = append(as, nats.TLSHandshakeFirst())
		}
		address, ref := secured(t, &server.Options{TLS: true, TLSConfig: config, TLSTimeout: patience.Seconds(), TLSHandshakeFirst: first, AllowNonTLS: false}, as...)
		context := map[string]any{"ca": caFile, "cert": cert, "key": key, "tls_first": first, "url": address}
		if first { // the command nats has no flag for it, either
			text, err := json.Marshal(context)
			require.NoError(t, err)
			out, status := command(t, "-context", write(t, "c.json", string(text)), "list")
			require.Zero(t, status, out)
			require.Contains(t, out, ref)
			continue
		}
		opens(t, address, ref, []string{"-tlsca", caFile, "-tlscert", cert, "-tlskey", key}, context)
		for _, few := range [][]string{{"-tlsca", caFile}, {"-tlscert", cert, "-tlskey", key}} {
			out, status := command(t, append(append([]string{"-nats", address}, few...), "list")...)
			require.Equal(t, 1, status, out)
		}
	}
}
