package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// prepare checks, and then changes the checkout, which has to be clean: what is published
// is what was looked at.
func prepare(r *rehearsal) {
	status := get(run(r.root, nil, "git", "status", "--porcelain"))
	ensure(status == "", "the checkout has changes that are not committed:\n%s", status)
	check(r)
	r.takeOver()
	fmt.Printf("\nThe checkout is prepared. Look at `git diff`. Then\n\n    git commit -am 'release %s'\n", r.version)
	push := "    git push --atomic origin HEAD"
	for _, m := range r.published() {
		fmt.Printf("    git tag %s\n", m.tag(r.version))
		push += " " + m.tag(r.version)
	}
	fmt.Printf("%s\n\nNothing may change in between: the sums are of these files.\n", push)
	fmt.Printf("\nThen have lastRelease in durable/trials/rolling_test.go be \"%s\".\n", r.version)
}

// takeOver writes into the checkout what was changed in the origin.
func (r *rehearsal) takeOver() {
	first := get(run(r.origin, nil, "git", "rev-list", "--max-parents=0", "HEAD"))
	changed := get(run(r.origin, nil, "git", "diff", "--name-only", "-z", strings.TrimSpace(first), "HEAD"))
	for name := range strings.SplitSeq(strings.TrimSuffix(changed, "\x00"), "\x00") {
		if name == "" {
			continue // all was prepared before
		}
		data := get(os.ReadFile(filepath.Join(r.origin, name)))
		log.Print("writing ", name)
		must(os.WriteFile(filepath.Join(r.root, name), data, 0o644))
	}
}

// tidy runs go mod tidy in each module, published or not, and writes what it says about
// the dependencies on others into the checkout.
func tidy(r *rehearsal) {
	r.copyCheckout()
	ordered := r.inOrder()
	for _, m := range r.modules {
		if !m.published {
			ordered = append(ordered, m)
		}
	}
	for _, m := range ordered {
		r.tidyForCheckout(m)
	}
}

// tidyForCheckout leaves the sums of ours as they are in the checkout: those are of a
// release, and not of what is served here.
func (r *rehearsal) tidyForCheckout(m goModule) {
	r.dropSums(m)
	r.asStranger(filepath.Join(r.origin, m.dir), "go", "mod", "tidy")
	r.commit("tidy " + m.dir)
	if m.published {
		r.serve(m)
	}
	from, to := filepath.Join(r.origin, m.dir), filepath.Join(r.root, m.dir)
	rewrite(filepath.Join(to, "go.mod"), func(string) string { return read(filepath.Join(from, "go.mod")) })
	rewrite(filepath.Join(to, "go.sum"), func(before string) string {
		return r.mergeSums(before, read(filepath.Join(from, "go.sum")))
	})
}

// mergeSums returns a go.sum with the lines about ours of one and those about others of
// another one, in the order of go.sum.
func (r *rehearsal) mergeSums(ours, others string) string {
	var lines []string
	for line := range strings.Lines(ours) {
		if name, _, _ := strings.Cut(line, " "); r.ours(name) {
			lines = append(lines, line)
		}
	}
	lines = slices.AppendSeq(lines, strings.Lines(r.withoutOurs(others)))
	slices.SortStableFunc(lines, func(a, b string) int {
		return strings.Compare(strings.Fields(a)[0], strings.Fields(b)[0])
	})
	return strings.Join(lines, "")
}
