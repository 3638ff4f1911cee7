package jetstream

// wireVersion is the version of the stored data. FORMAT.md is its contract, and says which
// changes need the next version.
//
// Each stream has its version in its metadata. A Connect raises it to its own, and can read
// what every lower version has stored. An engine of a lower version does not know that data.
// So it writes nothing more: a write checks the version first, if no answer of the server has
// shown it for versionAge.
const wireVersion = 1
