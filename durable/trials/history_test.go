//go:build unix

package main

import (
	"os"
	"testing"
)

// Each way in which a history may be wrong is counted.
func TestAuditHistory(t *testing.T) {
	for text, broken := range map[string]int{
		"k a 1\nA a 1\nR a 2\nD a 3\ny a|done 9\n":             0,
		"k a 1\nA a 1\nc a 2\nC a 3\ny a|canceled 9\n":         0,
		"k a 1\nA a 1\nR a 2\nF a 3\nL a 9\n":                  0,
		"k a 1\nA a 1\nc a 2\ny a|canceled 9\n":                0, // no answer came
		"A a 1\nR a 2\nD a 3\n":                                0,
		"R a 2\nD a 3\ny a|done 9\n":                           0, // the answer of Add was lost
		"k a 1\nA a 1\nR a 2\nD a 3\n":                         1,
		"k a 1\nA a 1\nR a 2\nD a 3\ny a|done 9\ny a|done 9\n": 1,
		"k a 1\nA a 1\nR a 2\nD a 3\nL a 8\ny a|done 9\n":      1,
		"k a 1\nA a 1\nR a 2\nD a 3\ny a|canceled 9\n":         1,
		"k a 1\nA a 1\nc a 2\nC a 3\ny a|done 9\n":             1,
		"A a 1\nR a 2\nD a 3\ny a|done 9\n":                    1,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(dir+"/ledger-1", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if a := audit(dir); a.Broken.History != broken {
			t.Errorf("%d, not %d: %s", a.Broken.History, broken, text)
		}
	}
}
