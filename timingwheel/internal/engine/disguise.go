package engine

import "unsafe"

// Disguise returns a pointer that passes for a function. So a field for a function has room
// for either, and what it is in can be smaller. Nobody may call it: something else must
// tell what is in the field. A func value is a pointer. So nothing is converted, and the
// garbage collector sees what it is.
func Disguise[T any](p *T) func() { return *(*func())(unsafe.Pointer(&p)) }

// Undisguise undoes disguise.
func Undisguise[T any](f func()) *T { return *(**T)(unsafe.Pointer(&f)) }
