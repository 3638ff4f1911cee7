// Package nocopy marks the types that must not be copied, for go vet.
package nocopy

// Mark is a field of such a type. The check copylocks of go vet reports each copy, as it does for a
// sync.Mutex. A Mark takes no room, but not as the last field: that is padded.
type Mark struct{}

// Lock and Unlock are what go vet looks for. They do nothing.
func (*Mark) Lock()   {}
func (*Mark) Unlock() {}
