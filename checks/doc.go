// Package checks holds what tests the library as a whole, and needs more than the core
// module may depend on: in its folders, the histories of Keyed and of a purgatory under a
// checker of linearizability, the pages in a real browser, the regions
// of a trace, the soak, the suites of other people's programs and Go's own on the wheel, and
// whether the blocks of the documentation compile.
package checks
