package bucket_test

import (
	"fmt"

	"github.com/tickwheel/tickwheel/bucket"
)

// A bucket that expires at 60 holds three entries. Removing the entry in the middle does not visit
// the others. The rest are flushed in the order in which they were added.
func Example() {
	var arena bucket.Arena
	var b bucket.Bucket
	b.Open(&arena, 60)
	var entries []bucket.Index
	for _, name := range []string{"a", "b", "c"} {
		i, _ := arena.Alloc(60, func() { fmt.Println(name) }, 0)
		b.Append(&arena, i)
		entries = append(entries, i)
	}
	arena.Unlink(entries[1])
	arena.Free(entries[1])

	for i := b.TakeFirst(&arena); i != 0; i = b.TakeFirst(&arena) {
		task, _ := arena.Free(i)
		task()
	}
	fmt.Println(arena.Len(), "left, expired at", b.Expiration())
	b.Close(&arena)
	// Output:
	// a
	// c
	// 0 left, expired at 60
}
