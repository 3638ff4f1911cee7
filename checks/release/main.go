// Command release publishes a version to nobody, and looks at it as a stranger would.
//
//	go run ./release check             # of the files as they are
//	go run ./release -version v0.2.0 prepare
//	go run ./release tidy
//
// It copies the files of the checkout into a repository in a temporary folder. There it
// gives all modules the version, commits, and makes the zip of each published module as
// the go command would from its tag: first those that need no other of ours, since a
// go.sum has the sums of what it needs. The zips are in a folder that serves as GOPROXY.
// Then programs that have never seen the repository get the modules, are built and run.
//
// With prepare, what was changed goes into the checkout: go.mod, go.sum, the heading in
// CHANGELOG.md, and what the READMEs say about installing. The command prints what a
// person does next. It commits nothing there and pushes nothing. With tidy, it is what go
// mod tidy says about the dependencies on others, which go mod tidy itself cannot say: it
// knows no go.work, and asks for versions of ours that nobody has published.
//
// It needs git and what `make test` needs. The names of modules and whether they are
// published are in go.work.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
)

func main() {
	log.SetFlags(log.Ltime)
	version := flag.String("version", "", "the `version`; without it, the one that the modules ask of each other")
	flag.Parse()
	commands := map[string]func(*rehearsal){"check": check, "prepare": prepare, "tidy": tidy}
	command := commands[flag.Arg(0)]
	if command == nil || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "release: what to do is one of: check, prepare, tidy")
		os.Exit(2)
	}
	err := attempt(func() {
		temporary := get(os.MkdirTemp("", "release"))
		defer os.RemoveAll(temporary)
		command(newRehearsal(get(filepath.Abs("..")), temporary, *version))
	})
	if err != nil {
		log.Fatal("release: ", err)
	}
}

// check is one pass over all that a stranger does.
func check(r *rehearsal) {
	r.copyCheckout()
	r.useCheckout()
	r.compareAPI()
	r.publish()
	for _, m := range r.published() {
		r.use(m)
	}
	log.Printf("%s can be published: %d modules", r.version, len(r.published()))
}
