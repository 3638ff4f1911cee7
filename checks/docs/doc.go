// Package docs checks the documentation. It compiles each Go block of each Markdown file and
// doc comment against all modules of the repository. A block need not be whole: names that it
// leaves undeclared are declared in testdata/names.txt, blocks of one document see what the
// earlier ones declare, and an unused declaration is no error. It finds sentences that must be
// read twice, and packages without an Example.
package docs
