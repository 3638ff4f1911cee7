package durable_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"log/slog"
	"time"

	"github.com/tickwheel/tickwheel/durable"
	"github.com/tickwheel/tickwheel/durable/memory"
)

// keyName is the name in Meta under which a job says which key its payload needs.
const keyName = "payload-key"

// keyring encrypts payloads with one key, and decrypts them with any. In a program the keys come
// from a secret store. A program that loses a key loses the payloads that need it.
type keyring struct {
	current string // the name of the key that encrypts
	keys    map[string][32]byte
}

// middleware encrypts in Add, AddMany and RunNow, and decrypts before each attempt. Only payloads are
// encrypted: kinds, keys, lanes, Meta and the text of errors are stored as they are.
func (k *keyring) middleware() durable.Middleware {
	return durable.Middleware{
		Add: func(next durable.AddFunc) durable.AddFunc {
			return func(ctx context.Context, jobs []durable.Job) ([]durable.Ref, error) {
				for i := range jobs {
					jobs[i] = k.encrypt(jobs[i])
				}
				return next(ctx, jobs)
			}
		},
		Handle: func(next durable.Handler) durable.Handler {
			return func(ctx context.Context, a *durable.Attempt) error {
				if err := k.decrypt(&a.Job); err != nil {
					return err
				}
				return next(ctx, a)
			}
		},
	}
}

// encrypt returns the job with its payload encrypted. SetSchedule, AddTx and AddSQL do not go
// through a Middleware: give them jobs that encrypt has returned. RunNow then passes the job of
// the schedule to the middleware as it is stored, encrypted. Since no two encrypted payloads are
// the same, each such call of SetSchedule stores the schedule anew.
func (k *keyring) encrypt(j durable.Job) durable.Job {
	if _, ok := j.Meta[keyName]; ok {
		return j
	}
	meta := map[string]string{keyName: k.current}
	for name, value := range j.Meta {
		meta[name] = value
	}
	j.Meta = meta
	j.Payload = aead(k.keys[k.current]).Seal(nil, nil, j.Payload, []byte(j.Kind)) // 28 bytes longer
	return j
}

func (k *keyring) decrypt(j *durable.Job) error {
	name, ok := j.Meta[keyName]
	if !ok {
		return nil // it was stored before there was encryption
	}
	key, ok := k.keys[name]
	if !ok { // another attempt may find it, in a process that has been told
		return fmt.Errorf("no key %q", name)
	}
	payload, err := aead(key).Open(nil, nil, j.Payload, []byte(j.Kind))
	if err != nil {
		return durable.Discard(fmt.Errorf("the payload was changed, or is of another kind: %w", err))
	}
	j.Payload = payload
	return nil
}

// aead returns AES-256-GCM with a random nonce in front of each payload. One key is good for 2^32
// payloads.
func aead(key [32]byte) cipher.AEAD {
	block, err := aes.NewCipher(key[:])
	check(err)
	a, err := cipher.NewGCMWithRandomNonce(block)
	check(err)
	return a
}

// Middleware encrypts payloads. A new key comes in three steps: give it to all processes, then
// make it the current one, and remove the old one when no job needs it any more.
func ExampleWithMiddleware_encryption() {
	clock := memory.NewClock(time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC))
	store := memory.New(clock)
	process := func(k *keyring) *durable.Queue {
		q, err := durable.Open(ctx, store.Open(), durable.WithMiddleware(k.middleware()), durable.WithLogger(slog.New(slog.DiscardHandler)))
		check(err)
		return q
	}
	spring, summer := [32]byte{1}, [32]byte{2} // of crypto/rand, in a program
	before := &keyring{"spring", map[string][32]byte{"spring": spring}}
	after := &keyring{"summer", map[string][32]byte{"spring": spring, "summer": summer}}

	q := process(before)
	ref, err := q.Add(ctx, durable.Job{Kind: "mail", After: time.Hour, Payload: []byte("to ann")})
	check(err)
	info, err := q.Get(ctx, ref)
	check(err)
	fmt.Printf("stored with key %s, %d bytes\n", info.Job.Meta[keyName], len(info.Job.Payload))
	check(q.Close())

	q = process(after)
	defer q.Close()
	q.Handle("mail", func(_ context.Context, a *durable.Attempt) error {
		fmt.Printf("%s, with key %s\n", a.Job.Payload, a.Job.Meta[keyName])
		return nil
	})
	go q.Run(ctx)
	_, err = q.Add(ctx, durable.Job{Kind: "mail", After: 2 * time.Hour, Payload: []byte("to bob")})
	check(err)
	check(q.SetSchedule(ctx, "noon", "0 12 * * *", after.encrypt(durable.Job{Kind: "mail", Payload: []byte("to all")})))

	needed := func() (n int) {
		for _, err := range q.All(ctx, durable.Filter{Meta: map[string]string{keyName: "spring"}}) {
			check(err)
			n++
		}
		return n
	}
	fmt.Println("jobs that need the old key:", needed())
	_, err = q.RunNow(ctx, "noon")
	check(err)
	check(clock.Advance(ctx, 0))
	check(clock.Advance(ctx, 24*time.Hour))
	fmt.Println("jobs that need the old key:", needed())
	// Output:
	// stored with key spring, 34 bytes
	// jobs that need the old key: 1
	// to all, with key summer
	// to ann, with key spring
	// to bob, with key summer
	// to all, with key summer
	// jobs that need the old key: 0
}
