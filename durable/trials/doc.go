// Package trials holds what only those run who work on durable: in its folders, the programs
// that harm it and measure it, and a model of the steps that the JetStream engine takes. It is
// a module of its own, so that no user downloads it.
package trials
