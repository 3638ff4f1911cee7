//go:build gc && go1.26 && !go1.28 && !tickwheel_pool

// With a file in assembly, functions may have no body: see spread_pinned.go.
