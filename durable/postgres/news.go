package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// newsFor is how long an answer counts: the next poll may be late.
const newsFor = 2 * everyFar

// news is the answer to news.sql, which a poll carries about once a second in the same round trip. As long as such answers come,
// an idle worker reads nothing of it by a statement of its own.
type news struct {
	at       time.Time // by the server's clock
	revision int64     // of the limits and pauses
	version  int       // of the schema
	oldest   int       // and the version that programs must know
	dead     bool      // a worker has died whose permits are not freed
}

// fetchNews is fetchOnce of a poll that also asks news.sql.
func (f *fetcher) fetchNews(ctx context.Context, b *pgx.Batch) error {
	var t news
	b.Queue(f.statements.news, f.id).QueryRow(func(row pgx.Row) error {
		return row.Scan(&t.at, &t.revision, &t.version, &t.oldest, &t.dead)
	})
	began := time.Now()
	if err := f.send(ctx, b); err != nil {
		return err
	}
	f.clock.Read(began, time.Since(began), t.at, 0)
	if f.c.Time != nil && !f.active.holds() { // jobs need a better estimate than the round trip of a poll gives
		f.c.Time(f.clock.Now())
	}
	if err := f.newer(t.version, t.oldest); err != nil {
		f.outdate(err)
	}
	f.versionFresh.extend(newsFor)
	f.dead.Store(t.dead)
	if f.c.Revision != nil {
		f.c.Revision(t.revision)
	}
	return nil
}
