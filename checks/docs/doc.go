// Package docs compiles what the documentation shows: each Go block of each Markdown file, and
// of each doc comment, against all modules of the repository. A block need not be whole: names
// that it leaves undeclared are declared in testdata/names.txt, blocks of one document see what
// the earlier ones declare, and what is declared and not used is no error.
package docs
