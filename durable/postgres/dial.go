package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// dialer opens and closes the two connections that a worker has outside the pool. They are opened as
// the pool opens its own and hands them out for the first time, and are closed as the pool closes them:
// a hook may give a connection its role, its search path or its settings, and without these a
// heartbeat fails for want of a right. AfterRelease is not called: it decides about what goes back to
// the pool, and these never do.
//
// It keeps no connection, so it has no lock: each is its caller's, who closes it by hangUp. It runs no
// statement of its own.
type dialer struct{ pool *pgxpool.Pool }

// dialTimeout is how long opening a connection may take, with the hooks.
const dialTimeout = 2 * time.Minute

// errNotPrepared is that of a connection which a hook of the pool has refused.
var errNotPrepared = errors.New("postgres: PrepareConn or BeforeAcquire of the pool refused the connection")

// dial opens a connection outside the pool.
func (d *dialer) dial(ctx context.Context) (*pgx.Conn, error) { return d.dialAs(ctx, d.pool.Config()) }

// dialListener is dial of a connection whose notifications WaitForNotification returns: it does not, of a
// connection that has an OnNotification.
func (d *dialer) dialListener(ctx context.Context) (*pgx.Conn, error) {
	config := d.pool.Config()
	config.ConnConfig.OnNotification = nil
	return d.dialAs(ctx, config)
}

func (d *dialer) dialAs(ctx context.Context, config *pgxpool.Config) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	c, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, err
	}
	if config.AfterConnect != nil {
		if err := config.AfterConnect(ctx, c); err != nil {
			closeConn(c) // the pool does not call BeforeClose of it, either
			return nil, err
		}
	}
	if err := prepare(ctx, config, c); err != nil {
		d.hangUp(c)
		return nil, err
	}
	return c, nil
}

// prepare calls the hook that the pool calls before it hands a connection out.
func prepare(ctx context.Context, config *pgxpool.Config, c *pgx.Conn) error {
	usable, err := true, error(nil)
	switch {
	case config.PrepareConn != nil: // then the pool ignores BeforeAcquire
		usable, err = config.PrepareConn(ctx, c)
	//lint:ignore SA1019 a user's pool may still have it
	case config.BeforeAcquire != nil:
		//lint:ignore SA1019 as above
		usable = config.BeforeAcquire(ctx, c)
	}
	if err == nil && !usable {
		err = errNotPrepared
	}
	return err
}

// hangUp closes a connection that dial has returned. It may be closed already.
func (d *dialer) hangUp(c *pgx.Conn) {
	if before := d.pool.Config().BeforeClose; before != nil {
		before(c)
	}
	closeConn(c)
}

// closeReadOnly closes a connection whose server takes no writes: the next one may lead to the server that
// is the primary now. Otherwise the pool would keep connections to a server that was one.
func closeReadOnly(c *pgx.Conn, err error) {
	if isCode(err, readOnly) {
		closeConn(c)
	}
}

func closeConn(c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Close(ctx) // there is nothing to be lost
}
